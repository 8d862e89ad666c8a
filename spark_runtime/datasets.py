"""Datasets as a job or the project file declares them: their keys, and which of them a run reads.

A planned run is told its partitions. A run of the ordinary schedule, which nobody has planned,
finds them here; names and meanings are those of the project file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import product
from typing import Any, Literal

from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import OnDrift, OnEmpty, WriteMode
from lineage_backfill.runspec.values import Key, Partition, ProductKey, RunKey
from spark_runtime.errors import DeclarationError, KeyFormatError
from spark_runtime.periods import Grid, Period, cron_grid, every_grid, grain_grid

Grain = Literal["hour", "day", "week", "month", "quarter", "year", "none"]
MappingName = Literal["overlap", "identity", "window", "offset", "all", "map", "none", "python"]

#: The key of unpartitioned data.
WHOLE = "*"
#: An ordinary day, far from any change of clocks and from the edges of month and year.
_SAMPLE = datetime(2023, 6, 14, 10)  # noqa: DTZ001 (a wall clock has no zone)


@dataclass(frozen=True)
class Calendar:
    """Which keys exist along one dimension; exactly one of grain, cron, every and keys is given.

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

    @property
    def is_time(self) -> bool:
        """Whether its keys are periods of time."""
        return self.grain not in (None, "none") or bool(self.cron or self.every)

    @cached_property
    def grid(self) -> Grid:
        """The periods that its keys name."""
        if self.cron:
            return cron_grid(self.cron, self.zone)
        if self.every and self.start:
            return every_grid(self.every, self.start, self.zone)
        if self.every or not self.is_time:
            raise DeclarationError(
                "a calendar says neither a grain nor a cron expression, nor `every` with a start",
                hint="say one of them",
            )
        return grain_grid(str(self.grain), self.zone)

    @cached_property
    def first(self) -> Period | None:
        """The first key; None where the calendar is unbounded below."""
        return None if self.start is None else self.grid.starting(self.start)

    def newest(self, now: datetime) -> Period:
        """Return the newest key as of an instant; before `start` where none exists yet."""
        newest = self.grid.shifted(self.grid.holding(now), -1 - self.data_lag)
        last = newest if self.end is None else self.grid.find(self.end)
        return min(newest, last, key=_by_start)

    def existing(self, periods: Iterable[Period], now: datetime | None) -> list[Period]:
        """Return those of the periods that are keys as of an instant; all of them for None."""
        if now is None:
            return list(periods)
        first, newest = self.first, self.newest(now)
        return [
            period
            for period in periods
            if (first is None or first.start <= period.start) and period.start <= newest.start
        ]

    def all_periods(self, now: datetime | None) -> list[Period]:
        """Return all keys as of an instant; raises DeclarationError where they have no end."""
        if self.first is None or now is None:
            raise DeclarationError(
                "the keys of a calendar without a first one cannot be listed",
                hint="declare its `start`",
            )
        return list(self.grid.overlapping(self.first.start, self.newest(now).end))


def _by_start(period: Period) -> datetime:
    return period.start


@dataclass(frozen=True)
class Dimension(Calendar):
    """One dimension of a product calendar, and the column that holds its keys."""

    name: str
    _: KW_ONLY
    column: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One key of a dataset or job: a period where it has one, and its static keys by dimension."""

    label: Key
    period: Period | None
    statics: Mapping[str, str]

    def run_key(self) -> RunKey:
        """Return it as a run spec holds it."""
        if self.period is None:
            return RunKey(key=self.label)
        return RunKey(key=self.label, start=self.period.start, end=self.period.end)


@dataclass(frozen=True)
class Shape:
    """The dimensions of a dataset or of a job's runs: at most one of time, and static ones.

    `order` names the dimensions of a product; it is empty where keys are plain texts.
    """

    time: Calendar | None
    statics: Mapping[str, tuple[str, ...]]
    order: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the data is unpartitioned."""
        return self.time is None and not self.statics

    def keys(
        self, periods: Sequence[Period | None], statics: Iterable[Mapping[str, str]] | None = None
    ) -> list[PartitionKey]:
        """Return the keys of these periods, with all static keys unless some are named."""
        combinations = list(self.combinations() if statics is None else statics)
        return [self._key(period, named) for period in periods for named in combinations]

    def combinations(self) -> list[Mapping[str, str]]:
        """Return every combination of static keys, by dimension."""
        return [
            dict(zip(self.statics, keys, strict=True)) for keys in product(*self.statics.values())
        ]

    def find(self, text: str) -> PartitionKey:
        """Return the key that a text names, `day=2024-06-15/region=eu` of a product.

        Raises KeyFormatError where there is none.
        """
        if not self.order:
            if self.time is not None:
                return self._key(self.time.grid.find(text), {})
            name, keys = next(iter(self.statics.items()), ("", (WHOLE,)))
            if text not in keys:
                raise KeyFormatError(f"{text!r} is no key: there are {', '.join(keys)}")
            return self._key(None, {name: text} if self.statics else {})
        given = ProductKey.parse(text)
        if set(given) != set(self.order):
            raise KeyFormatError(
                f"{text!r} does not name the dimensions {', '.join(self.order)}",
                hint="write it as paths do: " + "/".join(f"{name}=…" for name in self.order),
            )
        statics = {name: given[name] for name in self.statics}
        for name, key in statics.items():
            if key not in self.statics[name]:
                raise KeyFormatError(f"{key!r} is no key of {name}")
        if self.time is None:
            return self._key(None, statics)
        (time,) = set(self.order) - set(self.statics)
        return self._key(self.time.grid.find(given[time]), statics)

    def _key(self, period: Period | None, statics: Mapping[str, str]) -> PartitionKey:
        if self.order:
            time = period.label if period else ""
            label: Key = ProductKey((name, statics.get(name, time)) for name in self.order)
        else:
            label = period.label if period else next(iter(statics.values()), WHOLE)
        return PartitionKey(label, period, statics)


@dataclass(frozen=True)
class Dataset(Calendar):
    """A dataset: its calendar or `dimensions`, its partition columns, and where it is.

    `columns` maps partition columns to strftime formats of a key's local start; None as format, or
    `column` alone, stands for the key itself. It lies at `location` or is the catalog's `table`,
    which keeps the newest `retention` keys (None: all).

    >>> sales = Dataset("sales", grain="day", zone="Europe/Berlin", column="ds", location="/sales")
    >>> [part.values for part in sales.partitions([sales.shape.find("2024-06-15")])]
    [{'ds': '2024-06-15'}]
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

    @property
    def full_name(self) -> DatasetRef:
        """Its name with its namespace."""
        return DatasetRef(self.namespace or "default", self.name)

    @cached_property
    def shape(self) -> Shape:
        """Its dimensions; raises DeclarationError where nothing says what they are."""
        return shape(self, self.dimensions, str(self), next(iter(self._formats()), ""))

    @property
    def column_names(self) -> tuple[str, ...]:
        """Its physical partition columns."""
        return tuple(self._formats())

    def partitions(self, keys: Iterable[PartitionKey]) -> tuple[Partition, ...]:
        """Return the keys with the values of their physical columns."""
        formats = self._formats()
        if not self.shape.is_whole and not formats:
            raise DeclarationError(
                f"dataset {self} is partitioned, and its physical columns are not declared",
                hint='declare them: columns = {"ds": "%Y-%m-%d"}',
            )
        return tuple(
            Partition(
                key=key.label,
                values={
                    column: _physical(key, dimension or column, form)
                    for column, (form, dimension) in formats.items()
                },
            )
            for key in keys
        )

    def not_told_apart(self, keys: Iterable[PartitionKey]) -> tuple[str, str] | None:
        """Return two keys that the columns hold as one partition, None if they tell these apart.

        Keys are compared with their neighbours (clocks show some hours twice), and one of an
        ordinary day with those that differ from it in what a format may leave out.
        """
        formats, shape = self._formats(), self.shape
        if not formats:
            return None
        named = {dimension or column for column, (_, dimension) in formats.items()}
        for name, texts in shape.statics.items() if shape.order else ():
            if name not in named and len(texts) > 1:
                return f"{name}={texts[0]}", f"{name}={texts[1]}"
        forms = [
            form
            for column, (form, dimension) in formats.items()
            if form is not None or (dimension or column) not in shape.statics
        ]
        if shape.time is None or None in forms:
            return None
        grid = shape.time.grid
        near = [key.period for key in keys if key.period is not None]
        pairs = [(one, grid.shifted(one, step)) for one in near for step in (-1, 1)]
        for one, other in (*_unlike(grid), *pairs):
            if one.start != other.start and all(
                one.local.strftime(form) == other.local.strftime(form) for form in forms if form
            ):
                return one.label, other.label
        return None

    def _formats(self) -> dict[str, tuple[str | None, str | None]]:
        """Return each physical column with its format and its dimension."""
        columns = {self.column: None} if self.column else self.columns
        if columns:
            return {column: (form, None) for column, form in columns.items()}
        return {d.column: (None, d.name) for d in self.dimensions if d.column is not None}


def _unlike(grid: Grid) -> Iterator[tuple[Period, Period]]:
    """Yield a period and others that differ from it in each unit of time."""
    one = grid.holding(grid.zone.instant(_SAMPLE))
    local = one.local
    for other in (
        one.start - timedelta(seconds=1),
        one.end,
        grid.zone.instant(local + timedelta(hours=12)),
        grid.zone.instant(local + timedelta(days=1)),
        grid.zone.instant(local + timedelta(days=7)),
        grid.zone.instant(local.replace(month=local.month % 12 + 1, day=min(local.day, 28))),
        grid.zone.instant(local.replace(year=local.year + 1, day=min(local.day, 28))),
    ):
        yield one, grid.holding(other)


def _physical(key: PartitionKey, name: str, form: str | None) -> str:
    if form is not None and key.period is not None:
        return key.period.local.strftime(form)
    if name in key.statics:
        return key.statics[name]
    return key.period.label if key.period else str(key.label)


def shape(
    calendar: Calendar, dimensions: Sequence[Dimension], what: str, column: str = ""
) -> Shape:
    """Return the dimensions that a calendar or several dimensions make.

    `what` names it in the DeclarationError that is raised where they make none.
    """
    if dimensions:
        times = [dimension for dimension in dimensions if dimension.is_time]
        if len(times) > 1:
            raise DeclarationError(f"{what} has several dimensions of time", hint="keep one")
        statics = {d.name: _static_keys(d, what) for d in dimensions if not d.is_time}
        order = tuple(dimension.name for dimension in dimensions)
        return Shape(times[0] if times else None, statics, order)
    if calendar.is_time:
        return Shape(calendar, {})
    if calendar.grain == "none":
        return Shape(None, {})
    return Shape(None, {column: _static_keys(calendar, what)})


def run_shape(calendar: Calendar | Sequence[Dimension], what: str) -> Shape:
    """Return the dimensions of a job's runs, given by a calendar or by several dimensions."""
    if isinstance(calendar, Calendar):
        return shape(calendar, (), what)
    return shape(Calendar(), calendar, what)


def _static_keys(calendar: Calendar, what: str) -> tuple[str, ...]:
    if isinstance(calendar.keys, str):
        raise DeclarationError(
            f"the keys of {what} are known at run time only, and nobody has named them",
            hint="start the job with a run spec, or list the keys",
        )
    if not calendar.keys:
        raise DeclarationError(
            f"how {what} is partitioned is not declared",
            hint='declare its grain, cron, every or keys; grain = "none" where it is not',
        )
    return tuple(sorted(set(calendar.keys)))


@dataclass(frozen=True)
class EdgeMapping:
    """How keys of runs read the keys of an input; `mapping` None is the default of the two sides.

    A run reads what intersects [start of k - before, end of k + after), counted in run keys.
    """

    mapping: MappingName | None = None
    before: int = 0
    after: int = 0
    by: int = 0
    map: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dimensions: Mapping[str, EdgeMapping] = field(default_factory=dict)


DEFAULT = EdgeMapping()


@dataclass(frozen=True)
class Read:
    """An input of a job, by name or as declared, and how its runs read it."""

    dataset: Dataset | str
    how: EdgeMapping = DEFAULT


@dataclass(frozen=True)
class Write:
    """An output of a job and how its runs write it; `lookback` n: a run of K corrects K-n to K."""

    dataset: Dataset | str
    mode: WriteMode = "overwrite"
    on_empty: OnEmpty = "clear"
    on_drift: OnDrift = "fail"
    lookback: int = 0


def window(dataset: Dataset | str, *, before: int = 0, after: int = 0) -> Read:
    """Read an input from so many run keys before each key of the run to so many after it.

    >>> window("flights_daily", before=6).how.before
    6
    """
    return Read(dataset, EdgeMapping("window", before=before, after=after))


def offset(dataset: Dataset | str, by: int) -> Read:
    """Read the period so many run keys later; `by=-1` is the one before."""
    return Read(dataset, EdgeMapping("offset", by=by))


def all_partitions(dataset: Dataset | str) -> Read:
    """Read every partition of an input, whatever the keys of the run."""
    return Read(dataset, EdgeMapping("all"))


def required(
    source: Dataset,
    how: EdgeMapping,
    keys: Sequence[PartitionKey],
    run: Shape,
    now: datetime | None,
    *,
    own: bool = False,
) -> list[PartitionKey] | None:
    """Return the keys of an input that the keys of a run read, None for all it holds.

    They are those that exist as of `now`; None leaves in the others, too. `own` says that the job
    writes the input itself. Raises DeclarationError for what cannot be meant.
    """
    theirs = source.shape
    if how.mapping == "python":
        raise DeclarationError(
            f"which keys of {source} are read is told by a function of the project",
            hint="start the job with a run spec",
        )
    if theirs.is_whole or how.mapping == "none":
        return None
    is_all = how.mapping == "all" or theirs.time is None or run.time is None
    if is_all and how.mapping != "map" and not run.statics:
        return None
    found: dict[Key, PartitionKey] = {}
    for key in keys:
        if how.mapping == "map" and not (theirs.order or run.order):
            read = [theirs.find(name) for name in how.map.get(str(key.label), ())]
        else:
            periods = _periods(theirs, run, how, key, now, own=own)
            read = theirs.keys(periods, _statics(theirs, run, how, key))
        found.update((one.label, one) for one in read)
    return in_time(found.values())


def in_time(keys: Iterable[PartitionKey]) -> list[PartitionKey]:
    """Return keys in the order of their periods."""
    return sorted(keys, key=lambda key: key.period.start.timestamp() if key.period else 0)


def _periods(
    theirs: Shape,
    run: Shape,
    how: EdgeMapping,
    key: PartitionKey,
    now: datetime | None,
    *,
    own: bool,
) -> Sequence[Period | None]:
    if theirs.time is None:
        return [None]
    named = {shape.time.name for shape in (theirs, run) if isinstance(shape.time, Dimension)}
    how = next((how.dimensions[name] for name in sorted(named & how.dimensions.keys())), how)
    if key.period is None or run.time is None or how.mapping == "all":
        return theirs.time.all_periods(now)
    if how.mapping == "identity":
        try:
            return theirs.time.existing([theirs.time.grid.find(key.period.label)], now)
        except KeyFormatError:
            return []
    before, after = how.before, how.after
    if how.mapping == "offset":
        before, after = -how.by, how.by
    elif how.mapping == "window" and own:
        after = -1  # a run reads of its own output what was there before it
    first, last = (run.time.grid.shifted(key.period, by) for by in (-before, after))
    return theirs.time.existing(theirs.time.grid.overlapping(first.start, last.end), now)


def _statics(
    theirs: Shape, run: Shape, how: EdgeMapping, key: PartitionKey
) -> list[Mapping[str, str]]:
    """Return the combinations of the input's static keys, each dimension by itself."""
    plain = not (theirs.order or run.order) and len(theirs.statics) == len(run.statics) == 1
    columns = []
    for name, keys in theirs.statics.items():
        ours = next(iter(run.statics)) if plain else name
        part = how.dimensions.get(ours) or how.dimensions.get(name) or how
        if ours not in run.statics or part.mapping == "all":
            columns.append(keys)
        elif part.mapping == "map":
            columns.append(tuple(part.map.get(key.statics[ours], ())))
        else:
            columns.append((key.statics[ours],) if key.statics[ours] in keys else ())
    return [dict(zip(theirs.statics, keys, strict=True)) for keys in product(*columns)]


def dataset_facet(dataset: Dataset) -> dict[str, Any]:
    """Return the partitioning facet of a dataset: what the project file would say of it."""
    if dataset.dimensions:
        parts = []
        for dimension in dataset.dimensions:
            column = {"column": dimension.column} if dimension.column else {}
            parts.append({"name": dimension.name, **_calendar_facet(dimension), **column})
        facet: dict[str, Any] = {"dimensions": parts}
    else:
        facet = _calendar_facet(dataset)
    columns = {dataset.column: None} if dataset.column else dict(dataset.columns)
    return {**facet, "columns": columns} if columns else facet


def shape_facet(shape: Shape) -> dict[str, Any]:
    """Return the partitioning facet of a job whose runs have this calendar."""
    time = _calendar_facet(shape.time) if shape.time else {}
    statics = {name: {"keys": list(keys)} for name, keys in shape.statics.items()}
    if not shape.order:
        return time or next(iter(statics.values()), {"grain": "none"})
    return {"dimensions": [{"name": name, **statics.get(name, time)} for name in shape.order]}


def mapping_facet(how: EdgeMapping) -> dict[str, Any]:
    """Return how an edge's keys travel as the partitioning facet of its job tells it."""
    facet: dict[str, Any] = {"mapping": how.mapping}
    facet |= {name: getattr(how, name) for name in ("before", "after", "by") if getattr(how, name)}
    if how.map:
        facet["map"] = {key: list(names) for key, names in how.map.items()}
    if how.dimensions:
        facet["dimensions"] = {name: mapping_facet(part) for name, part in how.dimensions.items()}
    return facet


def _calendar_facet(calendar: Calendar) -> dict[str, Any]:
    facet: dict[str, Any] = {}
    for name in ("grain", "cron", "every", "keys", "zone", "start", "end", "data_lag"):
        value = getattr(calendar, name)
        if value in (None, 0) or (name == "zone" and not calendar.is_time):
            continue
        facet[name] = list(value) if isinstance(value, tuple) else value
    return facet
