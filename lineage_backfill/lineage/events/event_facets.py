"""Reads OpenLineage facets, in old and new forms; absent facets give empty values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

#: Most keys of one run.
_MOST_KEYS: Final = 1_000
#: The longest id that Airflow takes.
_AN_ID: Final = 250
#: The addresses in Python's text of a list of assets.
_URI: Final = re.compile(r"""'uri': (?:'([^']*)'|"([^"]*)")""")
_INACTIVE: Final = re.compile(r"Asset\(name='[^']*', uri='([^']*)'")
#: Most characters of a query or a description.
_LONGEST: Final = 20_000
#: INDIRECT dependencies that leave the rows as they are.
_OF_ONE_COLUMN: Final = ("CONDITIONAL", "WINDOW")
_OVERWRITES: Final = ("OVERWRITE", "TRUNCATE")
#: What an action of Spark calls its way of writing; Iceberg's MERGE, and UPDATE, rewrite rows.
_ACTION: Final = re.compile(
    r"(?:execute_)?(append|merge|overwrite)(?:_(?:into|data|by|partitions)_?\w*)?"
    r"|replace_(?:iceberg_)?data|write_(?:iceberg_)?delta|execute_(?:update|delete)_command"
    r"|delete_from_table",
    re.ASCII,
)
_CHANGES: Final = frozenset(
    {"delete_from_table", "execute_delete_command", "execute_update_command"}
)
_STATEMENT: Final = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:with\b.*?\)\s*)?"
    r"(?:(merge)\s+into|insert\s+(?:(overwrite)|into))\b",
    re.IGNORECASE | re.DOTALL,
)
#: (start, end) as sent; the end may be missing.
Interval = tuple[str, str]


def parse_time(text: str) -> datetime:
    """Return the instant in UTC, or without a zone if the text has none; raises ValueError.

    >>> parse_time("2020-02-22T22:00Z[UTC]").isoformat()
    '2020-02-22T22:00:00+00:00'
    """
    if text.endswith("]"):  # Java's way of adding the zone's name
        text = text.partition("[")[0]
    when = datetime.fromisoformat(text)
    if when.tzinfo is None or when.tzinfo is UTC:
        return when
    try:
        return when.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"a time out of range: {text}") from error


def interval(facet: Any) -> Interval | None:
    """Return the nominal time of a `nominalTime` facet."""
    if not isinstance(facet, dict):
        return None
    return _interval(facet.get("nominalStartTime"), facet.get("nominalEndTime"))


def airflow_run(facet: Any) -> tuple[Interval | None, str | None, bool]:
    """Return data interval, partition key, and whether the time of the run set the interval.

    It was in a manual run, unless its logical date begins it as a schedule's does. The facet is
    that of Airflow's provider (`airflow`, `airflowDagRun`), or of the integration before it.
    """
    run = facet.get("dagRun") if isinstance(facet, dict) else None
    if not isinstance(run, dict):
        return None, None, False
    key = run.get("partition_key")
    if not isinstance(key, str):
        key = _day_or_hour(run.get("partition_date"))
    start = run.get("data_interval_start")
    interval = _interval(start, run.get("data_interval_end"))
    is_scheduled = interval is not None and interval[1] != "" and run.get("logical_date") == start
    manual = run.get("run_type") == "manual" and not is_scheduled
    return interval, key, manual


def task_index(facet: Any) -> int:
    """Return the index of an instance of a mapped task in an `airflow` facet, else -1."""
    one = facet.get("taskInstance") if isinstance(facet, dict) else None
    index = one.get("map_index") if isinstance(one, dict) else None
    return index if type(index) is int else -1


def airflow_task(facet: Any) -> dict[str, Any] | None:
    """Return the members of `AirflowTask` from an `airflow` facet, if present.

    Names may contain dots, so the name of the job does not determine them. The facet has the
    `errorMessage` facet of the same event as a member, if there is one.
    """
    dag, task = facet.get("dag") or {}, facet.get("task") or {}
    ids = {"dag": dag.get("dag_id"), "task": task.get("task_id")}
    if None in ids.values():
        return None
    if not all(
        type(one) is str and one.isprintable() and len(one) <= _AN_ID for one in ids.values()
    ):
        raise ValueError("not the ids of a task")
    sides = {side: _uris(task.get(side)) for side in ("inlets", "outlets")}
    failure = _text(facet.get("errorMessage"), "message") or ""
    if "inactive assets" in failure:
        sides["inactive"] = sorted(set(_INACTIVE.findall(failure[:_LONGEST])))
    sent = {"timetable": timetable} if isinstance(timetable := dag.get("timetable"), dict) else {}
    return {**ids, **{side: uris for side, uris in sides.items() if uris}, **sent}


def was_triggered(facet: Any) -> bool:
    """Return whether `airflow_runArgs` of the old integration marks a manual run.

    Its first versions send nothing else; later ones send the run's type.
    """
    return isinstance(facet, dict) and facet.get("externalTrigger") is True


def run_keys(facet: Any) -> str | None:
    """Return the run keys of our own run facet, as a user would write them."""
    keys = facet.get("keys") if isinstance(facet, dict) else None
    if not isinstance(keys, list):
        return None
    texts = [text for key in keys for text in ([key] if isinstance(key, str) else _boxed(key))]
    return ",".join(texts) or None


def _boxed(box: Any) -> list[str]:
    """Return the product keys of a box, each as in `day=2024-06-15/region=eu`."""
    if not isinstance(box, dict) or not all(isinstance(keys, list) for keys in box.values()):
        return []
    found = [""]
    for name, keys in box.items():
        found = [f"{one}/{name}={quote(str(key), safe=' :')}" for one in found for key in keys]
        if len(found) > _MOST_KEYS:
            return []
    return [one.removeprefix("/") for one in found]


def parent_run_id(facet: Any) -> str | None:
    """Return the id of the run that a `parent` facet names."""
    run = facet.get("run")
    run_id = run.get("runId") if type(run) is dict else None
    return run_id if type(run_id) is str else None


def renamed_from(output: Any) -> list[Mapping[str, Any]]:
    """Return the table that an output was until its job renamed it: a job that renames reads it."""
    change: Any = (output.get("facets") or {}).get("lifecycleStateChange")
    if _text(change, "lifecycleStateChange") != "RENAME":
        return []
    before = change.get("previousIdentifier")
    found = before if isinstance(before, dict) else {}
    name = {one: found.get(one) for one in ("namespace", "name")}
    return [name] if all(isinstance(one, str) and one.strip() for one in name.values()) else []


def spark_job_type(facet: Any) -> str:
    """Return the `jobType` of Spark's listener: APPLICATION, SQL_JOB, …; else ""."""
    if not isinstance(facet, dict) or facet.get("integration") != "SPARK":
        return ""
    return _text(facet, "jobType") or ""


def is_test(facet: Any) -> bool:
    """Return whether a `jobType` facet is that of a test of dbt."""
    return (
        isinstance(facet, dict)
        and facet.get("integration") == "DBT"
        and str(facet.get("jobType")).upper() == "TEST"
    )


def node_id(facet: Any) -> str | None:
    """Return the unique id in a `dbt_node` facet; the job's name depends on dbt's command."""
    return _text(facet, "unique_id")


def write_mode(facet: Any) -> str | None:
    """Return how an output was written by its `lifecycleStateChange`; None for other changes."""
    return "overwrite" if _text(facet, "lifecycleStateChange") in _OVERWRITES else None


def mode_in_name(name: str) -> str | None:
    """Return how a job writes by a part of its name, as Spark's listener puts the action there.

    >>> mode_in_name("app.execute_merge_into_command.delta_t"), mode_in_name("merge_orders")
    ('merge', None)
    >>> mode_in_name("app.replace_data.shop_orders"), mode_in_name("app.append_data.shop_orders")
    ('merge', 'append')
    """
    found = (_ACTION.fullmatch(part) for part in name.split("."))
    return next((one[1] or "merge" for one in found if one), None)


def only_changes(name: str) -> bool:
    """Return whether the name of an action is a DELETE or UPDATE, which may have no source."""
    return not _CHANGES.isdisjoint(name.split("."))


def writes_by_name(name: str) -> bool:
    """Return whether the name of an action says that it writes rows, as those of a stream do."""
    return mode_in_name(name) is not None or "write_to_data_source_v2" in name.split(".")


def mode_in_query(query: str) -> str | None:
    """Return how a statement of SQL writes, after comments and a WITH.

    >>> mode_in_query("/* dbt */ with a as (select 1) merge into t using a on true")
    'merge'
    """
    found = _STATEMENT.match(query)
    return None if found is None else (found[1] or "append").lower()


def is_of_spark(facets: Any) -> bool:
    """Return whether the facets are those of Spark's listener before it sent `jobType`."""
    return "spark_version" in facets or is_of("spark", facets)


def is_of(name: str, facets: Any) -> bool:
    """Return whether the facets of a run name this processing engine, in small letters."""
    engine = facets.get("processing_engine")
    sent = engine.get("name") if isinstance(engine, dict) else None
    return isinstance(sent, str) and sent.casefold() == name


def run_backfill(facet: Any) -> str | None:
    """Return the id of the backfill in our own run facet."""
    backfill = facet.get("backfillId") if isinstance(facet, dict) else None
    return backfill if isinstance(backfill, str) else None


def owners(facet: Any) -> tuple[str, ...]:
    """Return the names of an `ownership` facet."""
    return _names(facet, "owners")


def fields(facet: Any) -> tuple[str, ...]:
    """Return the column names of a `schema` facet, in its order."""
    return tuple([str(field["name"]) for field in _items(facet, "fields")])


def tags(facet: Any) -> tuple[str, ...]:
    """Return the tags of a `tags` facet: the key, or `key=value` if the value is not trivial."""
    found = set()
    for tag in _items(facet, "tags"):
        if not tag.get("field"):
            key, value = _word(tag["key"]), tag.get("value")
            more = "" if value is None else _word(value)
            found.add(key if more in ("", "true") else f"{key}={more}")
    return tuple(sorted(found))


def processing(facet: Any) -> str | None:
    """Return BATCH or STREAM of a `jobType` facet."""
    kind = _text(facet, "processingType")
    return "STREAM" if kind == "STREAMING" else kind


def query(facet: Any) -> str | None:
    """Return the query of a `sql` facet."""
    return _long(facet, "query")


def partitioning(facet: Any) -> Mapping[str, Any] | None:
    """Return our partitioning facet without OpenLineage's own members."""
    if not facet:
        return None
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def symlinks(facet: Any) -> list[tuple[str, str]]:
    """Return the other names of a `symlinks` facet."""
    return [(item["namespace"], item["name"]) for item in _items(facet, "identifiers")]


def column_inputs(facet: Any) -> Iterator[tuple[str, tuple[str, str], str, bool]]:
    """Yield (output column, input dataset, input column, direct) of a `columnLineage` facet.

    A dependency of the whole output has the output column "*": a filter, join or grouping decides
    which rows exist, whichever column it was reported for.
    """
    for column, says in (facet.get("fields") or {}).items():
        for item in _items(says, "inputFields"):
            name, field = _column(item)
            for whole, direct in sorted(_effects(item, says)):
                yield "*" if whole else column, name, field, direct
    for item in _items(facet, "dataset"):
        yield "*", *_column(item), False


def _column(item: Any) -> tuple[tuple[str, str], str]:
    namespace, name, field = item["namespace"], item["name"], item["field"]
    if not (isinstance(namespace, str) and isinstance(name, str) and isinstance(field, str)):
        raise TypeError(f"not a column: {item!r:.80}")
    return (namespace, name), field


def _effects(item: Any, says: Any) -> set[tuple[bool, bool]]:
    """Return (whole output, direct) for each kind of dependency between two columns."""
    sent = _items(item, "transformations")
    if not sent:  # the form before transformations
        return {(False, True)} if says.get("transformationType") != "INDIRECT" else {(True, False)}
    return {
        (False, True)
        if one.get("type") != "INDIRECT"
        else (one.get("subtype") not in _OF_ONE_COLUMN, False)
        for one in sent
    }


def _interval(start: Any, end: Any) -> Interval | None:
    """Return both instants; an interval without length has no end."""
    if not isinstance(start, str):
        return None
    return start, end if isinstance(end, str) and end != start else ""


def _uris(text: Any) -> list[str]:
    """Return the addresses of the assets that a task declares, sorted."""
    found = _URI.findall(text[:_LONGEST]) if isinstance(text, str) else []
    return sorted({one or other for one, other in found})


def _day_or_hour(text: Any) -> str | None:
    """Return the label of the day or hour that begins at a time, in its own zone."""
    try:
        when = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    if when.minute or when.second or when.microsecond:
        return None
    return f"{when:%Y-%m-%dT%H}" if when.hour else f"{when:%Y-%m-%d}"


def _names(facet: Any, member: str) -> tuple[str, ...]:
    return tuple(sorted({_word(item["name"]) for item in _items(facet, member)}))


def _word(value: Any) -> str:
    """Return a text, number or truth value as text; raises TypeError for anything else."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise TypeError(f"neither a text nor a number: {value!r:.80}")
    return value


def _text(facet: Any, member: str) -> str | None:
    value = facet.get(member) if facet else None
    return value if value is None else str(value)


def _long(facet: Any, member: str) -> str | None:
    text = (_text(facet, member) or "").strip()
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text or None


def _items(facet: Any, member: str) -> list[Any]:
    items = (facet.get(member) if facet else None) or []
    if not isinstance(items, list):
        raise TypeError(f"{member} is not a list")
    return items
