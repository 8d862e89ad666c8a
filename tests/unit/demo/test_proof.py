"""The demo's second check reads Delta logs, and must not be fooled by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.demo.proof import Values, latest_version, verdict

PLANNED: set[Values] = {("a",), ("b",)}


def add(day: str, **rest: Any) -> dict[str, Any]:
    return {"add": {"partitionValues": {"day": day}, "dataChange": True, **rest}}


def remove(day: str, **rest: Any) -> dict[str, Any]:
    return {"remove": {"partitionValues": {"day": day}, "dataChange": True, **rest}}


def log(table: Path, *commits: list[dict[str, Any]]) -> Path:
    folder = table / "_delta_log"
    folder.mkdir(parents=True)
    for version, actions in enumerate(commits):
        lines = [{"commitInfo": {}}, *actions]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{version:020}.json").write_text(text)
    (folder / "_last_checkpoint").write_text("{}")
    return table


BUILT = [add("a"), add("b"), add("c")]


@pytest.mark.parametrize(
    ("commits", "holds", "rewritten"),
    [
        pytest.param(
            [[remove("a"), add("a"), remove("b"), add("b")]], True, PLANNED, id="as planned"
        ),
        pytest.param(
            [[remove("a"), add("a")], [remove("b"), add("b")]], True, PLANNED, id="in two commits"
        ),
        pytest.param([[remove("a"), remove("b")]], True, PLANNED, id="both cleared"),
        pytest.param([[remove("a"), add("a")]], False, {("a",)}, id="one left out"),
        pytest.param(
            [[add("a"), remove("a"), add("b"), remove("b"), add("d")]],
            False,
            PLANNED | {("d",)},
            id="one too many",
        ),
        pytest.param([], False, set(), id="nothing done"),
        pytest.param(
            [
                [remove("a"), add("a"), remove("b"), add("b")],
                [remove("c", dataChange=False), add("c", dataChange=False)],
            ],
            True,
            PLANNED,
            id="compaction rewrites no data",
        ),
    ],
)
def test_the_commits_since_a_version_are_held_against_the_plan(
    tmp_path: Path, commits: list[list[dict[str, Any]]], holds: bool, rewritten: set[Values]
) -> None:
    table = log(tmp_path / "t", BUILT, *commits)
    found = verdict(table, 0, PLANNED)
    assert (found.holds, set(found.rewritten)) == (holds, rewritten)
    assert found.commits == len(commits)


def test_a_partition_that_is_empty_before_and_after_leaves_no_trace(tmp_path: Path) -> None:
    table = log(tmp_path / "t", BUILT, [remove("a"), add("a")])
    found = verdict(table, 0, {("a",), ("empty",)})
    assert found.holds
    assert found.planned == {("a",)}


def test_a_table_without_planned_partitions_must_have_no_new_version(tmp_path: Path) -> None:
    table = log(tmp_path / "t", BUILT, [])
    assert not verdict(table, 0, ()).holds
    assert verdict(table, 1, ()).holds


def test_a_table_without_partitions_is_one_partition(tmp_path: Path) -> None:
    whole = {"partitionValues": {}, "dataChange": True}
    table = log(tmp_path / "t", [{"add": whole}], [{"remove": whole}, {"add": whole}])
    assert verdict(table, 0, {()}).holds


def test_the_newest_version_is_that_of_the_last_commit(tmp_path: Path) -> None:
    assert latest_version(log(tmp_path / "t", BUILT, [], [])) == 2
    assert latest_version(tmp_path / "nothing") == -1
