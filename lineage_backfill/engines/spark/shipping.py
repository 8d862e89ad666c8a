"""Packs Python code into archives that spark-submit sends to a cluster."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lineage_backfill.errors import EnvironmentMissingError
from lineage_backfill.files import private_folder, whole_file

#: The modules of `lineage_backfill` that `spark_runtime` imports, all the way down.
CORE = (
    *("__init__", "errors", "model", "partitions", "project", "redaction", "runspec"),
    "typed",
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same code gives the same archive, whatever its file times


def code_state(project: Path, *, without: Path) -> list[tuple[str, int, int]]:
    """Return the Python files of a project, with sizes and times of change in nanoseconds.

    Hidden folders, virtual environments, tables and one more folder are left out.
    """
    found = []
    for folder, names, files in os.walk(project):
        if "pyvenv.cfg" in files or "_delta_log" in names or Path(folder) == without:
            names.clear()
            continue
        # Partitions of a table are folders like day=2024-06-15.
        names[:] = [
            name for name in names if not (name.startswith((".", "__pycache__")) or "=" in name)
        ]
        for name in files:
            if name.endswith(".py"):
                with suppress(OSError):  # it was removed meanwhile
                    path = Path(folder, name)
                    stat = path.stat()
                    inside = path.relative_to(project).as_posix()
                    found.append((inside, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


def pack_code(project: Path, folder: Path, *, without: Path) -> Path:
    """Put the code of a project into an archive: its packages whole, else Python files alone."""
    names = [Path(name) for name, _, _ in code_state(project, without=without)]
    tops = {name.parts[0] for name in names if (project / name.parts[0] / "__init__.py").exists()}
    files = [(project / name, name.as_posix()) for name in names if name.parts[0] not in tops]
    for top in tops:
        files += _files(project / top)
    return _archive(sorted(files), "code.zip", folder)


def pack(source: Path, folder: Path) -> Path:
    """Put a package or module into an archive below `folder` and return it.

    Its path contains the hash of its contents, so it is written once and never changes.
    """
    return _archive(_files(source), f"{source.stem}.zip", folder)


def pack_runtime(folder: Path) -> Path:
    """Like `pack`, for `spark_runtime` and the modules of ours that it imports.

    Raises EnvironmentMissingError where a package is missing.
    """
    files = [*_files(_package("spark_runtime")), *_files(_package("cronsim"))]
    for path, name in _files(_package("lineage_backfill")):
        if name.split("/")[1].removesuffix(".py") in CORE:
            files.append((path, name))
    return _archive(files, "spark_runtime.zip", folder)


def place(project: Path, item: str) -> str:
    """Return the path or URL of what the settings name."""
    return item if "://" in item else str(project / item)


def py_files(project: Path, items: Iterable[str], folder: Path) -> list[str]:
    """Return what the settings name as Python code; folders as archives."""
    return [
        str(pack(project / item, folder)) if (project / item).is_dir() else place(project, item)
        for item in items
    ]


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise EnvironmentMissingError(
            f"the package {name} is missing", hint="Install lineage-backfill again."
        )
    return Path(found.origin).parent


def _archive(files: Iterable[tuple[Path, str]], name: str, folder: Path) -> Path:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, inside in files:
            archive.writestr(zipfile.ZipInfo(inside, _EPOCH), path.read_bytes())
    content = data.getvalue()
    target = folder / hashlib.sha256(content).hexdigest()[:16] / name
    if not target.exists():
        private_folder(target.parent)
        with whole_file(target) as file:
            file.write(content)
    return target


def _files(source: Path) -> list[tuple[Path, str]]:
    """Return the files of a package or module with their names, without caches and hidden files."""
    paths = [source] if source.is_file() else source.rglob("*")
    return sorted(
        (path, path.relative_to(source.parent).as_posix())
        for path in paths
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part.startswith(".") for part in path.relative_to(source.parent).parts[1:])
    )
