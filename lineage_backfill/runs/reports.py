"""The documents about backfills that `status`, `report` and `history` print."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.errors import DeclarationError, LineageError, UsageError
from lineage_backfill.model import DatasetRef, JobRef, RunState, named
from lineage_backfill.partitions.calendar import EVERY, Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.plans.plan import Plan, PlannedRun, changed_in_short
from lineage_backfill.ports import (
    Act,
    AttemptRecord,
    AttemptState,
    BackfillRecord,
    EngineRun,
    Holder,
    Origin,
    RunRecord,
    SavedPlan,
)
from lineage_backfill.runs.estimate import TimeLeft
from lineage_backfill.staleness.record import TableRecord

Document = dict[str, Any]
_MERGED = ("inserted", "updated", "deleted")


def history(records: Iterable[BackfillRecord], *, hidden: int = 0) -> Document:
    """Return the list of backfills, and how many hidden ones it leaves out."""
    return {
        "schema_version": 1,
        "kind": "history",
        "backfills": [_backfill(record) for record in records],
        "hidden": hidden,
    }


def audit(acts: Iterable[Act]) -> Document:
    """Return the list of acts; `backfill` may be a title, where an act was refused."""
    return {
        "schema_version": 1,
        "kind": "audit",
        "acts": [
            {
                "at": instant(act.at),
                "who": act.who,
                "door": act.door,
                "address": act.address,
                "act": act.verb,
                "backfill": act.backfill_id,
                "plan": act.plan_id,
                "reason": redaction.redacted(act.reason),
                "refused": redaction.redacted(act.refused),
            }
            for act in acts
        ],
    }


def saved_plans(found: Iterable[tuple[SavedPlan, bool, str]]) -> Document:
    """Return the list of saved plans, with whether each needs an approval and what has moved."""
    return {
        "schema_version": 1,
        "kind": "saved_plans",
        "plans": [
            {
                "id": one.id,
                "title": one.submission.get("title", ""),
                "changed": changed_in_short(one.plan),
                "reason": redaction.redacted(one.submission.get("reason", "")),
                "runs": one.plan["totals"]["runs"],
                "author": one.author,
                "saved_at": instant(one.saved_at),
                "needs_approval": needs_approval,
                "approved_by": one.approved_by,
                "approved_at": instant(one.approved_at),
                "moved": moved,
            }
            for one, needs_approval, moved in found
        ],
    }


def status(
    record: BackfillRecord,
    plan: Mapping[str, Any],
    runs: Sequence[RunRecord],
    driver: Holder | None = None,
    time: TimeLeft | None = None,
) -> Document:
    """Return the status of a backfill and its runs; `plan` is its plan document.

    `excluded_jobs` are left stale as the request asked, `blocked_jobs` for any other reason.
    """
    left = [job for job in plan["jobs"] if job["status"] in ("blocked", "left_stale")]
    lasting = {
        "changed": changed_in_short(plan),
        "blocked_jobs": [job["job"] for job in left if not job["reason"].get("by_choice")],
        "excluded_jobs": [job["job"] for job in left if job["reason"].get("by_choice")],
    }
    return _with_runs(lasting, record, list(map(_run, runs)), driver, time)


def moved_on(
    status: Document,
    record: BackfillRecord,
    runs: Iterable[RunRecord],
    driver: Holder | None,
    time: TimeLeft | None,
) -> Document:
    """Return a status document as it is after some of its runs have moved on."""
    moved = {run.run_id: _run(run) for run in runs}
    every = [moved.get(one["id"], one) for one in status["runs"]]
    return _with_runs(status, record, every, driver, time)


def time_left(time: TimeLeft | None) -> Document | None:
    """Return the time left as documents have it."""
    if time is None:
        return None
    return {"seconds": time.seconds, "not_estimated": len(time.unknown)}


def _with_runs(
    status: Document,
    record: BackfillRecord,
    runs: Sequence[Document],
    driver: Holder | None,
    time: TimeLeft | None,
) -> Document:
    """Return a status document with what changes in it; what the plan says lasts."""
    count = Counter(run["state"] for run in runs)
    return {
        "schema_version": 1,
        "kind": "status",
        **_backfill(record),
        "changed": status["changed"],
        "driver": driver and {"owner": driver.owner, "until": instant(driver.until)},
        "time_left": time_left(time),
        "totals": {"runs": len(runs)} | {state.value: count[state] for state in RunState},
        "blocked_jobs": status["blocked_jobs"],
        "excluded_jobs": status["excluded_jobs"],
        "runs": runs,
    }


def run(
    record: BackfillRecord,
    planned: Mapping[str, Any],
    runs: Iterable[RunRecord],
    attempts: Iterable[AttemptRecord],
) -> Document:
    """Return the status of one run, what it waits for and its attempts.

    `planned` is its document in the plan.
    """
    known = {run.run_id: run for run in runs}
    return {
        "schema_version": 1,
        "kind": "run",
        "backfill": record.id,
        "backfill_title": record.title,
        **_run(known[planned["id"]]),
        "reads": planned["reads"],
        "writes": planned["writes"],
        "upstream": [_run(known[one]) for one in planned["upstream"] if one in known],
        "attempts": [
            {
                "attempt": one.attempt,
                "state": one.state,
                "submitted_at": instant(one.submitted_at),
                "ended_at": instant(one.ended_at),
                "error": one.error,
                **_identity(one.engine_run),
            }
            for one in attempts
            if one.run_id == planned["id"]
        ],
    }


def _run(run: RunRecord) -> Document:
    return {
        "id": run.run_id,
        "job": named(run.job),
        "partitions": list(run.partitions),
        "count": run.count,
        "wave": run.wave,
        "engine": run.engine,
        "state": run.state,
        "attempt": run.attempt,
        "started_at": instant(run.started_at),
        "ended_at": instant(run.ended_at),
        "error": run.error,
        "cut_off": list(run.cut_off),
        **_identity(run.engine_run),
    }


def _identity(found: EngineRun | None) -> Document:
    """Return who started the run in the engine, and its id there; None if unknown."""
    return {"origin": found and found.origin, "engine_run": found and found.id}


def report(
    record: BackfillRecord,
    plans: Iterable[Plan],
    runs: Sequence[RunRecord],
    attempts: Iterable[AttemptRecord],
    calendar_of: Callable[[DatasetRef], Calendar],
    without: Callable[[PlannedRun, KeySet], PlannedRun],
    logs: Callable[[Collection[DatasetRef]], Mapping[DatasetRef, TableRecord]],
) -> Document:
    """Return the partitions that a backfill planned and those it rewrote.

    Rewritten partitions are those that each run read back from its commit, not those it intended to
    write. `without` returns a run without the keys that were cut off, whose partitions are
    unchanged. `logs` reads the logs of tables, if a run succeeded without a result.
    """
    outputs: dict[tuple[JobRef, DatasetRef], _Output] = {}

    def output(job: JobRef, dataset: DatasetRef) -> _Output:
        if (job, dataset) not in outputs:
            outputs[job, dataset] = _Output(job, dataset, calendar_of(dataset))
        return outputs[job, dataset]

    def written_by(run: str, dataset: DatasetRef) -> _Output:
        job = planned[run].job
        if (job, dataset) not in outputs:  # not planned, and perhaps not known
            with suppress(DeclarationError, LineageError):
                return output(job, dataset)
            outputs[job, dataset] = _Output(job, dataset, Calendar())
        return outputs[job, dataset]

    plans, attempts = list(plans), list(attempts)
    planned = {run.id: run for plan in plans for run in plan.runs or ()}
    for (job, dataset), keys in _wanted(planned.values()).items():
        output(job, dataset).plan(tuple(keys))
    written = {run.id: {part.dataset for part in run.writes} for run in planned.values()}
    for record_ in runs:
        if record_.cut_off and record_.state.is_good:
            run = planned[record_.run_id]
            left = () if record_.state is RunState.SKIPPED else without(run, record_.cut_off).writes
            kept = {part.dataset: part.keys for part in left}
            written[run.id] = set(kept)
            for part in run.writes:
                output(run.job, part.dataset).cut_off(part.keys, kept.get(part.dataset, ()))
    _add_written(attempts, written, written_by)
    _look_up([one for one in outputs.values() if one.unreported], logs)
    documents = [one.document() for one in outputs.values()]
    exact = [one["exact"] for one in documents]
    also = _also_written(runs)
    return {
        "schema_version": 1,
        "kind": "report",
        **_backfill(record),
        "changed": plans[0].title,
        "description": record.description,
        "reason": record.reason,
        "touched_is_planned": False if False in exact else None if None in exact or also else True,
        "outputs": documents,
        "missing_inputs": list(_missing_inputs(planned, attempts, calendar_of)),
        "times": _times(planned, attempts),
        "not_succeeded": _not_succeeded(runs),
        "adopted": _adopted(runs),
        "also_written": also,
        "not_planned": list(_not_planned(plans)),
    }


def _wanted(runs: Iterable[PlannedRun]) -> Mapping[tuple[JobRef, DatasetRef], Sequence[Any]]:
    """Return the keys that runs were to write, by job and output."""
    found: dict[tuple[JobRef, DatasetRef], list[Any]] = {}
    for run in runs:
        for part in run.writes:
            keys = (EVERY,) if part.keys is None else part.keys
            found.setdefault((run.job, part.dataset), []).extend(keys)
    return found


def _not_planned(plans: Iterable[Plan]) -> Iterator[Document]:
    for plan in plans:
        for job in plan.jobs:
            if job.status in ("blocked", "left_stale"):
                yield {
                    "job": named(job.job),
                    "status": job.status,
                    "left_stale": list(job.left_stale),
                    "reason": job.reason,
                }


def _look_up(
    unreported: Sequence[_Output],
    logs: Callable[[Collection[DatasetRef]], Mapping[DatasetRef, TableRecord]],
) -> None:
    """Read from tables' logs what runs without a result wrote."""
    records = logs({one.dataset for one in unreported}) if unreported else {}
    for one in unreported:
        one.look(records.get(one.dataset, TableRecord()))


def _add_written(
    attempts: Sequence[AttemptRecord],
    written: Mapping[str, AbstractSet[DatasetRef]],
    output: Callable[[str, DatasetRef], _Output],
) -> None:
    """Add what attempts report as written; `written` has the outputs of each run by id."""
    last = {attempt.run_id: attempt for attempt in attempts if attempt.state.is_final}
    for attempt in attempts:
        if attempt.state is AttemptState.SUCCEEDED:
            report = {
                DatasetRef(one["dataset"]["namespace"], one["dataset"]["name"]): one
                for one in (attempt.result or {}).get("outputs", ())
            }
            for dataset, one in report.items():
                output(attempt.run_id, dataset).touch(one)
            for dataset in written[attempt.run_id] - report.keys():
                output(attempt.run_id, dataset).unreported.append(attempt)
        elif attempt.result is None and attempt is last.get(attempt.run_id):
            for dataset in written[attempt.run_id]:
                output(attempt.run_id, dataset).is_seen = False


class _Part:
    """One partition that runs have written: as the first of them found it and the last left it.

    Several do where their keys are finer than the partition. `keys` is empty for a key within a
    `*`, which may be missing in a calendar made from the plan.
    """

    def __init__(
        self, keys: PartitionSet, box: Any, version: int, report: Mapping[str, Any]
    ) -> None:
        self.keys, self.box = keys, box
        self.first = self.last = report
        self._from = self._to = version

    def write(self, version: int, report: Mapping[str, Any]) -> None:
        """Add what a run says of it that made this version of the table."""
        if version < self._from:
            self._from, self.first = version, report
        if version >= self._to:
            self._to, self.last = version, report

    @property
    def is_changed(self) -> bool:
        """Whether its contents are not known to be equal."""
        after = self.last.get("fingerprint")
        return after is None or after != self.first.get("fingerprint_before")

    @property
    def is_emptied(self) -> bool:
        """Whether it holds nothing any more."""
        return bool(self.last.get("emptied"))

    @property
    def is_new(self) -> bool:
        """Whether it held nothing before."""
        return self.first.get("rows_before") == 0 and self.last.get("rows") != 0


class _Output:
    """One dataset that one job writes: the partitions planned, and those rewritten."""

    def __init__(self, job: JobRef, dataset: DatasetRef, calendar: Calendar) -> None:
        self.job = job
        self.dataset = dataset
        self.calendar = calendar
        names = ("planned", "cut_off", "touched", "changed", "meanwhile")
        self.sets = dict.fromkeys(names, NOTHING)
        self.strange: list[Any] = []  # touched, but not a key of the calendar
        self.parts: dict[str, _Part] = {}
        self.merged: Counter[str] = Counter()
        self.versions: list[int] = []
        self.is_seen = True  # what each unsuccessful run wrote
        self.unreported: list[AttemptRecord] = []  # that succeeded without a result

    def plan(self, keys: KeySet) -> None:
        """Set the partitions that the runs were to write."""
        self.sets["planned"] = parse(self.calendar, keys)

    def cut_off(self, keys: KeySet | None, kept: KeySet | None) -> None:
        """Add planned partitions that need not be written, except those to keep."""
        self.sets["cut_off"] |= parse(self.calendar, keys) - parse(self.calendar, kept)

    def look(self, record: TableRecord) -> None:
        """Add the changes in the table's log during attempts without a result.

        The log does not show who made a commit. Planned keys count as the run's; others may be of
        another writer, and are listed separately.
        """
        times = [(one.submitted_at, one.ended_at or one.submitted_at) for one in self.unreported]
        for what, found in (("changed", record.changes), ("touched", record.builds)):
            within = (one for one in found if any(a <= one.at <= b for a, b in times))
            keys = PartitionSet.union(one.keys for one in within)
            self.sets[what] |= keys & self.sets["planned"]
            self.sets["meanwhile"] |= keys - self.sets["planned"]
        self.sets["touched"] |= self.sets["changed"]

    def touch(self, written: Mapping[str, Any]) -> None:
        """Add what a run reports as written; if `*` was planned, all keys within are as planned."""
        version = written.get("version")
        for one in written["partitions"]:
            within = one.get("within")
            try:
                key = parse(self.calendar, tuple(within or [one["key"]]))
            except UsageError:
                self.strange.append(_box(one["key"]))
                continue
            self.sets["touched"] |= key
            box = _box(one["key"])
            part = _Part(NOTHING if within else key, box, version or 0, one)
            known = self.parts.setdefault(json.dumps(box, sort_keys=True), part)
            known.write(version or 0, one)
        merged = written.get("merged") or {}  # of another program: perhaps with other members
        self.merged.update({name: merged[name] for name in _MERGED if merged.get(name) is not None})
        if version is not None:
            self.versions.append(version)

    def document(self) -> Document:
        """Return its part of the report."""
        planned, touched = self.sets["planned"] - self.sets["cut_off"], self.sets["touched"]
        unexpected = touched - planned
        missing = NOTHING if self.unreported else planned - touched
        exact: bool | None = not (missing or unexpected or self.strange)
        is_certain = not self.unreported or (touched == planned and not self.sets["meanwhile"])
        return {
            "dataset": named(self.dataset),
            "job": named(self.job),
            "exact": None if exact and not is_certain else exact,
            "by_log": bool(self.unreported),
            "known": is_certain and self.is_seen,
            **{name: self._set(keys) for name, keys in self.sets.items()},
            **self._became(),
            "missing": self._set(missing),
            "unexpected": self._set(unexpected, self.strange),
            **({"merged": dict(self.merged)} if self.merged else {}),
            "versions": sorted(set(self.versions)),
        }

    def _became(self) -> Document:
        """Return what became of the partitions that are written."""
        parts = self.parts.values()
        changed = [one for one in parts if one.is_changed]
        emptied = [one for one in parts if one.is_emptied]
        keys = PartitionSet.union([self.sets["changed"], *(one.keys for one in changed)])
        return {
            "changed": self._set(keys, _within_star(changed)),
            "emptied": self._set(PartitionSet.union(one.keys for one in emptied)),
            "appeared": self._set(NOTHING, _within_star(one for one in parts if one.is_new)),
            "vanished": self._set(NOTHING, _within_star(emptied)),
            "rows_before": sum(one.first.get("rows_before") or 0 for one in parts),
            "rows": sum(one.last.get("rows") or 0 for one in parts),
        }

    def _set(self, keys: PartitionSet, others: Collection[Any] = ()) -> Document:
        partitions = [*render(self.calendar, keys), *others]
        return {"count": len(keys) + len(others), "partitions": partitions}


def _within_star(parts: Iterable[_Part]) -> list[Any]:
    return [one.box for one in parts if not one.keys]


def _box(key: str | Mapping[str, str]) -> Any:
    """Return a key as sets have it: one of several dimensions as a box."""
    return key if isinstance(key, str) else {name: [label] for name, label in key.items()}


def _missing_inputs(
    planned: Mapping[str, PlannedRun],
    attempts: Iterable[AttemptRecord],
    calendar_of: Callable[[DatasetRef], Calendar],
) -> Iterator[Document]:
    """Yield the missing inputs of the last attempt of each run, by job and input."""
    last = {attempt.run_id: attempt for attempt in attempts if attempt.result is not None}
    lost: dict[tuple[JobRef, DatasetRef], dict[str, list[Any]]] = {}
    for attempt in last.values():
        for read in (attempt.result or {}).get("inputs", ()):
            dataset = DatasetRef(read["dataset"]["namespace"], read["dataset"]["name"])
            for what in ("missing", "unknown"):
                if read.get(what):
                    found = lost.setdefault((planned[attempt.run_id].job, dataset), {})
                    found.setdefault(what, []).extend(read[what])
    for (job, dataset), found in lost.items():
        yield {
            "job": named(job),
            "dataset": named(dataset),
            **{
                what: _rendered(found.get(what, []), calendar_of, dataset)
                for what in ("missing", "unknown")
            },
        }


def _rendered(
    keys: Sequence[Any], calendar_of: Callable[[DatasetRef], Calendar], dataset: DatasetRef
) -> list[Any]:
    """Return keys as ranges, or unchanged if the dataset's calendar does not have them."""
    if EVERY in keys:
        return [EVERY]
    try:
        calendar = calendar_of(dataset)
        return list(render(calendar, parse(calendar, tuple(keys))))
    except UsageError:
        return list(keys)


def _times(planned: Mapping[str, PlannedRun], attempts: Iterable[AttemptRecord]) -> list[Document]:
    """Return when each job ran, and the total duration of its attempts."""
    ended: dict[JobRef, list[AttemptRecord]] = {}
    for attempt in attempts:
        if attempt.ended_at is not None:
            ended.setdefault(planned[attempt.run_id].job, []).append(attempt)
    found = []
    for job, tried in ended.items():
        spans = [(one.submitted_at, one.ended_at) for one in tried if one.ended_at is not None]
        found.append(
            {
                "job": named(job),
                "runs": len({one.run_id for one in tried}),
                "attempts": len(tried),
                "started_at": instant(min(start for start, _ in spans)),
                "ended_at": instant(max(end for _, end in spans)),
                "seconds": round(sum((end - start).total_seconds() for start, end in spans), 3),
            }
        )
    return found


def _adopted(runs: Iterable[RunRecord]) -> list[Document]:
    """Return the runs whose last attempt adopted a run that others started."""
    return [
        {
            "run": run.run_id,
            "job": named(run.job),
            "partitions": list(run.partitions),
            "state": run.state,
            "engine": run.engine,
            "engine_run": run.engine_run.id,
        }
        for run in runs
        if run.engine_run is not None and run.engine_run.origin is Origin.ADOPTED
    ]


def _also_written(runs: Iterable[RunRecord]) -> list[Document]:
    """Return the runs that also wrote datasets outside the plan."""
    return [
        {
            "run": run.run_id,
            "job": named(run.job),
            "partitions": list(run.partitions),
            "datasets": [named(one) for one in run.engine_run.also_writes],
            "engine_run": run.engine_run.id,
        }
        for run in runs
        if run.engine_run is not None and run.engine_run.also_writes
    ]


def _not_succeeded(runs: Iterable[RunRecord]) -> list[Document]:
    """Return the runs that did not succeed, grouped by job and cause."""
    groups = Counter((run.job, run.state, run.error) for run in runs if not run.state.is_good)
    return [
        {"job": named(job), "state": state, "runs": number, "error": error}
        for (job, state, error), number in groups.items()
    ]


def _backfill(record: BackfillRecord) -> Document:
    return {
        "id": record.id,
        "state": record.state,
        "plan": record.plan_id,
        "title": record.title,
        "changed": record.changed,
        "description": record.description,
        "reason": record.reason,
        "parameters": redaction.document(dict(record.parameters), inside=True),
        "code_version": record.code_version,
        "submitted_by": record.submitted_by,
        "submitted_at": instant(record.submitted_at),
        "scheduled_for": instant(record.scheduled_for),
        "max_parallel": record.settings.max_parallel,
        "deleted": record.deleted,
        "started_at": instant(record.started_at),
        "updated_at": instant(record.updated_at),
        "ended_at": instant(record.ended_at),
        "left": list(record.left),
        "undo_of": record.undo_of,
        "undone_by": record.undone_by,
    }


def instant(at: datetime | None) -> str | None:
    """Return the instant as documents write it, in UTC to the millisecond."""
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
