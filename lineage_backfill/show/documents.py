"""JSON documents: one layout, the same bytes on stdout and in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.errors import UsageError
from lineage_backfill.files import not_written, read_file, whole_file
from lineage_backfill.redaction import redacted
from lineage_backfill.runspec import strict_json

#: A document, or its members one by one; an iterator as a value is written as a list.
Document = Mapping[str, Any] | Iterable[tuple[str, Any]]
_encode = json.JSONEncoder(check_circular=False).encode


def dump(document: Document) -> str:
    r"""Return the document with one line per member, and one per item of a list.

    It is compact, and a diff of two documents shows the jobs that differ.

    >>> print(dump({"kind": "plan", "jobs": [{"count": 1}, {"count": 2}]}), end="")
    {"kind": "plan",
     "jobs": [
      {"count": 1},
      {"count": 2}]}
    """
    return "".join(_pieces(document))


def _pieces(document: Document) -> Iterator[str]:
    """Yield the text of the document, holding one item of an iterator at a time."""
    members = document.items() if isinstance(document, Mapping) else document
    begin = "{"
    for key, value in members:
        begin += f"{_encode(key)}: "
        if isinstance(value, (list, Iterator)):
            begin += "["
            separator = "\n  "
            for item in value:
                yield begin + separator + _encode(item)
                begin, separator = "", ",\n  "
            yield begin + "]"
        else:
            yield begin + _encode(value)
        begin = ",\n "
    yield "{}\n" if begin == "{" else "}\n"


def emit(document: Document) -> None:
    """Print the document on stdout, without secrets."""
    sys.stdout.writelines(map(redacted, _pieces(document)))


def save(document: Document, path: Path) -> None:
    """Write the document to a file, whole or not at all; raises UsageError."""
    write_whole(_pieces(document), path)


def write_whole(text: Iterable[str], path: Path, *, replace: bool = True) -> None:
    """Write the pieces of a text to a file, whole or not at all.

    Raises UsageError if it cannot be written or exists and may not be replaced, and BackfillError
    if the disk is full.
    """
    try:
        with whole_file(path, replace=replace) as file:
            file.writelines(piece.encode() for piece in text)
    except FileExistsError as error:
        raise UsageError(
            f"{path} already exists",
            hint="Pass --force to replace it, or name another file with --out.",
        ) from error
    except OSError as error:
        raise not_written(path, error) from error


def load(path: Path, *, unique: bool = False) -> Any:
    """Read a JSON file; `unique` refuses duplicate members of an object.

    Raises UsageError if the file does not exist or is not JSON.
    """
    try:
        text = read_file(path).decode()
        return json.loads(text, object_pairs_hook=strict_json.unique if unique else None)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="Check the path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="Name a JSON file.") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from None
