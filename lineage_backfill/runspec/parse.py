"""Run specs and result files are read whole or refused with the place that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast, get_args

from lineage_backfill.errors import SpecError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import EVERY
from lineage_backfill.project.declarations import (
    OnDrift,
    OnEmpty,
    OnMissing,
    TableFormat,
    WriteMode,
)
from lineage_backfill.runspec.values import (
    NULL_DIRECTORY,
    SCHEMA_VERSION,
    InputSpec,
    JobSpec,
    Key,
    LineageSpec,
    OutputSpec,
    Partition,
    ProductKey,
    RunKey,
    RunSpec,
    State,
)

T = TypeVar("T")
Text = TypeVar("Text", bound=str)


def parse_spec(document: object) -> RunSpec:
    """Return the run spec that a JSON document holds; raises SpecError naming the place."""
    top = _Reader(document, "run spec")
    version = top.get("schema_version", int)
    if version != SCHEMA_VERSION:
        raise SpecError(
            f"run spec: schema_version is {version}, this runtime reads {SCHEMA_VERSION}",
            hint="Install the same release of lineage-backfill on both sides.",
        )
    job = top.child("job")
    outputs = tuple(top.items("outputs", _output))
    if outputs and not any(output.scope for output in outputs):
        raise SpecError("outputs: no partition at all; a run writes at least one")
    lineage = top.child("lineage") if top.peek("lineage") is not None else None
    return top.done(
        RunSpec(
            store=top.get("store", str, default=""),
            keys_derived=top.get("keys_derived", bool, default=False),
            backfill_id=top.get("backfill_id", str),
            run_id=top.get("run_id", str),
            attempt=top.get("attempt", int),
            token=top.get("token", str),
            job=job.done(
                JobSpec(
                    name=JobRef(job.get("namespace", str), job.get("name", str)),
                    entrypoint=job.get("entrypoint", str),
                )
            ),
            partitions=tuple(top.items("partitions", _range)),
            keys=tuple(top.items("keys", _run_key)),
            outputs=outputs,
            inputs=tuple(top.items("inputs", _input)),
            parameters=top.get("parameters", dict, default={}),
            lineage=LineageSpec() if lineage is None else _lineage(lineage),
            result_path=top.get("result_path", str),
            undo=None if top.peek("undo") is None else tuple(top.items("undo", _text)),
        )
    )


def check_result(document: object) -> Mapping[str, Any]:
    """Return the document of a result file; raises SpecError naming the place that is wrong.

    Members that are not known here are allowed: other programs write result files, too.
    """
    top = _Reader(document, "result file")
    if (version := top.optional("schema_version", int)) not in (None, SCHEMA_VERSION):
        raise SpecError(f"result file.schema_version: {SCHEMA_VERSION}, not {version}")
    top.optional("run_id", str)
    top.optional("attempt", int)
    if (state := top.get("state", str)) not in get_args(State):
        raise SpecError(f"result file.state: succeeded or failed, not {state!r:.80}")
    error = top.optional("error", dict)
    if error is not None:
        told = _Reader(error, "result file.error")
        for name, kind in (("class", str), ("message", str), ("transient", bool)):
            told.optional(name, kind)
    for name in ("outputs", "inputs"):
        top.items(name, _check_table, default=[])
    return cast("Mapping[str, Any]", document)


def _check_table(value: object, place: str) -> None:
    table = _Reader(value, place)
    _dataset(table)
    for name in ("version", "version_before"):
        table.optional(name, int)
    table.items("drift", _text, default=[])
    table.optional("types", dict)
    for name in ("missing", "unknown"):
        table.items(name, _range, default=[])
    counts = _Reader(table.get("merged", dict, default={}), f"{place}.merged")
    for name in ("inserted", "updated", "deleted"):
        counts.optional(name, int)
    table.items("partitions", _check_partition)


def _check_partition(value: object, place: str) -> None:
    partition = _Reader(value, place)
    _key(partition)
    for name in ("rows_before", "rows"):
        partition.optional(name, int)
    for name in ("fingerprint_before", "fingerprint"):
        partition.optional(name, str)
    partition.optional("emptied", bool)
    for column, text in partition.get("values", dict, default={}).items():
        if text is not None:
            _text(text, f"{place}.values.{column}")
    partition.items("within", _range, default=[])


class _Reader:
    """Takes members out of a JSON object at a place; a member left over is an error."""

    def __init__(self, document: object, place: str) -> None:
        if not isinstance(document, dict):
            raise SpecError(f"{place}: an object is expected, not {type(document).__name__}")
        self.place = place
        self._members = cast("dict[str, Any]", document)
        self._taken: set[str] = set()

    def peek(self, name: str) -> object:
        self._taken.add(name)
        return self._members.get(name)

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        value = self.optional(name, kind)
        if value is not None:
            return value
        if default is None:
            raise SpecError(f"{self.place}: {name!r} is missing")
        return default

    def optional(self, name: str, kind: type[T]) -> T | None:
        self._taken.add(name)
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise SpecError(
                f"{self.place}.{name}: {_JSON_NAMES[kind]} is expected, not {value!r:.80}"
            )
        return value

    def choice(self, name: str, choices: tuple[Text, ...]) -> Text:
        value = self.get(name, str, default=choices[0])
        for choice in choices:
            if choice == value:
                return choice
        raise SpecError(f"{self.place}.{name}: one of {', '.join(choices)}, not {value!r}")

    def child(self, name: str) -> _Reader:
        self._taken.add(name)
        return _Reader(self._members.get(name), f"{self.place}.{name}")

    def items(
        self, name: str, parse: Callable[[object, str], T], default: list[T] | None = None
    ) -> list[T]:
        if default is not None and self._members.get(name, default) is None:
            raise SpecError(f"{self.place}.{name}: a list is expected, not null")
        values = self.get(name, list, default)
        return [parse(value, f"{self.place}.{name}[{i}]") for i, value in enumerate(values)]

    def done(self, value: T) -> T:
        unknown = sorted(self._members.keys() - self._taken)
        if unknown:
            raise SpecError(f"{self.place}: {unknown[0]!r} is unknown")
        return value


_JSON_NAMES: dict[type, str] = {
    str: "a text",
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


# The first of each is what an absent member means.
_FORMATS = get_args(TableFormat)
_MODES: tuple[WriteMode, ...] = ("overwrite", "merge", "append", "full")
_ON_EMPTY: tuple[OnEmpty, ...] = ("clear", "fail", "keep")
_ON_DRIFT: tuple[OnDrift, ...] = ("fail", "add", "relax")
_ON_MISSING: tuple[OnMissing, ...] = ("guard", "fail", "read")


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{place}: a text is expected, not {value!r:.80}")
    return value


def _range(value: object, place: str) -> str | Mapping[str, Any]:
    """Return a key, a range, or a box of several dimensions as it is: it is only handed on."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else _text(value, place)


def _key(reader: _Reader) -> Key:
    if isinstance(reader.peek("key"), dict):
        labels = reader.get("key", dict)
        place = f"{reader.place}.key"
        return ProductKey((name, _text(label, place)) for name, label in labels.items())
    return reader.get("key", str)


def _open_dimensions(key: Key) -> int:
    """Return how many dimensions of a key are `*`: every present and future key."""
    return [*key.values()].count(EVERY) if isinstance(key, ProductKey) else int(key == EVERY)


def _run_key(value: object, place: str) -> RunKey:
    reader = _Reader(value, place)
    start, end = (_instant(reader.optional(name, str), place) for name in ("start", "end"))
    return reader.done(RunKey(key=_key(reader), start=start, end=end))


def _instant(text: str | None, place: str) -> datetime | None:
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(f"{place}: {text!r} is not an instant") from error
    if instant.tzinfo is None:
        raise SpecError(f"{place}: {text!r} has no UTC offset")
    return instant


def _dataset(reader: _Reader) -> DatasetRef:
    child = reader.child("dataset")
    return child.done(DatasetRef(child.get("namespace", str), child.get("name", str)))


def _place_of_data(reader: _Reader) -> tuple[str | None, str | None]:
    location, table = reader.optional("location", str), reader.optional("table", str)
    if (location is None) == (table is None):
        raise SpecError(f"{reader.place}: exactly one of 'location' and 'table' is expected")
    return location, table


def _columns(reader: _Reader) -> tuple[str, ...]:
    columns = tuple(reader.items("columns", _text))
    if len({column.lower() for column in columns}) != len(columns):
        raise SpecError(f"{reader.place}.columns: a column occurs twice")
    return columns


def _partitions(reader: _Reader, name: str, columns: tuple[str, ...]) -> tuple[Partition, ...]:
    def parse(value: object, place: str) -> Partition:
        member = _Reader(value, place)
        values = member.get("values", dict)
        key = _key(member)
        left_out = len(columns) - len(values)
        if not set(values) <= set(columns) or left_out > _open_dimensions(key):
            raise SpecError(
                f"{place}.values: names {sorted(values)}, the partition columns are "
                f"{sorted(columns)}",
                hint="Only the column of a dimension that is `*` in the key may be left out.",
            )
        for column, text in values.items():
            if text is not None and not isinstance(text, str):
                raise SpecError(f"{place}.values.{column}: a text or null, not {text!r:.80}")
            if text in ("", NULL_DIRECTORY):
                raise SpecError(
                    f"{place}.values.{column}: {text!r} cannot be told from NULL in a table",
                    hint="Write null for the NULL partition.",
                )
        start = _instant(member.optional("start", str), place)
        return member.done(Partition(key=key, values=values, start=start))

    return tuple(reader.items(name, parse))


def _output(value: object, place: str) -> OutputSpec:
    reader = _Reader(value, place)
    location, table = _place_of_data(reader)
    columns = _columns(reader)
    return reader.done(
        OutputSpec(
            dataset=_dataset(reader),
            format=reader.choice("format", _FORMATS),
            location=location,
            table=table,
            columns=columns,
            scope=_partitions(reader, "scope", columns),
            mode=reader.choice("mode", _MODES),
            on_empty=reader.choice("on_empty", _ON_EMPTY),
            on_drift=reader.choice("on_drift", _ON_DRIFT),
            merge_on=tuple(reader.items("merge_on", _text, default=[])) or None,
            delete_when=reader.optional("delete_when", str),
            delete_missing=reader.get("delete_missing", bool, default=False),
            unsafe_overwrite=reader.get("unsafe_overwrite", bool, default=False),
        )
    )


def _input(value: object, place: str) -> InputSpec:
    reader = _Reader(value, place)
    location, table = _place_of_data(reader)
    columns = _columns(reader)
    whole = reader.peek("partitions") == "*"
    partitions = None if whole else _partitions(reader, "partitions", columns)
    is_narrower = whole and reader.peek("required") is not None
    required = _partitions(reader, "required", columns) if is_narrower else None
    needed = partitions if partitions is not None else required or ()
    return reader.done(
        InputSpec(
            dataset=_dataset(reader),
            format=reader.choice("format", _FORMATS),
            location=location,
            table=table,
            columns=columns,
            partitions=partitions,
            version=reader.optional("version", int),
            on_missing=reader.choice("on_missing", _ON_MISSING),
            required=required,
            needs=_needs(reader, len(partitions or ())),
            along=reader.optional("along", str),
            mixed=reader.optional("mixed", str),
            written=None
            if reader.peek("written") is None
            else _places(reader.get("written", list), f"{place}.written", len(needed)),
        )
    )


def _places(value: object, place: str, count: int) -> tuple[tuple[int, int], ...]:
    """Return index ranges among so many partitions, with both ends included."""
    pairs = tuple(_pair(one) for one in value) if isinstance(value, list) else (None,)
    if all(pair is not None and 0 <= pair[0] <= pair[1] < count for pair in pairs):
        return cast("tuple[tuple[int, int], ...]", pairs)
    raise SpecError(
        f"{place}: pairs of places among its {count} partitions are expected, not {value!r:.80}"
    )


def _needs(reader: _Reader, count: int) -> tuple[tuple[tuple[int, int], ...], ...] | None:
    """Return which of so many partitions each run key needs."""
    if reader.peek("needs") is None:
        return None
    return tuple(reader.items("needs", lambda value, place: _places(value, place, count)))


def _pair(value: object) -> tuple[int, int] | None:
    is_pair = isinstance(value, list) and [type(end) for end in value] == [int, int]
    return cast("tuple[int, int]", tuple(cast("list[int]", value))) if is_pair else None


def _lineage(reader: _Reader) -> LineageSpec:
    return reader.done(
        LineageSpec(
            outbox=reader.optional("outbox", str),
            url=reader.optional("url", str),
            facets=reader.get("facets", dict, default={}),
        )
    )
