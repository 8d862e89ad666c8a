"""Calendars by list that stand in CSV files: columns key, start and end."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lineage_backfill.errors import ConfigError, DeclarationError
from lineage_backfill.partitions.grid import check_rows

_COLUMNS: Final = ("key", "start", "end")
_HINT: Final = (
    "Its first line is key,start,end, and each other one such as P01,2024-01-01,2024-02-01."
)


def with_lists(document: Any, base: Path, read: Callable[[Path], bytes | None]) -> None:
    """Put the rows of the files that `boundaries` names into a project file's document.

    Relative paths are relative to `base`. Raises ConfigError with the line that is wrong.
    """
    if isinstance(document, dict):
        name = document.get("boundaries")
        if isinstance(name, str):
            path = base / Path(name).expanduser()
            document["boundaries"] = rows(path, read(path))
    for inner in document.values() if isinstance(document, dict) else document:
        if isinstance(inner, dict | list):
            with_lists(inner, base, read)


def rows(path: Path, data: bytes | None) -> list[tuple[str, ...]]:
    """Return key, start and end of each line; raises ConfigError with the line that is wrong."""
    if data is None:
        raise ConfigError(f"{path}: no such file", hint="`boundaries` names it.")
    try:
        lines = csv.reader(
            data.decode("utf-8-sig").splitlines(), strict=True, skipinitialspace=True
        )
        found = [(lines.line_num, [cell.strip() for cell in line]) for line in lines if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a CSV file: {error}", hint=_HINT) from error
    _, header = found[0] if found else (1, [])
    for column in _COLUMNS:
        if column not in header:
            raise ConfigError(f"{path}: line 1: has no column `{column}`", hint=_HINT)
    if len(found) == 1:
        raise ConfigError(f"{path}: has no rows", hint=_HINT)
    places = [header.index(column) for column in _COLUMNS]
    for number, line in found[1:]:
        if len(line) != len(header) or not all(line[place] for place in places):
            what = (
                f"must have {len(header)} values" if len(line) != len(header) else "lacks a value"
            )
            raise ConfigError(f"{path}: line {number}: {what}", hint=_HINT)
    made = [tuple(line[place] for place in places) for _, line in found[1:]]
    try:
        check_rows(made, [f"{path}: line {number}" for number, _ in found[1:]])
    except DeclarationError as error:
        raise ConfigError(error.message, hint=error.hint) from error
    return made
