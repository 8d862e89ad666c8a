"""Datasets, inputs and outputs as a job declares them, named as in the project file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from lineage_backfill.model import DatasetRef
from lineage_backfill.project import facets
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    DimensionDeclaration,
    Grain,
    OnDrift,
    OnEmpty,
    ReadDeclaration,
    WriteDeclaration,
    WriteMode,
)


@dataclass(frozen=True)
class Calendar:
    """The keys of one dimension; exactly one of grain, cron, every and keys is given.

    `start` and `end` are the first and the last key; without `end` the last one is the newest
    complete period, less `data_lag` periods. `keys` are static labels, or the word "runtime".
    """

    _: KW_ONLY
    grain: Grain | None = None
    cron: str | None = None
    every: str | None = None
    keys: Sequence[str] | None = None
    zone: str = "UTC"
    start: str | None = None
    end: str | None = None
    data_lag: int = 0

    def declared(self) -> CalendarDeclaration | None:
        """Return the calendar as a declaration; None if it has no kind of keys."""
        if not (self.grain or self.cron or self.every or self.keys):
            return None
        keys: tuple[str, ...] | Literal["runtime"] | None = None
        if self.keys:
            keys = "runtime" if self.keys == "runtime" else tuple(self.keys)
        return CalendarDeclaration(
            grain=self.grain,
            cron=self.cron,
            every=self.every,
            keys=keys,
            zone=self.zone,
            start=self.start,
            end=self.end,
            data_lag=self.data_lag,
        )


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
    `column` alone, means the key itself. It is at `location`, or `table` in the catalog, and keeps
    the newest `retention` keys (None: all).

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
    format: str = "delta"
    location: str | None = None
    table: str | None = None
    retention: int | None = None

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}" if self.namespace else self.name

    def declaration(self, ref: DatasetRef) -> DatasetDeclaration:
        """Return it as a declaration of the project file; raises DeclarationError, CronError."""
        calendar, dimensions = calendar_of(self.dimensions or self)
        declared = DatasetDeclaration(
            name=ref.name,
            namespace=ref.namespace,
            calendar=calendar,
            dimensions=dimensions,
            columns={self.column: None} if self.column else dict(self.columns),
            format=self.format,
            location=self.location,
            table=self.table,
            retention=self.retention,
        )
        # Refuses what a facet cannot express, as for other producers.
        facets.read_calendar(facets.dataset_facet(declared, "UTC"), f"dataset {ref}")
        return declared


def calendar_of(
    given: Calendar | Sequence[Dimension] | None,
) -> tuple[CalendarDeclaration | None, tuple[DimensionDeclaration, ...]]:
    """Return a calendar, or the dimensions of a product, as declarations."""
    if given is None or isinstance(given, Calendar):
        return (None if given is None else given.declared()), ()
    parts = [(one, one.declared() or CalendarDeclaration()) for one in given]
    return None, tuple(
        DimensionDeclaration(name=one.name, calendar=calendar, column=one.column)
        for one, calendar in parts
    )


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


@dataclass(frozen=True)
class Write:
    """An output of a job and how its runs write it; with `lookback` n, run K corrects K-n to K."""

    dataset: Dataset | str
    mode: WriteMode = "overwrite"
    on_empty: OnEmpty = "clear"
    on_drift: OnDrift = "fail"
    lookback: int = 0

    def declaration(self, ref: DatasetRef) -> WriteDeclaration:
        """Return the equivalent declaration of the project file; raises DeclarationError."""
        return WriteDeclaration(
            dataset=ref.name,
            namespace=ref.namespace,
            mode=self.mode,
            on_empty=self.on_empty,
            on_drift=self.on_drift,
            lookback=self.lookback,
        )


def window(dataset: Dataset | str, *, before: int = 0, after: int = 0) -> Read:
    """Read an input from `before` run keys before each key of the run to `after` keys after it.

    >>> window("flights_daily", before=6).how.before
    6
    """
    return Read(dataset, ReadDeclaration(dataset="", mapping="window", before=before, after=after))


def offset(dataset: Dataset | str, by: int) -> Read:
    """Read the period `by` run keys later; `by=-1` is the previous one."""
    return Read(dataset, ReadDeclaration(dataset="", mapping="offset", by=by))


def all_partitions(dataset: Dataset | str) -> Read:
    """Read every partition of an input, whatever the keys of the run."""
    return Read(dataset, ReadDeclaration(dataset="", mapping="all"))


def new_partitions(dataset: Dataset | str) -> Read:
    """Read the partitions of an input that changed since the job's last run."""
    return replace(all_partitions(dataset), only_new=True)
