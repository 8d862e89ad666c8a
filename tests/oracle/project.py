"""The same random worlds as users have them: a project file, an event file and a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lineage_backfill.partitions.lengths import Span
from lineage_backfill.plans.request import request_to_dict
from tests.oracle.definition import Cal, Job, World
from tests.oracle.worlds import COLUMNS, EVERY, planner_input, reaches, time_fields

PROJECT = """
[project]
namespace = "w"
[lineage]
events = ["events.ndjson"]
"""


SCHEMA = {"fields": [{"name": name} for name in COLUMNS]}


def write_project(world: World, folder: Path) -> list[str]:
    """Write the files of a world, and return the words that ask for its plan."""
    toml = PROJECT + "".join(
        _table("[[dataset]]", {"name": name, **_calendar(cal), **_retention(world, name)})
        for name, cal in world.datasets.items()
    )
    toml += "".join(map(_job, world.jobs))
    (folder / "lineage-backfill.toml").write_text(toml)
    events = [_event(number, job, world) for number, job in enumerate(world.jobs)]
    (folder / "events.ndjson").write_text("\n".join(map(json.dumps, events)))
    asked = request_to_dict(planner_input(world)[0])
    excluded = asked.pop("exclude", ())
    request = folder / "request.json"
    request.write_text(json.dumps(asked))
    words = ["--config", str(folder / "lineage-backfill.toml"), "--request", str(request)]
    return words + [word for name in excluded for word in ("--exclude", name)]


def _retention(world: World, name: str) -> dict[str, int]:
    count = world.retention.get(name)
    return {} if count is None else {"retention": count}


def _job(job: Job) -> str:
    calendar = _calendar(job.run) if job.declares_run else {}
    calendar.pop("column", None)
    past = {"depends_on_past": True} if job.depends_on_past else {}
    toml = _table("[[job]]", {"name": job.name, **calendar, **past})
    for read in job.reads:
        said: dict[str, Any] = {"dataset": read.dataset}
        if read.mapping != "default":
            said["mapping"] = read.mapping
        if read.lookback is not None:
            said["lookback"] = read.lookback
        said |= {name: str(n) if isinstance(n, Span) else n for name, n in reaches(read).items()}
        if read.mapping == "map":
            said |= {"map": dict(read.table)}
        if len(said) > 1:
            toml += _table("[[job.reads]]", said)
    merges = {"mode": "merge"} if job.depends_on_past else {}
    for name in job.writes if job.lookback or merges else ():
        toml += _table("[[job.writes]]", {"dataset": name, "lookback": job.lookback, **merges})
    return toml


def _keys(cal: Cal) -> object:
    return "runtime" if cal.statics == EVERY else cal.statics


def _calendar(cal: Cal) -> dict[str, Any]:
    time = time_fields(cal)
    if cal.zones:
        time["zone"] = dict(time["zone"])
    if cal.statics and cal.grain:
        return {
            "dimensions": [
                {"name": "time", **time},
                {"name": "region", "keys": _keys(cal)},
            ]
        }
    if cal.statics:
        return {"keys": _keys(cal), "column": "region"}
    return time or {"grain": "none"}


def _table(head: str, fields: dict[str, Any]) -> str:
    return "\n".join([head, *(f"{key} = {_toml(value)}" for key, value in fields.items()), ""])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _event(number: int, job: Job, world: World) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": "2024-01-01T00:00:00Z",
        "producer": "https://example.org/",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": f"00000000-0000-4000-8000-{number:012}"},
        "job": {"namespace": "w", "name": job.name},
        "inputs": [
            {"namespace": "w", "name": read.dataset, "facets": {"schema": SCHEMA}}
            for read in job.reads
        ],
        "outputs": [
            {
                "namespace": "w",
                "name": name,
                "facets": {"schema": SCHEMA, **_column_lineage(world, job.name, name)},
            }
            for name in job.writes
        ],
    }


def _column_lineage(world: World, job: str, dataset: str) -> dict[str, Any]:
    """Return the facet that tells which columns an output is made from, if any is told."""
    fields: dict[str, Any] = {}
    whole = []
    for one in dict.fromkeys(world.column_lineage):
        if (one.job, one.written) != (job, dataset):
            continue
        source = {"namespace": "w", "name": one.read, "field": one.read_column}
        if one.written_column == "*":
            whole.append(source | {"transformations": [{"type": "INDIRECT", "subtype": "FILTER"}]})
        else:
            fields.setdefault(one.written_column, {"inputFields": []})["inputFields"].append(source)
    if not fields and not whole:
        return {}
    return {"columnLineage": {"fields": fields, **({"dataset": whole} if whole else {})}}
