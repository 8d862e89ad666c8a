"""Reads `[[dataset]]`, `[[job]]`, `[pools]` and `[engines.*]` tables as declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, get_args
from zoneinfo import ZoneInfo

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.zones import nearest_zones
from lineage_backfill.project.declarations import (
    AIRFLOW_SLICES,
    MAPPING_SETTINGS,
    SPARK_ENGINES,
    CalendarDeclaration,
    DagTasks,
    DatasetDeclaration,
    DimensionDeclaration,
    DimensionMapping,
    EngineDeclaration,
    Grain,
    JobDeclaration,
    MappingName,
    OnDrift,
    OnEmpty,
    OnMissing,
    ReadDeclaration,
    WriteDeclaration,
    WriteMode,
    WritePolicy,
    refuse_setting,
)
from lineage_backfill.project.facets import batch_policy
from lineage_backfill.project.locations import absolute
from lineage_backfill.project.matching import is_glob, refuse_twice
from lineage_backfill.project.patterns import completed, job_name
from lineage_backfill.project.run_rules import HOW_LONG, Failure, RunRules, RunWindow, read_length
from lineage_backfill.project.table import Table
from lineage_backfill.typed import near_misses

#: The keys of which a calendar has exactly one.
CALENDAR_KINDS = ("grain", "cron", "every", "keys", "dimensions")
_GRAINS: tuple[str, ...] = get_args(Grain)
#: The grain that `init` drafts where the lineage does not show it; it states none.
UNANSWERED = "?"
#: The address of a host, in the brackets that a namespace may have.
_IPV6 = re.compile(r"\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?\]")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ENTRYPOINT = re.compile(_FUNCTION.pattern + r"|[^\s:]+\.(?:py|sql)")

#: How `edges_of` names the last run.
LAST_RUN = "last run"

Named = TypeVar("Named", DatasetDeclaration, JobDeclaration)
#: What was read of a file's tables, by title: a table that another target leaves as it is, is not
#: read again.
Known = dict[str, tuple[Mapping[str, Any], Any]]


def datasets(
    tables: Iterable[Table], base: Path, known: Known | None = None
) -> tuple[DatasetDeclaration, ...]:
    """Read the `[[dataset]]` tables; relative locations are relative to `base`."""
    stated = [table for table in tables if not _is_unanswered(table)]
    return _unique(stated, partial(read_dataset, base=base), {} if known is None else known)


def _is_unanswered(table: Table) -> bool:
    """Whether a table is only the question of a draft: another one may answer it."""
    is_asked = table.values.get("grain") == UNANSWERED
    return is_asked and table.values.keys() <= {"name", "namespace", "grain"}


def jobs(
    tables: Iterable[Table],
    *,
    engines: Iterable[str],
    pools: Iterable[str],
    known: Known | None = None,
) -> tuple[JobDeclaration, ...]:
    """Read the `[[job]]` tables; their engines and pools must be among those given."""
    engines, pools = tuple(engines), tuple(pools)
    return _unique(
        tables,
        partial(_job, engines=engines, pools=pools),
        {} if known is None else known,
        lambda job: job.engine in (None, *engines) and job.pool in (None, *pools),
    )


def engine(name: str, table: Table) -> EngineDeclaration:
    """Read one `[engines.NAME]` table; `kind` is the name where it is not given."""
    kind = table.text("kind") or name
    settings: dict[str, object] = {}
    if kind in SPARK_ENGINES and "conf" in table:
        settings["conf"] = spark_properties(table, "conf")
    live = table.texts("live") or ()
    settings |= {key: table.raw(key) for key in table.names()}
    return EngineDeclaration(name=name, kind=kind, live=live, settings=settings)


def spark_properties(table: Table, key: str) -> dict[str, str]:
    """Return Spark's properties: `sql.shuffle.partitions = 4` is `spark.sql.shuffle.partitions`."""
    properties = {}
    todo = list(table.mapping(key).items())
    while todo:
        name, value = todo.pop()
        if isinstance(value, dict):
            todo += [(f"{name}.{inner}", each) for inner, each in value.items()]
        elif isinstance(value, list):
            raise table.error(f"`{name}` of `{key}` must be one value")
        else:
            name = name if name.startswith("spark.") else f"spark.{name}"
            properties[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return dict(sorted(properties.items()))


def check_zone(table: Table, key: str = "zone") -> str | None:
    """Read a time zone; refuse one that is not in the IANA database."""
    zone = table.text(key)
    if zone is not None and not _is_zone(zone):
        raise table.error(f"`{key}` {zone!r} is not a time zone", hint=nearest_zones(zone))
    return zone


def read_dataset(table: Table, base: Path) -> DatasetDeclaration:
    """Read a dataset; a relative location is relative to `base`."""
    pattern = table.text("pattern")
    name = table.text("name") if pattern else table.need("name")
    calendar, dimensions = read_calendar(table, told=pattern is not None)
    location, where = table.text("location"), table.text("table")
    if location and where:
        raise table.error("has both `location` and `table`", hint="Keep one of them.")
    with table.placed():
        declaration = DatasetDeclaration(
            name=name or "",
            namespace=_namespace(table, name or ""),
            calendar=calendar,
            dimensions=dimensions,
            pattern=pattern,
            retention=table.integer("retention", None),
            columns=_columns(table),
            format=table.text("format"),
            location=location and absolute(location, base),
            table=where,
            aliases=table.texts("aliases") or (),
            row_key=table.texts("row_key") or (),
            mask=table.texts("mask") or (),
            expected=table.flag("expected", False),
        )
        table.done()
        return completed(declaration)


def _namespace(table: Table, name: str) -> str | None:
    """Read the namespace of a name; refuse a pattern beside one name, which matches nothing."""
    namespace = table.text("namespace")
    if namespace is None:
        return None
    # An address may have a query, and the brackets of IPv6.
    literal = namespace.replace("?", "") if "://" in namespace else namespace
    if is_glob(_IPV6.sub("", literal)) and not is_glob(name):
        raise DeclarationError(
            f"{table.place}: `namespace` {namespace!r} is a pattern, and the name beside it is not",
            hint="Name one namespace, or write the name as a pattern as well.",
        )
    return namespace


def _columns(table: Table) -> Mapping[str, str | None]:
    column, columns = table.text("column"), table.mapping("columns")
    if column and columns:
        raise table.error("has both `column` and `columns`", hint="Keep one of them.")
    for name, form in columns.items():
        if not isinstance(form, str | None):
            raise table.error(f"`columns.{name}` must be a strftime format such as %Y-%m-%d")
    return {column: None} if column else dict(columns)


def read_calendar(
    table: Table, *, told: bool = False
) -> tuple[CalendarDeclaration | None, tuple[DimensionDeclaration, ...]]:
    """Read a calendar; its kind may come from a pattern (`told`)."""
    if table.values.get("grain") == UNANSWERED:
        table.raw("grain")
    given = [kind for kind in CALENDAR_KINDS if kind in table]
    if len(given) > 1:
        raise table.error(
            f"has `{'` and `'.join(given)}`: one calendar is enough", hint="Keep one of them."
        )
    dimensions = tuple(_dimension(one) for one in table.tables("dimensions"))
    names = [dimension.name for dimension in dimensions]
    if len(set(names)) < len(names):
        raise table.error("two of its `dimensions` have one name")
    with table.placed():
        calendar = CalendarDeclaration(
            grain=table.choice("grain", _GRAINS),
            cron=table.text("cron"),
            every=table.text("every"),
            keys=_keys(table),
            zone=check_zone(table),
            start=table.label("start"),
            end=table.label("end"),
            data_lag=table.integer("data_lag", 0),
        )
    if (given or told) and not dimensions:
        return calendar, ()
    if calendar != CalendarDeclaration():
        raise table.error(
            "`zone`, `start`, `end` and `data_lag` belong to a calendar",
            hint="Move them to the time dimension."
            if dimensions
            else "Add a `grain`, `cron`, `every` or `keys`.",
        )
    return None, dimensions


def _dimension(table: Table) -> DimensionDeclaration:
    name, column = table.need("name"), table.text("column")
    calendar, nested = read_calendar(table)
    if calendar is None or nested or calendar.grain == "none":
        raise table.error(
            "a dimension has one calendar", hint="Add a `grain`, `cron`, `every` or `keys`."
        )
    table.done()
    return DimensionDeclaration(name=name, calendar=calendar, column=column)


def _keys(table: Table) -> Any:
    keys = table.texts("keys")
    if keys == ("runtime",):
        return "runtime"
    if keys is not None and (not keys or len(set(keys)) < len(keys)):
        raise table.error("`keys` must list at least one key, and each only once")
    return keys


def _job(table: Table, engines: tuple[str, ...], pools: tuple[str, ...]) -> JobDeclaration:
    pattern = table.text("pattern")
    name = job_name(pattern, table.text("name")) if pattern else table.need("name")
    calendar, dimensions = read_calendar(table)
    engine = _known(table, "engine", engines, "[engines.*]")
    entrypoint = _code(
        table, "entrypoint", _ENTRYPOINT, "`module:function` or the path of a .py or .sql file"
    )
    if engine is None and entrypoint is not None and engines == ("local",):
        engine = "local"  # the only one
    with table.placed():
        declaration = JobDeclaration(
            name=name,
            namespace=_namespace(table, name),
            calendar=calendar,
            dimensions=dimensions,
            engine=engine,
            entrypoint=entrypoint,
            batch=_batch(table),
            pool=_known(table, "pool", pools, "[pools]"),
            priority=table.integer("priority", 0),
            protected=table.flag("protected", False),
            idempotent=table.flag("idempotent", True),
            schedule=table.text("schedule"),
            schedule_zone=check_zone(table, "schedule_zone"),
            collect_schedule_gaps=table.flag("collect_schedule_gaps", False),
            airflow=_airflow(table),
            retired=table.flag("retired", False),
            replaces=table.texts("replaces") or (),
            pattern=pattern,
            edges_of=edges_of(table, "edges_of"),
            rules=_rules(table),
            expected=table.flag("expected", False),
            reads=tuple(read_edge(one) for one in table.tables("reads")),
            writes=tuple(read_output(one) for one in table.tables("writes")),
        )
    refuse_twice(declaration.reads, None, table.place)
    refuse_twice(declaration.writes, None, table.place)
    table.done()
    return declaration


def _airflow(table: Table) -> DagTasks | None:
    dag, tasks, kind = table.text("dag"), table.texts("task"), table.text("slice")
    plain, _, length = (kind or "").partition("+")
    known = kind is None or (
        plain.strip() in AIRFLOW_SLICES
        and (not length or (plain.strip() == "logical_date" and read_length(length)))
    )
    if not known and re.fullmatch(r"partition_key .*%.*", kind or "") is None:
        raise table.error(
            f"`slice` is {kind!r}, but must be one of {', '.join(AIRFLOW_SLICES)}",
            hint='A logical date after the start of a key is written "logical_date + 26h", a'
            ' partition key in another format "partition_key %Y-%m".',
        )
    if (dag is None) != (tasks is None):
        raise table.error("`dag` and `task` go together", hint="Give both, or neither.")
    conf = {name: str(value) for name, value in table.mapping("conf").items()}
    for name, text in conf.items():
        if wrong := set(re.findall(r"{(.*?)}", text)) - {"key", "start", "end"}:
            raise table.error(
                f"`conf.{name}` names {{{min(wrong)}}}, which no run has",
                hint="Use {key}, {start} or {end}.",
            )
    found = DagTasks(
        dag=dag or "",
        tasks=tasks or (),
        slice=kind,
        conf=conf,
        whole_dag=table.flag("whole_dag", False),
    )
    return None if found == DagTasks() else found


def _rules(table: Table) -> RunRules:
    return RunRules(
        timeout=length(table, "timeout"),
        retries=table.integer("retries", None, minimum=0),
        retry_wait=length(table, "retry_wait"),
        retry_on=table.choices("retry_on", get_args(Failure)),
        only_between=window(table, "only_between"),
    )


def length(table: Table, key: str) -> timedelta | None:
    """Read a duration; only a wait may be 0."""
    text = table.text(key)
    if text is None:
        return None
    found = read_length(text)
    if found is None:
        raise table.error(f"`{key}` is {text!r}, which is not a duration", hint=HOW_LONG)
    if not found and key != "retry_wait":
        raise table.error(f"`{key}` is {text!r}, but must be more than 0")
    return found


def edges_of(table: Table, key: str) -> str | None:
    """Read which runs give a job its edges: the last one, or those of a span of time."""
    text = table.text(key)
    if text not in (None, LAST_RUN) and not read_length(text or ""):
        raise table.error(
            f"`{key}` is {text!r}, but must be {LAST_RUN!r} or a length of time",
            hint='As in "30d".',
        )
    return text


def window(table: Table, key: str) -> RunWindow | None:
    """Read a daily window, with or without a time zone."""
    text = table.text(key)
    found = RunWindow.read(text) if text is not None else None
    if text is not None and found is None:
        raise table.error(
            f"`{key}` is {text!r}, which is not a window",
            hint='Write it as "20:00-06:00", or "20:00-06:00 Europe/Berlin".',
        )
    if found is not None and found.zone is not None and not _is_zone(found.zone):
        raise table.error(
            f"`{key}` names {found.zone!r}, which is not a time zone",
            hint=nearest_zones(found.zone),
        )
    return found


def _known(table: Table, key: str, known: tuple[str, ...], where: str) -> str | None:
    name = table.text(key)
    if name is not None and name not in known:
        raise DeclarationError(
            f"{table.place}: {key} `{name}` is not declared in {where}",
            hint=near_misses(name, known) or f"Declare it in {where}.",
        )
    return name


def _code(table: Table, key: str, pattern: re.Pattern[str], forms: str) -> str | None:
    name = table.text(key)
    if name is not None and not pattern.fullmatch(name):
        raise table.error(f"`{key}` must be {forms}, not {name!r}")
    return name


def _batch(table: Table) -> Any:
    try:
        return batch_policy(table.raw("batch"))
    except ValueError as error:
        raise table.error(str(error)) from None


def read_edge(table: Table) -> ReadDeclaration:
    """Read how a job reads an input."""
    dataset = table.need("dataset")
    namespace = _namespace(table, dataset)
    settings = _mapping(table)
    dimensions = {}
    for name, values in table.mapping("dimensions").items():
        one = Table(values if isinstance(values, dict) else {}, f"{table.place} {name}")
        with one.placed():
            dimensions[name] = DimensionMapping(**_mapping(one, within_dimension=True))
        one.done()
    if dimensions and settings["mapping"] is not None:
        raise table.error("has both `mapping` and `dimensions`", hint="Keep one of them.")
    on_missing: Any = table.choice("on_missing", get_args(OnMissing)) or "guard"
    table.done()
    with table.placed():
        return ReadDeclaration(
            dataset=dataset,
            namespace=namespace,
            dimensions=dimensions,
            on_missing=on_missing,
            **settings,
        )


def _mapping(table: Table, *, within_dimension: bool = False) -> dict[str, Any]:
    names = tuple(n for n in get_args(MappingName) if not (within_dimension and n == "python"))
    mapping = table.choice("mapping", names)
    with table.placed():
        for key, owner in MAPPING_SETTINGS.items():
            if key in table and mapping != owner:
                refuse_setting(key)
    settings: dict[str, Any] = {
        "mapping": mapping,
        "before": table.integer("before", 0),
        "after": table.integer("after", 0),
        "by": table.integer("by", 0),
        "map": _static_map(table),
    }
    if not within_dimension:
        settings["function"] = _code(table, "function", _FUNCTION, "`module:function`")
    elif mapping is None:
        raise table.error("`mapping` is missing")
    return settings


def _static_map(table: Table) -> dict[str, tuple[str, ...]]:
    inner = table.table("map")
    return {key: inner.texts(key) or () for key in inner.names()}


def read_output(table: Table) -> WriteDeclaration:
    """Read how a job writes an output."""
    dataset = table.need("dataset")
    namespace, policy = _namespace(table, dataset), write_policy(table)
    shares = table.texts("shares") or ()
    table.done()
    return replace(WriteDeclaration.of(dataset, namespace, policy), shares=shares)


def write_policy(table: Table) -> WritePolicy:
    """Read how an output is written."""
    with table.placed():
        mode: Any = table.choice("mode", get_args(WriteMode))
        return WritePolicy(
            mode=mode or "overwrite",
            says_mode=mode is not None,
            on_empty=table.choice("on_empty", get_args(OnEmpty)) or "clear",
            on_drift=table.choice("on_drift", get_args(OnDrift)) or "fail",
            lookback=table.integer("lookback", 0),
            merge_on=table.texts("merge_on") or (),
            delete_when=table.text("delete_when"),
            delete_missing=table.flag("delete_missing", False),
            unsafe_overwrite=table.flag("unsafe_overwrite", False),
        )


def _unique(
    tables: Iterable[Table],
    read: Callable[[Table], Named],
    known: Known,
    holds: Callable[[Named], bool] = lambda _: True,
) -> tuple[Named, ...]:
    found: dict[tuple[str | None, str], Named] = {}
    for table in tables:
        values, declaration = known.get(table.title, ({}, None))
        if declaration is None or values is not table.values or not holds(declaration):
            declaration = read(table)
            known[table.title] = table.values, declaration
        key = (declaration.namespace, declaration.name)
        if key in found:
            raise DeclarationError(
                f"{table.place}: `{declaration.name}` is declared twice",
                hint="Merge the two.",
            )
        found[key] = declaration
    return tuple(found.values())


@lru_cache
def _is_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # unknown, malformed, a folder of the database
        return False
    return True
