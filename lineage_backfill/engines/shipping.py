"""Puts Python code into archives that spark-submit sends to the machines of a cluster."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same code is the same archive, whenever it was touched


def find_code(project: Path, entrypoint: str) -> Path | None:
    """Return the package or module of the project that an entrypoint is in.

    None means that it is not the project's own: it must be installed where the job runs.
    """
    top = entrypoint.partition(":")[0].partition(".")[0]
    for path in (project / top, project / f"{top}.py"):
        if top and path.exists():
            return path
    return None


def pack(source: Path, folder: Path) -> Path:
    """Put a package or module into an archive below `folder` and return it.

    Its path holds the hash of its contents, so it is written once and never changes.
    """
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [source] if source.is_file() else _files(source):
            name = str(path.relative_to(source.parent))
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    content = data.getvalue()
    target = folder / hashlib.sha256(content).hexdigest()[:16] / f"{source.stem}.zip"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(target)
    return target


def _files(package: Path) -> list[Path]:
    """Return all that belongs to a package, sorted; neither caches nor hidden files do."""
    return sorted(
        path
        for path in package.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part.startswith(".") for part in path.relative_to(package).parts)
    )
