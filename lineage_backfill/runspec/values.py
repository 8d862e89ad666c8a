"""The run spec (the input of a run) and the result file (its outcome), as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

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
from lineage_backfill.project.forms import Positive
from lineage_backfill.typed import JSON, Form, Misfit, Rules, Star, member, plain, reader

SCHEMA_VERSION = 1
_Version = Literal[1]
_Format = Annotated[
    str,
    Form(lambda value: reader(TableFormat)(value, Rules(JSON)), {"enum": [*get_args(TableFormat)]}),
]

State = Literal["succeeded", "failed"]

#: What Hive and Delta call a NULL in a directory name; as a value it would silently become NULL.
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
#: The parameter, and the column, that hold the key of a run that has one.
KEY_COLUMN = "backfill_key"


class ProductKey(dict[str, str]):
    """A key of several dimensions; as text it is written as paths do: `day=2024-06-15/region=eu`.

    >>> str(ProductKey({"day": "2024-06-15", "region": "eu/west"}))
    'day=2024-06-15/region=eu%2Fwest'
    """

    def __hash__(self) -> int:  # type: ignore[override]  # never changed after parsing
        return hash(frozenset(self.items()))

    def __str__(self) -> str:
        return "/".join(f"{_escaped(name)}={_escaped(key)}" for name, key in self.items())


def _key(value: Any) -> str | ProductKey:
    if isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values()):
        return ProductKey(value)
    if isinstance(value, str):
        return value
    raise Misfit("must be a string or an object of strings, not {value}", value)


_STRINGS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
Key = Annotated[str | ProductKey, Form(_key, {"anyOf": [{"type": "string"}, _STRINGS]}, plain)]
#: A key, a range, or a box of several dimensions.
Range = str | Mapping[str, Any]


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
    `start` is when the period of an input's key begins, if it has one.
    """

    key: Key
    values: Mapping[str, str | None]
    start: datetime | None = None

    def __post_init__(self) -> None:
        for column, text in self.values.items():
            if text in ("", NULL_DIRECTORY):
                raise SpecError(
                    f"values.{column}: {text!r} cannot be told from NULL in a table",
                    hint="Write null for the NULL partition.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a dataset is: a path or a catalog table, with its partition columns.

    With `scoped_by` the table is not partitioned by them: the value of the only one says which key
    a row has. By "time" the values of `Partition` are intervals, two instants that also have the
    local time (`2024-03-10T00:00:00-05:00/2024-03-11T00:00:00-04:00`); texts in it are local times
    in `time_format`. `mixed` names two keys that have one local time, where the run has only one
    of them.
    """

    dataset: DatasetRef
    format: _Format = member("delta", shown=True)
    columns: tuple[str, ...]
    location: str | None = None
    table: str | None = None
    scoped_by: Literal["time", "key"] | None = None
    time_format: str | None = None
    mixed: str | None = None

    def check(self, name: str, partitions: tuple[Partition, ...]) -> None:
        """Raise SpecError where the place, columns or some partitions contradict each other."""
        if (self.location is None) == (self.table is None):
            raise SpecError("exactly one of `location` and `table` is expected")
        columns = set(self.columns)
        if self.scoped_by is not None and (len(columns) != 1 or self.format != "delta"):
            raise SpecError("scoped_by: one column of a Delta table is expected")
        if len({column.lower() for column in columns}) != len(self.columns):
            raise SpecError("columns: a column occurs twice")
        for number, one in enumerate(partitions):
            left_out = len(columns) - len(one.values)
            if not one.values.keys() <= columns or left_out > _open_dimensions(one.key):
                raise SpecError(
                    f"{name}[{number}].values: names {sorted(one.values)}, the partition columns "
                    f"are {sorted(columns)}",
                    hint="Only the column of a dimension that is `*` in the key may be left out.",
                )


def _open_dimensions(key: Key) -> int:
    """Return how many dimensions of a key are `*`: every present and future key."""
    return [*key.values()].count(EVERY) if isinstance(key, ProductKey) else int(key == EVERY)


def _check_places(name: str, places: Iterable[tuple[int, int]], count: int) -> None:
    if not all(0 <= first <= last < count for first, last in places):
        raise SpecError(f"{name}: pairs of places among its {count} partitions are expected")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec(Target):
    """A dataset that the run writes, and exactly the partitions that it may touch.

    `appended` are the places in `scope`, as index ranges, that recorded runs of the job have
    appended to, for a table whose log no longer goes back to them. The other members are those of
    `WritePolicy`.
    """

    scope: tuple[Partition, ...]
    mode: WriteMode = member("overwrite", shown=True)
    on_empty: OnEmpty = member("clear", shown=True)
    on_drift: OnDrift = member("fail", shown=True)
    merge_on: tuple[str, ...] | None = None
    delete_when: str | None = None
    delete_missing: bool = False
    unsafe_overwrite: bool = False
    appended: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        self.check("scope", self.scope)
        _check_places("appended", self.appended or (), len(self.scope))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec(Target):
    """A dataset that the run reads: these partitions (None: all) of this version (None: latest).

    `on_missing` says when the run fails because partitions that it needs were never written. It
    needs `required` where that is given, else `partitions`. `needs` holds for each run key in turn
    which of the partitions that key needs, as index ranges with both ends included; None stands
    for all of them. `along` is the time dimension of `required`, whose keys are consecutive in it:
    those that are missing are named as ranges. `mixed` names one of the partitions and a key that
    is not among them, if both are one partition of the table, or have one local time. `written` are
    the places, as index ranges, of needed partitions that recorded runs have written, whatever the
    log still shows. `later` are the next keys of a sparse input: once one is written, no key before
    is missing.
    """

    partitions: Annotated[tuple[Partition, ...] | None, Star()]
    version: int | None = member(None, shown=True)
    on_missing: OnMissing = member("guard", shown=True)
    required: tuple[Partition, ...] | None = None
    needs: tuple[tuple[tuple[int, int], ...], ...] | None = None
    along: str | None = None
    written: tuple[tuple[int, int], ...] | None = None
    later: tuple[Partition, ...] | None = None

    def __post_init__(self) -> None:
        self.check("partitions", self.partitions or ())
        self.check("later", self.later or ())
        self.check("required", self.required or ())
        count = len(self.partitions or ())
        for number, pairs in enumerate(self.needs or ()):
            _check_places(f"needs[{number}]", pairs, count)
        needed = self.required if self.partitions is None else self.partitions
        _check_places("written", self.written or (), len(needed or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSpec:
    """Where lineage events go, and the partitioning facets to send with them.

    `facets` holds `job: {partitioning}` and `datasets`, a list of `{dataset, partitioning}`.
    """

    outbox: str | None = member(None, shown=True)
    url: str | None = member(None, shown=True)
    facets: Mapping[str, Any] = member({}, shown=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The job that is run and the Python function that does it."""

    name: JobRef = member(flat=True)
    entrypoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the run store knows of an attempt: its submission, and what it wrote to each dataset.

    `versions` is None without a result; a version is None where nothing was written.
    """

    token: str
    since: datetime
    versions: Mapping[str, int | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All instructions for one attempt of one run.

    `partitions` holds its keys as ranges, those of several dimensions as boxes; `keys` holds them
    one by one. A run that no backfill has planned has the empty text as `backfill_id`, and may
    have no `result_path`. With `undo` the job is not run: what the attempts with these tokens, the
    newest first, wrote to the outputs is restored; `recorded` holds what the run store knows of
    them, for tables whose logs no longer go back to them. `store` is the id of the run store that
    planned it: names of backfills are its own. With `keys_derived` the keys were not named: they
    come from the clock or a schedule. With `append_again` it may append to keys that another run of
    the job has appended to.
    """

    schema_version: _Version = member(1, shown=True)
    backfill_id: str
    run_id: str
    attempt: Positive
    token: str
    job: JobSpec
    partitions: tuple[Range, ...]
    keys: tuple[RunKey, ...]
    outputs: tuple[OutputSpec, ...]
    inputs: tuple[InputSpec, ...]
    parameters: Mapping[str, Any] = member({}, shown=True)
    lineage: LineageSpec = member(LineageSpec(), shown=True)
    result_path: str | None = member(None, shown=True)
    undo: tuple[str, ...] | None = None
    recorded: tuple[Recorded, ...] = ()
    store: str = ""
    keys_derived: bool = False
    append_again: bool = False

    def __post_init__(self) -> None:
        if self.outputs and not any(output.scope for output in self.outputs):
            raise SpecError("outputs: no partition at all; a run writes at least one")

    def to_dict(self) -> dict[str, Any]:
        """Return the run spec as JSON has it."""
        found: dict[str, Any] = plain(self)
        return found


# Other programs write results, too: what they may leave out has a default, and is always written.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What became of one partition; None means unknown.

    `within` names the keys of the scope with a `*` that it lies in, and `values` are those of its
    columns where the scope does not name it: one whose rows were 0 before appeared, one that was
    emptied vanished. Where there was none and none came, `*` itself stands for it.
    """

    key: Key
    rows_before: int | None = member(None, shown=True)
    rows: int | None = member(None, shown=True)
    fingerprint_before: str | None = member(None, shown=True)
    fingerprint: str | None = member(None, shown=True)
    emptied: bool = member(False, shown=True)
    values: Mapping[str, str | None] | None = None
    within: tuple[Key, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputResult:
    """What became of one output; `version` is None where nothing had to be written.

    `drift` says what was done about columns that were not those of the table, `types` are those of
    the columns whose values the partitions tell, `merged` is how many rows a merge inserted,
    updated and deleted, where the table's log counts them.
    """

    dataset: DatasetRef
    version_before: int | None = member(None, shown=True)
    version: int | None = member(None, shown=True)
    partitions: tuple[PartitionResult, ...]
    drift: tuple[str, ...] = member((), shown=True)
    types: Mapping[str, str] | None = None
    merged: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """One partition that was read and the fingerprint of what was in it (None: unknown).

    `values` are those of its columns, by their declared names, where the run was not told its key.
    """

    key: Key
    fingerprint: str | None = member(None, shown=True)
    values: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputResult:
    """The version of one input that was read (None: it does not exist) and its partitions.

    `types` are those of the columns whose values the partitions tell, as the table names them.
    Of the keys that the run needs, `missing` were never written, and `unknown` are empty and may be
    older than the log. Where all keys are read they are ranges, in their time dimension; `*` is the
    whole table.
    """

    dataset: DatasetRef
    version: int | None = member(None, shown=True)
    partitions: tuple[PartitionRead, ...]
    types: Mapping[str, str] | None = None
    missing: tuple[Range, ...] = ()
    unknown: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResult:
    """Why a run failed."""

    class_name: str = member("", key="class", shown=True)
    message: str = member("", shown=True)
    transient: bool = member(False, shown=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of one attempt of one run."""

    schema_version: _Version = member(1, shown=True)
    run_id: str = member("", shown=True)
    attempt: int = member(0, shown=True)
    token: str = member("", shown=True)
    state: State
    outputs: tuple[OutputResult, ...] = member((), shown=True)
    inputs: tuple[InputResult, ...] = member((), shown=True)
    error: ErrorResult | None = member(None, shown=True)
    started_at: datetime | None = member(None, shown=True)
    ended_at: datetime | None = member(None, shown=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the result file's document."""
        found: dict[str, Any] = plain(self)
        return found


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in ",/=%" else char for char in text)
