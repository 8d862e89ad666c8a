"""The run spec (the input of a run) and the result file (its outcome), as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any, Literal

from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.project.declarations import OnDrift, OnEmpty, OnMissing, WriteMode
from lineage_backfill.runspec.instants import instant_text

SCHEMA_VERSION = 1

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
    `start` is when the period of an input's key begins, if it has one.
    """

    key: Key
    values: Mapping[str, str | None]
    start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a dataset is: a path or a catalog table, with its partition columns."""

    dataset: DatasetRef
    format: str
    columns: tuple[str, ...]
    location: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec(Target):
    """A dataset that the run writes, and exactly the partitions that it may touch.

    The other members are those of `WritePolicy`.
    """

    scope: tuple[Partition, ...]
    mode: WriteMode = "overwrite"
    on_empty: OnEmpty = "clear"
    on_drift: OnDrift = "fail"
    merge_on: tuple[str, ...] | None = None
    delete_when: str | None = None
    delete_missing: bool = False
    unsafe_overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec(Target):
    """A dataset that the run reads: these partitions (None: all) of this version (None: latest).

    `on_missing` says when the run fails because partitions that it needs were never written. It
    needs `required` where that is given, else `partitions`. `needs` holds for each run key in turn
    which of the partitions that key needs, as index ranges with both ends included; None stands
    for all of them. `along` is the time dimension of `required`, whose keys are consecutive in it:
    those that are missing are named as ranges. `mixed` names one of the partitions and a key that
    is not among them, if both are one partition of the table. `written` are the places, as index
    ranges, of needed partitions that recorded runs have written, whatever the log still shows.
    """

    partitions: tuple[Partition, ...] | None
    version: int | None = None
    on_missing: OnMissing = "guard"
    required: tuple[Partition, ...] | None = None
    needs: tuple[tuple[tuple[int, int], ...], ...] | None = None
    along: str | None = None
    mixed: str | None = None
    written: tuple[tuple[int, int], ...] | None = None


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

    name: JobRef
    entrypoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All instructions for one attempt of one run.

    `partitions` holds its keys as ranges, those of several dimensions as boxes; `keys` holds them
    one by one. A run that no backfill has planned has the empty text as `backfill_id`, and may
    have no `result_path`. With `undo` the job is not run: what the attempts with these tokens, the
    newest first, wrote to the outputs is restored. `store` is the id of the run store that planned
    it: names of backfills are its own. With `keys_derived` the keys were not named: they come from
    the clock or a schedule.
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
    keys_derived: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the run spec as JSON has it."""
        return {"schema_version": SCHEMA_VERSION, **_members(self)}


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
    the columns whose values the partitions tell, `merged` is how many rows a merge inserted,
    updated and deleted, where the table's log counts them.
    """

    dataset: DatasetRef
    version_before: int | None
    version: int | None
    partitions: tuple[PartitionResult, ...]
    drift: tuple[str, ...] = ()
    types: Mapping[str, str] | None = None
    merged: Mapping[str, int] | None = None


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
    Of the keys that the run needs, `missing` were never written, and `unknown` are empty and may be
    older than the log. Where all keys are read they are ranges, in their time dimension; `*` is the
    whole table.
    """

    dataset: DatasetRef
    version: int | None
    partitions: tuple[PartitionRead, ...]
    types: Mapping[str, str] | None = None
    missing: tuple[Key, ...] | None = None
    unknown: tuple[Key, ...] | None = None


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
        return {"schema_version": SCHEMA_VERSION, **_members(self)}


#: Members that documents leave out where they say nothing.
_OPTIONAL = frozenset(
    {
        *("location", "table", "start", "end", "undo", "store", "types", "values", "within"),
        *("required", "needs", "along", "mixed", "missing", "unknown", "merged", "keys_derived"),
        *("written", "merge_on", "delete_when", "delete_missing", "unsafe_overwrite"),
    }
)


def _members(value: Any) -> dict[str, Any]:
    found = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return {
        name: member
        for name, member in found.items()
        if name not in _OPTIONAL or member not in (None, "", False)
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, DatasetRef):
        return named(value)
    if isinstance(value, JobSpec):
        return {**named(value.name), "entrypoint": value.entrypoint}
    if isinstance(value, ErrorResult):
        return {"class": value.class_name, "message": value.message, "transient": value.transient}
    if isinstance(value, InputSpec):
        members = _members(value)
        return members if value.partitions is not None else {**members, "partitions": "*"}
    if is_dataclass(value):
        return _members(value)
    if isinstance(value, datetime):
        return instant_text(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in ",/=%" else char for char in text)
