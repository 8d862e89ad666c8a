"""Warnings of a plan that come from the lineage around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.plans.plan import Decision, Plan


def advice(plan: Plan, snapshot: LineageSnapshot) -> Iterator[str]:
    """Yield one warning for each kind of warning about the plan's jobs."""
    nodes = snapshot.jobs
    streams = _having(nodes, lambda node: node.processing == "STREAM").keys()
    if not streams:
        return  # without the jobs of the plan, which are computed on demand
    planned = {job.job for job in plan.jobs if job.status == "planned"}
    if found := streams & planned:
        text = "planned, but streaming jobs, which have no runs by partition"
        yield f"{text}: {_names(found)}"


def _having(
    nodes: Mapping[JobRef, JobNode], what: Callable[[JobNode], object]
) -> dict[JobRef, JobNode]:
    return {ref: node for ref, node in nodes.items() if what(node)}


def left_out(plan: Plan, snapshot: LineageSnapshot) -> Iterator[Decision]:
    """Yield what a plan leaves out: jobs whose older runs or inner parts alone read the data."""
    if former := former_only(plan, snapshot):
        yield Decision(
            kind="former",
            text=f"only edges of older runs lead to {listed([ref.name for ref in former])}"
            " (--include-former follows them)",
        )
    if inner := _within(plan, snapshot):
        yield Decision(
            kind="inner",
            text="not planned: they read changed data only where their own parts wrote it (name"
            f" them with --job to run them): {_names(inner)}",
        )


def _within(plan: Plan, snapshot: LineageSnapshot) -> set[JobRef]:
    """Return the jobs that read changed data only where their own parts wrote it."""
    inner = _having(snapshot.jobs, lambda node: node.inner)
    if not inner or "reverse" in plan.request:
        return set()
    planned = {job.job for job in plan.jobs if job.status != "skipped"}
    changed = {DatasetRef(**one["dataset"]) for one in plan.request["changed"]}
    changed.update(*(snapshot.jobs[ref].writes for ref in planned if ref in snapshot.jobs))
    return {
        ref
        for ref, node in inner.items()
        if ref not in planned and not changed.isdisjoint(node.inner)
    }


def former_only(plan: Plan, snapshot: LineageSnapshot) -> list[JobRef]:
    """Return the jobs that only edges of older runs lead to, sorted."""
    former = _having(snapshot.jobs, lambda node: node.former_reads or node.former_writes)
    if not former or {"include_former", "reverse"} & plan.request.keys():
        return []
    planned = {job.job for job in plan.jobs if job.status != "skipped"}
    written = (node.writes for ref in planned if (node := snapshot.jobs.get(ref)))
    changed = {DatasetRef(**one["dataset"]) for one in plan.request["changed"]}.union(*written)
    wrote = {ref for job in planned & former.keys() for ref in former[job].former_writes}
    missed = {ref for one in wrote for ref in snapshot.readers.get(one, ())}
    missed |= {
        ref for ref, node in former.items() if not (changed | wrote).isdisjoint(node.former_reads)
    }
    return sorted(missed - {job.job for job in plan.jobs})


def _names(refs: Iterable[DatasetRef | JobRef]) -> str:
    return listed(sorted(refs))
