"""The partitioning facets that jobs send with their lineage: read as declarations, and written.

Their members have the names of the project file: `grain`, `zone`, `start`, `dimensions`, `column`,
`columns`; for jobs also `batch`, `reads` and `writes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetPartitioning,
    JobPartitioning,
    Partitioning,
)
from lineage_backfill.project.matching import names
from lineage_backfill.typed import JSON, plain, read

P = TypeVar("P", bound=Partitioning)
_WINS: Final = "Declare the partitioning in the project file, which wins over the facet."
#: Members of edges that only the project and its code may state: they would be run.
_OWN: Final = ("function", "merge_on", "delete_when", "delete_missing", "shares")
_LISTS: Final = ("dimensions", "reads", "writes")


def read_dataset(facet: Mapping[str, Any], what: str) -> DatasetPartitioning:
    """Return the facet of a dataset; raises DeclarationError if it cannot be read."""
    if isinstance(columns := facet.get("columns"), list | tuple):
        facet = {**facet, "columns": {str(name): None for name in columns}}
    return _read(DatasetPartitioning, facet, what)


def read_job(facet: Mapping[str, Any], what: str) -> JobPartitioning:
    """Return the facet of a job, as `read_dataset` does."""
    found = _read(JobPartitioning, facet, what)
    for edges in (found.reads, found.writes):
        bare = {edge.dataset for edge in edges if edge.namespace is None}  # of any namespace
        if twice := [edge.dataset for edge in edges if edge.namespace and edge.dataset in bare]:
            raise DeclarationError(
                f"{what} cannot be read: it declares its edge to {twice[0]!r} twice", hint=_WINS
            )
    return found


def unused(
    facet: JobPartitioning, reads: Sequence[DatasetRef], writes: Sequence[DatasetRef], what: str
) -> list[str]:
    """Return the edges of a job's facet that the job does not have, each as part of a sentence."""
    return [
        f"the edge to {edge.dataset!r} in {what}, which {word} {', '.join(map(str, refs[:5]))}"
        for word, edges, refs in (("reads", facet.reads, reads), ("writes", facet.writes, writes))
        for edge in edges
        if refs and not any(names(edge, ref, None) for ref in refs)
    ]


def _read(kind: type[P], facet: Mapping[str, Any], what: str) -> P:
    document = {
        name: [_part(one) for one in value]
        if name in _LISTS and isinstance(value, list | tuple)
        else value
        for name, value in _part(facet).items()
    }
    try:
        return read(kind, document, f"{what} cannot be read", style=JSON, fault=DeclarationError)
    except UsageError as error:
        error.hint = _WINS
        raise


def _part(given: Any) -> Any:
    """Return a facet, or a part of one, as a project file has it."""
    if not isinstance(given, Mapping):
        return given
    part = {name: one for name, one in given.items() if name not in _OWN}
    if isinstance(dataset := part.get("dataset"), Mapping):
        part |= {"dataset": dataset.get("name"), "namespace": dataset.get("namespace")}
    return part


def dataset_facet(declared: DatasetPartitioning, zone: str) -> dict[str, Any]:
    """Return the facet for a dataset's declaration; `zone` is the default zone."""
    if not declared.has_kind:
        return {}
    names = ("columns", "time_column", "time_format", "key_column")
    columns = {name: getattr(declared, name) for name in names}
    facet = _facet(_zoned(DatasetPartitioning, declared, zone, **columns))
    if list(declared.columns.values()) == [None]:
        # As `column = "day"` in a project file: Marquez drops what is null.
        facet["column"] = next(iter(facet.pop("columns")))
    return facet


def job_facet(declared: JobPartitioning, zone: str) -> dict[str, Any]:
    """Return the facet for a job's declaration; `zone` is the default zone."""
    reads = [
        read
        for read in declared.reads
        if read.mapping != "python"
        and (read.mapping or read.dimensions or read.on_missing or read.lookback is not None)
    ]
    writes = [
        replace(write, merge_on=(), delete_when=None, delete_missing=None, shares=())
        for write in declared.writes
    ]
    more: Any = {"batch": declared.batch, "depends_on_past": declared.depends_on_past}
    more |= {"reads": tuple(reads), "writes": tuple(writes)}
    facet = _facet(_zoned(JobPartitioning, declared, zone, **more))
    for edge in (*facet.get("reads", ()), *facet.get("writes", ())):
        if namespace := edge.pop("namespace", None):
            edge["dataset"] = {"namespace": namespace, "name": edge["dataset"]}
    return facet


def _facet(stated: Partitioning) -> dict[str, Any]:
    found: dict[str, Any] = plain(stated)
    return found


def _zoned(kind: type[P], declared: Partitioning, zone: str, **more: Any) -> P:
    """Return the partitioning alone, with the zone of calendars that have no own one."""

    def zoned(calendar: CalendarDeclaration) -> CalendarDeclaration:
        return replace(calendar, zone=calendar.zone or zone) if calendar.has_time else calendar

    return kind(
        calendar=None if declared.calendar is None else zoned(declared.calendar),
        dimensions=tuple(replace(one, calendar=zoned(one.calendar)) for one in declared.dimensions),
        **more,
    )
