"""The run spec (what a run is told) and the result file (what came of it), as frozen values."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import unquote

from spark_runtime.errors import SpecError

SCHEMA_VERSION = 1

T = TypeVar("T")
Text = TypeVar("Text", bound=str)

Mode = Literal["overwrite", "merge", "append", "full"]
OnEmpty = Literal["clear", "fail", "keep"]
OnDrift = Literal["fail", "add", "relax"]
State = Literal["succeeded", "failed"]

#: What Hive and Delta call a NULL in a directory name; as a value it would silently become NULL.
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
#: The parameter, and the column, that hold the key of a run that has one.
KEY_COLUMN = "backfill_key"


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A dataset or job by namespace and name, as OpenLineage names it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"

    def matches(self, text: str) -> bool:
        """Whether `text` is this name, bare or with its namespace; it is never split."""
        return text in (self.name, str(self))


class ProductKey(dict[str, str]):
    """A key of several dimensions; as text it is written as paths do: `day=2024-06-15/region=eu`.

    >>> str(ProductKey({"day": "2024-06-15", "region": "eu/west"}))
    'day=2024-06-15/region=eu%2Fwest'
    """

    @classmethod
    def parse(cls, text: str) -> ProductKey:
        """Return the key that a text names, which may be none; `%2C` stands for a comma."""
        pairs = (part.partition("=") for part in text.split("/"))
        return cls((unquote(name), unquote(key)) for name, _, key in pairs)

    def __hash__(self) -> int:  # type: ignore[override]  # nobody changes one
        return hash(frozenset(self.items()))

    def __str__(self) -> str:
        return "/".join(f"{_escaped(name)}={_escaped(key)}" for name, key in self.items())


Key = str | ProductKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """One key of the run with its interval [start, end); both are None where it has none."""

    key: Key
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition: its key and the physical value of each partition column (None is NULL).

    Where the key is `*` in a dimension, the column of that dimension may be left out: then these
    are all partitions with the other values, whatever the value of that column, now or later.
    """

    key: Key
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a dataset is: a path or a catalog table, with its partition columns."""

    dataset: DatasetName
    format: str
    columns: tuple[str, ...]
    location: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec(Target):
    """A dataset that the run writes, and exactly the partitions that it may touch."""

    scope: tuple[Partition, ...]
    mode: Mode = "overwrite"
    on_empty: OnEmpty = "clear"
    on_drift: OnDrift = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec(Target):
    """A dataset that the run reads: these partitions (None: all) of this version (None: latest)."""

    partitions: tuple[Partition, ...] | None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSpec:
    """Where lineage events go, and the partitioning facets to send with them.

    `facets` holds `job: {partitioning}` and `datasets`, a list of `{dataset, partitioning}`.
    """

    outbox: str | None = None
    url: str | None = None
    facets: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The job that is run and the Python function that does it."""

    name: DatasetName
    entrypoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that one attempt of one run is told.

    `partitions` holds its keys as ranges, those of several dimensions as boxes; `keys` holds them
    one by one. A run that no backfill has planned has the empty text as `backfill_id`, and may
    have no `result_path`. With `undo` the job is not run: what the attempts with these tokens, the
    newest first, wrote to the outputs is put back. `store` is the id of the run store that planned
    it: names of backfills are its own.
    """

    backfill_id: str
    run_id: str
    attempt: int
    token: str
    job: JobSpec
    partitions: tuple[str | Mapping[str, Any], ...]
    keys: tuple[RunKey, ...]
    outputs: tuple[OutputSpec, ...]
    inputs: tuple[InputSpec, ...]
    parameters: Mapping[str, Any]
    lineage: LineageSpec
    result_path: str | None
    undo: tuple[str, ...] | None = None
    store: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What became of one partition; None means unknown.

    `within` names the keys of the scope with a `*` that it lies in, and `values` are those of its
    columns where the scope does not name it: one whose rows were 0 before appeared, one that was
    emptied vanished. Where there was none and none came, `*` itself stands for it.
    """

    key: Key
    rows_before: int | None
    rows: int | None
    fingerprint_before: str | None
    fingerprint: str | None
    emptied: bool
    values: Mapping[str, str | None] | None = None
    within: tuple[Key, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputResult:
    """What became of one output; `version` is None where nothing had to be written.

    `drift` says what was done about columns that were not those of the table, `types` are those of
    the columns whose values the partitions tell.
    """

    dataset: DatasetName
    version_before: int | None
    version: int | None
    partitions: tuple[PartitionResult, ...]
    drift: tuple[str, ...] = ()
    types: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """One partition that was read and the fingerprint of what was in it (None: unknown).

    `values` are those of its columns, by their declared names, where the run was not told its key.
    """

    key: Key
    fingerprint: str | None
    values: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputResult:
    """The version of one input that was read (None: it does not exist) and its partitions.

    `types` are those of the columns whose values the partitions tell, as the table names them.
    """

    dataset: DatasetName
    version: int | None
    partitions: tuple[PartitionRead, ...]
    types: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResult:
    """Why a run failed."""

    class_name: str
    message: str
    transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of one attempt of one run."""

    run_id: str
    attempt: int
    token: str
    state: State
    outputs: tuple[OutputResult, ...]
    inputs: tuple[InputResult, ...]
    error: ErrorResult | None
    started_at: datetime
    ended_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return the result file's document."""
        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        for dataset in (*document["inputs"], *document["outputs"]):
            _leave_out(dataset, "types")
            for part in dataset["partitions"]:
                _leave_out(part, "values", "within")
        document["started_at"] = _instant_text(self.started_at)
        document["ended_at"] = _instant_text(self.ended_at)
        if self.error is not None:
            document["error"] = {
                "class": self.error.class_name,
                "message": self.error.message,
                "transient": self.error.transient,
            }
        return document


def write_result(path: str | Path, result: RunResult) -> None:
    """Write the result file in one step: a reader sees the whole document or none."""
    write_atomically(Path(path), json.dumps(result.to_dict(), ensure_ascii=False, indent=1))


def write_atomically(path: Path, text: str) -> None:
    """Write a file by renaming a finished one into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_spec(path: str | Path) -> RunSpec:
    """Read a run spec from a file; raises SpecError."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"run spec {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SpecError(f"run spec {path} is not JSON: {error}") from error
    return parse_spec(document)


def _leave_out(document: dict[str, Any], *names: str) -> None:
    for name in names:
        if document.get(name, "") is None:
            del document[name]


def parse_spec(document: object) -> RunSpec:
    """Return the run spec that a JSON document holds; raises SpecError naming the place."""
    top = _Reader(document, "run spec")
    version = top.get("schema_version", int)
    if version != SCHEMA_VERSION:
        raise SpecError(
            f"run spec: schema_version is {version}, this runtime reads {SCHEMA_VERSION}",
            hint="install the same release of lineage-backfill on both sides",
        )
    job = top.child("job")
    lineage = top.child("lineage") if top.peek("lineage") is not None else None
    return top.done(
        RunSpec(
            store=top.get("store", str, default=""),
            backfill_id=top.get("backfill_id", str),
            run_id=top.get("run_id", str),
            attempt=top.get("attempt", int),
            token=top.get("token", str),
            job=job.done(
                JobSpec(
                    name=DatasetName(job.get("namespace", str), job.get("name", str)),
                    entrypoint=job.get("entrypoint", str),
                )
            ),
            partitions=tuple(top.items("partitions", _range)),
            keys=tuple(top.items("keys", _run_key)),
            outputs=tuple(top.items("outputs", _output)),
            inputs=tuple(top.items("inputs", _input)),
            parameters=top.get("parameters", dict, default={}),
            lineage=LineageSpec() if lineage is None else _lineage(lineage),
            result_path=top.get("result_path", str),
            undo=None if top.peek("undo") is None else tuple(top.items("undo", _text)),
        )
    )


class _Reader:
    """Takes members out of a JSON object and knows where it is; what nobody took is an error."""

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

    def items(self, name: str, parse: Callable[[object, str], T]) -> list[T]:
        values = self.get(name, list)
        return [parse(value, f"{self.place}.{name}[{i}]") for i, value in enumerate(values)]

    def done(self, value: T) -> T:
        unknown = sorted(self._members.keys() - self._taken)
        if unknown:
            raise SpecError(f"{self.place}: {unknown[0]!r} is unknown")
        return value


_JSON_NAMES: dict[type, str] = {str: "a text", int: "an integer", list: "a list", dict: "an object"}


# The first of each is what an absent member means.
_FORMATS = ("delta", "parquet")
_MODES: tuple[Mode, ...] = ("overwrite", "merge", "append", "full")
_ON_EMPTY: tuple[OnEmpty, ...] = ("clear", "fail", "keep")
_ON_DRIFT: tuple[OnDrift, ...] = ("fail", "add", "relax")


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
    return [*key.values()].count("*") if isinstance(key, ProductKey) else int(key == "*")


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in ",/=%" else char for char in text)


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
        raise SpecError(f"{place}: {text!r} is no instant") from error
    if instant.tzinfo is None:
        raise SpecError(f"{place}: {text!r} has no UTC offset")
    return instant


def _instant_text(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


def _dataset(reader: _Reader) -> DatasetName:
    child = reader.child("dataset")
    return child.done(DatasetName(child.get("namespace", str), child.get("name", str)))


def _place_of_data(reader: _Reader) -> tuple[str | None, str | None]:
    location, table = reader.optional("location", str), reader.optional("table", str)
    if (location is None) == (table is None):
        raise SpecError(f"{reader.place}: exactly one of 'location' and 'table' is expected")
    return location, table


def _columns(reader: _Reader) -> tuple[str, ...]:
    columns = tuple(reader.items("columns", _text))
    if len({column.lower() for column in columns}) != len(columns):
        raise SpecError(f"{reader.place}.columns: a column stands twice")
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
                hint="only the column of a dimension that is `*` in the key may be left out",
            )
        for column, text in values.items():
            if text is not None and not isinstance(text, str):
                raise SpecError(f"{place}.values.{column}: a text or null, not {text!r:.80}")
            if text in ("", NULL_DIRECTORY):
                raise SpecError(
                    f"{place}.values.{column}: {text!r} cannot be told from NULL in a table",
                    hint="write null for the NULL partition",
                )
        return member.done(Partition(key=key, values=values))

    return tuple(reader.items(name, parse))


def _output(value: object, place: str) -> OutputSpec:
    reader = _Reader(value, place)
    location, table = _place_of_data(reader)
    columns = _columns(reader)
    scope = _partitions(reader, "scope", columns)
    if not scope:
        raise SpecError(f"{place}.scope: no partition at all; a run writes at least one")
    return reader.done(
        OutputSpec(
            dataset=_dataset(reader),
            format=reader.choice("format", _FORMATS),
            location=location,
            table=table,
            columns=columns,
            scope=scope,
            mode=reader.choice("mode", _MODES),
            on_empty=reader.choice("on_empty", _ON_EMPTY),
            on_drift=reader.choice("on_drift", _ON_DRIFT),
        )
    )


def _input(value: object, place: str) -> InputSpec:
    reader = _Reader(value, place)
    location, table = _place_of_data(reader)
    columns = _columns(reader)
    return reader.done(
        InputSpec(
            dataset=_dataset(reader),
            format=reader.choice("format", _FORMATS),
            location=location,
            table=table,
            columns=columns,
            partitions=None
            if reader.peek("partitions") == "*"
            else _partitions(reader, "partitions", columns),
            version=reader.optional("version", int),
        )
    )


def _lineage(reader: _Reader) -> LineageSpec:
    return reader.done(
        LineageSpec(
            outbox=reader.optional("outbox", str),
            url=reader.optional("url", str),
            facets=reader.get("facets", dict, default={}),
        )
    )
