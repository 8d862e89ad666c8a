"""Documents of one backfill that failed in the middle, and of one that did not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lineage_backfill import plan_to_dict
from lineage_backfill.model import BackfillState, DatasetRef, RunState
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import (
    AttemptRecord,
    AttemptState,
    BackfillRecord,
    EngineRun,
    Origin,
    RunRecord,
)
from lineage_backfill.runs import reports as accounts
from lineage_backfill.staleness.record import TableRecord
from tests.unit.cli import plans

BEGUN = datetime(2024, 6, 15, 12, 0, 0, 123456, tzinfo=UTC)
NOW = datetime(2024, 6, 15, 14, 30, tzinfo=UTC)
ENDED = datetime(2024, 6, 15, 12, 1, 30, tzinfo=UTC)


def record(state: BackfillState = BackfillState.FAILED) -> BackfillRecord:
    return BackfillRecord(
        id="b-20240615-120000-abcd",
        plan_id=plans.real().id,
        state=state,
        submitted_at=BEGUN,
        updated_at=ENDED,
        ended_at=ENDED,
        submitted_by="me",
        title="VAT fix, INC-812",
        reason="delays came in *seconds*, see @feed",
    )


def _states() -> dict[str, RunState]:
    """The first run succeeded, the next one failed, all below it is blocked."""
    runs = plans.real().runs or ()
    states = {run.id: RunState.BLOCKED for run in runs}
    return states | {runs[0].id: RunState.SUCCEEDED, runs[1].id: RunState.FAILED}


_ERRORS = {
    RunState.FAILED: "ValueError: a [bad] row\x1b[31m",
    RunState.BLOCKED: "nyc:daily 2013-03-10 did not succeed",
}


def _runs(states: dict[str, RunState]) -> list[RunRecord]:
    return [
        RunRecord.of(
            run,
            state=states[run.id],
            attempt=0 if states[run.id] is RunState.BLOCKED else 1,
            started_at=None if states[run.id] is RunState.BLOCKED else BEGUN,
            ended_at=ENDED,
            error=_ERRORS.get(states[run.id]),
        )
        for run in plans.real().runs or ()
    ]


def attempt(run: PlannedRun, keys: list[str]) -> AttemptRecord:
    """One that has touched these keys, and emptied the first of them."""
    partitions = [
        {
            "key": key,
            "rows_before": 10,
            "rows": 11 if number else 0,
            "fingerprint_before": "a",
            "fingerprint": "b",
            "emptied": number == 0,
        }
        for number, key in enumerate(keys)
    ]
    written = {
        "dataset": {"namespace": "nyc", "name": run.writes[0].dataset.name},
        "version_before": 6,
        "version": 7,
        "partitions": partitions,
    }
    return AttemptRecord(
        run_id=run.id,
        attempt=1,
        token="t",
        state=AttemptState.SUCCEEDED,
        submitted_at=BEGUN,
        ended_at=BEGUN + timedelta(seconds=12.5),
        result={"outputs": [written]},
    )


def calendar_of(dataset: DatasetRef) -> Calendar:
    calendar = Resolver(plans.SNAPSHOT, plans.DECLARATIONS, now=plans.NOW).calendar(dataset)
    assert calendar is not None
    return calendar


def without(run: PlannedRun, cut_off: KeySet) -> PlannedRun:
    raise AssertionError("nothing was cut off")


def unasked(datasets: object) -> dict[DatasetRef, TableRecord]:
    raise AssertionError("each run said what it wrote")


#: No key was cut off, and no log was looked at.
NONE = (without, unasked)


def history() -> dict[str, Any]:
    return accounts.history([record(), record(BackfillState.RUNNING)])


def status() -> dict[str, Any]:
    return accounts.status(record(), plan_to_dict(plans.real()), _runs(_states()))


def report(touched: list[str] | None = None) -> dict[str, Any]:
    plan = plans.real()
    runs = plan.runs or ()
    keys = touched or ["2013-03-10T05", "2013-03-10T07", "2013-03-10T09", "nonsense"]
    attempts = [attempt(runs[0], keys)]
    return accounts.report(record(), [plan], _runs(_states()), attempts, calendar_of, *NONE)


def report_of_success() -> dict[str, Any]:
    plan = plans.real()
    states = dict.fromkeys(_states(), RunState.SUCCEEDED)
    attempts = []
    for run in plan.runs or ():
        first, _, last = str(run.partitions[0]).partition("..")
        keys = [f"2013-03-10T{hour:02}" for hour in range(5, 8)] if last else [first]
        attempts.append(attempt(run, keys))
    return accounts.report(
        record(BackfillState.SUCCEEDED),
        [plan],
        _runs(states),
        attempts,
        calendar_of,
        without,
        unasked,
    )


#: What a whole DAG run writes beside what is planned.
WHOLE = {"also_writes": [["nyc", "audit"]]}


def _in_airflow(records: list[Any]) -> list[Any]:
    """Return runs or attempts: the first created, the second adopted, the third run again."""
    found = [
        EngineRun(origin=Origin.CREATED, id="clean/lb__t", facts=WHOLE),
        EngineRun(origin=Origin.ADOPTED, id="daily/asset__1\x1b[31m"),
        EngineRun(origin=Origin.RERUN, id="total/scheduled__1"),
    ]
    named = [replace(one, engine_run=run) for one, run in zip(records, found, strict=False)]
    return [*named, *records[len(named) :]]


def status_in_airflow() -> dict[str, Any]:
    """The status where the second run failed, and was started by someone else."""
    return accounts.status(record(), plan_to_dict(plans.real()), _in_airflow(_runs(_states())))


def report_in_airflow() -> dict[str, Any]:
    """The report of what Airflow has run."""
    plan = plans.real()
    runs = plan.runs or ()
    attempts = _in_airflow([attempt(run, [str(run.partitions[0])]) for run in runs[:2]])
    records = _in_airflow(_runs(dict.fromkeys(_states(), RunState.SUCCEEDED)))
    done = record(BackfillState.SUCCEEDED)
    return accounts.report(done, [plan], records, attempts, calendar_of, *NONE)
