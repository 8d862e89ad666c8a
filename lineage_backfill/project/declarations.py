"""The declarations of a project file as values: calendars, mappings, jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Annotated, Any, Final, Literal, NoReturn

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.cron import normalise
from lineage_backfill.project.forms import (
    Entrypoint,
    Function,
    Keys,
    Label,
    Lag,
    Parameters,
    Positive,
    Reach,
    SomeKeys,
    StaticKey,
    StaticKeys,
    Steps,
    Texts,
    TimeFormat,
    Zone,
    Zones,
    is_glob,
)
from lineage_backfill.project.run_rules import EdgesOf, RunRules, read_length
from lineage_backfill.typed import Star, Text, member

BatchPolicy = Literal["key", "range"] | Positive
Grain = Literal["hour", "day", "week", "month", "quarter", "year", "none"]
MappingName = Literal[
    "overlap", "identity", "window", "offset", "all", "last", "as_of", "map", "none", "python"
]
WriteMode = Literal["overwrite", "merge", "append", "full"]
OnEmpty = Literal["clear", "fail", "keep"]
OnDrift = Literal["fail", "add", "relax"]
OnMissing = Literal["guard", "fail", "read"]
TableFormat = Literal["delta", "parquet"]
#: The address of a host, in the brackets that a namespace may have.
_IPV6 = re.compile(r"\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?\]")


#: The grain that `init` drafts where the lineage does not show it; it states none.
UNANSWERED: Final = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDeclaration:
    """One dimension's calendar as stated: at most one of grain, cron, every, boundaries and keys.

    `start` and `end` are key labels (both included), `data_lag` counts keys (-1: the running
    period exists too), `keys` are static labels or the word "runtime". `boundaries` lists keys
    with the local start and end of each, or names a CSV file of them. Without a zone it is the
    project's. Only keys with a time have these four. Raises CronError and DeclarationError.
    """

    grain: Annotated[Grain | None, Star(UNANSWERED)] = None
    cron: Text | None = None
    every: Text | None = None
    boundaries: str | tuple[tuple[StaticKey, Label, Label], ...] | None = None
    keys: Literal["runtime"] | tuple[StaticKey, ...] | None = None
    zone: Zones | None = None
    start: Label | None = None
    end: Label | None = None
    data_lag: Lag | None = None

    def __post_init__(self) -> None:
        if self.cron is not None:
            normalise(self.cron)
        kinds = [kind for kind in CALENDAR_KINDS if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise DeclarationError(
                f"has `{'` and `'.join(kinds)}`: one calendar is enough", hint="Keep one of them."
            )
        if isinstance(self.keys, tuple) and not 0 < len(set(self.keys)) == len(self.keys):
            raise DeclarationError("`keys` must list at least one key, and each only once")
        dated = [name for name in DATED if getattr(self, name)]
        if dated and not self.has_time:
            _refuse_dated(dated, self)

    @property
    def has_kind(self) -> bool:
        """Whether it states which keys there are."""
        return any(getattr(self, kind) is not None for kind in CALENDAR_KINDS)

    @property
    def has_time(self) -> bool:
        """Whether its keys are periods of time."""
        return self.keys is None and self.grain != "none"


#: The settings that state which keys a calendar has: one of them.
CALENDAR_KINDS: Final = ("grain", "cron", "every", "boundaries", "keys")
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

    name: Text
    calendar: CalendarDeclaration = member(flat=True)
    column: Text | None = None

    def __post_init__(self) -> None:
        if not self.calendar.has_kind or self.calendar.grain == "none":
            raise DeclarationError(
                "a dimension has one calendar",
                hint="Add a `grain`, `cron`, `every`, `boundaries` or `keys`.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """Which keys a dataset or the runs of a job have: a calendar, or dimensions."""

    calendar: CalendarDeclaration | None = member(None, flat=True)
    dimensions: tuple[DimensionDeclaration, ...] = ()

    def __post_init__(self) -> None:
        if self.dimensions and (zones := _zones_alone(self.calendar)) is not None:
            object.__setattr__(self, "calendar", None)
            zoned = tuple(_with_zones(one, zones) for one in self.dimensions)
            object.__setattr__(self, "dimensions", zoned)
        names = [one.name for one in self.dimensions]
        if len(set(names)) < len(names):
            raise DeclarationError("two of its `dimensions` have one name")
        if self.calendar is not None and self.dimensions:
            kinds = [kind for kind in CALENDAR_KINDS if getattr(self.calendar, kind) is not None]
            if kinds:
                raise DeclarationError(
                    f"has `{kinds[0]}` and `dimensions`: one calendar is enough",
                    hint="Keep one of them.",
                )
            raise DeclarationError(
                "`zone`, `start`, `end` and `data_lag` belong to a calendar",
                hint="Move them to the time dimension.",
            )

    @property
    def has_kind(self) -> bool:
        """Whether it states which keys there are."""
        return bool(self.dimensions) or (self.calendar is not None and self.calendar.has_kind)

    @property
    def calendars(self) -> list[CalendarDeclaration]:
        """The calendar of each dimension that is stated."""
        whole = [] if self.calendar is None else [self.calendar]
        return whole or [one.calendar for one in self.dimensions]


def _zones_alone(calendar: CalendarDeclaration | None) -> Any:
    """Return the zones of keys where a calendar states nothing else."""
    zones = None if calendar is None else calendar.zone
    return None if calendar != CalendarDeclaration(zone=zones) or isinstance(zones, str) else zones


def _with_zones(one: DimensionDeclaration, zones: Any) -> DimensionDeclaration:
    """Return a dimension with the zones of a product's keys, if it is that of its time."""
    if not one.calendar.has_time:
        return one
    if one.calendar.zone not in (None, zones):
        raise DeclarationError("has `zone` for each key and for a dimension", hint="Keep one.")
    return replace(one, calendar=replace(one.calendar, zone=zones))


def _have_time(calendars: Sequence[CalendarDeclaration]) -> bool:
    """Whether keys of these calendars have a time; also where none is declared."""
    return not calendars or any(one.has_time for one in calendars)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPartitioning(Partitioning):
    """What a dataset's facet states of it.

    `columns` maps physical partition columns to a strftime format of the key's local start; None
    as format stands for the key's label, as `column` alone does. A table that is not partitioned
    by its keys has the value of a column instead: `time_column`, whose values lie in the interval
    of their key (texts as `time_format`), or `key_column`, which holds a static key.
    """

    column: Text | None = field(default=None, repr=False)
    columns: Mapping[str, Text | None] = member({})
    time_column: Text | None = None
    time_format: TimeFormat | None = None
    key_column: Text | None = None

    def __post_init__(self) -> None:
        Partitioning.__post_init__(self)
        if self.column is not None:
            if self.columns:
                raise DeclarationError("has both `column` and `columns`", hint="Keep one of them.")
            object.__setattr__(self, "columns", {self.column: None})
            object.__setattr__(self, "column", None)
        names = list(self.columns) or [one.column for one in self.dimensions if one.column]
        if len({name.lower() for name in names}) < len(names):
            raise DeclarationError(
                f"its columns {', '.join(names)} are not all different",
                hint="Name each once; tables do not tell upper from lower case.",
            )
        self._check_value_column()
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

    def __hash__(self) -> int:
        return hash((self.calendar, len(self.dimensions)))

    @property
    def value_column(self) -> str | None:
        """The column whose value says to which key a row belongs; None for partition columns."""
        return self.time_column or self.key_column

    @property
    def named_columns(self) -> Mapping[str, str | None]:
        """The columns that hold the keys, each with its format."""
        value = self.value_column
        return self.columns if value is None else {value: self.time_format}

    def _check_value_column(self) -> None:
        """Refuse a column of values beside others, and one that its keys cannot have."""
        if self.time_format is not None and self.time_column is None:
            raise DeclarationError("`time_format` needs the `time_column` that it is of")
        name = "time_column" if self.time_column else "key_column"
        if self.value_column is None:
            return
        if self.columns or self.dimensions or (self.time_column and self.key_column):
            beside = "`dimensions`" if self.dimensions else "other columns"
            raise DeclarationError(
                f"has `{name}` and {beside}",
                hint="Keep one: `columns` of a table that is partitioned by all its keys, or"
                " `time_column` or `key_column` alone: a run replaces its key in every partition.",
            )
        calendar = self.calendar
        if calendar is None or not calendar.has_kind:
            return
        if self.time_column and not calendar.has_time:
            raise DeclarationError(
                "has `time_column`, but its keys have no time", hint="Declare `key_column`."
            )
        if self.key_column and not isinstance(calendar.keys, tuple):
            raise DeclarationError(
                "has `key_column`, but does not list its keys",
                hint='List them: keys = ["eu", "us"]; periods have a `time_column`.',
            )

    def _is_static(self, column: str) -> bool:
        """Whether a column can only hold static keys."""
        if self.calendar is not None:
            return self.calendar.keys is not None
        parts = self.dimensions
        own = [part.calendar for part in parts if part.name == column]
        return bool(parts) and not _have_time(own or [part.calendar for part in parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDeclaration(DatasetPartitioning):
    """The declaration of datasets whose name matches `name` (exact, or a glob).

    `pattern` folds one-name-per-partition datasets. `aliases` are other names in the lineage:
    `namespace:name`, an address, or a glob. Rows are identified by the columns `row_key`; values of
    the columns in `mask` are never shown. One that is `expected` need not be known yet. A key of a
    `sparse` one that was never written is not missing.
    """

    name: Text | Literal[""] = ""
    namespace: Text | None = None
    pattern: Text | None = None
    retention: SomeKeys | None = None
    format: TableFormat | None = None
    location: Text | None = None
    table: Text | None = None
    aliases: Texts = field(default=(), repr=False)
    row_key: Texts = field(default=(), repr=False)
    mask: Texts = field(default=(), repr=False)
    expected: bool | None = field(default=None, repr=False)
    sparse: bool | None = None
    #: The places that state it and what each states, where they are several.
    sources: tuple[tuple[str, Any], ...] = member((), hidden=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        DatasetPartitioning.__post_init__(self)
        check_namespace(self.namespace, self.name)
        if not self.name and not self.pattern:
            raise DeclarationError("`name` is missing")
        if self.location and self.table:
            raise DeclarationError("has both `location` and `table`", hint="Keep one of them.")
        if self.value_column is not None and self.format == "parquet":
            raise DeclarationError(
                "is a Parquet table, and only its whole partitions can be replaced",
                hint="Declare its partition `columns`, or make it a Delta table.",
            )
        if self.retention is not None and not _have_time(self.calendars):
            _refuse_dated(["retention"], *self.calendars)

    def of(self, name: str) -> DatasetDeclaration:
        """Return the declaration for one name, which stands in a place for `{name}`.

        Raises DeclarationError for a name that would leave its folder.
        """
        place = self.location or self.table or ""
        if "{name}" not in place:
            return self
        if {"..", ""} & set(name.split("/")):
            raise DeclarationError(
                f"the name of dataset {name!r} cannot be part of {place}",
                hint="Declare it in a [[dataset]] of its own, with its location.",
            )
        own = place.replace("{name}", name)
        return replace(self, table=own) if self.table else replace(self, location=own)

    def __hash__(self) -> int:
        # Looked up once for each job, dataset or edge: hashed by the most distinctive members.
        return hash(self.name)


def check_namespace(namespace: str | None, name: str) -> None:
    """Raise DeclarationError for a pattern beside one name, which matches nothing."""
    # An address may have a query, and the brackets of IPv6.
    literal = (namespace or "").replace("?", "") if "://" in (namespace or "") else namespace or ""
    if is_glob(_IPV6.sub("", literal)) and not is_glob(name):
        raise DeclarationError(
            f"`namespace` {namespace!r} is a pattern, and the name beside it is not",
            hint="Name one namespace, or write the name as a pattern as well.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Travel:
    """How keys travel along an edge, or one of its dimensions."""

    before: Reach | None = None
    after: Reach | None = None
    by: Steps | None = None
    map: Mapping[str, StaticKeys] = member({})


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionMapping(_Travel):
    """The mapping of one dimension along an edge, if it is not the default."""

    mapping: Literal[
        "overlap", "identity", "window", "offset", "all", "last", "as_of", "map", "none"
    ]

    def __post_init__(self) -> None:
        _check_mapping(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDeclaration(_Travel):
    """How a job reads one input; without a mapping it is the default.

    `on_missing` says when a run fails because partitions that it needs were never written: "guard"
    (the default), if a run key finds none of its own; "fail", if any is missing; "read", never.
    `lookback` replaces that of the outputs for this input.
    """

    dataset: Text
    namespace: Text | None = None
    mapping: MappingName | None = None
    function: Function | None = None
    dimensions: Mapping[str, DimensionMapping] = member({})
    on_missing: OnMissing | None = field(default=None, repr=False)
    lookback: Keys | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_namespace(self.namespace, self.dataset)
        if self.lookback and self.mapping == "none":
            raise DeclarationError("`lookback` does not apply to a reference (mapping none)")
        if self.dimensions and self.mapping is not None:
            raise DeclarationError("has both `mapping` and `dimensions`", hint="Keep one of them.")
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
    """Refuse settings of another mapping, and a mapping without its settings."""
    for name, owner in MAPPING_SETTINGS.items():
        value = getattr(read, name, None)
        if value and read.mapping != owner:
            raise DeclarationError(
                f"`{name}` belongs to mapping {owner!r}", hint=f'Add mapping = "{owner}".'
            )
        if not value and read.mapping == owner != "window":
            zero = " other than 0" if name == "by" else ""
            raise DeclarationError(f"mapping {owner!r} needs `{name}`{zero}")
    if read.mapping == "window" and read.before is None and read.after is None:
        raise DeclarationError(
            "mapping 'window' needs `before` or `after`",
            hint="Write how many run keys it reaches back, as in before = 6.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """What a declaration states of how outputs are written; None where it states nothing."""

    mode: WriteMode | None = None
    on_empty: OnEmpty | None = None
    on_drift: OnDrift | None = None
    lookback: Keys | None = None
    merge_on: Texts = ()
    delete_when: Text | None = None
    delete_missing: bool | None = None
    unsafe_overwrite: bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("merge", None) and (self.delete_when or self.delete_missing):
            name = "delete_when" if self.delete_when else "delete_missing"
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
class WriteDeclaration(WriteRules):
    """How a job writes one output; `shares` are jobs that it overwrites the same keys after."""

    dataset: Text
    namespace: Text | None = None
    shares: Texts = field(default=(), repr=False)

    def __post_init__(self) -> None:
        WriteRules.__post_init__(self)
        check_namespace(self.namespace, self.dataset)

    @property
    def policy(self) -> WritePolicy:
        """How runs write the output, with the defaults."""
        return WritePolicy(
            mode=self.mode or "overwrite",
            on_empty=self.on_empty or "clear",
            on_drift=self.on_drift or "fail",
            lookback=self.lookback or 0,
            merge_on=self.merge_on,
            delete_when=self.delete_when,
            delete_missing=bool(self.delete_missing),
            unsafe_overwrite=bool(self.unsafe_overwrite),
            says_mode=self.mode is not None,
        )


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

    dag: Text | Literal[""] = ""
    tasks: Texts = member((), key="task")
    slice: Text | None = None
    cron: str | None = member(None, hidden=True)
    zone: str | None = member(None, hidden=True)
    conf: Parameters = member({})
    whole_dag: bool = False

    def __post_init__(self) -> None:
        plain, _, length = (self.slice or "").partition("+")
        known = self.slice is None or (
            plain.strip() in AIRFLOW_SLICES
            and (not length or (plain.strip() == "logical_date" and read_length(length)))
        )
        if not known and re.fullmatch(r"partition_key .*%.*", self.slice or "") is None:
            raise DeclarationError(
                f"`slice` is {self.slice!r}, but must be one of {', '.join(AIRFLOW_SLICES)}",
                hint='A logical date after the start of a key is written "logical_date + 26h", a'
                ' partition key in another format "partition_key %Y-%m".',
            )
        if bool(self.dag) != bool(self.tasks):
            raise DeclarationError("`dag` and `task` go together", hint="Give both, or neither.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPartitioning(Partitioning):
    """What a job's facet states of it: run calendar, batching of keys, and edges.

    With `depends_on_past` each run key needs the one before, as in a table that is merged in order.
    `batch` is "key" (one run per key), "range" (one run per maximal range) or N (at most N keys in
    one run).
    """

    batch: BatchPolicy | None = None
    depends_on_past: bool | None = None
    reads: tuple[ReadDeclaration, ...] = ()
    writes: tuple[WriteDeclaration, ...] = ()

    def __post_init__(self) -> None:
        Partitioning.__post_init__(self)
        for side in ("reads", "writes"):  # an exact name has precedence over globs
            edges = getattr(self, side)
            if any(is_glob(edge.dataset) for edge in edges[:-1]):
                ordered = sorted(edges, key=lambda edge: is_glob(edge.dataset))
                object.__setattr__(self, side, tuple(ordered))
        for edges in (self.reads, self.writes):
            names = [(edge.namespace, edge.dataset) for edge in edges]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise DeclarationError(
                    f"declares its edge to `{twice[1]}` twice", hint="Keep one of the two."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeclaration(JobPartitioning):
    """The declaration of jobs whose name matches `name` (exact, or a glob).

    `schedule` is the cron expression that starts its runs, in `schedule_zone`, or the zone of its
    calendar; one without keys also covers those since the firing before where it is to
    `collect_schedule_gaps`. `rules` say how its runs are made. A `retired` job is
    never planned; it is one that another `replaces`. `pattern` makes one job of all whose names
    match it. `edges_of` is "last run" or a span, such as "30d". One that is `expected` need not be
    known yet. Raises CronError and DeclarationError.
    """

    name: Text | Literal[""] = ""
    namespace: Text | None = None
    engine: Text | None = None
    entrypoint: Entrypoint | None = None
    pool: Text | None = None
    priority: int | None = None
    protected: bool | None = None
    idempotent: bool | None = None
    schedule: Text | None = None
    schedule_zone: Zone | None = None
    collect_schedule_gaps: bool | None = None
    retired: bool | None = field(default=None, repr=False)
    replaces: Texts = field(default=(), repr=False)
    pattern: Text | None = field(default=None, repr=False)
    edges_of: EdgesOf | None = field(default=None, repr=False)
    airflow: DagTasks | None = member(None, flat=True, repr=False)
    rules: RunRules = member(RunRules(), flat=True, repr=False)
    expected: bool | None = field(default=None, repr=False)
    #: The places that state it and what each states, where they are several.
    sources: tuple[tuple[str, Any], ...] = member((), hidden=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        JobPartitioning.__post_init__(self)
        check_namespace(self.namespace, self.name)
        if not self.name and not self.pattern:
            raise DeclarationError("`name` is missing")
        if self.schedule is not None:
            normalise(self.schedule)
        elif self.schedule_zone is not None or self.collect_schedule_gaps:
            name = "collect_schedule_gaps" if self.collect_schedule_gaps else "schedule_zone"
            raise DeclarationError(
                f"has `{name}` without a `schedule`", hint="Add the cron expression that starts it."
            )
        if self.collect_schedule_gaps and not _have_time(self.calendars):
            _refuse_dated(["collect_schedule_gaps"], *self.calendars)

    def __hash__(self) -> int:
        # Looked up once for each job, dataset or edge: hashed by the most distinctive members.
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Guard rails; each has a named override on the command line.

    Of more than `confirm_above` runs, the count must be typed.
    """

    max_runs: Positive = member(10_000, "a plan with more runs is refused")
    confirm_above: Positive = member(100, "above this many runs, the count must be typed")
    max_parallel: Positive = member(4, "runs at once")


#: The kinds of engines that start Spark themselves, and take its properties as `conf`.
SPARK_ENGINES = ("local", "spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDeclaration:
    """One `[engines.NAME]` table: its kind and the settings that its adapter takes."""

    name: Text
    kind: Text
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def takes_any_job(self) -> bool:
        """Whether a program of the user runs the jobs, without entrypoint and tables."""
        return self.kind in ("airflow", "databricks") or (
            self.kind == "command" and not self.settings.get("undo")
        )


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
    if calendar.boundaries is not None:
        kind = f"{len(calendar.boundaries)} keys by list"
    else:
        cron = f"cron {calendar.cron}" if calendar.cron else f"every {calendar.every}"
        kind = calendar.grain or cron
    span = "".join(
        f" {word} {key}"
        for word, key in (("from", calendar.start), ("to", calendar.end))
        if key is not None
    )
    zones = calendar.zone or zone
    if not isinstance(zones, str):
        named = dict(zones)
        by = named.pop("by", "")
        zones = f"the zone of {by} (" + ", ".join(map(" ".join, named.items())) + ")"
    return f"{kind} in {zones}{span}"
