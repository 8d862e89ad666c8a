"""The lineage of Unity Catalog, from exports of its system tables.

Each run of a job, pipeline or notebook is an application with an action for each table that it
writes: what the actions hand to one another is inner to it, as with Spark.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from lineage_backfill.errors import LineageError, NoLineageError
from lineage_backfill.files import reason
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import listed
from lineage_backfill.plans.notice import Notice
from lineage_backfill.project.locations import address_names

_TABLES: Final = ("source_table_full_name", "target_table_full_name")
_NEEDED: Final = ("entity_type", "entity_id", "entity_run_id", *_TABLES, "event_time")
_COLUMNS: Final = ("source_column_name", "target_column_name")
#: Members of `entity_metadata`, which tell that a notebook is a part of a job.
_ENTITIES: Final = (
    ("job", "job_info", "job_id", "job_run_id"),
    ("pipeline", "dlt_pipeline_info", "dlt_pipeline_id", "dlt_update_id"),
)
#: What runs again if its inputs change even though it writes no table.
_JOBS: Final = ("job", "pipeline")
#: The most rows that Databricks' editors and clients show or download unless asked for more.
_LIMITS: Final = (1_000, 10_000, 64_000)
_HINT: Final = "Export all rows again: nothing is planned from a part of the lineage."
_UNKNOWN: Final = "unknown"

#: A table: its name, or the address of a path, and where it is stored.
Table = tuple[str, str | None]


class _Row(NamedTuple):
    """The edge of a row: its job and run, the time, tables and columns."""

    job: str
    run: str
    time: datetime
    source: Table | None
    target: Table | None
    columns: tuple[str, str] | None


@dataclass(slots=True)
class _Run:
    """One run: the tables that it reads for each table that it writes, with columns."""

    times: set[datetime] = field(default_factory=set)
    #: By target, with None for reads alone: the source and target columns by source.
    edges: dict[Table | None, dict[Table, set[tuple[str, str]]]] = field(default_factory=dict)


class UnitySource:
    """Lineage from files of `system.access.table_lineage`, and of `column_lineage` if named.

    Files are JSON lines or CSV with a header. `rows` is the number of rows of the tables' file, to
    prove that it is whole. `namespace` is that of the tables and jobs.
    """

    def __init__(
        self,
        *,
        project: Path,
        tables: str,
        columns: str | None = None,
        rows: int | None = None,
        namespace: str = "unitycatalog",
    ) -> None:
        self._tables = project / tables
        self._columns = project / columns if columns else None
        self._rows = rows
        self._space = namespace

    def read(self) -> LineageSnapshot:
        """Return the lineage of all rows; raises LineageError if a part is missing."""
        builder = LineageBuilder()
        notices = self.fold(builder)
        return builder.snapshot(source="unity", taken_at=builder.newest, notices=notices)

    def fold(self, builder: LineageBuilder) -> list[Notice]:
        """Add the events of all runs, and return notices; raises LineageError."""
        runs: dict[tuple[str, str], _Run] = {}
        count = 0
        for row in _rows(self._tables, _NEEDED):
            count += 1
            if row.source or row.target:
                run = runs.setdefault((row.job, row.run), _Run())
                run.times.add(row.time)
                reads = run.edges.setdefault(row.target, {})
                if row.source:
                    reads.setdefault(row.source, set())
        self._check(count)
        if self._columns:
            self._add_columns(runs, self._columns)
        left, unnamed = set[str](), set[str]()
        for (job, run_id), run in runs.items():
            kind = job.partition("/")[0]
            if kind not in _JOBS and not any(run.edges):
                left.add(job)
                continue
            if kind == _UNKNOWN:
                unnamed.add(job)
            for event in self._events(job, run_id, run):
                builder.add(event)
        return [
            Notice(text, job, "Unity Catalog: ", jobs is left)
            for jobs, text in (
                (left, ": left out, as no table is written"),
                (unnamed, ": the writer is not named"),
            )
            for job in sorted(jobs)
        ]

    def _check(self, count: int) -> None:
        """Refuse a number of rows that is not the whole table."""
        if not count:
            raise NoLineageError(f"{self._tables}: no rows", hint=_HINT)
        if self._rows is None and count in _LIMITS:
            raise LineageError(
                f"{self._tables}: exactly {count:,} rows, the limit of an editor or client",
                hint=f"Export all rows, or state that these are all: rows = {count}.",
            )
        if self._rows not in (None, count):
            raise LineageError(f"{self._tables}: {count:,} rows, not {self._rows:,}", hint=_HINT)

    def _add_columns(self, runs: Mapping[tuple[str, str], _Run], file: Path) -> None:
        for row in _rows(file, (*_NEEDED, *_COLUMNS)):
            if row.source and row.target and row.columns:
                run = runs.get((row.job, row.run))
                if run is None or row.target not in run.edges:
                    raise LineageError(
                        f"{file}: a run of {row.job} writes {row.target[0]}, and"
                        f" {self._tables.name} has no such row",
                        hint="Export both tables with one filter, as by `event_date`.",
                    )
                run.edges[row.target].setdefault(row.source, set()).add(row.columns)

    def _events(self, job: str, run_id: str, run: _Run) -> Iterator[dict[str, Any]]:
        """Yield the events of one run, as Spark's listener sends those of an application."""
        first, last = min(run.times).isoformat(), max(run.times).isoformat()
        yield self._event("START", first, run_id, job, "APPLICATION")
        for target, reads in run.edges.items():
            parent = {"run": {"runId": run_id}, "job": {"namespace": self._space, "name": job}}
            name = target[0] if target else "read"
            # Only a MERGE usually reads its own target.
            action = f"{job}.{'merge' if target in reads else 'write'}.{name}"
            event = self._event("COMPLETE", last, f"{run_id}/{name}", action, "SQL_JOB")
            event["run"]["facets"] = {"parent": parent}
            event["inputs"] = [self._dataset(one) for one in sorted(reads, key=str)]
            if target:
                output = self._dataset(target)
                event["outputs"] = [{**output, "facets": output["facets"] | self._lineage(reads)}]
            yield event
        yield self._event("COMPLETE", last, run_id, job, "APPLICATION")

    def _event(self, kind: str, time: str, run: str, job: str, what: str) -> dict[str, Any]:
        facets = {"jobType": {"integration": "SPARK", "jobType": what, "processingType": "BATCH"}}
        return {
            "eventType": kind,
            "eventTime": time,
            "run": {"runId": run},
            "job": {"namespace": self._space, "name": job, "facets": facets},
        }

    def _dataset(self, table: Table) -> dict[str, Any]:
        name, path = table
        space, name = address_names(name) or (self._space, name)
        facets = {}
        if path and (place := address_names(path)) and place != (space, name):
            names = [{"namespace": place[0], "name": place[1], "type": "LOCATION"}]
            facets = {"symlinks": {"identifiers": names}}
        return {"namespace": space, "name": name, "facets": facets}

    def _lineage(self, reads: Mapping[Table, set[tuple[str, str]]]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for source, pairs in sorted(reads.items(), key=str):
            place = self._dataset(source)
            for column, written in sorted(pairs):
                one = {"namespace": place["namespace"], "name": place["name"], "field": column}
                fields.setdefault(written, {"inputFields": []})["inputFields"].append(one)
        return {"columnLineage": {"fields": fields}} if fields else {}


def _row(row: Mapping[str, Any], needed: Sequence[str]) -> _Row:
    missing = [name for name in needed if name not in row]
    if missing:
        raise ValueError(f"it has no {listed(missing)}")
    row = {name: None if value in ("", "null") else value for name, value in row.items()}
    time = datetime.fromisoformat(str(row["event_time"]))
    source, target = (_table(row, side) for side in ("source", "target"))
    columns = (row.get(_COLUMNS[0]), row.get(_COLUMNS[1]))
    return _Row(
        *_entity(row, target),
        time if time.tzinfo else time.replace(tzinfo=UTC),
        source,
        target,
        (str(columns[0]), str(columns[1])) if all(columns) else None,
    )


def _entity(row: Mapping[str, Any], target: Table | None) -> tuple[str, str]:
    """Return the name of the job that a row is of, and its run."""
    about = row.get("entity_metadata") or {}
    if isinstance(about, str):
        about = json.loads(about)
    for kind, outer, name, run in _ENTITIES:
        inner = about.get(outer) or {}
        if inner.get(name):
            return f"{kind}/{inner[name]}", str(inner.get(run) or row["entity_run_id"])
    if row["entity_type"] and row["entity_id"]:
        kind = str(row["entity_type"]).lower()
        return f"{kind}/{row['entity_id']}", str(row["entity_run_id"] or row["event_time"])
    return f"{_UNKNOWN}/{target[0] if target else ''}", str(row["event_time"])


def _table(row: Mapping[str, Any], side: str) -> Table | None:
    path = row.get(f"{side}_path")
    name = row[f"{side}_table_full_name"] or path
    return (str(name), path) if name else None


def _rows(file: Path, needed: Sequence[str]) -> Iterator[_Row]:
    """Yield the rows of a file that has the columns that are needed; raises LineageError."""
    number = 0
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            is_csv = file.suffix.lower() == ".csv"
            lines: Iterable[Any] = csv.DictReader(stream, strict=True) if is_csv else stream
            for number, line in enumerate(lines, 1):  # noqa: B007 (for the message)
                row = line if is_csv else json.loads(line)
                if is_csv and (None in row or None in row.values()):
                    raise ValueError("it is cut off")
                yield _row(row, needed)
    except FileNotFoundError as error:
        raise NoLineageError(f"{file}: no such file", hint="Correct the path.") from error
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise LineageError(f"{file}: row {number}: {reason(error)}", hint=_HINT) from error
