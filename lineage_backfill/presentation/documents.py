"""The JSON documents: one layout, the same bytes on stdout and in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.errors import UsageError
from lineage_backfill.files import whole_file


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
    write_whole(dump(document), path)


def write_whole(text: str, path: Path, *, replace: bool = True) -> None:
    """Write the text to a file, whole or not at all.

    Raises UsageError where that cannot be done, or the file is there and not to be replaced.
    """
    try:
        with whole_file(path, replace=replace) as file:
            file.write(text.encode())
    except FileExistsError as error:
        raise UsageError(
            f"{path} is there already", hint="Replace it with --force, or name another with --out."
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="Name another file with --out."
        ) from error


def load(path: Path, *, unique: bool = False) -> Any:
    """Read a JSON file; `unique` refuses an object that names a member twice.

    Raises UsageError where it is not there or is not JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="See that the path is right."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="Name a JSON file.") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from None


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise UsageError(f"{name!r} is there twice in one object", hint="Keep one of the two.")
        found[name] = value
    return found
