"""The declarations of a project file as values: calendars, mappings, jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, Final, Literal, NoReturn, get_args

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.cron import normalise
from lineage_backfill.project.run_rules import RunRules
from lineage_backfill.typed import Misfit

BatchPolicy = Literal["key", "range", "aligned"] | int
Grain = Literal["hour", "day", "week", "month", "quarter", "year", "none"]
MappingName = Literal["overlap", "identity", "window", "offset", "all", "map", "none", "python"]
WriteMode = Literal["overwrite", "merge", "append", "full"]
OnEmpty = Literal["clear", "fail", "keep"]
OnDrift = Literal["fail", "add", "relax"]
OnMissing = Literal["guard", "fail", "read"]
TableFormat = Literal["delta", "parquet"]

#: The most keys that a declaration may count: centuries of days, 11 years of hours.
MOST_KEYS: Final = 100_000


def check_count(name: str, count: int, *, least: int = 0) -> None:
    """Raise DeclarationError if a number of keys is below `least` or above MOST_KEYS."""
    if type(count) is not int:  # code and facets are not typed
        raise DeclarationError(Misfit("must be a whole number, not {value}", count).sentence(name))
    if not least <= count <= MOST_KEYS:
        bound = f"least {least}" if count < least else f"most {MOST_KEYS}"
        raise DeclarationError(
            f"`{name}` is {count}, but must be at {bound}", hint="It counts partition keys."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDeclaration:
    """One dimension's calendar as declared; exactly one of grain, cron, every and keys is given.

    `start` and `end` are key labels (both included), `data_lag` counts keys (-1: the running
    period exists too), `keys` are static labels or the word "runtime". `zone` None means the
    project's default zone. Only keys with a time have these four. Raises CronError and
    DeclarationError.
    """

    grain: Grain | None = None
    cron: str | None = None
    every: str | None = None
    keys: tuple[str, ...] | Literal["runtime"] | None = None
    zone: str | None = None
    start: str | None = None
    end: str | None = None
    data_lag: int = 0

    def __post_init__(self) -> None:
        check_count("data_lag", self.data_lag, least=-1)
        if self.cron is not None:
            normalise(self.cron)
        dated = [name for name in DATED if getattr(self, name)]
        if dated and not self.has_time:
            _refuse_dated(dated, self)

    @property
    def has_time(self) -> bool:
        """Whether its keys are periods of time."""
        return self.keys is None and self.grain != "none"


#: The settings of a calendar that only keys with a time have.
DATED: Final = ("zone", "start", "end", "data_lag")


def _refuse_dated(settings: Iterable[str], *calendars: CalendarDeclaration) -> NoReturn:
    """Raise DeclarationError for settings of dates whose keys have no time."""
    static = [one for one in calendars if one.keys is not None]
    raise DeclarationError(
        f"has `{'` and `'.join(settings)}`, but "
        + ("static keys have no time" if static else "without partitions there are no keys"),
        hint="Leave it out, or declare the time as a dimension."
        if static
        else "Leave it out, or declare the grain of its partitions.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionDeclaration:
    """One dimension of a product calendar and the physical column that holds it."""

    name: str
    calendar: CalendarDeclaration
    column: str | None = None


def _calendars(declared: DatasetDeclaration | JobDeclaration) -> list[CalendarDeclaration]:
    """Return the calendar of each dimension that is declared."""
    whole = [] if declared.calendar is None else [declared.calendar]
    return whole or [dimension.calendar for dimension in declared.dimensions]


def _have_time(calendars: Sequence[CalendarDeclaration]) -> bool:
    """Whether keys of these calendars have a time; also where none is declared."""
    return not calendars or any(one.has_time for one in calendars)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDeclaration:
    """The declaration of datasets whose name matches `name` (exact, or a glob).

    `columns` maps physical partition columns to a strftime format of the key's local start; None
    as format stands for the key's label. `pattern` folds one-name-per-partition datasets. `aliases`
    are other names in the lineage: `namespace:name`, an address, or a glob. Rows are identified by
    the columns `row_key`; values of the columns in `mask` are never shown. One that is `expected`
    need not be known yet.
    """

    name: str
    namespace: str | None = None
    calendar: CalendarDeclaration | None = None
    dimensions: tuple[DimensionDeclaration, ...] = ()
    pattern: str | None = None
    retention: int | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    format: str | None = None
    location: str | None = None
    table: str | None = None
    aliases: tuple[str, ...] = field(default=(), repr=False)
    row_key: tuple[str, ...] = field(default=(), repr=False)
    mask: tuple[str, ...] = field(default=(), repr=False)
    expected: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if self.retention is not None:
            check_count("retention", self.retention, least=1)
        if self.format not in (None, *get_args(TableFormat)):
            formats = ", ".join(get_args(TableFormat))
            raise DeclarationError(f"`format` is {self.format!r}, but must be one of {formats}")
        calendars = _calendars(self)
        if self.retention is not None and not _have_time(calendars):
            _refuse_dated(["retention"], *calendars)
        self._check_columns()

    def _check_columns(self) -> None:
        names = list(self.columns) or [one.column for one in self.dimensions if one.column]
        if len({name.lower() for name in names}) < len(names):
            raise DeclarationError(
                f"its columns {', '.join(names)} are not all different",
                hint="Name each once; tables do not tell upper from lower case.",
            )
        for name, form in self.columns.items():
            if form is not None and not date.max.strftime(form):
                raise DeclarationError(
                    f"`columns.{name}` is {form!r}, which writes no text",
                    hint="Write a strftime format such as %Y-%m-%d.",
                )
            if form is not None and self._is_static(name):
                raise DeclarationError(
                    f"`columns.{name}` is {form!r}, but static keys have no time",
                    hint=f"Declare the key itself: column = {name!r}.",
                )

    def _is_static(self, column: str) -> bool:
        """Whether a column can only hold static keys."""
        if self.calendar is not None:
            return self.calendar.keys is not None
        parts = self.dimensions
        own = [part.calendar for part in parts if part.name == column]
        return bool(parts) and not _have_time(own or [part.calendar for part in parts])

    def __hash__(self) -> int:
        # Looked up once for each job, dataset or edge: hashed by the most distinctive members.
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionMapping:
    """The mapping of one dimension along an edge, if it is not the default."""

    mapping: MappingName
    before: int = 0
    after: int = 0
    by: int = 0
    map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_mapping(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDeclaration:
    """How a job reads one input; `mapping` None means the default.

    `on_missing` says when a run fails because partitions that it needs were never written: "guard",
    if a run key finds none of its own; "fail", if any is missing; "read", never.
    """

    dataset: str
    namespace: str | None = None
    mapping: MappingName | None = None
    before: int = 0
    after: int = 0
    by: int = 0
    map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    function: str | None = None
    dimensions: Mapping[str, DimensionMapping] = field(default_factory=dict)
    on_missing: OnMissing = field(default="guard", repr=False)

    def __post_init__(self) -> None:
        _check_mapping(self)

    def __hash__(self) -> int:
        # Looked up once for each job, dataset or edge: hashed by the most distinctive members.
        return hash(self.dataset)


#: Which mapping each setting of a read belongs to.
MAPPING_SETTINGS: Final = {
    "before": "window",
    "after": "window",
    "by": "offset",
    "map": "map",
    "function": "python",
}


def _check_mapping(read: ReadDeclaration | DimensionMapping) -> None:
    """Refuse settings out of bounds or of another mapping, and a mapping without its settings."""
    check_count("before", read.before)
    check_count("after", read.after)
    check_count("by", read.by, least=-MOST_KEYS)
    for name, owner in MAPPING_SETTINGS.items():
        value = getattr(read, name, None)
        if value and read.mapping != owner:
            refuse_setting(name)
        if not value and read.mapping == owner != "window":
            zero = " other than 0" if name == "by" else ""
            raise DeclarationError(f"mapping {owner!r} needs `{name}`{zero}")


def refuse_setting(name: str) -> NoReturn:
    """Raise DeclarationError for a setting of another mapping."""
    owner = MAPPING_SETTINGS[name]
    raise DeclarationError(
        f"`{name}` belongs to mapping {owner!r}", hint=f'Add mapping = "{owner}".'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePolicy:
    """How runs write an output; `lookback` n: run key K corrects K-n .. K.

    A merge matches rows by `merge_on`, deletes those that a row with `delete_when` matches, and
    with `delete_missing` those of its partitions that no row matches. `unsafe_overwrite` accepts
    that a killed write leaves a Parquet partition half written. `says_mode` is true if the mode is
    declared, not a default.
    """

    mode: WriteMode = "overwrite"
    on_empty: OnEmpty = "clear"
    on_drift: OnDrift = "fail"
    lookback: int = 0
    merge_on: tuple[str, ...] = ()
    delete_when: str | None = None
    delete_missing: bool = False
    unsafe_overwrite: bool = False
    says_mode: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_count("lookback", self.lookback)
        if self.mode != "merge":
            for name in ("delete_when", "delete_missing"):
                if getattr(self, name):
                    raise DeclarationError(f'`{name}` needs mode = "merge"')


def parquet_refusal(policy: WritePolicy) -> tuple[str, str] | None:
    """Return why a Parquet table is not written in this way, and what to do; None if it is."""
    if policy.mode not in ("overwrite", "full"):
        why = f"a Parquet table is only overwritten: a killed {policy.mode} leaves no trace"
        return why, 'Make it a Delta table, or declare mode = "overwrite" in its [[job.writes]].'
    if not policy.unsafe_overwrite:
        why = "a killed write may leave a partition of a Parquet table half written, without undo"
        accept = "unsafe_overwrite = true in its [[job.writes]]"
        return why, f"Make it a Delta table, or accept that: {accept}."
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDeclaration(WritePolicy):
    """How a job writes one output; `shares` are jobs that it overwrites the same keys after."""

    dataset: str
    namespace: str | None = None
    shares: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, dataset: str, namespace: str | None, policy: WritePolicy) -> WriteDeclaration:
        """Return the declaration of an output with a write policy."""
        return cls(dataset=dataset, namespace=namespace, **_members(policy))

    @property
    def policy(self) -> WritePolicy:
        """How runs write the output."""
        return WritePolicy(**_members(self))


def _members(policy: WritePolicy) -> dict[str, Any]:
    return {one.name: getattr(policy, one.name) for one in fields(WritePolicy)}


#: The field of a DAG run with the run key; `logical_date` takes an offset, ` + 26h`, and
#: `partition_key` the format of strftime that the DAG writes keys in.
AIRFLOW_SLICES: Final = ("interval", "logical_date", "partition_key", "asset", "conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DagTasks:
    """The tasks of a DAG that run a job; `slice` None follows its timetable.

    Without `dag` and `tasks` they come from the lineage. `cron` and `zone` are its timetable where
    they are known better than Airflow says, `conf` the parameters of runs that are created. With
    `whole_dag` such a run may run tasks that are not planned.
    """

    dag: str = ""
    tasks: tuple[str, ...] = ()
    slice: str | None = None
    cron: str | None = None
    zone: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    whole_dag: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeclaration:
    """The declaration of jobs whose name matches `name` (exact, or a glob).

    `batch` is "key" (one run per key), "range" (one run per maximal range), "aligned" (ranges cut
    where the readers' partitions begin) or N (at most N keys in one run). `schedule` is the cron
    expression that starts its runs, in `schedule_zone`, or the zone of its calendar; one without
    keys also covers those since the firing before where it is to `collect_schedule_gaps`. `rules`
    say how its runs are made. A `retired` job is never planned; it is one that another `replaces`.
    `pattern` makes one job of all whose names match it. `edges_of` is "last run" or a span, such as
    "30d". One that is `expected` need not be known yet. Raises CronError and DeclarationError.
    """

    name: str
    namespace: str | None = None
    calendar: CalendarDeclaration | None = None
    dimensions: tuple[DimensionDeclaration, ...] = ()
    engine: str | None = None
    entrypoint: str | None = None
    batch: BatchPolicy | None = None
    pool: str | None = None
    priority: int = 0
    protected: bool = False
    idempotent: bool = True
    schedule: str | None = None
    schedule_zone: str | None = None
    collect_schedule_gaps: bool = False
    airflow: DagTasks | None = field(default=None, repr=False)
    retired: bool = field(default=False, repr=False)
    replaces: tuple[str, ...] = field(default=(), repr=False)
    pattern: str | None = field(default=None, repr=False)
    edges_of: str | None = field(default=None, repr=False)
    reads: tuple[ReadDeclaration, ...] = ()
    writes: tuple[WriteDeclaration, ...] = ()
    rules: RunRules = field(default=RunRules(), repr=False)
    expected: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if self.schedule is not None:
            normalise(self.schedule)
        elif self.schedule_zone is not None or self.collect_schedule_gaps:
            name = "collect_schedule_gaps" if self.collect_schedule_gaps else "schedule_zone"
            raise DeclarationError(
                f"has `{name}` without a `schedule`", hint="Add the cron expression that starts it."
            )
        calendars = _calendars(self)
        if self.collect_schedule_gaps and not _have_time(calendars):
            _refuse_dated(["collect_schedule_gaps"], *calendars)

    def __hash__(self) -> int:
        # Looked up once for each job, dataset or edge: hashed by the most distinctive members.
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Guard rails; each has a named override on the command line.

    Of more than `confirm_above` runs, the count must be typed.
    """

    max_runs: int = 10_000
    confirm_above: int = 100
    max_parallel: int = 4


#: The kinds of engines that start Spark themselves, and take its properties as `conf`.
SPARK_ENGINES = ("local", "spark-submit")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDeclaration:
    """One `[engines.NAME]` table: its kind and the settings that its adapter takes.

    `live` is a program that reports what others run there.
    """

    name: str
    kind: str
    live: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def takes_any_job(self) -> bool:
        """Whether a program of the user runs the jobs, without entrypoint and tables."""
        return self.kind == "airflow" or (self.kind == "command" and not self.settings.get("undo"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All declarations of a project file about datasets, jobs and limits."""

    namespace: str | None = None
    zone: str = "UTC"
    datasets: tuple[DatasetDeclaration, ...] = ()
    jobs: tuple[JobDeclaration, ...] = ()
    limits: Limits = field(default_factory=Limits)
    pools: Mapping[str, int] = field(default_factory=dict)
    engines: tuple[EngineDeclaration, ...] = ()
    rules: RunRules = field(default_factory=RunRules)

    def rules_of(self, job: JobDeclaration | None) -> RunRules:
        """Return the run rules of a job, with a zone if they have a window."""
        own = self.rules if job is None else job.rules.over(self.rules)
        return own.in_zone(self.zone)


def calendar_in_words(
    calendar: CalendarDeclaration | None, dimensions: tuple[DimensionDeclaration, ...], zone: str
) -> str:
    """Return a declared calendar as text; `zone` is the default zone.

    >>> calendar_in_words(CalendarDeclaration(grain="day", start="2024-01-01"), (), "UTC")
    'day in UTC from 2024-01-01'
    >>> calendar_in_words(CalendarDeclaration(keys=("eu", "us")), (), "UTC")
    'keys eu, us'
    """
    if calendar is None:
        return ", ".join(
            f"{one.name} ({calendar_in_words(one.calendar, (), zone)})" for one in dimensions
        )
    if calendar.grain == "none":
        return "not partitioned"
    if calendar.keys is not None:
        return "keys " + (
            "known at run time" if calendar.keys == "runtime" else ", ".join(calendar.keys)
        )
    kind = calendar.grain or (
        f"cron {calendar.cron}" if calendar.cron else f"every {calendar.every}"
    )
    span = "".join(
        f" {word} {key}"
        for word, key in (("from", calendar.start), ("to", calendar.end))
        if key is not None
    )
    return f"{kind} in {calendar.zone or zone}{span}"
