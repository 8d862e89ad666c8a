"""A run from outside on the same keys is found, waited for or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lineage_backfill.errors import ConflictError
from lineage_backfill.executor.live import SILENT, LiveRuns
from lineage_backfill.executor.outside import OutsideRuns
from lineage_backfill.graph.lineage import JobNode, LineageSnapshot, RunRecord
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plan.catalog import Catalog
from lineage_backfill.plan.declarations import CalendarDeclaration, DatasetDeclaration, Declarations
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
) -> RunRecord:
    return RunRecord(
        job=JOB,
        run_id="1",
        state=state,
        started_at=NOW - ago,
        nominal_start=datetime(2024, 3, day, tzinfo=UTC),
        nominal_end=datetime(2024, 3, day + 1, tzinfo=UTC),
        backfill=backfill,
    )


def outside(*runs: RunRecord) -> OutsideRuns:
    return OutsideRuns(runs, CATALOG, lambda backfill: backfill == "ours")


CATALOG = Catalog(
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


def live(first: OutsideRuns, *, then: OutsideRuns | None = None, refuses: bool = False) -> LiveRuns:
    return LiveRuns(
        first,
        look=lambda: then or first,
        calendar_of=lambda job: CATALOG.job(job).calendar,
        now=lambda: NOW,
        refuses=refuses,
    )


@pytest.mark.parametrize(("sentence", "record", "found"), CASES)
def test_a_run_from_outside_is_a_hindrance_where(
    sentence: str, record: RunRecord, found: bool
) -> None:
    wanted = [planned_run("r", job="daily", keys=("2024-03-04..2024-03-06",))]
    said = live(outside(record)).hindrance(wanted)
    assert said == ("n:daily 2024-03-05 is run from outside since 2024-03-09T12:00:00Z" * found)
    if found:
        with pytest.raises(ConflictError, match="is run from outside") as caught:
            live(outside(record), refuses=True).hindrance(wanted)
        assert "LIVE_RUNS=ignore" in caught.value.hint


def test_the_lineage_is_read_again_now_and_then_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = [planned_run("r", job="daily", keys=("2024-03-05",))]
    runs = live(outside(run()), then=outside(run("COMPLETE")))
    assert runs.hindrance(wanted)
    assert runs.hindrance(wanted)  # it has not been looked again so soon
    monkeypatch.setattr("lineage_backfill.executor.live._AGAIN", 0)
    assert runs.hindrance(wanted) == ""
