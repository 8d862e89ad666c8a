"""Attributes merge, tables do not replace each other: exact table, code, first glob, facet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.matching import DeclaredNames, target
from lineage_backfill.project.merge import merged, merged_edge
from spark_runtime.configuration import load_project
from spark_runtime.job.datasets import Read, Write, window
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from tests.unit.planning.world import NOW, dataset, declarations, job, plan, request, summary

TABLES = """
[project]
namespace = "w"
[[dataset]]
name = "src"
grain = "day"
start = "2024-03-01"
column = "d"
location = "data/src"
[[dataset]]
name = "out"
grain = "day"
start = "2024-03-01"
column = "d"
location = "data/out"
"""
DAY = {"grain": "day"}


def spec(folder: Path, more: str, *, reads: list[Read], writes: list[Write]) -> Any:
    (folder / "lineage-backfill.toml").write_text(TABLES + more)
    project = load_project(folder)
    declared = declare(project, "j", reads=reads, writes=writes)
    (found,) = run_specs(declared, project, StartRequest(keys=["2024-03-10"]), NOW)
    return found


@pytest.mark.parametrize("setting", ["lookback = 1", 'on_empty = "keep"'])
def test_a_table_that_states_one_attribute_keeps_the_mode_of_the_code(
    tmp_path: Path, setting: str
) -> None:
    table = f'[[job]]\nname = "j"\n[[job.writes]]\ndataset = "out"\n{setting}\n'
    writes = [Write("out", mode="merge", merge_on=("id",))]
    (output,) = spec(tmp_path, table, reads=[Read("src")], writes=writes).outputs
    assert (output.mode, output.merge_on) == ("merge", ("id",))
    assert output.on_empty == ("keep" if "keep" in setting else "clear")
    assert len(output.scope) == (2 if "lookback" in setting else 1)


def test_a_table_that_states_on_missing_keeps_the_window_of_the_code(tmp_path: Path) -> None:
    table = '[[job]]\nname = "j"\n[[job.reads]]\ndataset = "src"\non_missing = "fail"\n'
    (source,) = spec(tmp_path, table, reads=[window("src", before=6)], writes=[Write("out")]).inputs
    assert (len(source.partitions), source.on_missing) == (7, "fail")


def test_an_exact_table_keeps_the_reads_of_a_glob() -> None:
    toml = """
dataset = [{ name = "*", grain = "day" }]
job = [
  { name = "jx", priority = 5 },
  { name = "j*", reads = [{ dataset = "src", mapping = "window", before = 6 }] },
]
"""
    made = plan(request({"src": "2024-03-10"}), "src > jx > out", toml)
    assert summary(made) == {"jx": "2024-03-10..2024-03-16"}


def facets(*edges: JobNode, **sent: dict[str, Any]) -> LineageSnapshot:
    nodes = [DatasetNode(ref=dataset(name), partitioning=facet) for name, facet in sent.items()]
    return LineageSnapshot.of(edges, nodes)


NODE = JobNode(ref=job("j"), reads=(dataset("src"),), writes=(dataset("out"),))


def test_a_grain_over_the_same_grain_of_a_facet_keeps_its_zone_and_lag() -> None:
    sent = {"grain": "day", "zone": "America/New_York", "data_lag": 3}
    held = facets(NODE, src=sent, out=sent)
    toml = 'dataset = [{ name = "src", grain = "day" }, { name = "out", grain = "day" }]'
    with_facet = plan(request({"src": "2024-03-10.."}), held, toml)
    without = plan(request({"src": "2024-03-10.."}), held, "")
    assert summary(with_facet) == summary(without)


def test_a_grain_over_another_grain_of_a_facet_keeps_no_number_of_its_keys() -> None:
    sent = {"grain": "hour", "zone": "America/New_York", "start": "2024-03-01T00", "data_lag": 3}
    held = facets(NODE, src={"grain": "day", "zone": "America/New_York"}, out=sent)
    toml = 'dataset = [{ name = "out", grain = "day" }]'
    assert summary(plan(request({"src": "2024-02-10"}), held, toml)) == {"j": "2024-02-10"}


def test_a_bare_name_is_the_one_that_the_job_has() -> None:
    other = DatasetRef("x", "src")
    node = JobNode(ref=job("j"), reads=(other,), writes=(dataset("out"),))
    held = LineageSnapshot.of([node], [DatasetNode(ref=dataset("src"))])
    toml = """
dataset = [{ name = "*", namespace = "*", grain = "day" }]
job = [{ name = "j", reads = [{ dataset = "src", mapping = "window", before = 6 }] }]
"""
    asked = Request(changed=(ChangedDataset(dataset=other, keys=("2024-03-10",)),))
    assert summary(plan(asked, held, toml)) == {"j": "2024-03-10..2024-03-16"}


@pytest.mark.parametrize("zeros", [{}, {"dimensions": {}}])
def test_a_window_without_numbers_is_refused(zeros: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="needs `before` or `after`"):
        ReadDeclaration(dataset="src", mapping="window", **zeros)


ATTRIBUTES: dict[str, Any] = {
    "reads": {
        "mapping": {"mapping": "window", "before": 3},
        "on_missing": {"on_missing": "read"},
    },
    "writes": {
        "mode": {"mode": "merge"},
        "on_empty": {"on_empty": "keep"},
        "lookback": {"lookback": 2},
    },
}


@given(st.data())
def test_what_is_scattered_over_places_is_what_one_place_states(data: st.DataObject) -> None:
    """Each attribute is stated in one place of three, and worse ones below it."""
    places: list[dict[str, list[dict[str, Any]]]] = [{"reads": [{}], "writes": [{}]} for _ in "abc"]
    whole: dict[str, dict[str, Any]] = {"reads": {}, "writes": {}}
    for side, attributes in ATTRIBUTES.items():
        for name, values in attributes.items():
            place = data.draw(st.integers(0, 3), label=name)
            if place < 3:
                places[place][side][0] |= values
                whole[side] |= values
            if place < 2 and data.draw(st.booleans()):
                below = {"mapping": {"mapping": "all"}, "on_missing": {"on_missing": "fail"}}
                below |= {"mode": {"mode": "append"}, "on_empty": {"on_empty": "fail"}}
                places[2][side][0] |= below.get(name, {"lookback": 9})
    made = [_job(*(place[side][0] for side in ("reads", "writes"))) for place in places]
    one = _job(whole["reads"], whole["writes"])
    found = merged(made)
    assert (found.reads, found.writes) == (one.reads, one.writes)


def _job(read: dict[str, Any], write: dict[str, Any]) -> JobDeclaration:
    return JobDeclaration(
        name="j",
        reads=(ReadDeclaration(dataset="src", **read),),
        writes=(WriteDeclaration(dataset="out", **write),),
    )


def test_what_the_calendar_in_force_cannot_have_is_dropped() -> None:
    glob = DatasetDeclaration(
        name="*",
        calendar=CalendarDeclaration(grain="day", zone="Asia/Tokyo", start="2024-01-01"),
        retention=7,
        columns={"d": "%Y-%m-%d"},
    )
    table = DatasetDeclaration(name="a", calendar=CalendarDeclaration(keys=("eu",)), location="/a")
    found = merged((table, glob))
    assert found.calendar == CalendarDeclaration(keys=("eu",))
    assert (found.retention, found.columns, found.location) == (None, {}, "/a")


def test_a_merge_setting_below_another_mode_is_dropped() -> None:
    below = WriteDeclaration(dataset="out", mode="merge", delete_missing=True)
    assert merged_edge((WriteDeclaration(dataset="out", mode="append"), below)) == (
        WriteDeclaration(dataset="out", mode="append")
    )


def test_a_bare_name_of_several_is_refused_with_the_candidates() -> None:
    edge = ReadDeclaration(dataset="src")
    known = [DatasetRef("a", "src"), DatasetRef("b", "src")]
    with pytest.raises(DeclarationError, match="several datasets: a:src, b:src"):
        target(edge, None, known)
    assert target(edge, "w", known) == DatasetRef("w", "src")
    assert target(edge, "w", known, known[:1]) == known[0]


def test_a_number_that_is_stated_as_0_counts() -> None:
    below = WriteDeclaration(dataset="out", lookback=2)
    assert merged_edge((WriteDeclaration(dataset="out", lookback=0), below)).lookback == 0


@pytest.mark.parametrize(("grain", "keys"), [("day", 1), ("hour", 7)])
def test_numbers_of_keys_hold_only_with_the_calendar_of_the_place_that_states_them(
    grain: str, keys: int
) -> None:
    first = "2024-03-01T00" if grain == "hour" else "2024-03-01"
    toml = f"""
[[dataset]]
name = "*"
grain = "{grain}"
start = "{first}"
[[job]]
name = "jx"
grain = "{grain}"
[[job]]
name = "j*"
grain = "hour"
reads = [{{ dataset = "src", mapping = "window", before = 2, on_missing = "fail" }}]
writes = [{{ dataset = "out", lookback = 4, on_empty = "keep" }}]
"""
    at = "2024-03-10" + ("T06" if grain == "hour" else "")
    (found,) = plan(request({"src": at}), "src > jx > out", toml).jobs
    assert found.count == keys
    made = declarations(toml)
    force = DeclaredNames(made).jobs.find(job("jx"))
    assert force is not None
    assert (force.reads[0].on_missing, force.writes[0].on_empty) == ("fail", "keep")
