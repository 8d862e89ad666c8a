"""Partitioning inferred from run history: shown with its evidence, and never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from lineage_backfill.lineage.inference.infer import infer_all, skipping
from lineage_backfill.lineage.snapshot import AirflowTask, LineageSnapshot, ObservedRun
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


def hours(*times: int, days: Iterable[int] = (4, 5)) -> list[ObservedRun]:
    return keyed("j", *(f"2024-03-{day:02}T{hour:02}" for day in days for hour in times))


def dates(*days: date) -> list[ObservedRun]:
    return [
        ObservedRun(
            job=job("j"),
            run_id=f"{day}",
            state="COMPLETE",
            nominal_start=datetime(day.year, day.month, day.day, tzinfo=UTC),
            nominal_end=datetime(day.year, day.month, day.day, tzinfo=UTC) + DAY,
        )
        for day in days
    ]


def some_days(of: Callable[[date], bool], count: int = 100) -> list[ObservedRun]:
    days = (date(2024, 3, 4) + number * DAY for number in range(count))
    return dates(*(day for day in days if of(day)))


NOT_ONE_AFTER_THE_OTHER = "most do not follow one another"

#: History with gaps: the grain, or how it skips periods.
GAPS = [
    ("every six hours", hours(0, 6, 12, 18), "only at hours 00, 06, 12, 18"),
    ("of one day only", hours(0, 6, 12, 18, days=[4]), "only at hours 00, 06, 12, 18"),
    ("with a run by hand", hours(0, 6, 7, 12, 18), "only at hours 00, 06, 07, 12, 18"),
    ("two by two", hours(0, 1, 12, 13), "only at hours 00, 01, 12, 13"),
    ("two by two in one day", hours(0, 1, 12, 13, days=[4]), "only at hours 00, 01, 12, 13"),
    (
        "office hours",
        hours(*range(9, 18)),
        "only at hours 09, 10, 11, 12, 13, 14, 15, 16, 17",
    ),
    ("hours of one morning", hours(*range(9, 13), days=[4]), "hour"),
    ("all hours but one on one day", hours(*range(24)) + hours(*range(23), days=[6, 7]), "hour"),
    (
        "never an hour",
        hours(*range(23)),
        "none at hours 23",
    ),
    ("a hole on one day", hours(*range(24), days=[4, 6]) + hours(*range(9), days=[5]), "hour"),
    ("all hours on two weekdays", hours(*range(24), days=[4, 6]), "none on Tue"),
    (
        "every fifth hour, so that each was seen",
        [run for number, run in enumerate(nominal("j", HOUR, 240)) if number % 5 == 0],
        NOT_ONE_AFTER_THE_OTHER,
    ),
    ("Mondays", some_days(lambda day: day.weekday() == 0), "only on Mon"),
    ("weekdays", some_days(lambda day: day.weekday() < 5), "none on Sat, Sun"),
    (
        "weekdays of a week and a bit",
        some_days(lambda day: day.weekday() < 5, 9),
        "none on Sat, Sun",
    ),
    ("a working week", some_days(lambda _: True, 5), "day"),
    ("a weekend", some_days(lambda day: day.weekday() > 4), "only on Sat, Sun"),
    ("holes", some_days(lambda day: day.day not in (9, 10) or day.month > 3, 60), "day"),
    (
        "the first of months",
        some_days(lambda day: day.day == 1, 900),
        "only on days of the month 01",
    ),
    (
        "the first three of months",
        some_days(lambda day: day.day < 4, 900),
        "only on days of the month 01, 02, 03",
    ),
    ("every second day", some_days(lambda day: day.toordinal() % 2 == 0), NOT_ONE_AFTER_THE_OTHER),
    (
        "weeks, but not the last ones",
        keyed(
            "j",
            *(
                f"2024-W{n:02}"
                for n in (*range(1, 5), *range(6, 9), *range(10, 14), *range(15, 18))
            ),
        ),
        "week",
    ),
    (
        "weeks at the beginning of months",
        keyed("j", *(f"2024-W{n:02}" for n in (1, 2, 6, 7, 10, 11, 14, 15, 19, 20))),
        "only in weeks of the month 01, 02",
    ),
]


@pytest.mark.parametrize(("says", "records", "wanted"), GAPS, ids=[case[0] for case in GAPS])
def test_what_the_gaps_of_a_history_tell(
    says: str, records: list[ObservedRun], wanted: str | None
) -> None:
    skips = skipping(records).get(job("j"))
    assert (grain(records) or (skips and skips.split(", but ")[1])) == wanted


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
    assert "partitioning inferred, not declared: w:j" in made.warnings


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


def test_a_blocked_job_says_which_periods_its_runs_skip() -> None:
    snapshot = held(hours(0, 6, 12, 18))
    made = plan(request({"raw": "2024-03-10T05"}), snapshot, RAW)
    assert summary(made)["j"] == "blocked"
    said = (
        "the partitioning of w:j is not inferred: 8 recorded partition keys are all of grain hour,"
        " but only at hours 00, 06, 12, 18"
    )
    assert said in made.warnings
    declared = RAW.replace("]", ', { name = "a", grain = "hour" }]')
    assert said not in plan(request({"raw": "2024-03-10T05"}), snapshot, declared).warnings


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


# --- timetables of Airflow ------------------------------------------------------------------------


def mapped(
    mapper: str, window: str = "", direction: str = "forward", **more: Any
) -> dict[str, Any]:
    """The timetable of a DAG that is started by partitions of assets, as Airflow 3.3 sends it."""
    path = "airflow.partition_mappers"
    found = {"__type": f"{path}.temporal.{mapper}", "__var": {"timezone": "UTC"}}
    if window:
        of = {"__type": f"{path}.window.{window}", "__var": {"direction": direction}}
        found = {
            "__type": f"{path}.base.RollupMapper",
            "__var": {"upstream_mapper": found, "window": of},
        }
    return {"default_partition_mapper": found, "partition_mapper_config": [], **more}


def cron(expression: str, zone: Any = "UTC", **more: Any) -> dict[str, Any]:
    return {"expression": expression, "timezone": zone, **more}


TIMETABLES = [
    ("data intervals of hours", cron("0 * * * *"), "hour UTC"),
    ("of days of a zone", cron("0 0 * * *", "Europe/Berlin"), "day Europe/Berlin"),
    ("of weeks that begin on Monday", cron("0 0 * * 1"), "week UTC"),
    ("weeks that begin on Sunday are none of ours", cron("0 0 * * 0"), None),
    ("of quarters", cron("0 0 1 */3 *"), "quarter UTC"),
    ("half past two begins no day", cron("30 2 * * *"), None),
    ("a trigger without intervals", cron("0 0 * * *", interval=0.0), None),
    ("partitions of hours", cron("0 * * * *", key_format="%Y-%m-%dT%H"), "hour UTC"),
    ("hours whose keys are days", cron("0 * * * *", key_format="%Y-%m-%d"), None),
    ("no cron", cron("hourly"), None),
    ("no zone", cron("0 * * * *", 3600), None),
    ("an unknown zone", cron("0 * * * *", "Mars/Base"), None),
    ("started by assets", {"asset_condition": {"__type": "asset"}}, None),
    ("rolled up to days", mapped("StartOfDayMapper", "DayWindow"), "day UTC"),
    ("begin of days", mapped("StartOfDayMapper"), "day UTC"),
    ("a window of another length", mapped("StartOfDayMapper", "WeekWindow"), None),
    ("a window before", mapped("StartOfDayMapper", "DayWindow", "backward"), None),
    ("a mapper for an asset", mapped("StartOfDayMapper", partition_mapper_config=[[]]), None),
    ("a mapper of their own", mapped("EveryOther"), None),
    ("nonsense", {"default_partition_mapper": 3}, None),
]


def in_dag(timetable: dict[str, Any], *history: ObservedRun) -> LineageSnapshot:
    made = lineage("raw > j > a", history=history or nominal("k", DAY))
    node = made.jobs[job("j")]
    task = AirflowTask(dag="shop", task="j", timetable=timetable)
    return LineageSnapshot.of([replace(node, airflow=task)], history=made.history)


@pytest.mark.parametrize(
    ("says", "timetable", "wanted"), TIMETABLES, ids=[case[0] for case in TIMETABLES]
)
def test_what_a_timetable_tells(says: str, timetable: dict[str, Any], wanted: str | None) -> None:
    found = infer_all((), in_dag(timetable).jobs.values()).get(job("j"))
    assert (found and f"{found.calendar.grain} {found.calendar.zone}") == wanted


def test_a_timetable_and_a_history_that_disagree_prove_nothing() -> None:
    for timetable, wanted in (
        (cron("0 0 * * *"), "day"),
        (cron("0 * * * *"), None),
        (cron("30 2 * * *"), "day"),  # says nothing
        (mapped("StartOfDayMapper", "WeekWindow"), None),  # days that each need a week
    ):
        snapshot = in_dag(timetable, *nominal("j", DAY))
        found = infer_all(snapshot.history, snapshot.jobs.values()).get(job("j"))
        assert (found and found.calendar.grain) == wanted


def test_a_timetable_that_keeps_keys_tells_the_partitions_of_what_is_read() -> None:
    keeps = {"default_partition_mapper": {"__type": "airflow.partition_mappers.IdentityMapper"}}
    made = lineage("a > j > b\nraw > i > a\nb > k > c\na, x > l > d\ny > u > x")
    tables = {"i": cron("0 * * * *"), "j": keeps, "k": keeps, "l": keeps}
    jobs = [
        replace(node, airflow=AirflowTask(dag="d", task="t", timetable=tables.get(ref.name)))
        for ref, node in made.jobs.items()
    ]
    found = infer_all((), jobs)
    assert {ref.name: one.calendar.grain for ref, one in found.items()} == {
        "i": "hour",
        "j": "hour",
        "k": "hour",
    }
    assert "keeps the keys" in found[job("k")].evidence


def test_a_rollup_of_airflow_is_planned_by_its_timetables() -> None:
    made = lineage("raw > load > orders\norders > roll > daily", history=nominal("other", DAY))
    tables = {"load": cron("0 * * * *"), "roll": mapped("StartOfDayMapper", "DayWindow")}
    jobs = [
        replace(node, airflow=AirflowTask(dag="d", task="t", timetable=tables[ref.name]))
        for ref, node in made.jobs.items()
    ]
    snapshot = LineageSnapshot.of(jobs, history=made.history)
    raw = 'dataset = [{ name = "raw", grain = "hour" }]'
    found = plan(request({"raw": "2024-03-10T05"}), snapshot, raw)
    assert summary(found) == {"load": "2024-03-10T05", "roll": "2024-03-10"}
    assert find(found, "roll").reason["inferred"] == (
        "the timetable of its DAG rolls up the keys of each day in UTC (StartOfDayMapper)"
    )
