"""Datasets, inputs and outputs as a job declares them, named as in the project file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project import reader
from lineage_backfill.project.boundaries import with_lists
from lineage_backfill.project.declarations import (
    CALENDAR_KINDS,
    DatasetDeclaration,
    Grain,
    Partitioning,
    ReadDeclaration,
    WriteDeclaration,
    WriteRules,
)
from lineage_backfill.typed import read
from spark_runtime.configuration import read_file

_HERE = Path()


@dataclass(frozen=True)
class Calendar:
    """The keys of one dimension; exactly one of grain, cron, every, boundaries and keys is given.

    `boundaries` lists keys with the local start and end of each, or names a CSV file, relative to
    the folder of the code. `start` and `end` are the first and the last key; without `end` the last
    one is the newest complete period, less `data_lag` periods. `keys` are static labels, or the
    word "runtime". `zone` is UTC by default; in a product it may be that of each key, as in a
    project file.
    """

    _: KW_ONLY
    grain: Grain | None = None
    cron: str | None = None
    every: str | None = None
    boundaries: str | Sequence[Sequence[str]] | None = None
    keys: Sequence[str] | None = None
    zone: str | Mapping[str, str] | None = None
    start: str | None = None
    end: str | None = None
    data_lag: int | None = None

    def table_values(self) -> dict[str, Any]:
        """Return the given settings, as in a project file."""
        given = {one.name: getattr(self, one.name) for one in fields(Calendar)}
        if self.keys is not None and not isinstance(self.keys, str):
            given["keys"] = list(self.keys)
        if self.keys is None and self.grain != "none" and any(given[k] for k in CALENDAR_KINDS):
            given["zone"] = self.zone or "UTC"
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Dimension(Calendar):
    """One dimension of a product calendar, and the column that holds its keys."""

    name: str
    _: KW_ONLY
    column: str | None = None


@dataclass(frozen=True)
class Dataset(Calendar):
    """A dataset: its calendar or `dimensions`, its partition columns, and its place.

    `columns` maps partition columns to strftime formats of a key's local start; the format None, or
    `column` alone, means the key itself. A table that is not partitioned by its keys has a
    `time_column` (with `time_format` for texts) or a `key_column` instead. It is at `location`, or
    `table` in the catalog, and keeps the newest `retention` keys (None: all). A key of a `sparse`
    one never written is not missing.

    >>> sales = Dataset("sales", grain="day", zone="Europe/Berlin", column="ds", location="/sales")
    >>> sales.declaration(DatasetRef("shop", "sales")).columns
    {'ds': None}
    """

    name: str
    _: KW_ONLY
    namespace: str | None = None
    dimensions: Sequence[Dimension] = ()
    column: str | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    time_column: str | None = None
    time_format: str | None = None
    key_column: str | None = None
    format: str = "delta"
    location: str | None = None
    table: str | None = None
    retention: int | None = None
    sparse: bool | None = None

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}" if self.namespace else self.name

    def stated(self) -> dict[str, Any]:
        """Return the given settings without the name, as in a project file."""
        names = (
            *("format", "location", "table", "retention", "sparse", "column"),
            *("time_column", "time_format", "key_column"),
        )
        given: dict[str, Any] = {
            **self.table_values(),
            **{name: getattr(self, name) for name in names},
            "columns": dict(self.columns) or None,
            "dimensions": dimension_tables(self.dimensions) or None,
        }
        if isinstance(self.zone, Mapping):  # of the keys of a product
            for one, table in zip(self.dimensions, given["dimensions"] or (), strict=False):
                if one.zone is None:
                    table.pop("zone", None)
        return {name: value for name, value in given.items() if value is not None}

    def declaration(self, ref: DatasetRef, base: Path = _HERE) -> DatasetDeclaration:
        """Return it as a declaration of the project file; a list's file is relative to `base`.

        Raises DeclarationError, CronError.
        """
        values = self.stated() | {"name": ref.name, "namespace": ref.namespace}
        with_lists(values, base, read_file)
        declared = reader.read_dataset(values, f"dataset {ref}", Path(), DeclarationError)
        # A job knows its tables itself: a relative location starts where the job runs.
        return replace(declared, location=self.location)


def dimension_tables(given: Iterable[Dimension]) -> list[dict[str, Any]]:
    """Return the given settings of each dimension, as in a project file."""
    return [{**one.table_values(), "name": one.name, "column": one.column} for one in given]


def calendar_of(
    given: Calendar | Sequence[Dimension] | None, what: str, base: Path = _HERE
) -> Partitioning:
    """Return a calendar, or the dimensions of a product, as declarations of `what`.

    Raises DeclarationError, CronError.
    """
    values: dict[str, Any] = {}
    if isinstance(given, Calendar):
        values = given.table_values()
    elif given is not None:
        values = {"dimensions": dimension_tables(given)}
    with_lists(values, base, read_file)
    return read(Partitioning, values, what, fault=DeclarationError)


#: An edge without declarations; its dataset is given separately.
DEFAULT = ReadDeclaration(dataset="")


@dataclass(frozen=True)
class Read:
    """An input of a job, by name or as declared, and how its runs read it.

    With `only_new` they get what changed since the last run: see RunContext.read_new.
    """

    dataset: Dataset | str
    how: ReadDeclaration = DEFAULT
    only_new: bool = False


_OPTIONS = ("merge_on", "delete_when", "delete_missing")


@dataclass(frozen=True)
class Write(WriteRules):
    """An output of a job and how its runs write it, as `[[job.writes]]` of the project file."""

    dataset: Dataset | str

    @property
    def options(self) -> dict[str, Any]:
        """The settings that a run spec need not repeat; see RunContext.write."""
        return {name: value for name in _OPTIONS if (value := getattr(self, name))}

    def declaration(self, ref: DatasetRef) -> WriteDeclaration:
        """Return the equivalent declaration of the project file; raises DeclarationError."""
        values = {one.name: getattr(self, one.name) for one in fields(WriteRules)}
        values |= {"dataset": ref.name, "namespace": ref.namespace}
        return read(WriteDeclaration, values, f"output {ref}", fault=DeclarationError)


def window(
    dataset: Dataset | str,
    *,
    before: int | str | None = None,
    after: int | str | None = None,
    lookback: int | None = None,
) -> Read:
    """Read an input from `before` run keys before each key of the run to `after` keys after it.

    A text such as `4h` or `1d` counts time instead of keys. Raises DeclarationError.

    >>> window("flights_daily", before=6).how.before
    6
    """
    given = {"before": before, "after": after, "lookback": lookback}
    return _mapped(dataset, mapping="window", **given)


def offset(dataset: Dataset | str, by: int | str, *, lookback: int | None = None) -> Read:
    """Read the period `by` run keys later; `by=-1` is the previous one, `by="-1d"` a day before.

    Raises DeclarationError.
    """
    return _mapped(dataset, mapping="offset", by=by, lookback=lookback)


def last(dataset: Dataset | str, *, lookback: int | None = None) -> Read:
    """Read the newest partition of an input that exists when the run is planned."""
    return _mapped(dataset, mapping="last", lookback=lookback)


def as_of(dataset: Dataset | str, *, lookback: int | None = None) -> Read:
    """Read the last partition of an input that begins at a key's start or before."""
    return _mapped(dataset, mapping="as_of", lookback=lookback)


def overlap(dataset: Dataset | str, *, lookback: int | None = None) -> Read:
    """Read an input as the calendars have it; `lookback` is of this input alone."""
    return _mapped(dataset, lookback=lookback)


def _mapped(dataset: Dataset | str, **settings: Any) -> Read:
    """Return an input whose edge is declared as in a project file."""
    values = {"dataset": str(dataset), **settings}
    how = read(ReadDeclaration, values, f"input {dataset}", fault=DeclarationError)
    return Read(dataset, replace(how, dataset=""))


def all_partitions(dataset: Dataset | str) -> Read:
    """Read every partition of an input, whatever the keys of the run."""
    return Read(dataset, ReadDeclaration(dataset="", mapping="all"))


def new_partitions(dataset: Dataset | str) -> Read:
    """Read the partitions of an input that changed since the job's last run."""
    return replace(all_partitions(dataset), only_new=True)
