"""A run from outside on the same keys is found, waited for or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from lineage_backfill.errors import ConflictError, UnfitRunError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
)
from lineage_backfill.runs.live import SILENT, LiveRuns
from lineage_backfill.runs.observations import RecordedRuns
from tests.fakes import planned_run

NOW = datetime(2024, 3, 9, 12, tzinfo=UTC)
CALENDAR = CalendarDeclaration(grain="day", start="2024-03-01")
JOB = JobRef("n", "daily")
NODE = JobNode(ref=JOB, reads=(DatasetRef("n", "raw"),), writes=(DatasetRef("n", "daily"),))


def run(
    state: str = "RUNNING",
    *,
    day: int = 5,
    ago: timedelta = timedelta(),
    backfill: str | None = None,
) -> ObservedRun:
    return ObservedRun(
        job=JOB,
        run_id="1",
        state=state,
        started_at=NOW - ago,
        nominal_start=datetime(2024, 3, day, tzinfo=UTC),
        nominal_end=datetime(2024, 3, day + 1, tzinfo=UTC),
        backfill=backfill,
    )


def outside(*runs: ObservedRun) -> RecordedRuns:
    return RecordedRuns(CATALOG, runs, lambda *_: (), lambda backfill: backfill == "ours")


CATALOG = Resolver(
    LineageSnapshot.of([NODE]),
    Declarations(datasets=(DatasetDeclaration(name="*", calendar=CALENDAR),)),
    now=NOW,
)
CASES = [
    ("it is under way on one of the keys", run(), True),
    ("it is under way on another key", run(day=8), False),
    ("it has ended", run("COMPLETE"), False),
    ("it is a part of a backfill of this run store", run(backfill="ours"), False),
    ("it is a part of somebody else's backfill", run(backfill="theirs"), True),
    ("nobody has heard of it for a day", run(ago=SILENT), False),
]


def live(
    first: RecordedRuns,
    *,
    then: RecordedRuns | None = None,
    engines: Mapping[str, Callable[[JobRef], KeySet | None]] | None = None,
    refuses: bool = False,
) -> LiveRuns:
    return LiveRuns(
        first,
        look=lambda: then or first,
        engines=engines or {},
        calendar_of=lambda job: CATALOG.job(job).calendar,
        now=lambda: NOW,
        refuses=refuses,
    )


@pytest.mark.parametrize(("sentence", "record", "found"), CASES)
def test_a_run_from_outside_is_a_hindrance_where(
    sentence: str, record: ObservedRun, found: bool
) -> None:
    wanted = [planned_run("r", job="daily", keys=("2024-03-04..2024-03-06",))]
    said = live(outside(record)).blocker(wanted)
    assert said == ("n:daily 2024-03-05 is being run by others since 2024-03-09T12:00:00Z" * found)
    if found:
        with pytest.raises(ConflictError, match="is being run by others") as caught:
            live(outside(record), refuses=True).blocker(wanted)
        assert "LIVE_RUNS=ignore" in caught.value.hint


def test_the_lineage_is_read_again_now_and_then_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = [planned_run("r", job="daily", keys=("2024-03-05",))]
    runs = live(outside(run()), then=outside(run("COMPLETE")))
    assert runs.blocker(wanted)
    assert runs.blocker(wanted)  # it has not been looked again so soon
    monkeypatch.setattr("lineage_backfill.runs.live._AGAIN", 0)
    assert runs.blocker(wanted) == ""


def test_an_engine_that_knows_of_runs_from_outside_is_asked_of_each_job_once() -> None:
    asked: list[JobRef] = []

    def told(job: JobRef) -> KeySet:
        asked.append(job)
        return ("2024-03-05..2024-03-06",)

    runs = [
        planned_run("r-1", job="daily", keys=("2024-03-04",)),
        planned_run("r-2", job="daily", keys=("2024-03-06",)),
        planned_run("r-3", job="daily", keys=("2024-03-07",), engine="another"),
    ]
    of = live(outside(), engines={"fake": told})
    assert (
        of.blocker(runs) == "n:daily 2024-03-06 is being run by others, according to engine 'fake'"
    )
    assert asked == [JOB]
    assert live(outside(), engines={"fake": told}).blocker([runs[0], runs[2]]) == ""
    with pytest.raises(ConflictError, match="according to engine 'fake'"):
        live(outside(), engines={"fake": told}, refuses=True).blocker(runs)


def test_an_engine_outvotes_the_lineage_about_what_runs_now() -> None:
    """A try that was killed by hand leaves a START without an end."""
    wanted = [planned_run("r", job="daily", keys=("2024-03-05",))]
    assert live(outside(run()), engines={"fake": lambda _job: ()}).blocker(wanted) == ""
    unknown: Mapping[str, Callable[[JobRef], KeySet | None]] = {"fake": lambda _job: None}
    assert "since" in live(outside(run()), engines=unknown).blocker(wanted)


def test_keys_that_are_newer_than_the_plan_are_none_of_its_own() -> None:
    told = ("2024-03-05", "2124-03-05", "2124-03-05..2124-03-06")
    of = live(outside(), engines={"fake": lambda _job: told})
    assert of.blocker([planned_run("r", job="daily", keys=("2024-03-04",))]) == ""
    assert "2024-03-05" in of.blocker([planned_run("r", job="daily", keys=("2024-03-05",))])


def test_keys_that_the_job_has_not_are_no_answer() -> None:
    of = live(outside(), engines={"fake": lambda _job: ("2024-W10",)})
    with pytest.raises(UnfitRunError, match="names keys that n:daily does not have"):
        of.blocker([planned_run("r", job="daily", keys=("2024-03-04",))])
