"""Keeps the fingerprints that a run reports in few bytes, and reads them again.

A document holds what one run read and wrote: for each dataset the table's version and a digest of
the content of each partition.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet, Point
from lineage_backfill.partitions.text import KeySet, expand, parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.resolve.physical_columns import physical_columns, physical_values
from lineage_backfill.project.resolve.resolver import JobFacts
from lineage_backfill.staleness.table_keys import stored

#: Contents of partitions, as digests of their fingerprints; None if unknown.
Digests = Mapping[Point, str | None]
Document = Mapping[str, Any]

_LENGTH: Final = 16  # characters of a digest: 12 bytes are enough to distinguish contents
_UNKNOWN: Final = "-" * _LENGTH


class DigestCodec:
    """Writes and reads documents by the calendars of a resolver."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._stored: dict[
            tuple[DatasetRef, frozenset[tuple[str, str]]], dict[frozenset[tuple[str, Any]], Point]
        ] = {}

    def document(
        self, facts: JobFacts, result: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Document:
        """Return the document of a result file."""
        return {
            "basis": self._job_basis(facts),
            "parameters": parameters_hash(parameters),
            "reads": self._packed(result.get("inputs", ())),
            "writes": self._packed(result.get("outputs", ())),
        }

    def is_comparable(
        self, facts: JobFacts, document: Document | None, parameters: str | None
    ) -> bool:
        """Whether run keys and parameters mean the same now as when the document was written.

        With `parameters` None, any will do.
        """
        if document is None or document["basis"] != self._job_basis(facts):
            return False
        return parameters is None or document.get("parameters") == parameters

    def digests(
        self, document: Document | None, what: Literal["reads", "writes"], dataset: DatasetRef
    ) -> tuple[Digests, int | None]:
        """Return a dataset's contents as a run read or wrote it, and the table's version."""
        calendar = self._resolver.calendar(dataset)
        name = [dataset.namespace, dataset.name]
        parts = () if document is None or calendar is None else document[what]
        for part in parts:
            assert calendar is not None
            if part["dataset"] != name or part["basis"] != self._dataset_basis(dataset, calendar):
                continue
            points = list(existing_keys(calendar, part["keys"]).points())
            text = part["digests"]
            digests = [text[at : at + _LENGTH] for at in range(0, len(text), _LENGTH)]
            if len(points) == len(digests):  # otherwise its calendar has other bounds now
                known = (None if one == _UNKNOWN else one for one in digests)
                return dict(zip(points, known, strict=True)), part["version"]
        return {}, None

    def _packed(self, parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the partitions of a result file with their fingerprints, range by range."""
        packed = []
        for part in parts:
            dataset = DatasetRef(part["dataset"]["namespace"], part["dataset"]["name"])
            calendar = self._resolver.calendar(dataset)
            if calendar is None:
                continue
            digests: dict[Point, str] = {}
            for one in part["partitions"]:
                points = self._points(dataset, calendar, one, part.get("types") or {})
                digests.update(dict.fromkeys(points, _digest(one.get("fingerprint"))))
            keys = PartitionSet.of_points(digests)
            packed.append(
                {
                    "dataset": [dataset.namespace, dataset.name],
                    "basis": self._dataset_basis(dataset, calendar),
                    "version": part.get("version"),
                    "keys": render(calendar, keys),
                    "digests": "".join(digests[point] for point in keys.points()),
                }
            )
        return packed

    def _points(
        self,
        dataset: DatasetRef,
        calendar: Calendar,
        partition: Mapping[str, Any],
        types: Mapping[str, str],
    ) -> Iterable[Point]:
        """Return the partition in a result file, by its key or by its column values.

        A run that reads a whole table gets no keys, and reports the column values.
        """
        values = partition.get("values")
        if values is None:
            return existing_keys(calendar, (partition["key"],)).points()

        def as_stored(values: Mapping[str, str | None]) -> frozenset[tuple[str, str | None]]:
            return frozenset((c, stored(text, types.get(c, ""))) for c, text in values.items())

        which = dataset, frozenset(types.items())
        if which not in self._stored:
            declared = self._resolver.dataset_declaration(dataset)
            columns = physical_columns(declared) if declared else {}
            self._stored[which] = {
                as_stored(physical_values(key, columns)): point
                for point in calendar.existing.points()
                for key in expand(calendar, PartitionSet.of_points([point]))
            }
        point = self._stored[which].get(as_stored(values))
        return () if point is None else (point,)

    def _job_basis(self, facts: JobFacts) -> str:
        """Return what must be equal for two runs of a job to be comparable."""
        assert facts.calendar is not None
        return _hash(*_identity(facts.calendar), facts.lookback)

    def _dataset_basis(self, dataset: DatasetRef, calendar: Calendar) -> str:
        """Return what must be equal for a dataset's keys to mean the same partitions."""
        declared = self._resolver.dataset_declaration(dataset)
        place = (declared.location, declared.table, declared.named_columns) if declared else ()
        return _hash(*_identity(calendar), *place)


def versions_read(document: Document | None) -> dict[DatasetRef, int]:
    """Return the versions of the inputs that a run read."""
    return {
        DatasetRef(*part["dataset"]): part["version"]
        for part in (document or {}).get("reads", ())
        if isinstance(part.get("version"), int)
    }


def parameters_hash(parameters: Mapping[str, Any]) -> str:
    """Return a hash of the parameters of a run."""
    return _hash(json.dumps(parameters, sort_keys=True, default=str))


def existing_keys(calendar: Calendar, keys: KeySet) -> PartitionSet:
    """Return the keys that exist in the calendar."""
    found = NOTHING
    for key in keys:
        with suppress(UsageError):
            found |= parse(calendar, (key,))
    return found


def _identity(calendar: Calendar) -> Iterator[object]:
    yield calendar.zone, [(mask, axis.grid.zone.name) for mask, axis in calendar.zoned]
    yield calendar.order
    for axis in calendar.statics:
        yield axis.name, axis.keys
    if calendar.time is not None:
        grid = calendar.time.grid
        yield grid.family, grid.label(grid.at(0))  # slices of N minutes are counted from a start


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _digest(fingerprint: str | None) -> str:
    if fingerprint is None:
        return _UNKNOWN
    digest = hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest[: _LENGTH * 3 // 4]).decode()
