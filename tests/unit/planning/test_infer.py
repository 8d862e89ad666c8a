"""Partitioning inferred from run history: shown with its evidence, and never guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from lineage_backfill.lineage.snapshot import LineageSnapshot, ObservedRun
from lineage_backfill.planning.infer import infer_all
from tests.unit.planning.world import find, job, lineage, plan, request, summary

START = datetime(2024, 3, 4, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def nominal(
    name: str, length: timedelta, count: int = 4, state: str = "COMPLETE"
) -> list[ObservedRun]:
    return [
        ObservedRun(
            job=job(name),
            run_id=f"{name}{number}",
            state=state,
            nominal_start=START + number * length,
            nominal_end=START + (number + 1) * length,
        )
        for number in range(count)
    ]


def keyed(name: str, *keys: str) -> list[ObservedRun]:
    return [
        ObservedRun(job=job(name), run_id=key, state="COMPLETE", partition_key=key) for key in keys
    ]


def wrote(name: str, *keys: str) -> list[ObservedRun]:
    return [ObservedRun(job=job(name), run_id=key, state="COMPLETE", written=key) for key in keys]


def grain(records: list[ObservedRun]) -> str | None:
    found = infer_all(records).get(job("j"))
    return found.calendar.grain if found else None


CASES = [
    ("days that were written", wrote("j", "2024-03-04", "2024-03-05,2024-03-06"), "day"),
    (
        "the keys that were asked for say more than those that were written",
        [
            replace(run, partition_key=f"2024-W1{number}")
            for number, run in enumerate(wrote("j", "2024-03-04", "2024-03-11", "2024-03-18"))
        ],
        "week",
    ),
    ("partitions of two dimensions", wrote("j", "ds=2024-03-04/r=eu,ds=2024-03-05/r=eu"), None),
    ("nominal hours", nominal("j", HOUR), "hour"),
    ("nominal days", nominal("j", DAY), "day"),
    ("nominal weeks", nominal("j", 7 * DAY), "week"),
    ("two runs prove nothing", nominal("j", DAY, 2), None),
    ("a run that failed is no evidence", nominal("j", DAY, 4, "FAIL"), None),
    ("intervals of no grain", nominal("j", 2 * DAY), None),
    ("intervals of two grains", nominal("j", DAY) + nominal("j", HOUR), None),
    (
        "days of another zone",
        [
            ObservedRun(
                job=job("j"),
                run_id=str(number),
                state="COMPLETE",
                nominal_start=START + number * DAY + 5 * HOUR,
                nominal_end=START + (number + 1) * DAY + 5 * HOUR,
            )
            for number in range(4)
        ],
        None,
    ),
    (
        "one instant, not an interval",
        [
            ObservedRun(
                job=job("j"),
                run_id=str(number),
                state="COMPLETE",
                nominal_start=START + number * DAY,
                nominal_end=START + number * DAY,
            )
            for number in range(4)
        ],
        None,
    ),
    ("keys of days", keyed("j", "2024-03-04", "2024-03-05", "2024-03-06"), "day"),
    ("keys of hours", keyed("j", "2024-03-04T01", "2024-03-04T02", "2024-03-04T03"), "hour"),
    (
        "keys at 00, 06, 12 and 18 are not hours",
        keyed("j", *(f"2024-03-{day:02}T{hour:02}" for day in (4, 5) for hour in (0, 6, 12, 18))),
        None,
    ),
    (
        "nor are nominal hours six apart",
        [run for number, run in enumerate(nominal("j", HOUR, 48)) if number % 6 == 0],
        None,
    ),
    (
        "with one run by hand between them",
        keyed("j", *(f"2024-03-04T{hour:02}" for hour in (0, 6, 7, 12, 18))),
        None,
    ),
    (
        "days of each Monday may be weeks",
        keyed("j", "2024-03-04", "2024-03-11", "2024-03-18"),
        None,
    ),
    (
        "every second day",
        keyed("j", "2024-03-04", "2024-03-06", "2024-03-08", "2024-03-11"),
        None,
    ),
    (
        "days from Monday to Friday",
        keyed("j", *(f"2024-03-{day:02}" for day in (4, 5, 6, 7, 8, 11, 12))),
        "day",
    ),
    (
        "office hours",
        keyed("j", *(f"2024-03-{day:02}T{hour:02}" for day in (4, 5) for hour in range(9, 18))),
        "hour",
    ),
    ("ranges of days", wrote("j", "2024-03-01..2024-03-31", "2024-05-01..2024-05-31"), "day"),
    (
        "a range that ends before it begins",
        keyed("j", "2024-03-05..2024-03-04", "2024-03-06"),
        None,
    ),
    ("keys of weeks", keyed("j", "2024-W10", "2024-W11", "2024-W12"), "week"),
    (
        "first days of months are ambiguous",
        keyed("j", "2024-01-01", "2024-02-01", "2024-03-01"),
        None,
    ),
    ("keys of two grains", keyed("j", "2024-03-04", "2024-W11", "2024-03-06"), None),
    ("keys of no calendar", keyed("j", "eu", "us", "apac"), None),
    ("the same key again is one", keyed("j", "2024-03-04", "2024-03-04", "2024-03-04"), None),
    (
        "keys count before nominal times",
        nominal("j", HOUR) + keyed("j", "2024-03-04", "2024-03-05", "2024-03-06"),
        "day",
    ),
]


@pytest.mark.parametrize(("says", "records", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_what_a_history_tells(says: str, records: list[ObservedRun], wanted: str | None) -> None:
    assert grain(records) == wanted


def held(history: list[ObservedRun]) -> LineageSnapshot:
    return lineage("raw > j > a\na > k > b", history=tuple(history))


RAW = 'dataset = [{ name = "raw", grain = "hour" }, { name = "b", grain = "day" }]'


def test_an_inferred_calendar_is_planned_and_shown_with_its_evidence() -> None:
    made = plan(request({"raw": "2024-03-10T05"}), held(nominal("j", DAY)), RAW)
    assert summary(made) == {"j": "2024-03-10", "k": "2024-03-10"}
    assert find(made, "j").reason["inferred"] == (
        "the nominal times of 4 runs are each one day in UTC"
    )
    assert "inferred" not in find(made, "k").reason
    assert "partitioning inferred from run history: w:j" in made.warnings


def test_a_declaration_and_a_facet_win_over_what_is_inferred() -> None:
    declared = RAW.replace("]", ', { name = "a", grain = "week" }]').replace(
        'b", grain = "day', 'b", grain = "week'
    )
    made = plan(request({"raw": "2024-03-10T05"}), held(nominal("j", DAY)), declared)
    assert summary(made) == {"j": "2024-W10", "k": "2024-W10"}
    assert not any("inferred" in text for text in made.warnings)


def test_an_ambiguous_history_leaves_the_job_blocked() -> None:
    made = plan(
        request({"raw": "2024-03-10T05"}), held(nominal("j", DAY) + nominal("j", HOUR)), RAW
    )
    assert summary(made)["j"] == "blocked"


def test_writers_that_disagree_leave_their_output_unknown() -> None:
    snapshot = lineage(
        "raw > j > a\nraw > i > a", history=(*nominal("j", DAY), *nominal("i", HOUR))
    )
    made = plan(request({"raw": "2024-03-10T05"}), snapshot, RAW)
    assert summary(made) == {"i": "blocked", "j": "blocked"}


def test_a_job_without_outputs_is_inferred_from_its_own_runs() -> None:
    snapshot = lineage("mystery > j > ", history=tuple(nominal("j", DAY)))
    made = plan(request(jobs={"j": "2024-03-10"}), snapshot, RAW)
    assert summary(made) == {"j": "2024-03-10"}
    assert "inferred" in find(made, "j").reason
