"""Run specs of planned runs: the write policy is the one that the planner counted with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from lineage_backfill.errors import DeclarationError, SpecError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import WriteMode
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.parse import parse_spec
from tests.unit.planning.world import NOW, dataset, declarations, job, plan, request

TABLES = """
[[dataset]]
name = "raw"
grain = "day"
start = "2024-03-01"
column = "day"
location = "/data/raw"

[[dataset]]
name = "out*"
namespace = "*"
grain = "%(grain)s"
column = "day"
location = "/data/{name}"

[[job]]
name = "j"
entrypoint = "jobs:j"
grain = "day"
%(writes)s
"""
#: Where the policy of an output is said, with or without the project file.
WRITES = {
    "exact": '[[job.writes]]\ndataset = "out"\nnamespace = "w"\n{policy}',
    "glob": '[[job.writes]]\ndataset = "o*"\n{policy}',
    "namespace": '[[job.writes]]\ndataset = "out"\nnamespace = "w"\n{policy}\n'
    '[[job.writes]]\ndataset = "out"\nnamespace = "x"\nmode = "overwrite"',
    "facet": "",
}
POLICY = {"on_empty": "keep", "on_drift": "add", "lookback": 1}


def specs(place: str, policy: dict[str, Any], keys: str | None, grain: str) -> list[Any]:
    said = "\n".join(f"{name} = {value!r}" for name, value in policy.items())
    toml = TABLES % {"grain": grain, "writes": WRITES[place].format(policy=said)}
    if place == "namespace":
        toml += '\n[[dataset]]\nname = "out"\nnamespace = "x"\nlocation = "/data/x"\n'
    if grain == "none":
        toml = toml.replace('grain = "day"', 'grain = "none"').replace('start = "2024-03-01"', "")
        toml = toml.replace('column = "day"', "")
    declared = declarations(toml)
    facet = {"writes": [{"dataset": "out", **policy}]} if place == "facet" else None
    outputs = ("out", "x:out") if place == "namespace" else ("out",)
    writes = tuple(map(dataset, outputs))
    node = JobNode(ref=job("j"), reads=(dataset("raw"),), writes=writes, partitioning=facet)
    snapshot = LineageSnapshot.of([node])
    made = plan(request({"raw": keys}), snapshot, declared)
    build = RunSpecs(Resolver(snapshot, declared, now=NOW), backfill_id="b", root=Path("/"))
    return [build(run, 1, "t", Path("/r.json")) for run in made.runs or ()]


@pytest.mark.parametrize("place", WRITES)
@pytest.mark.parametrize("mode", get_args(WriteMode))
def test_a_run_is_told_the_policy_that_was_planned(place: str, mode: str) -> None:
    grain, keys = ("none", None) if mode == "full" else ("day", "2024-03-10")
    found = specs(place, {"mode": mode, **POLICY}, keys, grain)
    assert found
    for spec in found:
        out = next(one for one in spec["outputs"] if one["dataset"]["namespace"] == "w")
        assert (out["mode"], out["on_empty"], out["on_drift"]) == (mode, "keep", "add")
        for other in spec["outputs"]:
            if other["dataset"]["namespace"] == "x":
                assert (other["mode"], other["on_empty"]) == ("overwrite", "clear")


@pytest.mark.parametrize("place", WRITES)
def test_hours_that_merge_into_a_day_are_told_to_merge(place: str) -> None:
    # What the planner let through as a merge must not replace the day by one of its hours.
    if place == "namespace":
        return  # the other output would be replaced: the job is blocked
    found = specs(place, {"mode": "merge"}, "2024-03-10", "month")
    assert {one["outputs"][0]["mode"] for one in found} == {"merge"}
    assert [one["key"] for one in found[0]["outputs"][0]["scope"]] == ["2024-03-01"]


@pytest.mark.parametrize("place", WRITES)
def test_no_default_replaces_a_table_without_partitions(place: str) -> None:
    with pytest.raises(DeclarationError, match="is not partitioned, and nothing declares"):
        specs(place, {"on_empty": "keep"}, None, "none")


@pytest.mark.parametrize("place", ["/data/out", "/data/{name}"])
def test_tables_of_one_entry_have_places_of_their_own(place: str) -> None:
    declared = declarations(
        (TABLES % {"grain": "day", "writes": ""}).replace("/data/{name}", place)
    )
    writes = (dataset("out_a"), dataset("out_b"))
    snapshot = LineageSnapshot.of([JobNode(ref=job("j"), reads=(dataset("raw"),), writes=writes)])
    made = plan(request({"raw": "2024-03-10"}), snapshot, declared)
    (run,) = made.runs or ()
    build = RunSpecs(Resolver(snapshot, declared, now=NOW), backfill_id="b", root=Path("/"))
    spec = build(run, 1, "t", Path("/r.json"))
    if place == "/data/out":
        (text,) = (one for one in made.warnings if "have one place" in one)
        assert text.startswith("datasets w:out_a and w:out_b have one place, /data/out: each")
        with pytest.raises(SpecError, match="w:out_a and w:out_b have one place, /data/out"):
            parse_spec(json.loads(json.dumps(spec)))
    else:
        assert not any("have one place" in one for one in made.warnings)
        assert [one["location"] for one in spec["outputs"]] == ["/data/out_a", "/data/out_b"]


def test_a_name_from_the_lineage_leaves_no_folder() -> None:
    declared = declarations(TABLES % {"grain": "day", "writes": ""})
    resolver = Resolver(LineageSnapshot.of([]), declared, now=NOW)
    with pytest.raises(DeclarationError, match="cannot be part of"):
        resolver.dataset_declaration(dataset("out/../../etc"))


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("job", "job w:j is no longer declared"),
        ("dataset", "the partitioning of job w:j is no longer known"),
    ],
)
def test_what_a_run_has_lost_since_it_was_planned_is_named(lost: str, said: str) -> None:
    tables = (TABLES % {"grain": "day", "writes": ""}).replace('jobs:j"\ngrain = "day"', 'jobs:j"')
    snapshot = LineageSnapshot.of(
        [JobNode(ref=job("j"), reads=(dataset("raw"),), writes=(dataset("out"),))]
    )
    (run,) = plan(request({"raw": "2024-03-10"}), snapshot, declarations(tables)).runs or ()
    parts = [part for part in tables.split("\n[[") if not part.startswith(lost)]
    left = Resolver(snapshot, declarations("\n[[".join(parts)), now=NOW)
    with pytest.raises(DeclarationError, match=said):
        RunSpecs(left, backfill_id="b", root=Path("/")).refuse_incomplete([run])
