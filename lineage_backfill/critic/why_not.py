"""Explains why a change does not reach a job: where each path stops, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, render
from lineage_backfill.planning.planner import Planning
from lineage_backfill.project.resolve.resolver import Input, JobFacts

_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where a path from the change stops: at the `job`, which reads the `dataset`.

    `kind` is reference, columns, keys, calendar or cut. `stale` are the known stale partitions of
    the dataset, `needs` those that the job's keys in question read, if any are named. `hint` says
    what would let the change pass.
    """

    kind: str
    job: JobRef
    dataset: DatasetRef | None
    sentence: str
    stale: KeySet = ()
    needs: KeySet = ()
    hint: str = ""


def ends(planning: Planning, job: JobFacts, keys: PartitionSet) -> tuple[End, ...]:
    """Return where the paths from the change to these keys of the job stop, nearest first.

    Without keys, any key of the job counts. Empty if there is no path.
    """
    return tuple(islice(_ends(planning, job, keys), _MOST))


def _ends(planning: Planning, job: JobFacts, keys: PartitionSet) -> Iterator[End]:
    """Go upstream from the job, level by level, to the inputs that the change reaches."""
    resolver, dirty = planning.resolver, planning.propagation.dirty
    seen, level = {job}, [job]
    while level:
        above: list[JobFacts] = []
        for facts in level:
            for edge in facts.inputs:
                if edge.data in dirty and not edge.own:
                    yield _end(planning, facts, edge, keys if facts is job else NOTHING)
                elif not edge.reference:
                    writers = map(resolver.job, resolver.edges.writers.get(edge.dataset, ()))
                    above += (one for one in writers if one not in seen)
                    seen.update(above)
        level = above


def _end(planning: Planning, facts: JobFacts, edge: Input, keys: PartitionSet) -> End:
    dirty = planning.propagation.dirty[edge.data]
    stale = dirty if isinstance(dirty, PartitionSet) else NOTHING
    upstream = edge.data.calendar
    result = planning.propagation.results.get(facts)
    kind, hint = "keys", ""
    needs = NOTHING
    if edge.reference:
        kind, sentence = "reference", "it reads this only as a reference (mapping none)"
        hint = "If its contents matter, declare another mapping for this edge."
    elif result is not None and edge.dataset in result.pruned:
        columns = ", ".join(planning.request.columns)
        kind, sentence = "columns", f"it reads none of the changed columns ({columns})"
    elif edge.mapping is None or facts.calendar is None:
        sentence = "its keys or those of its input are unknown"
    elif keys:
        reading = edge.corrected_by(keys)
        needs = edge.mapping.required_unclipped(reading)
        sentence = "this key reads no changed partition of it"
    else:
        outside = _outside(facts.calendar, edge.mapping.affected_unclipped(stale))
        kind = "calendar" if outside else "keys"
        sentence = outside or "none of its run keys reads the changed partitions"
    return End(
        kind=kind,
        job=facts.ref,
        dataset=edge.dataset,
        sentence=sentence,
        stale=render(upstream, stale) if upstream is not None else (),
        needs=render(upstream, needs) if upstream is not None else (),
        hint=hint,
    )


def _outside(calendar: Calendar, keys: PartitionSet) -> str:
    """Return where the keys lie if all are outside the calendar, else an empty text."""
    time = calendar.time
    if not keys or time is None or calendar.clip(keys):
        return ""
    shown = render(calendar, keys)[0]
    if time.first is not None and keys.ordinals.hi < time.first:
        return f"its run keys that read it, as {shown}, are before its first one"
    if time.has_ended and keys.ordinals.lo > time.complete:
        return f"its run keys that read it, as {shown}, are after its last one"
    return f"its run keys that read it, as {shown}, are not complete yet"


def cuts(planning: Planning, job: JobFacts) -> tuple[End, ...]:
    """Return the nearest stale jobs upstream that do not run, and why."""
    found: list[End] = []
    results, seen, level = planning.propagation.results, {job}, [job]
    while level and not found:
        above: list[JobFacts] = []
        for facts in level:
            for edge in facts.live:
                for ref in planning.resolver.edges.writers.get(edge.dataset, ()):
                    maker = planning.resolver.job(ref)
                    if maker not in results or maker in seen:
                        continue
                    seen.add(maker)
                    above.append(maker)
                    cause = results[maker].cause
                    if cause is not None:
                        _, text, hint = cause
                        found.append(
                            End(kind="cut", job=ref, dataset=None, sentence=text, hint=hint)
                        )
        level = above
    return tuple(found[:_MOST])


def unrelated(planning: Planning, job: JobFacts) -> str:
    """Return how a job relates to the change if no path leads to it."""
    edges = planning.resolver.edges
    roots = {data.ref for data in planning.propagation.roots}
    roots |= {ref for one in planning.request.jobs for ref in edges.writes(one.job)}
    if ref := _inner(planning, job, roots):
        return f"it reads {ref} only where its own parts wrote it; to run it, pass --job"
    if not planning.request.include_former and _leads_by_former(planning, job, roots):
        return "only edges of older runs lead here; --include-former follows them"
    return "it reads nothing that the change reaches"


def _inner(planning: Planning, job: JobFacts, roots: set[DatasetRef]) -> DatasetRef | None:
    """Return the changed datasets that a job passes between its own parts."""
    resolver, dirty = planning.resolver, planning.propagation.dirty
    node = resolver.snapshot.jobs.get(job.ref)
    inner = node.inner if node else ()
    return next((ref for ref in inner if ref in roots or resolver.dataset(ref) in dirty), None)


def _leads_by_former(planning: Planning, job: JobFacts, roots: set[DatasetRef]) -> bool:
    """Return whether a path with edges of older runs leads to the job."""
    edges, jobs = planning.resolver.edges, planning.resolver.snapshot.jobs
    readers: dict[DatasetRef, set[JobRef]] = {}
    for ref in edges.jobs:
        for one in (*edges.reads(ref), *(jobs[ref].former_reads if ref in jobs else ())):
            readers.setdefault(one, set()).add(ref)
    todo, seen = list(roots), set[JobRef]()
    while todo:
        for ref in readers.get(todo.pop(), set()) - seen:
            seen.add(ref)
            todo += (*edges.writes(ref), *(jobs[ref].former_writes if ref in jobs else ()))
    return job.ref in seen
