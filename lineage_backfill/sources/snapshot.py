"""A lineage snapshot in a file: gzip, one JSON record per line, then a hash over all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, MsgspecError, Struct, convert
from msgspec.structs import asdict, fields

from lineage_backfill.errors import LineageError, NoLineageError
from lineage_backfill.files import reason
from lineage_backfill.lineage.snapshot import (
    ColumnEdge,
    DatasetNode,
    Instant,
    JobNode,
    LineageSnapshot,
    ObservedRun,
)
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.records import NOT_WHOLE, read_records, write_records

FORMAT = "lineage-backfill snapshot"
VERSION = 1
_HINT = "Take it again with `lineage-backfill lineage pull`."
Record = JobNode | DatasetNode | ColumnEdge | ObservedRun
_KINDS: dict[str, type[Record]] = {
    "job": JobNode,
    "dataset": DatasetNode,
    "column": ColumnEdge,
    "run": ObservedRun,
}


class SnapshotSource:
    """Lineage from a file of `save_snapshot`; its hash is verified."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LineageSnapshot:
        """Return the lineage as it was saved; raises LineageError if the file is damaged."""
        try:
            return self._read()
        except FileNotFoundError as error:
            raise NoLineageError(f"{self._path}: no such file", hint="Check the path.") from error
        except (*NOT_WHOLE, TypeError, KeyError, MsgspecError) as error:
            raise LineageError(
                f"{self._path}: not a valid lineage snapshot: {reason(error)}", hint=_HINT
            ) from error

    def _read(self) -> LineageSnapshot:
        found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
        records = read_records(self._path)
        header = next(records)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("its first line is not that of a snapshot")
        if header["version"] != VERSION:
            raise LineageError(
                f"{self._path}: its version is {header['version']}, ours is {VERSION}",
                hint=_HINT,
            )
        for record in records:
            kind = record["kind"]
            del record["kind"]
            found[kind].append(convert(record, _KINDS[kind]))
        return LineageSnapshot.of(
            found["job"],
            found["dataset"],
            column_edges=tuple(found["column"]),
            history=tuple(found["run"]),
            source="snapshot",
            taken_at=convert(header["taken_at"], Instant | None),
            notices=tuple(
                Notice(one) if isinstance(one, str) else convert(one, Notice)
                for one in header["warnings"]
            ),
        )


def save_snapshot(snapshot: LineageSnapshot, path: Path) -> None:
    """Write the snapshot completely or not at all; the same snapshot gives the same bytes."""
    write_records(path, _records(snapshot))


def _records(snapshot: LineageSnapshot) -> Iterator[Mapping[str, Any]]:
    yield {
        "format": FORMAT,
        "version": VERSION,
        "source": snapshot.source,
        "taken_at": _plain(snapshot.taken_at),
        "content_hash": snapshot.content_hash,
        "warnings": snapshot.notices,
    }
    yield from (_encode("job", node) for node in snapshot.jobs.values())
    yield from (_encode("dataset", node) for node in snapshot.datasets.values())
    yield from (_encode("column", edge) for edge in snapshot.column_edges)
    yield from (_encode("run", run) for run in snapshot.history)


def _encode(kind: str, record: Record) -> dict[str, Any]:
    """Return the members that differ from their defaults."""
    members = ((name, default, getattr(record, name)) for name, default in _defaults(type(record)))
    return {"kind": kind} | {
        name: _plain(value)
        for name, default, value in members
        if default is NODEFAULT or value != default
    }


@cache
def _defaults(kind: type[Record]) -> tuple[tuple[str, Any], ...]:
    return tuple((member.name, member.default) for member in fields(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, DatasetRef | JobRef):
        return [value.namespace, value.name]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Struct):
        return {name: _plain(one) for name, one in asdict(value).items() if one is not None}
    return value.isoformat() if isinstance(value, datetime) else value
