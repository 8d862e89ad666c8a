"""A lineage source of its own package: the edges that a catalog exports as CSV."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from lineage_backfill import DatasetRef, JobNode, JobRef, LineageSnapshot
from lineage_backfill.errors import LineageError

COLUMNS = ["job", "direction", "dataset"]
DIRECTIONS = ("reads", "writes")


class CatalogSource:
    """Reads `export`, a file with a line for each edge; `namespace` is that of all names.

    Settings come from `[lineage.source_settings]`; `project` is the folder of the project file.
    """

    def __init__(self, *, project: Path, export: str, namespace: str = "default") -> None:
        self._file = project / export
        self._namespace = namespace

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError rather than return a part of it."""
        edges: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        try:
            with self._file.open(encoding="utf-8", newline="") as file:
                rows = csv.DictReader(file, strict=True)
                if rows.fieldnames != COLUMNS:
                    raise self._error(f"its columns are {rows.fieldnames}, not {COLUMNS}")
                for row in rows:
                    if row["direction"] not in DIRECTIONS or not (row["job"] and row["dataset"]):
                        raise self._error(f"line {rows.line_num} is not an edge")
                    edges[row["job"]][row["direction"]].add(row["dataset"])
        except (OSError, UnicodeError, csv.Error) as error:
            raise self._error(str(error)) from error
        if not edges:
            raise self._error("it has no edges")
        return LineageSnapshot.of(
            [self._job(name, edges[name]) for name in sorted(edges)],
            source="catalog",
            taken_at=datetime.now(UTC),
        )

    def _job(self, name: str, edges: dict[str, set[str]]) -> JobNode:
        reads, writes = (
            tuple(DatasetRef(self._namespace, one) for one in sorted(edges[side]))
            for side in DIRECTIONS
        )
        return JobNode(ref=JobRef(self._namespace, name), reads=reads, writes=writes)

    def _error(self, why: str) -> LineageError:
        hint = "Export all edges again: nothing is planned from a part of them."
        return LineageError(f"{self._file}: {why}", hint=hint)
