"""Tells how long plans and what is left of backfills will take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lineage_backfill.project import Project
from lineage_backfill.workspace.planning import limits_of, request_of, resolver_of
from lineage_backfill.workspace.project import open_store
from lineage_backfill.workspace.records import find, plans_of

if TYPE_CHECKING:
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.planning.plan import Plan
    from lineage_backfill.runs.simulate import Estimate


def estimate(
    project: Project, snapshot: LineageSnapshot, plan: Plan, *, max_parallel: int | None = None
) -> Estimate | None:
    """Return how long a plan will take, as past runs of its jobs tell; it needs no clock.

    Those of this run store tell of a job, and where they are few those that the lineage knows too.
    None for a plan above its limit of runs: it has none.
    """
    from lineage_backfill.runs import observations as evidence
    from lineage_backfill.runs.simulate import LOOKED_AT, estimate

    runs = plan.runs
    if runs is None:
        return None
    resolver = resolver_of(project, snapshot, plan.now, request_of(plan))
    with open_store(project) as store:
        ours = {record.id for record in store.backfills()}
        past = store.past_runs(LOOKED_AT)
    others = [record for record in snapshot.history if record.backfill not in ours]
    outside = evidence.past_runs(resolver, others, {run.job for run in runs}, LOOKED_AT)
    return estimate(
        runs,
        past,
        outside,
        max_parallel=max_parallel or project.declarations.limits.max_parallel,
        jobs=limits_of(resolver, runs),
        pools=project.declarations.pools,
    )


def estimate_left(
    project: Project,
    backfill: str | None,
    *,
    again: bool = False,
    max_parallel: int | None = None,
) -> Estimate:
    """Return how long what is left of a backfill will take, as past runs in its store tell.

    With `again` what did not succeed is left as well. The lineage is not needed.
    """
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.runs.simulate import LOOKED_AT, estimate

    with open_store(project) as store:
        record = find(store, backfill)
        plans, past = plans_of(store, record.id), store.past_runs(LOOKED_AT)
        states = {run.run_id: run.state for run in store.runs(record.id)}
    ids = {one for one, state in states.items() if not (state.is_good if again else state.is_final)}
    runs = [
        replace(run, upstream=tuple(one for one in run.upstream if one in ids))
        for plan in plans
        for run in plan.runs or ()
        if run.id in ids
    ]
    limits = project.declarations.limits
    return estimate(
        runs,
        past,
        max_parallel=max_parallel or record.settings.max_parallel or limits.max_parallel,
        jobs=limits_of(resolver_of(project, LineageSnapshot.of([]), plans[0].now), runs),
        pools=project.declarations.pools,
    )
