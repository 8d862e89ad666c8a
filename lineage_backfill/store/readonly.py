"""Reads a run store file without opening it as a store, so that nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from lineage_backfill.errors import StoreError


def refuse_emptied(file: Path, backfills: Path) -> None:
    """Raise StoreError for a file without tables of a run store, if the folder has backfills.

    SQLite would delete the write-ahead log of an empty file, and a new history would begin.
    """
    with suppress(sqlite3.Error):  # damaged: opening it says how
        if not file.stat().st_size or not _has_tables(file):
            what = "is empty" if not file.stat().st_size else "has no tables of lineage-backfill"
            if any(backfills.glob("b-*")):
                raise StoreError(
                    f"the run store {file} {what}, but backfills have run: {backfills}",
                    hint="Restore a copy of the file, or move it away: a new run store is made on"
                    " the next run.",
                )


def _has_tables(file: Path) -> bool:
    with closing(_opened(file)) as store:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'lb_backfills'"
        return store.execute(query).fetchone() is not None


def _opened(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
