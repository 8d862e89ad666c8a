"""The partitioning facet that jobs send with their lineage, read as declarations.

Its members have the names of the project file: `grain`, `zone`, `start`, `dimensions`, `column`,
`columns`; for jobs also `batch`, `reads` and `writes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.project.declarations import (
    DATED,
    BatchPolicy,
    CalendarDeclaration,
    DatasetDeclaration,
    DimensionDeclaration,
    DimensionMapping,
    Grain,
    JobDeclaration,
    MappingName,
    OnDrift,
    OnEmpty,
    OnMissing,
    ReadDeclaration,
    WriteDeclaration,
    WriteMode,
)

E = TypeVar("E", ReadDeclaration, WriteDeclaration)

_CALENDAR = ("grain", "cron", "every", "keys", "zone", "start", "end", "data_lag")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacet:
    """The facet of a job: run calendar, batching of keys, and edges."""

    calendar: CalendarDeclaration | None = None
    dimensions: tuple[DimensionDeclaration, ...] = ()
    reads: tuple[ReadDeclaration, ...] = ()
    writes: tuple[WriteDeclaration, ...] = ()
    batch: BatchPolicy | None = None


def read_calendar(
    facet: Mapping[str, Any], what: str
) -> tuple[CalendarDeclaration | None, tuple[DimensionDeclaration, ...], tuple[str, ...]] | None:
    """Return calendar, dimensions and physical columns of a facet; None if it has none.

    Raises DeclarationError if it cannot be read.
    """
    try:
        calendar, dimensions = _calendar(facet), _dimensions(facet)
        alone = facet.get("column")
        columns = tuple(str(name) for name in facet.get("columns") or ([alone] if alone else ()))
    except (TypeError, ValueError, KeyError, AttributeError, UsageError) as error:
        raise _unreadable(what, error) from None
    if calendar is None and not dimensions:
        return None
    return calendar, dimensions, columns


def ignored(facet: Mapping[str, Any]) -> list[str]:
    """Return the settings of a readable facet that date keys, where its keys have no time."""
    # Older jobs send a zone with all keys: it is not worth a warning.
    parts = (facet, *(facet.get("dimensions") or ()))
    timeless = [part for part in parts if part.get("keys") or part.get("grain") == "none"]
    return [name for name in DATED[1:] if any(part.get(name) for part in timeless)]


def read_job(facet: Mapping[str, Any], what: str) -> JobFacet:
    """Return the facet of a job; raises DeclarationError if it cannot be read."""
    try:
        return JobFacet(
            calendar=_calendar(facet),
            dimensions=_dimensions(facet),
            reads=_once([_read(part) for part in facet.get("reads") or ()]),
            writes=_once([_write(part) for part in facet.get("writes") or ()]),
            batch=batch_policy(facet.get("batch")),
        )
    except (TypeError, ValueError, KeyError, AttributeError, UsageError) as error:
        raise _unreadable(what, error) from None


def dataset_facet(declared: DatasetDeclaration, zone: str) -> dict[str, Any]:
    """Return the facet for a dataset declaration of the project file."""
    facet = _calendar_facet(declared.calendar, declared.dimensions, zone)
    if facet and declared.columns:
        (name, pattern), *more = declared.columns.items()
        # As `column = "day"` in a project file: Marquez drops what is null.
        facet |= {"column": name} if pattern is None and not more else {"columns": declared.columns}
    return facet


def job_facet(declared: JobDeclaration, zone: str) -> dict[str, Any]:
    """Return the facet for a job declaration of the project file."""
    facet = _calendar_facet(declared.calendar, declared.dimensions, zone)
    reads = [
        _edge_facet(read)
        for read in declared.reads
        if read.mapping != "python"
        and (read.mapping or read.dimensions or read.on_missing != "guard")
    ]
    writes = [_write_facet(write) for write in declared.writes]
    if reads:
        facet["reads"] = reads
    if writes:
        facet["writes"] = writes
    if declared.batch is not None:
        facet["batch"] = declared.batch
    return facet


def batch_policy(value: Any) -> BatchPolicy | None:
    """Return how the keys of a job are batched; raises ValueError if invalid."""
    if value in (None, "key", "range", "aligned") or (type(value) is int and value >= 1):
        return cast("BatchPolicy | None", value)
    raise ValueError(
        f'`batch` must be "key", "range", "aligned" or a number of keys, not {value!r}'
    )


def _edge_facet(read: ReadDeclaration) -> dict[str, Any]:
    facet: dict[str, Any] = {"dataset": _name(read), **_mapping_facet(read)}
    if read.dimensions:
        facet["dimensions"] = {
            name: _mapping_facet(part) for name, part in sorted(read.dimensions.items())
        }
    if read.on_missing != "guard":
        facet["on_missing"] = read.on_missing
    return facet


def _write_facet(write: WriteDeclaration) -> dict[str, Any]:
    facet: dict[str, Any] = {
        "dataset": _name(write),
        "mode": write.mode,
        "lookback": write.lookback,
    }
    if write.on_empty != "clear":
        facet["on_empty"] = write.on_empty
    if write.on_drift != "fail":
        facet["on_drift"] = write.on_drift
    return facet


def _mapping_facet(read: ReadDeclaration | DimensionMapping) -> dict[str, Any]:
    facet: dict[str, Any] = {} if read.mapping is None else {"mapping": read.mapping}
    for name in ("before", "after", "by"):
        if getattr(read, name):
            facet[name] = getattr(read, name)
    if read.map:
        facet["map"] = {key: list(keys) for key, keys in read.map.items()}
    return facet


def _name(edge: ReadDeclaration | WriteDeclaration) -> Any:
    return {"namespace": edge.namespace, "name": edge.dataset} if edge.namespace else edge.dataset


def _calendar_facet(
    calendar: CalendarDeclaration | None, dimensions: tuple[DimensionDeclaration, ...], zone: str
) -> dict[str, Any]:
    if calendar is not None:
        return _one_calendar(calendar, zone)
    if not dimensions:
        return {}
    parts = []
    for dimension in dimensions:
        part = {"name": dimension.name, **_one_calendar(dimension.calendar, zone)}
        if dimension.column:
            part["column"] = dimension.column
        parts.append(part)
    return {"dimensions": parts}


def _one_calendar(calendar: CalendarDeclaration, zone: str) -> dict[str, Any]:
    facet: dict[str, Any] = {}
    for name in _CALENDAR:
        value = getattr(calendar, name)
        if value not in (None, 0):
            facet[name] = list(value) if isinstance(value, tuple) else value
    if calendar.keys is None and calendar.grain != "none":
        facet.setdefault("zone", zone)
    return facet


def _calendar(facet: Mapping[str, Any]) -> CalendarDeclaration | None:
    given = {name: facet[name] for name in _CALENDAR if facet.get(name) is not None}
    kinds = [name for name in ("grain", "cron", "every", "keys") if name in given]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise ValueError(f"it says {' and '.join(kinds)}")
    keys = given.pop("keys", None)
    grain = given.pop("grain", None)
    if grain is not None and grain not in get_args(Grain):
        raise ValueError(f"unknown grain {grain!r}")
    if keys is not None or grain == "none":
        given = {}  # see `ignored`
    lag = _count(given, "data_lag")
    given.pop("data_lag", None)
    texts = {name: str(value) for name, value in given.items()}
    return CalendarDeclaration(
        grain=grain,
        keys=keys if keys in (None, "runtime") else tuple(str(key) for key in keys),
        data_lag=lag,
        **cast(Any, texts),
    )


def _dimensions(facet: Mapping[str, Any]) -> tuple[DimensionDeclaration, ...]:
    found = []
    for part in facet.get("dimensions") or ():
        calendar = _calendar(part)
        if calendar is None:
            raise ValueError("a dimension has no calendar")
        column = part.get("column")
        found.append(
            DimensionDeclaration(
                name=str(part["name"]),
                calendar=calendar,
                column=None if column is None else str(column),
            )
        )
    return tuple(found)


def _dataset(part: Mapping[str, Any]) -> tuple[str, str | None]:
    dataset = part["dataset"]
    if isinstance(dataset, str):
        return dataset, None
    return str(dataset["name"]), str(dataset["namespace"])


def _mapping(part: Mapping[str, Any]) -> dict[str, Any]:
    mapping = part.get("mapping")
    if mapping is not None and mapping not in get_args(MappingName):
        raise ValueError(f"unknown mapping {mapping!r}")
    return {
        "mapping": mapping,
        "before": _count(part, "before"),
        "after": _count(part, "after"),
        "by": _count(part, "by"),
        "map": {
            str(key): tuple(str(name) for name in names)
            for key, names in (part.get("map") or {}).items()
        },
    }


def _read(part: Mapping[str, Any]) -> ReadDeclaration:
    name, namespace = _dataset(part)
    dimensions = {
        str(key): DimensionMapping(**_mapping(value))
        for key, value in (part.get("dimensions") or {}).items()
    }
    on_missing = part.get("on_missing", "guard")
    _check_words((on_missing, OnMissing))
    return ReadDeclaration(
        dataset=name,
        namespace=namespace,
        dimensions=dimensions,
        on_missing=on_missing,
        **_mapping(part),
    )


def _write(part: Mapping[str, Any]) -> WriteDeclaration:
    name, namespace = _dataset(part)
    mode, on_empty = part.get("mode", "overwrite"), part.get("on_empty", "clear")
    on_drift = part.get("on_drift", "fail")
    _check_words((mode, WriteMode), (on_empty, OnEmpty), (on_drift, OnDrift))
    return WriteDeclaration(
        dataset=name,
        namespace=namespace,
        mode=mode,
        says_mode=mode != "overwrite",
        on_empty=on_empty,
        on_drift=on_drift,
        lookback=_count(part, "lookback"),
    )


def _count(part: Mapping[str, Any], name: str) -> Any:
    """Return a number as it is, 0 for none; JSON has one type for 1 and 1.0."""
    value = part.get(name)
    if value is None:
        return 0
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _once(edges: list[E]) -> tuple[E, ...]:
    """Return edges, each of one dataset; a bare name is any namespace's."""
    seen: dict[str, set[str | None]] = {}
    for one in edges:
        spaces = seen.setdefault(one.dataset, set())
        if one.namespace in spaces or None in spaces or (spaces and one.namespace is None):
            raise ValueError(f"it declares its edge to {one.dataset!r} twice")
        spaces.add(one.namespace)
    return tuple(edges)


def _check_words(*words: tuple[Any, Any]) -> None:
    for word, known in words:
        if word not in get_args(known):
            raise ValueError(f"unknown word {word!r}: known are {', '.join(get_args(known))}")


def _unreadable(what: str, error: Exception) -> DeclarationError:
    return DeclarationError(
        f"{what} cannot be read: {error}",
        hint="Declare the partitioning in the project file, which wins over the facet.",
    )
