"""Explains why a key of a job is planned or not, back to the change, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lineage_backfill.critic.why_not import End, cuts, ends, unrelated
from lineage_backfill.lineage.names import unknown
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.planning.describe import BLOCKING
from lineage_backfill.planning.planner import Planning
from lineage_backfill.planning.propagate import JobResult
from lineage_backfill.project.resolve.resolver import DatasetFacts, Input, JobFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step back: these run keys of the job read these stale partitions of the dataset.

    `dataset` is None if the step ends at keys named in the request. `lookback` is that of the job
    where only it relates them.
    """

    job: JobRef
    keys: KeySet
    dataset: DatasetRef | None
    mapping: str
    stale: KeySet
    lookback: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job's keys are planned or not.

    `verdict` is planned, left_stale, blocked, up_to_date or not_reached; `sentence` explains it,
    `hint` says what to do; `hops` lead from the keys back to the change; `changed` are the changed
    partitions there. If no path leads back, `ends` say where the paths from the change stop.
    """

    job: JobRef
    keys: KeySet
    verdict: str
    sentence: str
    hint: str = ""  # what to do next, if anything
    hops: tuple[Hop, ...] = ()
    changed: Mapping[DatasetRef, KeySet] | None = None
    ends: tuple[End, ...] = ()
    planned: KeySet = ()


def explain(
    planning: Planning, job: JobRef, keys: KeySet | None = None, *, why_not: bool = False
) -> Explanation:
    """Return why the keys of a job (None: any of them) are planned, or why not.

    Without keys the first planned one is explained; with `why_not` the first not planned.
    Raises UnknownNameError for a job that the lineage does not know; key errors as a request does.
    """
    if job not in planning.resolver.edges.jobs:
        raise unknown(str(job), planning.resolver.edges.jobs, kind="job")
    facts = planning.resolver.job(job)
    result = planning.propagation.results.get(facts)
    if result is None:
        return _not_reached(planning, facts, keys)
    calendar = facts.calendar
    if calendar is None or (result.cause is not None and result.cause[0] == "unknown"):
        _, text, hint = result.cause or ("unknown", "its partitioning is unknown", "")
        return Explanation(job=job, keys=keys or (), verdict="blocked", sentence=text, hint=hint)
    wanted = parse(calendar, keys) if keys is not None else result.stale
    planned, left = wanted & result.planned, wanted & result.left
    above: tuple[End, ...] = ()
    if planned and not (why_not and left):
        verdict, shown = "planned", planned
        sentence = "it reads partitions that changed or that a planned run rewrites"
    elif left:
        shown = left
        verdict, sentence = _left(result)
        if any(kind == "unrepaired" for kind, _ in result.left_causes):
            above = cuts(planning, facts)
    else:
        return _up_to_date(planning, facts, calendar, wanted)
    first = next(shown.singles())
    hops, changed = _walk(planning, facts, first)
    return Explanation(
        job=job,
        keys=render(calendar, first if keys is None or len(shown) > 1 else shown),
        verdict=verdict,
        sentence=sentence,
        hint=result.cause[2] if result.cause and verdict != "planned" else "",
        hops=hops,
        changed=changed,
        ends=above,
    )


def _left(result: JobResult) -> tuple[str, str]:
    """Return the verdict on stale keys that are not planned, and the reasons in words."""
    blocks = result.cause is not None and result.cause[0] in BLOCKING
    causes = [result.cause[1]] if result.cause else []
    sentence = "; ".join(dict.fromkeys([*causes, *(text for _, text in result.left_causes)]))
    return "blocked" if blocks and not result.planned else "left_stale", sentence


def _not_reached(planning: Planning, facts: JobFacts, keys: KeySet | None) -> Explanation:
    found = ends(planning, facts, NOTHING)
    sentence = "no path leads from the change to this job"
    if not found:
        sentence += f"; {unrelated(planning, facts)}"
    return Explanation(
        job=facts.ref, keys=keys or (), verdict="not_reached", sentence=sentence, ends=found
    )


def _up_to_date(
    planning: Planning, facts: JobFacts, calendar: Calendar, wanted: PartitionSet
) -> Explanation:
    result = planning.propagation.results[facts]
    found: tuple[End, ...] = ()
    if wanted and not calendar.clip(wanted):
        sentence = "it is not complete yet (or delayed by data_lag)"
    else:
        found = ends(planning, facts, wanted)
        if result.pruned and not planning.propagation.stale_inputs(facts):
            sentence = "it reads none of the changed columns"
        else:
            sentence = "it reads no changed partition"
    return Explanation(
        job=facts.ref,
        keys=render(calendar, wanted),
        verdict="up_to_date",
        sentence=sentence,
        planned=render(calendar, result.planned),
        ends=found,
    )


def _walk(
    planning: Planning, facts: JobFacts, keys: PartitionSet
) -> tuple[tuple[Hop, ...], dict[DatasetRef, KeySet]]:
    """Step back from the keys to a root, always through the input nearest to it."""
    hops: list[Hop] = []
    seen: set[tuple[JobFacts, PartitionSet]] = set()
    while (facts, keys) not in seen:
        seen.add((facts, keys))
        keys = _direct(planning, facts, keys)
        found = _nearest(planning, facts, keys)
        if found is None:
            hops.append(_hop(facts, keys, None, _asked(planning, facts)))
            return tuple(hops), {}
        edge, stale = found
        hops.append(_hop(facts, keys, edge, stale))
        root = planning.propagation.roots.get(edge.data)
        upstream = edge.data.calendar
        if isinstance(root, PartitionSet) and stale & root and upstream is not None:
            return tuple(hops), {edge.dataset: render(upstream, stale & root)}
        step = _maker(planning, edge.data, stale)
        if step is None:
            return tuple(hops), {}
        facts, keys = step
    return tuple(hops), {}


def _direct(planning: Planning, facts: JobFacts, keys: PartitionSet) -> PartitionSet:
    """Return the keys; or, if only earlier keys of the job make them stale, one of those."""
    at = keys
    while at and _nearest(planning, facts, at) is None:
        at = _earlier(planning, facts, at)
    for key in at.singles():
        if _nearest(planning, facts, key) is not None:
            return key
    return keys


def _earlier(planning: Planning, facts: JobFacts, keys: PartitionSet) -> PartitionSet:
    """Return the stale keys that write what the keys read of the job's own output."""
    makers, own = NOTHING, planning.propagation.results[facts].stale
    if facts.past is not None:
        makers = facts.past.reads.required(keys) & own
    for edge in facts.inputs:
        for output in facts.outputs:
            if edge.data is output.data and edge.mapping and output.mapping:
                makers |= output.mapping.affected(edge.mapping.required(keys)) & own
    return makers - keys


def _nearest(
    planning: Planning, facts: JobFacts, keys: PartitionSet
) -> tuple[Input, PartitionSet] | None:
    best: tuple[int, Input, PartitionSet] | None = None
    for edge in planning.propagation.stale_inputs(facts):
        dirty = planning.propagation.dirty.get(edge.data)
        if edge.mapping is None or not isinstance(dirty, PartitionSet):
            continue
        if edge.own:
            root = planning.propagation.roots.get(edge.data)
            dirty = root if isinstance(root, PartitionSet) else NOTHING
        # Unclipped: a changed period may not be complete yet.
        stale = edge.mapping.behind(edge.corrected_by(keys), dirty)
        distance = planning.routes.to_dataset(edge.data)
        if stale and (best is None or distance < best[0]):
            best = (distance, edge, stale)
    return None if best is None else best[1:]


def _maker(
    planning: Planning, data: DatasetFacts, stale: PartitionSet
) -> tuple[JobFacts, PartitionSet] | None:
    """Return the nearest job whose stale keys write the partitions, with its first such key."""
    best: tuple[int, JobFacts, PartitionSet] | None = None
    for ref in planning.resolver.edges.writers.get(data.ref, ()):
        facts = planning.resolver.job(ref)
        result = planning.propagation.results.get(facts)
        hops = planning.routes.to_job(ref)
        if result is None or (best is not None and hops >= best[0]):
            continue
        for output in facts.outputs:
            if output.data is data and output.mapping is not None:
                keys = output.mapping.affected(stale) & result.stale
                if keys:
                    best = (hops, facts, next(keys.singles()))
    return None if best is None else best[1:]


def _asked(planning: Planning, facts: JobFacts) -> PartitionSet:
    """Return the keys of a job that the request names."""
    assert facts.calendar is not None
    named_keys = [one.keys for one in planning.request.jobs if one.job == facts.ref]
    calendar = facts.calendar
    return PartitionSet.union([parse(calendar, keys) for keys in named_keys])


def _hop(facts: JobFacts, keys: PartitionSet, edge: Input | None, stale: PartitionSet) -> Hop:
    """Return a step; `stale` are keys named in the request where there is no edge."""
    assert facts.calendar is not None
    mapping = edge.mapping if edge is not None else None
    direct = keys if mapping is None else mapping.behind(keys, stale)
    return Hop(
        job=facts.ref,
        keys=render(facts.calendar, keys),
        dataset=edge.dataset if edge is not None else None,
        mapping=mapping.name if mapping is not None else "asked",
        stale=render(mapping.upstream, stale) if mapping is not None else (),
        lookback=0 if direct & stale else edge.lookback if edge else facts.lookback,
    )


def explanation_to_dict(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as a document."""

    return {
        "schema_version": 1,
        "kind": "explanation",
        "job": named(explanation.job),
        "partitions": list(explanation.keys),
        "verdict": explanation.verdict,
        "sentence": explanation.sentence,
        "hint": explanation.hint,
        "hops": [
            {
                "job": named(hop.job),
                "partitions": list(hop.keys),
                "dataset": named(hop.dataset) if hop.dataset else None,
                "mapping": hop.mapping,
                "stale": list(hop.stale),
                "lookback": hop.lookback,
            }
            for hop in explanation.hops
        ],
        "changed": [
            {"dataset": named(dataset), "partitions": list(keys)}
            for dataset, keys in (explanation.changed or {}).items()
        ],
        "planned": list(explanation.planned),
        "ends": [
            {
                "kind": end.kind,
                "job": named(end.job),
                "dataset": named(end.dataset) if end.dataset else None,
                "sentence": end.sentence,
                "stale": list(end.stale),
                "needs": list(end.needs),
                "hint": end.hint,
            }
            for end in explanation.ends
        ],
    }
