"""A lineage snapshot in a file: gzip, one JSON record a line, closed by a hash over all of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from lineage_backfill.errors import LineageError
from lineage_backfill.graph.details import (
    DetailedSnapshot,
    Details,
    Touched,
    Written,
    details_of,
)
from lineage_backfill.graph.lineage import (
    ColumnEdge,
    DatasetNode,
    JobNode,
    LineageSnapshot,
    RunRecord,
)
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.records import read_records, write_records

FORMAT = "lineage-backfill snapshot"
VERSION = 1
_HINT = "Take it again with `lineage-backfill lineage pull`."


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """The jobs that one is started after."""

    job: JobRef
    after: tuple[JobRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfDataset:
    """What was written to a dataset at last; nothing where it was dropped."""

    dataset: DatasetRef
    written: Written | None = None


Record = JobNode | DatasetNode | ColumnEdge | RunRecord | Touched | Written | _After | _OfDataset


class SnapshotSource:
    """Lineage from a file that `save_snapshot` wrote; its hash is checked before it is believed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LineageSnapshot:
        """Return the lineage as it was saved; raises LineageError if the file is not whole."""
        try:
            return self._read()
        except FileNotFoundError as error:
            raise LineageError(f"{self._path}: no such file", hint=_HINT) from error
        except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
            raise LineageError(
                f"{self._path}: not a whole lineage snapshot: {error}", hint=_HINT
            ) from error

    def _read(self) -> LineageSnapshot:
        found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
        records = read_records(self._path)
        header = next(records)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("its first line is not ours")
        if header["version"] != VERSION:
            raise LineageError(
                f"{self._path}: its version is {header['version']}, ours is {VERSION}",
                hint=_HINT,
            )
        for record in records:
            found[record["kind"]].append(_decode(record))
        return DetailedSnapshot.of(
            found["job"],
            found["dataset"],
            column_edges=tuple(found["column"]),
            history=tuple(found["run"]),
            source="snapshot",
            taken_at=_instant(header["taken_at"]),
            warnings=tuple(header["warnings"]),
            details=Details(
                after={one.job: one.after for one in found["after"]},
                touched=tuple(found["touched"]),
                written={one.dataset: one.written for one in found["written"]},
                dropped=frozenset(one.dataset for one in found["dropped"]),
            ),
        )


def save_snapshot(snapshot: LineageSnapshot, path: Path) -> None:
    """Write the snapshot, whole or not at all; the same snapshot gives the same bytes."""
    write_records(path, _records(snapshot))


def _records(snapshot: LineageSnapshot) -> Iterator[Mapping[str, Any]]:
    yield {
        "format": FORMAT,
        "version": VERSION,
        "source": snapshot.source,
        "taken_at": _plain(snapshot.taken_at),
        "content_hash": snapshot.content_hash,
        "warnings": snapshot.warnings,
    }
    for node in snapshot.jobs.values():
        yield _encode("job", node)
    for dataset in snapshot.datasets.values():
        yield _encode("dataset", dataset)
    for edge in snapshot.column_edges:
        yield _encode("column", edge)
    for run in snapshot.history:
        yield _encode("run", run)
    details = details_of(snapshot)
    for job, after in details.after.items():
        yield _encode("after", _After(job=job, after=after))
    for touched in details.touched:
        yield _encode("touched", touched)
    for ref, written in details.written.items():
        yield {**_encode("written", written), "dataset": _plain(ref)}
    for ref in sorted(details.dropped):
        yield {"kind": "dropped", "dataset": _plain(ref)}


def _encode(kind: str, record: Record) -> dict[str, Any]:
    """Return the members that differ from their defaults."""
    members = ((field, getattr(record, field.name)) for field in fields(record))
    return {"kind": kind} | {
        field.name: _plain(value)
        for field, value in members
        if field.default is MISSING or value != field.default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, DatasetRef | JobRef):
        return [value.namespace, value.name]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _decode(record: dict[str, Any]) -> Record:
    make, readers = _KINDS[record.pop("kind")]
    for name in readers.keys() & record.keys():
        record[name] = readers[name](record[name])
    return make(**record)


def _written(*, dataset: DatasetRef, **told: Any) -> _OfDataset:
    return _OfDataset(dataset=dataset, written=Written(**told))


def _job(value: list[str]) -> JobRef:
    namespace, name = value
    return JobRef(namespace, name)


def _dataset(value: list[str]) -> DatasetRef:
    namespace, name = value
    return DatasetRef(namespace, name)


def _datasets(value: list[list[str]]) -> tuple[DatasetRef, ...]:
    return tuple(_dataset(item) for item in value)


def _instant(value: str | None) -> datetime | None:
    return datetime.fromisoformat(value) if value else None


#: How the members of each kind of record that are not plain JSON are read.
_KINDS: dict[str, tuple[Callable[..., Record], dict[str, Any]]] = {
    "job": (
        JobNode,
        {"ref": _job, "parent": _job, "owners": tuple, "tags": tuple}
        | dict.fromkeys(("reads", "writes", "former_reads", "former_writes"), _datasets),
    ),
    "dataset": (
        DatasetNode,
        {"ref": _dataset, "aliases": _datasets}
        | dict.fromkeys(("fields", "owners", "tags"), tuple),
    ),
    "column": (ColumnEdge, {"job": _job, "input": _dataset, "output": _dataset}),
    "run": (
        RunRecord,
        {"job": _job}
        | dict.fromkeys(("started_at", "ended_at", "nominal_start", "nominal_end"), _instant),
    ),
    "after": (_After, {"job": _job, "after": lambda value: tuple(map(_job, value))}),
    "touched": (Touched, {"job": _job, "dataset": _dataset, "keys": tuple}),
    "written": (_written, {"dataset": _dataset, "at": _instant}),
    "dropped": (_OfDataset, {"dataset": _dataset}),
}
