"""A report tells what was touched beside what was planned, also where `*` was planned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import parse, static_axis
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.ports import AttemptRecord, AttemptState
from lineage_backfill.runs.reports import _missing_inputs, _Output
from lineage_backfill.staleness.record import Change, TableRecord
from tests.unit.planning.world import NOW, declarations, lineage, plan, request, runs_of

START = datetime(2024, 3, 1, 6, tzinfo=UTC)
WITHOUT_RESULT = AttemptRecord(
    run_id="r",
    attempt=1,
    token="t",
    state=AttemptState.SUCCEEDED,
    submitted_at=START,
    ended_at=START + timedelta(minutes=5),
)


@pytest.fixture
def output() -> _Output:
    """An output over a runtime dimension of which two keys are known."""
    calendar = Calendar(statics=(static_axis("region", ["eu", "us"], runtime=True),))
    return _Output(JobRef("n", "j"), DatasetRef("n", "d"), calendar)


def part(key: str, before: int, rows: int, within: list[str] | None) -> dict[str, Any]:
    told = {"within": within} if within is not None else {}
    return {"key": key, "rows_before": before, "rows": rows, "emptied": rows < before == 1, **told}


def test_keys_within_a_star_are_as_planned_and_those_that_came_and_went_are_listed(
    output: _Output,
) -> None:
    output.plan(("*",))
    parts = [part("eu", 1, 1, ["*"]), part("new", 0, 1, ["*"]), part("*", 1, 0, ["*"])]
    output.touch({"version": 3, "partitions": parts})
    output.touch({"version": 4, "partitions": parts[1:]})  # told twice, listed once
    found = output.document()
    assert (found["exact"], found["touched"]["partitions"]) == (True, ["*"])
    assert found["appeared"] == {"count": 1, "partitions": ["new"]}
    assert found["vanished"] == {"count": 1, "partitions": ["*"]}
    assert found["changed"] == {"count": 3, "partitions": ["eu", "new", "*"]}
    assert found["emptied"]["count"] == 0


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_runs_that_share_a_partition_the_first_found_it_and_the_last_left_it(
    output: _Output, order: tuple[int, ...]
) -> None:
    output.plan(("eu", "us"))
    rows = [4, 0, 1, 3]  # emptied, then filled again
    for number in order:
        before, after = rows[number : number + 2]
        told = {"fingerprint_before": f"f-{before}", "fingerprint": f"f-{after}"}
        shared = part("eu", before, after, None) | told | {"emptied": not after}
        own = [part("us", 1, 2, None)] if number == 1 else []
        output.touch({"version": 7 + number, "partitions": [shared, *own]})
    found = output.document()
    assert (found["rows_before"], found["rows"]) == (4 + 1, 3 + 2)
    assert found["changed"]["partitions"] == ["eu", "us"]
    assert (found["emptied"]["count"], found["versions"]) == (0, [7, 8, 9])


def test_what_the_last_of_several_runs_left_as_it_was_before_is_unchanged(output: _Output) -> None:
    for version, (before, after) in enumerate([("a", "b"), ("b", "a")]):
        told = {"fingerprint_before": before, "fingerprint": after}
        output.touch({"version": version, "partitions": [part("eu", 1, 1, None) | told]})
    assert output.document()["changed"]["count"] == 0


def test_runs_of_a_table_without_versions_count_in_their_order(output: _Output) -> None:
    for before, after in ((0, 1), (1, 5)):
        output.touch({"version": None, "partitions": [part("eu", before, after, None)]})
    found = output.document()
    assert (found["rows_before"], found["rows"]) == (0, 5)


def test_a_star_that_nothing_fits_was_rewritten_too(output: _Output) -> None:
    output.plan(("*",))
    output.touch({"version": None, "partitions": [part("*", 0, 0, ["*"])]})
    found = output.document()
    assert (found["exact"], found["appeared"]["count"], found["vanished"]["count"]) == (True, 0, 0)


def test_a_key_outside_of_what_was_planned_is_told(output: _Output) -> None:
    output.plan(("eu",))
    output.touch({"version": 3, "partitions": [part("eu", 1, 0, None), part("new", 0, 1, None)]})
    found = output.document()
    assert (found["exact"], found["unexpected"]["partitions"]) == (False, ["new"])
    assert found["emptied"]["partitions"] == ["eu"]


def test_what_a_run_without_a_result_touched_is_unknown(output: _Output) -> None:
    output.plan(("eu", "us"))
    output.touch({"version": 3, "partitions": [part("eu", 1, 2, None)]})
    output.unreported.append(WITHOUT_RESULT)
    output.look(TableRecord())
    found = output.document()
    assert (found["exact"], found["missing"]["count"]) == (None, 0)
    output.touch({"version": 4, "partitions": [part("new", 0, 1, None)]})
    assert output.document()["exact"] is False


@pytest.mark.parametrize(
    ("minutes", "keys", "exact", "touched"),
    [(1, ["eu", "us"], True, 2), (1, ["eu"], None, 1), (-1, ["eu"], None, 0), (6, ["eu"], None, 0)],
)
def test_a_log_shows_what_a_run_without_a_result_touched(
    output: _Output, minutes: int, keys: list[str], exact: bool | None, touched: int
) -> None:
    look(output, ["eu", "us"], keys, minutes)
    found = output.document()
    assert (found["exact"], found["touched"]["count"]) == (exact, touched)
    assert (found["known"], found["by_log"]) == (bool(exact), True)
    others = (found["meanwhile"], found["missing"], found["unexpected"])
    assert [one["count"] for one in others] == [0, 0, 0]


def look(output: _Output, planned: list[str], changed: list[str], minutes: int) -> None:
    """Plan keys, and find others in the log, so many minutes after the attempt began."""
    output.plan(tuple(planned))
    output.unreported.append(WITHOUT_RESULT)
    at = START + timedelta(minutes=minutes)
    change = Change(keys=parse(output.calendar, tuple(changed)), at=at, version=7)
    output.look(TableRecord(changes=(change,)))


def test_what_a_log_shows_besides_may_be_of_others(output: _Output) -> None:
    look(output, ["eu"], ["eu", "us"], 1)
    found = output.document()
    assert (found["exact"], found["known"]) == (None, False)
    assert (found["touched"]["partitions"], found["meanwhile"]["partitions"]) == (["eu"], ["us"])


def test_what_a_failed_run_without_a_result_touched_is_unknown_and_its_keys_are_missing(
    output: _Output,
) -> None:
    output.plan(("eu", "us"))
    assert output.document()["known"]
    output.is_seen = False
    found = output.document()
    assert (found["exact"], found["missing"]["count"], found["known"]) == (False, 2, False)


def test_keys_of_several_dimensions_are_told_as_boxes() -> None:
    axes = (static_axis("area", ["a", "b"]), static_axis("region", [], runtime=True))
    calendar = Calendar(statics=axes, order=("area", "region"))
    output = _Output(JobRef("n", "j"), DatasetRef("n", "d"), calendar)
    output.plan(({"area": ["a"], "region": ["*"]},))
    one: dict[str, Any] = part("", 0, 2, None)
    one |= {"key": {"area": "a", "region": "x"}, "within": [{"area": "a", "region": "*"}]}
    output.touch({"version": 1, "partitions": [one]})
    found = output.document()
    assert found["exact"]
    assert found["appeared"]["partitions"] == [{"area": ["a"], "region": ["x"]}]


def test_what_the_last_attempts_did_not_find_of_their_inputs_is_told() -> None:
    toml = declarations(
        '[[dataset]]\nname = "names"\ngrain = "none"\n'
        '[[dataset]]\nname = "*"\ngrain = "day"\nstart = "2024-03-01"\n'
    )
    edges = lineage("raw, names > j > out")
    made = plan(request(jobs={"j": "2024-03-01..2024-03-03"}), edges, toml)
    resolver = Resolver(edges, toml, now=NOW)
    planned = {run.id: run for run in runs_of(made, "j")}

    def attempt(run: str, number: int, **lost: list[str]) -> AttemptRecord:
        inputs = [
            {"dataset": {"namespace": "w", "name": name}, "version": 1, "partitions": []}
            for name in ("raw", "names")
        ]
        inputs[0] |= lost
        return AttemptRecord(
            run_id=run,
            attempt=number,
            token="t",
            state=AttemptState.FAILED,
            submitted_at=datetime(2024, 3, 5, tzinfo=UTC),
            result={"inputs": inputs},
        )

    first, second, third = planned
    attempts = [
        attempt(first, 1, missing=["2024-03-01"]),
        attempt(second, 1, missing=["2024-03-01", "2024-03-02"]),
        attempt(second, 2, missing=["2024-03-02"]),
        attempt(third, 1, unknown=["2024-03-03"]),
    ]

    def calendar_of(ref: DatasetRef) -> Calendar:
        calendar = resolver.calendar(ref)
        assert calendar is not None
        return calendar

    (found,) = _missing_inputs(planned, attempts, calendar_of)
    assert found == {
        "job": {"namespace": "w", "name": "j"},
        "dataset": {"namespace": "w", "name": "raw"},
        "missing": ["2024-03-01..2024-03-02"],
        "unknown": ["2024-03-03"],
    }


def test_rows_that_merges_changed_are_summed_up(output: _Output) -> None:
    output.touch({"partitions": [], "version": 3})
    assert "merged" not in output.document()
    for inserted, updated in ((2, 1), (0, 5)):
        merged = {"inserted": inserted, "updated": updated, "deleted": 0}
        output.touch({"partitions": [], "version": 4, "merged": merged})
    assert output.document()["merged"] == {"inserted": 2, "updated": 6, "deleted": 0}
    foreign = {"inserted": None, "rows": "many"}  # of a program that counts otherwise
    output.touch({"partitions": [], "version": 5, "merged": foreign})
    assert output.document()["merged"] == {"inserted": 2, "updated": 6, "deleted": 0}
