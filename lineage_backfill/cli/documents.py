"""The JSON documents: one layout, the same bytes on stdout and in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.errors import UsageError


def dump(document: Mapping[str, Any]) -> str:
    r"""Return the document with one line per member, and one per item of a list.

    Compact enough for a thousand jobs, and a diff of two documents shows the jobs that differ.

    >>> print(dump({"kind": "plan", "jobs": [{"count": 1}, {"count": 2}]}), end="")
    {"kind": "plan",
     "jobs": [
      {"count": 1},
      {"count": 2}]}
    """
    members = (f"{json.dumps(key)}: {_member(value)}" for key, value in document.items())
    return "{" + ",\n ".join(members) + "}\n"


def _member(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "]"
    return json.dumps(value)


def emit(document: Mapping[str, Any]) -> None:
    """Print the document on stdout."""
    sys.stdout.write(dump(document))


def save(document: Mapping[str, Any], path: Path) -> None:
    """Write the document to a file, whole or not at all; raises UsageError."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(dump(document), encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="Name another file with --out."
        ) from error


def load(path: Path) -> Any:
    """Read a JSON file; raises UsageError where it is not there or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="See that the path is right."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="Name a JSON file.") from error
