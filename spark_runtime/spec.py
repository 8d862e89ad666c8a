"""Run specs and result files on disk."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from lineage_backfill.errors import SpecError
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import RunResult, RunSpec


def write_result(path: str | Path, result: RunResult) -> None:
    """Write the result file atomically."""
    write_atomically(Path(path), json.dumps(result.to_dict(), ensure_ascii=False, indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Write a file by renaming a finished one into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_spec(path: str | Path) -> RunSpec:
    """Read a run spec from a file; raises SpecError."""
    return parse_spec(_document(path))


def load_specs(path: str | Path) -> list[RunSpec]:
    """Read a run spec from a file, or the `runs` of a list; raises SpecError."""
    document = _document(path)
    runs = document.get("runs") if isinstance(document, dict) else None
    return [parse_spec(document)] if runs is None else [parse_spec(run) for run in runs]


def _document(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"run spec {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SpecError(f"run spec {path} is not JSON: {error}") from error
