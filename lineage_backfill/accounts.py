"""What is known of backfills, as the documents that `status`, `report` and `history` print."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from lineage_backfill.model import DatasetRef, JobRef, RunState
from lineage_backfill.ports import AttemptRecord, AttemptState, BackfillRecord, RunRecord

Document = dict[str, Any]
#: The label of one partition key; a mapping by dimension for product keys.
Key = str | Mapping[str, str]


def history(records: Iterable[BackfillRecord]) -> Document:
    """Return the list of backfills."""
    return {
        "schema_version": 1,
        "kind": "history",
        "backfills": [_backfill(record) for record in records],
    }


def status(record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[RunRecord]) -> Document:
    """Return where a backfill and each of its runs stand; `plan` is its plan document."""
    count = Counter(run.state for run in runs)
    return {
        "schema_version": 1,
        "kind": "status",
        **_backfill(record),
        "totals": {"runs": len(runs)} | {state.value: count[state] for state in RunState},
        "blocked_jobs": [
            job["job"] for job in plan["jobs"] if job["status"] in ("blocked", "left_stale")
        ],
        "runs": [
            {
                "id": run.run_id,
                "job": ref(run.job),
                "partitions": list(run.partitions),
                "count": run.count,
                "wave": run.wave,
                "engine": run.engine,
                "state": run.state,
                "attempt": run.attempt,
                "started_at": instant(run.started_at),
                "ended_at": instant(run.ended_at),
                "error": run.error,
            }
            for run in runs
        ],
    }


def report(
    record: BackfillRecord,
    runs: Sequence[RunRecord],
    attempts: Iterable[AttemptRecord],
    planned: Mapping[str, Mapping[DatasetRef, Sequence[Key]]],
) -> Document:
    """Return what a backfill has touched beside what it had planned.

    `planned` holds, for each run, every partition that it was told to write.
    """
    results = _results(attempts)
    outputs: dict[tuple[JobRef, DatasetRef], _Output] = {}
    for run in runs:
        for dataset, keys in planned[run.run_id].items():
            output = outputs.setdefault((run.job, dataset), _Output(run.job, dataset))
            output.plan(keys)
        for written in results.get(run.run_id, {}).get("outputs", ()):
            dataset = DatasetRef(written["dataset"]["namespace"], written["dataset"]["name"])
            output = outputs.setdefault((run.job, dataset), _Output(run.job, dataset))
            output.touch(written)
    written_outputs = [output.document() for output in outputs.values()]
    return {
        "schema_version": 1,
        "kind": "report",
        **_backfill(record),
        "touched_is_planned": all(
            not one["missing"] and not one["unexpected"] for one in written_outputs
        ),
        "outputs": written_outputs,
        "runs_not_succeeded": [
            {
                "id": run.run_id,
                "job": ref(run.job),
                "partitions": list(run.partitions),
                "state": run.state,
                "error": run.error,
            }
            for run in runs
            if run.state is not RunState.SUCCEEDED
        ],
    }


def _results(attempts: Iterable[AttemptRecord]) -> dict[str, Mapping[str, Any]]:
    """Return the result of each run's last attempt that succeeded."""
    return {
        one.run_id: one.result
        for one in attempts
        if one.result is not None and one.state is AttemptState.SUCCEEDED
    }


class _Output:
    """One dataset that one job writes: the partitions planned, and those touched."""

    def __init__(self, job: JobRef, dataset: DatasetRef) -> None:
        self.job = job
        self.dataset = dataset
        self.planned: dict[str, Key] = {}
        self.touched: dict[str, Mapping[str, Any]] = {}
        self.versions: list[int] = []

    def plan(self, keys: Iterable[Key]) -> None:
        """Add partitions that a run was told to write."""
        self.planned |= {_text(key): key for key in keys}

    def touch(self, written: Mapping[str, Any]) -> None:
        """Add what a run says that it wrote."""
        self.touched |= {_text(one["key"]): one for one in written["partitions"]}
        self.versions += [v for v in (written.get("version"),) if v is not None]

    def document(self) -> Document:
        """Return it as the report tells it."""
        touched = self.touched.values()
        changed = [one for one in touched if one["fingerprint"] != one["fingerprint_before"]]
        return {
            "dataset": ref(self.dataset),
            "job": ref(self.job),
            "planned": len(self.planned),
            "touched": len(self.touched),
            "changed": len(changed),
            "missing": [key for text, key in self.planned.items() if text not in self.touched],
            "unexpected": [
                one["key"] for text, one in self.touched.items() if text not in self.planned
            ],
            "emptied": [one["key"] for one in touched if one["emptied"]],
            "rows_before": _sum(touched, "rows_before"),
            "rows": _sum(touched, "rows"),
            "versions": sorted(self.versions),
            "partitions": list(touched),
        }


def _sum(touched: Iterable[Mapping[str, Any]], what: str) -> int:
    """Add up rows; a partition that was not there had none."""
    return sum(one[what] or 0 for one in touched)


def _text(key: Key) -> str:
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True)


def _backfill(record: BackfillRecord) -> Document:
    return {
        "id": record.id,
        "state": record.state,
        "plan": record.plan_id,
        "submitted_by": record.submitted_by,
        "submitted_at": instant(record.submitted_at),
        "updated_at": instant(record.updated_at),
        "ended_at": instant(record.ended_at),
    }


def ref(one: DatasetRef | JobRef) -> dict[str, str]:
    """Return the name as documents write it."""
    return {"namespace": one.namespace, "name": one.name}


def instant(at: datetime | None) -> str | None:
    """Return the instant as documents write it, in UTC to the millisecond."""
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
