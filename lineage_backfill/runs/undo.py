"""The plan that undoes a whole backfill: restores what its attempts wrote, newest first.

It is run like any other plan; its run specs name the attempts to undo.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import structs

from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Listed, Plan, PlannedJob, PlannedRun
from lineage_backfill.ports import AttemptRecord, AttemptState, RunRecord
from lineage_backfill.runs.cutoff import without
from lineage_backfill.runs.drive.run_loop import SpecBuilder
from lineage_backfill.runspec.values import Recorded
from lineage_backfill.typed import plain

_PREFIX = "u-"


@dataclass(frozen=True, slots=True)
class _Done:
    """A run that may have written, and its attempts, oldest first."""

    run: PlannedRun
    attempts: Sequence[AttemptRecord]

    def version(self, dataset: DatasetRef) -> int | None:
        """Return the table's version made by the last attempt, if known."""
        name = named(dataset)
        outputs = (self.attempts[-1].result or {}).get("outputs", ())
        return next((one.get("version") for one in outputs if one["dataset"] == name), None)


def undo_plan(
    plans: Sequence[Plan],
    records: Iterable[RunRecord],
    attempts: Iterable[AttemptRecord],
    resolver: Resolver,
) -> Plan:
    """Return the plan that undoes what the attempts of a backfill wrote.

    A run is undone after all runs that read its output, and after all later writes to the same
    table. Failed attempts are included: they may have written before they died.
    """
    tried: dict[str, list[AttemptRecord]] = defaultdict(list)
    for attempt in filter(may_have_written, attempts):
        tried[attempt.run_id].append(attempt)
    planned = {run.id: run for plan in plans for run in plan.runs or ()}
    done = [
        _Done(without(resolver, planned[one.run_id], one.cut_off), tried[one.run_id])
        for one in records
        if one.run_id in tried
    ]
    runs = tuple(_backwards(done))
    jobs = tuple(_jobs(runs, resolver))
    totals = {"jobs": len(jobs), "runs": len(runs), "partitions": sum(job.count for job in jobs)}
    return Plan(
        now=plans[-1].now,
        request={"changed": []},
        changed=(),
        totals=totals,
        details=Listed(jobs=jobs, runs=runs, lineage=plans[-1].lineage),
    )


def may_have_written(attempt: AttemptRecord) -> bool:
    """Whether there may be something to undo; a run that died without a result may have written."""
    if attempt.result is None:
        return True
    written = [output.get("version") for output in attempt.result.get("outputs", ())]
    return attempt.state is AttemptState.SUCCEEDED and any(one is not None for one in written)


class UndoSpecs:
    """Makes the run specs of an undo: those of the runs, with the attempts to undo.

    `attempts` are those of the backfill that is undone.
    """

    def __init__(self, specs: SpecBuilder, attempts: Iterable[AttemptRecord]) -> None:
        self._specs = specs
        self._attempts: dict[str, list[AttemptRecord]] = defaultdict(list)
        writers = filter(may_have_written, attempts)
        for attempt in sorted(writers, key=lambda one: -one.attempt):
            self._attempts[_PREFIX + attempt.run_id].append(attempt)

    def __call__(
        self, run: PlannedRun, attempt: int, token: str, result_path: Path
    ) -> dict[str, Any]:
        """Return the run spec of one undo attempt."""
        spec = self._specs(run, attempt, token, result_path)
        # An event without inputs would say that the job reads nothing.
        silent: dict[str, Any] = {"outbox": None, "url": None, "facets": {}}
        attempts = self._attempts[run.id]
        undo = {
            "undo": [one.token for one in attempts],
            "recorded": [plain(_recorded(one)) for one in attempts],
        }
        return {**spec, "inputs": [], "lineage": silent, **undo}


def _recorded(attempt: AttemptRecord) -> Recorded:
    result = attempt.result
    outputs = () if result is None else result.get("outputs", ())
    versions = {str(DatasetRef(**one["dataset"])): one.get("version") for one in outputs}
    return Recorded(
        token=attempt.token,
        since=attempt.submitted_at,
        versions=None if result is None else versions,
    )


def _backwards(done: Sequence[_Done]) -> Iterator[PlannedRun]:
    """Yield the undo runs in an order in which they could run."""
    by_id = {one.run.id: one.run for one in done}
    readers: dict[str, set[str]] = {run_id: set() for run_id in by_id}
    for run in by_id.values():
        for up in run.upstream:
            if up in readers:
                readers[up].add(run.id)
    waits = {run_id: set(found) for run_id, found in readers.items()}
    for later, earlier in _chains(done):
        waits[earlier].add(later)
    try:
        order = list(TopologicalSorter(waits).static_order())
    except CycleError:  # a table was rebuilt, so its versions do not give the order
        waits = readers
        order = list(TopologicalSorter(waits).static_order())
    waves: dict[str, int] = {}
    for run_id in order:
        waves[run_id] = 1 + max((waves[up] for up in waits[run_id]), default=0)
        yield structs.replace(
            by_id[run_id],
            id=_PREFIX + run_id,
            wave=waves[run_id],
            upstream=tuple(sorted(_PREFIX + up for up in waits[run_id])),
            reads=(),
        )


def _chains(done: Iterable[_Done]) -> Iterator[tuple[str, str]]:
    """Yield (later, earlier) for consecutive writes to the same table."""
    versions: dict[DatasetRef, list[tuple[int, str]]] = defaultdict(list)
    for one in done:
        for part in one.run.writes:
            version = one.version(part.dataset)
            if version is not None:
                versions[part.dataset].append((version, one.run.id))
    for written in versions.values():
        for (_, earlier), (_, later) in pairwise(sorted(written)):
            yield later, earlier


def _jobs(runs: Iterable[PlannedRun], resolver: Resolver) -> Iterator[PlannedJob]:
    keys: dict[JobRef, PartitionSet] = {}
    for run in runs:
        calendar = resolver.job(run.job).calendar
        if calendar is not None:
            keys[run.job] = keys.get(run.job, NOTHING) | parse(calendar, run.partitions)
    for level, (job, found) in enumerate(keys.items(), start=1):
        calendar = resolver.job(job).calendar
        assert calendar is not None
        yield PlannedJob(
            job=job,
            status="planned",
            level=level,
            partitions=render(calendar, found),
            count=len(found),
            left_stale=(),
            reason={"kind": "undo"},
        )
