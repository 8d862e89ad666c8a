"""The run specs that the tool writes are those that the runtime reads, whatever the calendars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import lineage_backfill
from lineage_backfill.errors import DeclarationError, SpecError
from lineage_backfill.partitions.text import expand, parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project import facets
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import ProductKey, RunSpec
from spark_runtime.configuration import load_project
from spark_runtime.job.datasets import Read, Write
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from tests.unit.planning.world import NOW, dataset, declarations, lineage, plan, request

SCHEMA = json.loads(
    (Path(lineage_backfill.__file__).parent / "runspec/schemas/run_spec.schema.json").read_text()
)

TABLES = """
[[dataset]]
name = "hours"
grain = "hour"
start = "2024-03-01T00"
columns = { hour = "%Y-%m-%dT%H" }
location = "/data/hours"

[[dataset]]
name = "days"
grain = "day"
zone = "America/New_York"
start = "2024-03-01"
column = "day"
location = "/data/days"

[[dataset]]
name = "sales"
dimensions = [
  { name = "day", grain = "day", start = "2024-03-01", column = "ds" },
  { name = "region", keys = ["eu", "us"], column = "region" },
]
location = "/data/sales"

[[dataset]]
name = "by_region"
dimensions = [
  { name = "month", grain = "month", zone = "Europe/Berlin", column = "m" },
  { name = "region", keys = ["eu", "us", "asia"], column = "region" },
]
location = "/data/by_region"

[[dataset]]
name = "weeks"
grain = "week"
zone = "America/New_York"
start = "2024-W01"
end = "2024-W20"
data_lag = 1
column = "week"
location = "s3://bucket/weeks"

[[dataset]]
name = "slots"
cron = "30 * * * *"
start = "2024-03-01T00:30"
columns = { slot = "%Y%m%d%H%M" }
location = "/data/slots"

[[dataset]]
name = "eights"
every = "8m"
start = "2024-03-01"
column = "slot"
location = "/data/eights"

[[dataset]]
name = "regions*"
keys = ["eu", "us"]
column = "region"
table = "db.{name}"

[[dataset]]
name = "names*"
grain = "none"
location = "/data/{name}"
"""


FULL = """
[[job.writes]]
dataset = "names*"
mode = "full"
"""
_WEEKLY = """
reads = [{ dataset = "days", mapping = "window", before = 1 }]
[[dataset]]
name = "weekly"
grain = "day"
zone = "America/New_York"
column = "w"
location = "/w"
"""


def specs(edges: str, job: str, keys: str | None, job_table: str = "") -> list[dict[str, Any]]:
    declared, snapshot = declarations(_toml(job, job_table)), lineage(edges)
    asked = request(jobs={job: keys})
    made = plan(asked, snapshot, declared)
    resolver = Resolver(snapshot, declared, now=NOW, request=asked)
    build = RunSpecs(resolver, backfill_id="b", root=Path("/"))
    return [
        build(run, 1, f"token-{number}", Path(f"/results/{number}.json"))
        for number, run in enumerate(made.runs or ())
        if run.job.name == job
    ]


def ordinary(edges: str, keys: str | None, job_table: str, folder: Path) -> RunSpec:
    """Return the run spec of a run that no backfill planned."""
    reads, name, writes = (part.strip() for part in edges.split(">"))
    text = _toml(name, job_table)
    (folder / "lineage-backfill.toml").write_text(f'[project]\nnamespace = "w"\n{text}')
    project = load_project(folder)
    job = declare(
        project,
        name,
        reads=[Read(read.strip()) for read in reads.split(",")],
        writes=[Write(writes)],
    )
    asked = StartRequest(keys=keys.split(",") if keys else ())
    (spec,) = run_specs(job, project, asked, NOW)
    return spec


@pytest.mark.parametrize("key", ["2023-11-05T01-0400", "2023-11-05T01-0500"])
def test_half_of_a_partition_that_two_hours_share_is_not_replaced(key: str) -> None:
    clocks = """
[[dataset]]
name = "clocks"
grain = "hour"
zone = "America/New_York"
start = "2023-11-01T00"
columns = { hour = "%Y-%m-%dT%H" }
location = "/data/clocks"
"""
    with pytest.raises(DeclarationError, match="are one partition of its table") as caught:
        specs("names > j > clocks", "j", key, clocks)
    assert "column = 'hour'" in caught.value.hint
    (other,) = specs("names > j > clocks", "j", "2023-11-05T03", clocks)
    assert other["outputs"][0]["scope"][0]["values"] == {"hour": "2023-11-05T03"}
    merged = 'writes = [{ dataset = "clocks", mode = "merge" }]' + clocks
    assert specs("names > j > clocks", "j", key, merged)


def _toml(job: str, table: str) -> str:
    return f'{TABLES}\n[[job]]\nname = "{job}"\nentrypoint = "jobs:{job}"\nbatch = "range"\n{table}'


@pytest.mark.parametrize(
    ("edges", "keys", "written", "read"),
    [
        # a day of New York reads its 23 hours
        ("hours > j > days", "2024-03-10", [{"day": "2024-03-10"}], 23),
        # a product: both dimensions are keys and columns
        (
            "days > j > sales",
            "day=2024-03-09/region=eu,day=2024-03-09/region=us",
            [{"ds": "2024-03-09", "region": "eu"}, {"ds": "2024-03-09", "region": "us"}],
            2,
        ),
        # static keys, read from a catalog table
        ("regions > j > names", None, [{}], None),
        # unpartitioned: one partition without columns, and all of the input
        ("names > j > names_again", None, [{}], None),
    ],
)
def test_what_the_tool_writes_the_runtime_reads(
    edges: str, keys: str | None, written: list[dict[str, str]], read: int | None
) -> None:
    (document,) = specs(edges, "j", keys, FULL if "names" in edges.rpartition(">")[2] else "")
    stored = json.loads(json.dumps(document))
    jsonschema.validate(stored, SCHEMA)
    spec = parse_spec(stored)
    (output,) = spec.outputs
    assert [dict(partition.values) for partition in output.scope] == written
    (source,) = spec.inputs
    assert (None if source.partitions is None else len(source.partitions)) == read


@pytest.mark.parametrize(
    ("edges", "keys", "more", "expected"),
    [
        ("hours > j > days", "2024-03-10", "", None),  # one key needs all of it
        ("hours > j > days", "2024-03-10..2024-03-11", "", [[[0, 22]], [[23, 46]]]),
        (
            "hours > j > days",
            "2024-03-10..2024-03-11",
            'reads = [{ dataset = "hours", on_missing = "fail" }]',
            None,
        ),
        (
            "days > j > weekly",
            "2024-03-10..2024-03-12",
            _WEEKLY,
            [[[0, 1]], [[1, 2]], [[2, 3]]],
        ),
        (
            "days > j > sales",
            "day=2024-03-09..2024-03-10/region=eu,day=2024-03-09..2024-03-10/region=us",
            "",
            [[[0, 1]], [[0, 1]], [[1, 2]], [[1, 2]]],
        ),
        (
            "sales > j > days",
            "2024-03-09..2024-03-10",
            "",
            [[[0, 3]], [[2, 5]]],
        ),
    ],
)
def test_a_run_of_several_keys_is_told_what_each_needs(
    edges: str, keys: Any, more: str, expected: list[Any] | None
) -> None:
    (document,) = specs(edges, "j", keys, more)
    (source,) = document["inputs"]
    assert source.get("needs") == expected
    jsonschema.validate(document, SCHEMA)
    assert parse_spec(document).to_dict() == document


_OPEN = """
[[dataset]]
name = "{name}"
location = "/data/endless"
{calendar}
"""


@pytest.mark.parametrize(
    ("source", "calendar", "on_missing", "count", "along"),
    [
        ("days", "", "guard", 31, "time"),
        ("days", "", "fail", 31, "time"),
        ("days", "", "read", 31, "time"),
        ("sales", "", "guard", 62, "day"),
        ("regions", "", "guard", 2, None),
        ("names", "", "guard", None, None),
        ("endless", 'grain = "day"\ncolumn = "day"', "fail", None, None),  # without a first key
        ("unplaced", 'grain = "day"\nstart = "2024-03-01"', "guard", None, None),  # or columns
        ("open", 'keys = "runtime"\ncolumn = "region"', "fail", None, None),
        ("future", 'grain = "day"\nstart = "2030-01-01"\ncolumn = "day"', "fail", None, None),
        ("ages", 'grain = "day"\nstart = "2004-03-01"\ncolumn = "day"', "guard", None, None),
        ("ages", 'grain = "day"\nstart = "2004-03-01"\ncolumn = "day"', "fail", 7336, "time"),
    ],
)
def test_all_of_an_input_requires_its_existing_keys(
    source: str,
    calendar: str,
    on_missing: str,
    count: int | None,
    along: str | None,
    tmp_path: Path,
) -> None:
    read = f'reads = [{{ dataset = "{source}", mapping = "all", on_missing = "{on_missing}" }}]'
    more = _OPEN.format(name=source, calendar=calendar) if calendar else ""
    spec = ordinary(f"{source} > j > names_out", None, read + FULL + more, tmp_path)
    document = {**spec.to_dict(), "result_path": "/result.json"}
    jsonschema.validate(document, SCHEMA)
    assert parse_spec(document).inputs == spec.inputs
    (given,) = spec.inputs
    assert given.partitions is None
    assert (None if given.required is None else len(given.required)) == count
    assert given.along == along


@pytest.mark.parametrize("needs", [[[[0, 9999]]], [[[2, 1]]], [[1]], [1], [[["a", 1]]]])
def test_needs_that_name_no_partitions_are_refused(needs: Any) -> None:
    (document,) = specs("hours > j > days", "j", "2024-03-10")
    document["inputs"][0]["needs"] = needs
    with pytest.raises(SpecError, match=r"inputs\[0\].*needs\[0\]"):
        parse_spec(document)


def test_keys_that_are_known_at_run_time_only_are_all_present_and_future_ones() -> None:
    customers = """
[[dataset]]
name = "customers*"
keys = "runtime"
column = "customer"
location = "/data/{name}"
"""
    (document,) = specs("customers > j > customers_out", "j", "*", customers)
    assert document["outputs"][0]["scope"] == [{"key": "*", "values": {}}]
    assert document["inputs"][0]["partitions"] == [{"key": "*", "values": {}}]
    jsonschema.validate(document, SCHEMA)
    (document,) = specs("customers > j > customers_out", "j", "acme", customers)
    assert document["outputs"][0]["scope"] == [{"key": "acme", "values": {"customer": "acme"}}]


def test_the_keys_of_a_result_are_keys_of_the_calendar() -> None:
    """The report parses what the runtime hands back; a product's key is its dimensions' keys."""
    (document,) = specs("days > j > sales", "j", "day=2024-03-09/region=eu")
    spec: RunSpec = parse_spec(json.loads(json.dumps(document)))
    (partition,) = spec.outputs[0].scope
    assert partition.key == ProductKey(day="2024-03-09", region="eu")
    assert spec.partitions == ({"day": ["2024-03-09"], "region": ["eu"]},)
    resolver = Resolver(lineage(""), declarations(TABLES), now=NOW)
    calendar = resolver.calendar(dataset("sales"))
    assert calendar is not None
    (key,) = expand(calendar, parse(calendar, (partition.key,)))
    assert key.label == partition.key


WINDOW = """
[[job.reads]]
dataset = "days"
mapping = "window"
before = 6
after = 1
"""
OFFSET = """
[[job.reads]]
dataset = "weeks"
mapping = "offset"
by = -1
"""
LOOKBACK = """
[[job.writes]]
dataset = "days"
lookback = 2
on_empty = "keep"
"""
STATIC_MAP = """
[[job.reads]]
dataset = "regions"
mapping = "map"
map = { eu = ["eu", "us"], us = ["us"] }
"""
DIMENSIONS = """
[[job.reads]]
dataset = "by_region"
dimensions.region = { mapping = "map", map = { eu = ["asia", "eu"], us = ["us"] } }
dimensions.month = { mapping = "offset", by = -1 }
"""
ALL = """
[[job.reads]]
dataset = "hours"
mapping = "all"
"""
MERGE = """
grain = "hour"
[[job.writes]]
dataset = "days"
mode = "merge"
"""


@pytest.mark.parametrize(
    ("edges", "keys", "table"),
    [
        ("hours > j > days", "2024-03-10", ""),
        ("hours, names > j > weeks", "2024-W10", ""),
        ("days > j > hours", "2024-03-09T04,2024-03-09T05", ""),
        ("days > j > weeks", "2024-W10,2024-W11", WINDOW),
        ("weeks > j > weeks", "2024-W12", OFFSET),
        ("hours > j > days", "2024-03-20", LOOKBACK),
        ("slots, eights > j > hours", "2024-03-10T07", ""),
        ("hours > j > slots", "2024-03-10T07:30", ""),
        ("hours > j > eights", "2024-03-10T07:28", ""),
        ("days, regions > j > sales", "day=2024-03-09/region=eu", ""),
        ("sales > j > days", "2024-03-09", ""),
        ("by_region > j > sales", "day=2024-03-09/region=us", ""),
        ("by_region > j > sales", "day=2024-03-09/region=eu", DIMENSIONS),
        ("regions > j > by_region", "month=2024-02-01/region=asia", ""),
        ("regions > j > regions_out", "eu", STATIC_MAP),
        ("hours, names > j > names_out", None, ALL + FULL),
        ("hours > j > sales", "day=2024-03-09/region=eu", ALL),
        ("hours > j > days", "2024-03-09T14", MERGE),
    ],
)
def test_a_run_that_nobody_planned_reads_and_writes_what_a_planned_one_does(
    edges: str, keys: str | None, table: str, tmp_path: Path
) -> None:
    name = edges.split(">")[1].strip()
    ours = ordinary(edges, keys, table, tmp_path)

    theirs = [
        parse_spec(json.loads(json.dumps(document))) for document in specs(edges, name, keys, table)
    ]
    # A planned run that reads its own output goes on to the newest key; the first is the one.
    planned = theirs[0]
    assert ours.keys == planned.keys
    assert ours.outputs == planned.outputs
    assert by_name(ours.inputs) == by_name(planned.inputs)
    assert (ours.job, ours.parameters) == (planned.job, planned.parameters)
    sent, wanted = ours.lineage.facets, planned.lineage.facets
    assert by_name(sent["datasets"]) == by_name(wanted["datasets"])
    said, meant = (facets.read_job(one["job"]["partitioning"], "j") for one in (sent, wanted))
    assert (said.calendar, said.dimensions) == (meant.calendar, meant.dimensions)
    assert (said.reads, said.writes) == (meant.reads, meant.writes)


def by_name(edges: Any) -> dict[Any, Any]:
    """Edges by the name of their dataset; the order in which they are told means nothing."""
    return {_key(edge): edge for edge in edges}


def _key(edge: Any) -> Any:
    return tuple(edge["dataset"].values()) if isinstance(edge, Mapping) else edge.dataset
