"""Reads what the code of a project declares, in a process of its own, and caches it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from lineage_backfill.errors import ConfigError
from lineage_backfill.files import whole_file
from lineage_backfill.project import Project
from lineage_backfill.project.boundaries import with_lists
from lineage_backfill.project.code import entries, with_code
from lineage_backfill.workspace.configuration import read_file

_TIMEOUT = 60  # seconds for all imports
_LOCKS = ("uv.lock", "poetry.lock", "requirements.lock", "requirements.txt")


def declared_in_code(project: Project) -> Project:
    """Return the project with what its code declares.

    The modules of `[project] jobs` are imported in another process; those of entrypoints too, where
    no lineage is named. Raises ConfigError if one cannot be imported within a minute, and
    DeclarationError for a contradiction.
    """
    alone = not project.lineage.parts
    named = entries(project.declarations, project.jobs, alone=alone)
    found = [one for one in named if one in project.jobs or _path(project.code, one).exists()]
    if not found:
        return project
    document = _cached(project, found) or _read(project, found)
    with_lists(document, project.code, read_file)
    declarations = with_code(
        project.declarations, document, project.code, listed=bool(project.jobs)
    )
    return replace(project, declarations=declarations)


def _path(code: Path, entry: str) -> Path:
    """Return the folder or file of an entry; that of the top package for a module."""
    if "/" in entry or entry.endswith(".sql"):
        return code / entry
    top = code / entry.partition(".")[0]
    return top if top.is_dir() else top.with_suffix(".py")


def _read(project: Project, found: Sequence[str]) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "declared.json")
        command = [sys.executable, "-m", "spark_runtime", "declared", "--result", str(result)]
        command += ["--project", str(project.code), *found]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=_TIMEOUT, check=False, cwd=project.code,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise _unread(f"{', '.join(found)}: not imported within {_TIMEOUT} s") from error
        sys.stderr.write(done.stdout + done.stderr)
        if not result.exists():
            ended = f"{', '.join(found)}: Python ended with exit code {done.returncode}"
            raise _unread(ended)
        document: dict[str, Any] = json.loads(result.read_bytes())
    if "error" in document:
        raise _unread(document["error"])
    with suppress(OSError):
        key = _key(project, found, document["files"])
        _cache(project).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(_cache(project)) as file:
            file.write(json.dumps({"key": key, "document": document}).encode())
    return document


def _unread(why: str) -> ConfigError:
    return ConfigError(
        f"the code of the project cannot be read: {why}",
        hint="Correct it, or use --no-code to plan without what the code declares.",
    )


def _cached(project: Project, found: Sequence[str]) -> Mapping[str, Any] | None:
    try:
        kept = json.loads(_cache(project).read_bytes())
        document: Mapping[str, Any] = kept["document"]
        return document if kept["key"] == _key(project, found, document["files"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _key(project: Project, found: Sequence[str], files: Iterable[str]) -> str:
    """Return the hash of all that the declarations depend on."""
    code = project.code
    paths = {code / one for one in files}
    for path in (_path(code, one) for one in found):
        inside = path.rglob("*") if path.is_dir() else [path]
        paths |= {one for one in inside if one.suffix in (".py", ".sql")}
    paths |= {folder / name for folder in (code, project.root) for name in _LOCKS}
    digest = hashlib.sha256(json.dumps([list(found), sys.version, os.fspath(code)]).encode())
    for path in sorted(paths):
        with suppress(FileNotFoundError, IsADirectoryError):
            content = path.read_bytes()
            digest.update(f"\0{path}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _cache(project: Project) -> Path:
    place = hashlib.sha256(os.fspath(project.root).encode("utf-8", "surrogateescape"))
    return platformdirs.user_cache_path("lineage-backfill") / f"code-{place.hexdigest()[:16]}.json"
