"""From planned run keys to runs: batches, their order, and what each waits for."""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.text import render
from lineage_backfill.planning.plan import DatasetPartitions, PlannedRun
from lineage_backfill.planning.propagate import JobResult, Propagation
from lineage_backfill.planning.resolver import Resolver
from lineage_backfill.project.resolver import DatasetFacts, JobFacts


def count_runs(propagation: Propagation, resolver: Resolver) -> int:
    """Return how many runs `make_runs` would make, without making them."""
    total = 0
    by_reader = set()
    for result, jobs in propagation.shares.items():
        if not result.planned:
            continue
        policy = _policy(result)
        if policy == "key":
            total += jobs * len(result.planned)
        elif policy == "aligned":
            by_reader.add(result)
        else:
            total += jobs * sum(1 for _ in batches(result.facts, propagation, resolver))
    if by_reader:
        for facts, result in propagation.results.items():
            if result in by_reader:
                total += sum(1 for _ in batches(facts, propagation, resolver))
    return total


def _policy(result: JobResult) -> str | int:
    if result.serial:
        # Each key may need the one before it: they run one by one, in order.
        return "key"
    declared = result.facts.declaration
    return "key" if declared is None or declared.batch is None else declared.batch


def batches(
    facts: JobFacts, propagation: Propagation, resolver: Resolver
) -> Iterator[PartitionSet]:
    """Yield the key sets of a job's runs, ascending in time."""
    result = propagation.results[facts]
    planned, policy = result.planned, _policy(result)
    if policy == "key":
        yield from planned.singles()
    elif policy == "range":
        yield from planned.ranges()
    elif policy == "aligned":
        yield from _aligned(facts, propagation, resolver)
    else:
        assert isinstance(policy, int)
        yield from planned.chunks(policy)


def _aligned(
    facts: JobFacts, propagation: Propagation, resolver: Resolver
) -> Iterator[PartitionSet]:
    """Yield ranges cut where a partition of a planned reader begins."""
    assert facts.calendar is not None
    time = facts.calendar.time
    cuts: set[int] = set()
    if time is not None:
        for output in facts.outputs:
            for reader in resolver.edges.readers.get(output.dataset, ()):
                one = resolver.job(reader)
                other = propagation.results.get(one)
                theirs = one.calendar if other and other.planned else None
                if other is None or one is facts or theirs is None or theirs.time is None:
                    continue
                grid = theirs.time.grid
                for first, last in other.planned.ordinals.runs():
                    cuts.update(time.grid.at(grid.start(o)) for o in range(first, last + 2))
    yield from propagation.results[facts].planned.cut_at(cuts)


# --- order ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """A run while its order is being found."""

    number: int
    facts: JobFacts
    keys: PartitionSet
    reads: list[tuple[DatasetRef, EdgeMapping | None, PartitionSet | None]]
    made: list[tuple[DatasetRef, Calendar, PartitionSet]]
    upstream: list[int] = field(default_factory=list)
    wave: int = 0


class _Index:
    """Which runs make which partitions of one dataset; looked up by what a run reads."""

    def __init__(self) -> None:
        self._made: list[tuple[int, int, PartitionSet, int]] = []
        self._starts: list[int] = []
        self._reach: list[int] = []
        self._memo: dict[PartitionSet, tuple[int, ...]] = {}

    def add(self, made: PartitionSet, number: int) -> None:
        ordinals = made.ordinals
        self._made.append((ordinals.lo, ordinals.hi, made, number))

    def seal(self) -> None:
        self._made.sort(key=lambda entry: (entry[0], entry[3]))
        self._starts = [entry[0] for entry in self._made]
        reach: list[int] = []
        for _, hi, _, _ in self._made:
            reach.append(max(hi, reach[-1]) if reach else hi)
        self._reach = reach

    def find(self, wanted: PartitionSet) -> tuple[int, ...]:
        """Return the runs that make any of the partitions."""
        found = self._memo.get(wanted)
        if found is None and len(self._made) == 1:
            _, _, made, number = self._made[0]
            found = self._memo[wanted] = (number,) if made is wanted or made & wanted else ()
        if found is None:
            hits = set()
            for part in wanted.ranges():
                first, last = part.ordinals.lo, part.ordinals.hi
                position = bisect_right(self._starts, last) - 1
                while position >= 0 and self._reach[position] >= first:
                    _, hi, made, number = self._made[position]
                    if hi >= first and number not in hits and made & part:
                        hits.add(number)
                    position -= 1
            found = self._memo[wanted] = tuple(sorted(hits))
        return found


def make_runs(
    propagation: Propagation, resolver: Resolver, *, reverse: bool = False
) -> tuple[PlannedRun, ...]:
    """Return the runs in an order in which they could run, each with exactly the runs it waits for.

    `reverse` puts the newest keys of a wave first.
    """
    drafts: list[_Draft] = []
    early = _early(propagation)
    index: dict[DatasetRef, _Index] = {}
    for facts, result in propagation.results.items():
        if not result.planned:
            continue
        for keys in batches(facts, propagation, resolver):
            draft = _draft(len(drafts), facts, keys, early)
            drafts.append(draft)
            for dataset, _, made in draft.made:
                if made:
                    index.setdefault(dataset, _Index()).add(made, draft.number)
    for made_runs in index.values():
        made_runs.seal()
    for draft in drafts:
        waits: set[int] = set()
        for dataset, mapping, wanted in draft.reads:
            entries = index.get(dataset)
            if entries is not None and mapping is not None and wanted:
                waits.update(entries.find(wanted))
        waits.discard(draft.number)
        draft.upstream = sorted(waits)
    order = _waves(drafts)
    position = {number: place for place, number in enumerate(order)}
    jobs = {facts: place for place, facts in enumerate(propagation.results)}
    sign = -1 if reverse else 1
    order.sort(
        key=lambda number: (
            drafts[number].wave,
            jobs[drafts[number].facts],
            sign * drafts[number].keys.ordinals.lo,
            position[number],
        )
    )
    parts = _Parts()
    ids = [_run_id(draft) for draft in drafts]
    return tuple(_run(drafts[number], ids, parts) for number in order)


class _Parts:
    """Makes the values of read and written partitions, each once."""

    def __init__(self) -> None:
        self._made: dict[tuple[DatasetRef, PartitionSet | None], DatasetPartitions] = {}

    def __call__(
        self, dataset: DatasetRef, calendar: Calendar | None, keys: PartitionSet | None
    ) -> DatasetPartitions:
        memo = (dataset, keys)
        found = self._made.get(memo)
        if found is None:
            text = None if calendar is None or keys is None else render(calendar, keys)
            found = self._made[memo] = DatasetPartitions(dataset=dataset, keys=text)
        return found


def _early(propagation: Propagation) -> dict[DatasetFacts, PartitionSet]:
    """Return the changed partitions that count though their calendar does not hold them yet."""
    found = {}
    for data, keys in propagation.roots.items():
        if data.calendar is not None and isinstance(keys, PartitionSet):
            beyond = keys - data.calendar.clip(keys)
            if beyond:
                found[data] = beyond
    return found


def _draft(
    number: int, facts: JobFacts, keys: PartitionSet, early: Mapping[DatasetFacts, PartitionSet]
) -> _Draft:
    calendar = facts.calendar
    assert calendar is not None
    reading = calendar.with_later(keys, facts.lookback)
    reads: list[tuple[DatasetRef, EdgeMapping | None, PartitionSet | None]] = []
    for edge in facts.inputs:
        if edge.reference or edge.mapping is None:
            reads.append((edge.dataset, None, None))
        else:
            # Lookback never widens along the job's edge to its own output.
            reader = keys if edge.own else reading
            wanted = edge.mapping.required(reader)
            if edge.data in early:
                wanted |= edge.mapping.required_unclipped(reader) & early[edge.data]
            reads.append((edge.dataset, edge.mapping, wanted))
    made = [
        (output.dataset, output.mapping.upstream, output.mapping.required(keys))
        for output in facts.outputs
        if output.mapping is not None
    ]
    return _Draft(number=number, facts=facts, keys=keys, reads=reads, made=made)


def _waves(drafts: Sequence[_Draft]) -> list[int]:
    """Number the waves, counted on runs from 1, and return an order in which they could run."""
    after: list[list[int]] = [[] for _ in drafts]
    waiting = [len(draft.upstream) for draft in drafts]
    for draft in drafts:
        for number in draft.upstream:
            after[number].append(draft.number)
    ready = [draft.number for draft in drafts if not draft.upstream]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        draft = drafts[number]
        draft.wave = 1 + max((drafts[up].wave for up in draft.upstream), default=0)
        for follower in after[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    if len(order) < len(drafts):
        raise BackfillError("the planned runs wait for each other", hint="please report this")
    return order


def _run_id(draft: _Draft) -> str:
    calendar = draft.facts.calendar
    assert calendar is not None
    ref = draft.facts.ref
    name = f"{ref.namespace!r} {ref.name!r} {render(calendar, draft.keys)!r}"
    return "r-" + hashlib.sha256(name.encode()).hexdigest()[:16]


def _run(draft: _Draft, ids: Sequence[str], parts: _Parts) -> PlannedRun:
    facts = draft.facts
    assert facts.calendar is not None
    declared = facts.declaration
    reads = [
        parts(dataset, None, None)
        if mapping is None or mapping.reads_whole
        else parts(dataset, mapping.upstream, wanted)
        for dataset, mapping, wanted in draft.reads
    ]
    return PlannedRun(
        id=ids[draft.number],
        job=facts.ref,
        partitions=render(facts.calendar, draft.keys),
        count=len(draft.keys),
        wave=draft.wave,
        upstream=tuple([ids[number] for number in draft.upstream]),
        engine=declared.engine if declared else None,
        reads=tuple(reads),
        writes=tuple([parts(*made) for made in draft.made]),
    )
