"""The partitioning facet that jobs send with their lineage, read as declarations.

Its members have the names of the project file: `grain`, `zone`, `start`, `dimensions`, `column`,
`columns`; for jobs also `batch`, `reads` and `writes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast, get_args

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.model import DatasetRef
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
from lineage_backfill.project.matching import names

E = TypeVar("E", ReadDeclaration, WriteDeclaration)

_CALENDAR = ("grain", "cron", "every", "keys", "zone", "start", "end", "data_lag")
#: The members of a facet and of its parts.
_FACET: Final = {*_CALENDAR, "dimensions", "column", "columns", "batch", "reads", "writes"}
_DIMENSION: Final = {*_CALENDAR, "name", "column"}
_MAPPING: Final = {"mapping", "before", "after", "by", "map"}
_READ: Final = {*_MAPPING, "dataset", "dimensions", "on_missing"}
_WRITE: Final = {"dataset", "mode", "lookback", "on_empty", "on_drift", "unsafe_overwrite"}


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
        calendar, dimensions = _either(facet)
        columns = facet.get("columns")
        if not isinstance(columns, Mapping):
            columns = _texts(facet, "columns") or _texts(facet, "column")
        columns = tuple(columns)
    except (TypeError, ValueError, KeyError, AttributeError, UsageError) as error:
        raise _unreadable(what, error) from None
    if calendar is None and not dimensions:
        return None
    return calendar, dimensions, columns


def ignored(facet: Mapping[str, Any], what: str) -> list[str]:
    """Return what is left out of a readable facet, each as the rest of a sentence."""
    # Older jobs send a zone with all keys: it is not worth a warning.
    parts = (facet, *_list(facet, "dimensions"))
    timeless = [part for part in parts if part.get("keys") or part.get("grain") == "none"]
    dated = [name for name in DATED[1:] if any(part.get(name) for part in timeless)]
    edges = [(_READ, one) for one in _list(facet, "reads")]
    edges += [(_WRITE, one) for one in _list(facet, "writes")]
    mapped = [one for _, edge in edges for one in _object(edge, "dimensions").values()]
    known = [(_FACET, facet), *((_DIMENSION, one) for one in parts[1:]), *edges]
    known += [(_MAPPING, one) for one in mapped]
    unknown = {name: None for members, part in known for name in part if name not in members}
    return [
        *(f"`{name}` in {what}, whose keys have no time" for name in dated),
        *(f"`{name}` in {what}, which is not a known member" for name in unknown),
    ]


def unused(
    facet: JobFacet, reads: Sequence[DatasetRef], writes: Sequence[DatasetRef], what: str
) -> list[str]:
    """Return the edges of a job's facet that the job does not have, as `ignored` does."""
    return [
        f"the edge to {edge.dataset!r} in {what}, which {word} {', '.join(map(str, refs[:5]))}"
        for word, edges, refs in (("reads", facet.reads, reads), ("writes", facet.writes, writes))
        for edge in edges
        if refs and not any(names(edge, ref, None) for ref in refs)
    ]


def read_job(facet: Mapping[str, Any], what: str) -> JobFacet:
    """Return the facet of a job; raises DeclarationError if it cannot be read."""
    try:
        calendar, dimensions = _either(facet)
        return JobFacet(
            calendar=calendar,
            dimensions=dimensions,
            reads=_once([_read(part) for part in _list(facet, "reads")]),
            writes=_once([_write(part) for part in _list(facet, "writes")]),
            batch=batch_policy(_whole(facet.get("batch"))),
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
    if write.unsafe_overwrite:
        facet["unsafe_overwrite"] = True
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


def _either(
    facet: Mapping[str, Any],
) -> tuple[CalendarDeclaration | None, tuple[DimensionDeclaration, ...]]:
    """Return the calendar or the dimensions of a facet; raises ValueError for both."""
    calendar, dimensions = _calendar(facet), _dimensions(facet)
    if calendar is not None and dimensions:
        raise ValueError("it says a calendar and dimensions")
    return calendar, dimensions


def _calendar(facet: Mapping[str, Any]) -> CalendarDeclaration | None:
    given = {name: facet[name] for name in _CALENDAR if facet.get(name) is not None}
    kinds = [name for name in ("grain", "cron", "every", "keys") if name in given]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise ValueError(f"it says {' and '.join(kinds)}")
    keys = None if given.pop("keys", None) is None else _texts(facet, "keys")
    if keys is not None and len(set(keys)) < len(keys):
        raise ValueError("it lists a key twice")
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
        keys="runtime" if keys == ("runtime",) else keys,
        data_lag=lag,
        **cast(Any, texts),
    )


def _dimensions(facet: Mapping[str, Any]) -> tuple[DimensionDeclaration, ...]:
    found = []
    for part in _list(facet, "dimensions"):
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
    mapping, table = part.get("mapping"), _object(part, "map")
    if mapping is not None and mapping not in get_args(MappingName):
        raise ValueError(f"unknown mapping {mapping!r}")
    return {
        "mapping": mapping,
        "before": _count(part, "before"),
        "after": _count(part, "after"),
        "by": _count(part, "by"),
        "map": {str(key): _texts(table, key) for key in table},
    }


def _read(part: Mapping[str, Any]) -> ReadDeclaration:
    name, namespace = _dataset(part)
    dimensions = {
        str(key): DimensionMapping(**_mapping(value))
        for key, value in _object(part, "dimensions").items()
    }
    return ReadDeclaration(
        dataset=name,
        namespace=namespace,
        dimensions=dimensions,
        on_missing=_word(part, "on_missing", OnMissing) or "guard",
        **_mapping(part),
    )


def _write(part: Mapping[str, Any]) -> WriteDeclaration:
    name, namespace = _dataset(part)
    mode: Any = _word(part, "mode", WriteMode) or "overwrite"
    return WriteDeclaration(
        dataset=name,
        namespace=namespace,
        mode=mode,
        says_mode=mode != "overwrite",
        on_empty=_word(part, "on_empty", OnEmpty) or "clear",
        on_drift=_word(part, "on_drift", OnDrift) or "fail",
        lookback=_count(part, "lookback"),
        unsafe_overwrite=part.get("unsafe_overwrite") is True,
    )


def _count(part: Mapping[str, Any], name: str) -> Any:
    """Return a number as it is, 0 for none; JSON has one type for 1 and 1.0."""
    value = part.get(name)
    return 0 if value is None else _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _list(part: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return a list; raises ValueError for anything else but null."""
    value = part.get(name)
    if not isinstance(value, list | tuple | None):
        raise ValueError(f"`{name}` must be a list, not {value!r}")
    return value or ()


def _object(part: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object; raises ValueError for anything else but null."""
    value = part.get(name)
    if not isinstance(value, Mapping | None):
        raise ValueError(f"`{name}` must be an object, not {value!r}")
    return value or {}


def _texts(part: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return one or several strings, as in a project file; listed numbers count too."""
    value = part.get(name)
    items: Any = (value,) if isinstance(value, str) else () if value is None else value
    if not isinstance(items, list | tuple) or not all(
        type(one) is int or (isinstance(one, str) and one) for one in items
    ):
        raise ValueError(f"`{name}` must be a list of strings, not {value!r}")
    return tuple(str(one) for one in items)


def _word(part: Mapping[str, Any], name: str, known: Any) -> Any:
    """Return one of the known words, or null; raises ValueError for any other."""
    word = part.get(name)
    if word is not None and word not in get_args(known):
        raise ValueError(f"unknown word {word!r}: known are {', '.join(get_args(known))}")
    return word


def _once(edges: list[E]) -> tuple[E, ...]:
    """Return edges, each of one dataset; a bare name is any namespace's."""
    seen: dict[str, set[str | None]] = {}
    for one in edges:
        spaces = seen.setdefault(one.dataset, set())
        if one.namespace in spaces or None in spaces or (spaces and one.namespace is None):
            raise ValueError(f"it declares its edge to {one.dataset!r} twice")
        spaces.add(one.namespace)
    return tuple(edges)


def _unreadable(what: str, error: Exception) -> DeclarationError:
    return DeclarationError(
        f"{what} cannot be read: {error}",
        hint="Declare the partitioning in the project file, which wins over the facet.",
    )
