"""Reads a run store file without opening it as a store, so that nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def newest_backfills(file: Path, *, most: int) -> list[tuple[str, str]]:
    """Return the ids of the newest backfills with state and title; raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as store:
        return store.execute(
            "SELECT id, state || ': ' || title FROM lb_backfills WHERE NOT deleted"
            " ORDER BY submitted_at DESC LIMIT ?",
            (most,),
        ).fetchall()
