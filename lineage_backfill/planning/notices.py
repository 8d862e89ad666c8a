"""Warnings attached to a plan: what it leaves out, and what it assumes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from lineage_backfill.lineage.inference.infer import skipping
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, listed
from lineage_backfill.partitions.calendar import TimeAxis
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.ordinals import EMPTY, OrdinalSet
from lineage_backfill.partitions.text import ranges
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.propagate import Propagation
from lineage_backfill.plans.notice import Notice
from lineage_backfill.project.matching import unused_globs
from lineage_backfill.project.resolve.resolver import Input, JobFacts, read_by

#: How run keys read an input: the mapping, and its lookback.
_Reading: TypeAlias = tuple[EdgeMapping | None, int]
#: What is known of jobs with the same run keys. By the kind of a job, its inputs that
#: lack keys, each with its place and the sentence; and the sentence by how an input is read.
_Known: TypeAlias = tuple[dict[int, list[tuple[int, str]]], dict[_Reading, str]]


def notices(
    resolver: Resolver, propagation: Propagation, unknown: Iterable[DatasetRef]
) -> Iterator[Notice]:
    """Yield the warnings; `unknown` are the roots whose partitioning is unknown."""
    results = propagation.results
    if resolver.snapshot.notices:
        yield from _of_lineage(resolver.snapshot, propagation)
    if resolver.troubles or resolver.misplaced:
        yield from map(Notice, _troubles(resolver, results))
    for data, readers in propagation.read_whole.items():
        jobs = [str(facts.ref) for facts in readers]
        verb = "is" if len(jobs) == 1 else "are"
        text = f"{data.unknown[0]}: {listed(jobs)} {verb} assumed to read all of it"
        yield Notice(text)
    yield from map(Notice, _from_lineage(resolver, results))
    for ref in unknown:
        yield Notice(" is unknown: its readers are blocked", str(ref), "the partitioning of ")
    home = resolver.declarations.namespace
    for facts in results:
        if facts.declaration is not None and facts.declaration.name == facts.ref.name:
            found = unused_globs(resolver.edges, home, facts.ref, facts.declaration)
            yield from map(Notice, found)
    if any(mapping.may_lack for mapping in resolver.mappings):
        yield from _lacking(propagation)
    if propagation.memo.beyond:
        yield from _incomplete(propagation)
    yield from _early_reads(propagation)
    yield from _skipping(resolver, propagation)
    for jobs_found, text in (
        (_inferred(resolver, propagation), "partitioning inferred, not declared"),
        (
            [facts for facts in results if facts.origin == "request"],
            "keys run as named, without their readers, because nothing declares what they write",
        ),
        (_engineless(propagation), "no engine declared; `run` will refuse these jobs"),
    ):
        if jobs_found:
            yield Notice(f"{text}: {listed(jobs_found, name=lambda facts: str(facts.ref))}")


def _of_lineage(snapshot: LineageSnapshot, propagation: Propagation) -> Iterator[Notice]:
    """Yield the notices of the lineage that bear on the plan, and how many others there are."""
    met = set[DatasetRef]()
    for facts in propagation.results:
        met |= {edge.data.ref for edge in facts.inputs}
        met |= {edge.data.ref for edge in facts.outputs}
    nodes = [snapshot.datasets[ref] for ref in met if ref in snapshot.datasets]
    met = met.union(*(node.aliases for node in nodes))
    names = {"", *map(str, met), *(str(facts.ref) for facts in propagation.results)}
    others = 0
    for one in snapshot.notices:
        if one.leaves_out or one.name in names:
            yield one
        else:
            others += 1
    if others:
        yield Notice(f"the lineage has {others:,} more warnings, on other names: `lineage show`")


def _from_lineage(resolver: Resolver, results: Iterable[JobFacts]) -> Iterator[str]:
    """Yield what was concluded from the lineage about the edges of planned jobs."""
    merging = [facts.ref for facts in results if any(edge.merges for edge in facts.inputs)]
    if merging:
        yield f"inferred: MERGE, which does not depend on its own target: {listed(merging)}"
    nodes = [node for facts in results if (node := resolver.snapshot.jobs.get(facts.ref))]
    loading = [node for node in nodes if node.edges_of]
    for span in sorted({node.edges_of or "" for node in loading}):
        names = listed([node.ref for node in loading if node.edges_of == span])
        yield f"they read other inputs each run, those of {span} count (`edges_of`): {names}"
    covers = sorted({pair for node in nodes for pair in node.covers})
    if covers:
        names = listed(covers, name=lambda pair: f"{pair[0].name} holds {pair[1].name}")
        yield f"read by a folder or glob around them: {names}"


def _inferred(resolver: Resolver, propagation: Propagation) -> Sequence[JobFacts]:
    if not resolver.snapshot.history:
        return ()
    planned = (facts for facts, result in propagation.results.items() if result.planned.boxes)
    return [facts for facts in planned if resolver.evidence(facts) is not None]


def _skipping(resolver: Resolver, propagation: Propagation) -> Iterator[Notice]:
    """Yield why the history of jobs does not tell the unknown partitioning that blocks jobs."""
    writers, blocked = resolver.edges.writers, set()
    for facts, result in propagation.results.items():
        if result.cause is not None and (facts.problem or facts.unknown):
            touched = [edge.data for edge in facts.unknown]
            touched += [edge.data for edge in facts.outputs]
            unknown = (data.ref for data in touched if data.calendar is None)
            blocked |= {facts.ref}.union(*(writers.get(ref, ()) for ref in unknown))
    if blocked:
        history = (run for run in resolver.snapshot.history if run.job in blocked)
        for job, text in sorted(skipping(history).items()):
            yield Notice(f" is not inferred: {text}", str(job), "the partitioning of ")


def _engineless(propagation: Propagation) -> Sequence[JobFacts]:
    lacking = {
        result
        for result in propagation.shares
        if result.planned.boxes and _has_no_engine(result.facts)
    }
    return [f for f, result in propagation.results.items() if result in lacking] if lacking else ()


def _troubles(resolver: Resolver, reached: Iterable[JobFacts]) -> Iterator[str]:
    for facts in reached:
        edges = [*(e.dataset for e in facts.inputs), *(e.dataset for e in facts.outputs)]
        for ref in (facts.ref, *edges):
            if ref in resolver.troubles:
                yield resolver.troubles[ref]
        for ref in edges:
            if (error := resolver.misplaced.get(ref)) is not None:
                yield f"{error}. {error.hint}"


def _lacking(propagation: Propagation) -> Iterator[Notice]:
    for facts, result in propagation.results.items():
        if not facts.lacking or not (result.planned or propagation.stale_inputs(facts)):
            continue
        for edge in facts.lacking:
            assert edge.mapping is not None
            dirty = propagation.dirty.get(edge.data)
            changed = dirty if isinstance(dirty, PartitionSet) else NOTHING
            for sentence in edge.mapping.missing(changed, result.planned):
                yield Notice(f": {sentence}", f"{facts.ref} and its input {edge.dataset}")


def _incomplete(propagation: Propagation) -> Iterator[Notice]:
    incomplete = [
        (facts, late)
        for facts, result in propagation.results.items()
        if not result.left and (late := _late(facts, propagation))
    ]
    if incomplete:
        which = listed(incomplete, name=lambda pair: f"{pair[0].ref.name} {_ranges(*pair)}")
        text = f"not planned: these keys are not complete or do not exist yet: {which}"
        yield Notice(text, leaves_out=True)


def _early_reads(propagation: Propagation) -> Iterator[Notice]:
    """Yield planned keys that need keys missing from the calendar of an input."""
    known: defaultdict[OrdinalSet, _Known] = defaultdict(lambda: ({}, {}))
    for facts, result in propagation.results.items():
        if not result.planned.boxes or facts.calendar is None:
            continue
        planned = result.planned.ordinals
        kinds, texts = known[planned]
        early = kinds.get(facts.kind)
        if early is None:
            early = kinds[facts.kind] = _early_inputs(facts, planned, texts)
        for place, text in early:
            yield Notice(f" {text.format(facts.live[place].dataset)}", facts.ref.name)


def _early_inputs(
    facts: JobFacts, planned: OrdinalSet, texts: dict[_Reading, str]
) -> list[tuple[int, str]]:
    """Return the places of the inputs that lack keys for some run keys, each with what is said.

    `texts` has what was found for other jobs with these run keys.
    """
    early = []
    for place, edge in enumerate(facts.live):
        if edge.reads_whole:
            continue
        key = (edge.mapping, edge.lookback)
        text = texts.get(key)
        if text is None:
            text = texts[key] = _early_read(facts, edge, planned)
        if text:
            early.append((place, text))
    return early


def _early_read(facts: JobFacts, edge: Input, planned: OrdinalSet) -> str:
    """Return run keys, and how many of the keys that they read exist; empty if all do."""
    assert edge.mapping is not None
    assert facts.calendar is not None
    time, run, ahead = edge.mapping.upstream.time, facts.calendar.time, edge.mapping.ahead
    if time is None:
        return ""
    hi = planned.hi
    newest = None  # the newest key that they need, where the intervals tell it
    if run is not None and ahead is not None:
        if run is time and hi + edge.lookback + ahead <= time.last:
            return ""
        end = run.grid.end(hi + edge.lookback + ahead)
        if end <= time.grid.start(time.last + 1):
            return ""
        newest = time.grid.at(end - 1)
    after = time.last + 1 if time.first is None else max(time.first, time.last + 1)
    required = type(edge.mapping).required_unclipped
    mask = facts.calendar.full_mask

    def needed_by(keys: OrdinalSet) -> OrdinalSet:
        return read_by(edge, PartitionSet(((keys, mask),)), required).ordinals

    if newest is None:
        newest = needed_by(OrdinalSet.range(hi, hi)).hi
    if newest < after:
        return ""
    # The later a key, the later is what it needs: all from the first such key on are early.
    needing = edge.mapping.affected_unclipped(
        PartitionSet.range(after, newest, edge.mapping.upstream.full_mask)
    )
    early = planned.clip(needing.ordinals.lo - edge.lookback, hi)
    needed = needed_by(early) if early else EMPTY
    due = needed.clip(time.first, time.last)
    late = needed.clip(after, time.begun if time.has_ended else needed.hi)
    if not late:
        return ""
    verb = "reads" if len(early) == 1 else "read"
    text = f"{_span(run, early)} {verb} {len(due)} of {len(due) + len(late)} keys of {{}}:"
    text += f" {_span(time, late)} not in its calendar yet"
    if late.lo <= time.begun:
        text += "; rows already there are read"
    return text


def _late(facts: JobFacts, propagation: Propagation) -> OrdinalSet:
    """Return the keys that the change would make stale if they existed yet."""
    late, memo = EMPTY, propagation.memo
    for edge in propagation.stale_inputs(facts):
        mapping, dirty = edge.mapping, propagation.dirty[edge.data]
        if mapping in memo.beyond and isinstance(dirty, PartitionSet):
            late |= memo.late(mapping, dirty)
    return late


def _ranges(facts: JobFacts, keys: OrdinalSet) -> str:
    assert facts.calendar is not None
    assert facts.calendar.time is not None
    return listed(list(ranges(facts.calendar.time, keys)), 3)


def _has_no_engine(facts: JobFacts) -> bool:
    return facts.declaration is None or facts.declaration.engine is None


def _span(time: TimeAxis | None, keys: OrdinalSet) -> str:
    """Return the first and the last key as a range."""
    assert time is not None
    return next(ranges(time, OrdinalSet.range(keys.lo, keys.hi)))
