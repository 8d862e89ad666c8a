"""The run specs that the tool writes are those that the runtime reads, whatever the calendars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import spark_runtime
from lineage_backfill.executor.spec import RunSpecs
from lineage_backfill.partitions.text import expand, parse
from lineage_backfill.plan.catalog import Catalog
from spark_runtime.spec import ProductKey, RunSpec, parse_spec
from tests.unit.plan.world import NOW, dataset, declarations, lineage, plan, request

SCHEMA = json.loads(
    (Path(spark_runtime.__file__).parent / "schemas" / "run_spec.schema.json").read_text()
)

TABLES = """
[[dataset]]
name = "hours"
grain = "hour"
start = "2024-03-01T00"
columns = { hour = "%Y-%m-%dT%H" }
location = "hours"

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
location = "sales"

[[dataset]]
name = "regions"
keys = ["eu", "us"]
column = "region"
table = "db.regions"

[[dataset]]
name = "names*"
grain = "none"
location = "names"
"""


def specs(edges: str, job: str, keys: str | None) -> list[dict[str, Any]]:
    toml = f'{TABLES}\n[[job]]\nname = "{job}"\nentrypoint = "jobs:{job}"\nbatch = "range"\n'
    declared, snapshot = declarations(toml), lineage(edges)
    made = plan(request(jobs={job: keys}), snapshot, declared)
    build = RunSpecs(made, declared, snapshot, backfill_id="b", root=Path("/project"))
    return [
        build(run, 1, f"token-{number}", Path(f"/results/{number}.json"))
        for number, run in enumerate(made.runs or ())
        if run.job.name == job
    ]


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
    (document,) = specs(edges, "j", keys)
    stored = json.loads(json.dumps(document))
    jsonschema.validate(stored, SCHEMA)
    spec = parse_spec(stored)
    (output,) = spec.outputs
    assert [dict(partition.values) for partition in output.scope] == written
    (source,) = spec.inputs
    assert (None if source.partitions is None else len(source.partitions)) == read


def test_the_keys_of_a_result_are_keys_of_the_calendar() -> None:
    """The report parses what the runtime hands back; a product's key is its dimensions' keys."""
    (document,) = specs("days > j > sales", "j", "day=2024-03-09/region=eu")
    spec: RunSpec = parse_spec(json.loads(json.dumps(document)))
    (partition,) = spec.outputs[0].scope
    assert partition.key == ProductKey(day="2024-03-09", region="eu")
    assert spec.partitions == ({"day": ["2024-03-09"], "region": ["eu"]},)
    catalog = Catalog(lineage(""), declarations(TABLES), now=NOW)
    calendar = catalog.calendar(dataset("sales"))
    assert calendar is not None
    (key,) = expand(calendar, parse(calendar, (partition.key,)))
    assert key.label == partition.key
