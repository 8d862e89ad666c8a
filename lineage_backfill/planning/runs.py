"""Turns planned run keys into runs: batches, order and upstream runs."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.memo import Bounded, KeyMemo
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.propagate import JobResult, Propagation
from lineage_backfill.planning.writers import meetings
from lineage_backfill.plans.plan import DatasetPartitions, PlannedRun
from lineage_backfill.project.resolve.resolver import (
    JobFacts,
    Output,
    read_by,
    read_keys,
    written_keys,
)


def count_runs(propagation: Propagation) -> int:
    """Return the number of runs, without computing them."""
    total = 0
    for result, jobs in propagation.shares.items():
        if not result.planned:
            continue
        assert result.facts.calendar is not None
        if _policy(result) == "key":
            total += jobs * result.facts.calendar.count(result.planned)
        else:
            total += jobs * sum(1 for _ in batches(result))
    return total


def _policy(result: JobResult) -> str | int:
    if result.serial:
        # Each key may need the previous one: they run one by one, in order.
        return "key"
    return result.facts.batch or "key"


def batches(result: JobResult) -> Iterator[PartitionSet]:
    """Yield the key sets of a job's runs, ascending in time."""
    planned, policy, calendar = result.planned, _policy(result), result.facts.calendar
    assert calendar is not None
    if policy == "range":
        for piece in calendar.by_time(planned):
            yield from piece.ranges()
    else:
        yield from calendar.chunks(planned, policy if isinstance(policy, int) else 1)


# --- order ----------------------------------------------------------------------------------------


class _Batches:
    """The key sets of a job's runs; jobs with the same keys and batching share them."""

    def __init__(self, keys: Sequence[PartitionSet]) -> None:
        self.keys = keys
        self._made: dict[tuple[EdgeMapping, bool], Bounded[PartitionSet, Sequence[int]]] = {}

    @cached_property
    def holding(self) -> Bounded[PartitionSet, Sequence[int]]:
        """The runs that hold any of some run keys, by their positions."""
        return _index(self.keys)

    def made_by(
        self, output: Output, memo: KeyMemo, *, begun: bool
    ) -> Bounded[PartitionSet, Sequence[int]]:
        """Return which runs write any of some partitions of an output, by their positions.

        With `begun`, those of partitions that do not exist yet as well.
        """
        mapping = output.mapping
        assert mapping is not None
        found = self._made.get((mapping, begun))
        if found is None:
            made = [memo.required(mapping, keys) for keys in self.keys]
            if begun:
                made = list(map(partial(written_keys, output), self.keys, made))
            found = self._made[mapping, begun] = _index(made)
        return found


def _index(made: Sequence[PartitionSet]) -> Bounded[PartitionSet, Sequence[int]]:
    """Return the positions of the runs that write any of some partitions of one dataset."""
    if len(made) == 1:
        only = made[0]
        return Bounded(lambda wanted: (0,) if only.meets(wanted) else ())
    ends = [(keys.ordinals, place) for place, keys in enumerate(made) if keys]
    order = sorted((ordinals.lo, place, ordinals.hi) for ordinals, place in ends)
    starts = [lo for lo, _, _ in order]
    reach = list(accumulate((hi for _, _, hi in order), max))

    def find(wanted: PartitionSet) -> Sequence[int]:
        hits = set()
        for part in wanted.ranges():
            ordinals = part.ordinals
            position = bisect_right(starts, ordinals.hi) - 1
            while position >= 0 and reach[position] >= ordinals.lo:
                _, place, hi = order[position]
                if hi >= ordinals.lo and place not in hits and made[place].meets(part):
                    hits.add(place)
                position -= 1
        return array("I", sorted(hits))

    return Bounded(find)


@dataclass(slots=True, eq=False)
class _JobRuns:
    """The runs of one job, numbered from `first` on."""

    facts: JobFacts
    batches: _Batches
    first: int


class Runs:
    """The runs of a plan in a possible start order, each with exactly its upstream runs.

    They are created one by one during iteration, which can be repeated; only a few numbers per run
    are stored. `reverse` puts the newest keys of a wave first.
    """

    def __init__(
        self, propagation: Propagation, resolver: Resolver, *, reverse: bool = False
    ) -> None:
        self._memo = propagation.memo
        self._jobs = list(_job_runs(propagation))
        self._starts = [job.first for job in self._jobs]
        self._makers: dict[DatasetRef, list[tuple[_JobRuns, Output]]] = {}
        for job in self._jobs:
            for output in job.facts.outputs:
                if output.mapping is not None:
                    self._makers.setdefault(output.dataset, []).append((job, output))
        jobs = {job.facts: job for job in self._jobs}
        self._earlier: dict[JobFacts, list[tuple[DatasetRef, _JobRuns]]] = {}
        for one in meetings(propagation, resolver):
            earlier = self._earlier.setdefault(one.second, [])
            earlier.append((one.dataset, jobs[one.first]))
        self._ids = [_run_id(job.facts, keys, self._memo) for job, keys in self._numbered()]
        self._find_upstream(begun=True)
        order = self._find_order()
        if order is None and self._earlier:  # the order of writers runs against the data
            self._earlier = {}
            self._find_upstream(begun=True)
            order = self._find_order()
        if order is None:  # rows of a period that is not complete go round in a circle
            self._find_upstream(begun=False)
            order = self._find_order()
        if order is None:
            raise BackfillError("the planned runs wait for each other", hint="Please report this.")
        lows = [keys.ordinals.lo for _, keys in self._numbered()]
        order.sort(key=lambda number: -lows[number] if reverse else lows[number])
        order.sort(key=lambda number: bisect_right(self._starts, number))
        order.sort(key=self._wave.__getitem__)
        self._order = array("I", order)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[PlannedRun]:
        for number in self._order:
            job = self._jobs[bisect_right(self._starts, number) - 1]
            yield self._run(number, job.facts, job.batches.keys[number - job.first])

    def _numbered(self) -> Iterator[tuple[_JobRuns, PartitionSet]]:
        return ((job, keys) for job in self._jobs for keys in job.batches.keys)

    def _upstream(self, number: int) -> array[int]:
        return self._needs[self._ends[number] : self._ends[number + 1]]

    def _find_upstream(self, *, begun: bool) -> None:
        """Find the upstream runs of each run, by number, in one flat list.

        With `begun`, a run also waits for what is written into a partition that has begun.
        """
        self._needs, self._ends = array("I"), array("Q", [0])
        memo = self._memo
        for number, (job, keys) in enumerate(self._numbered()):
            waits: set[int] = set()
            for edge in job.facts.inputs:
                makers = self._makers.get(edge.dataset)
                if makers is None or edge.mapping is None:
                    continue
                wanted = edge.mapping.awaited(keys)
                if wanted is None:
                    wanted = read_by(edge, keys, memo.read)
                for maker, output in makers:
                    found = maker.batches.made_by(output, memo, begun=begun)[wanted]
                    if maker is job:
                        # Its own keys run in order, also if several write one partition.
                        found = found[: bisect_left(found, number - job.first)]
                    waits.update([maker.first + place for place in found])
            if job.facts.past is not None:
                held = job.batches.holding[memo.required(job.facts.past.reads, keys)]
                waits.update([job.first + place for place in held if job.first + place < number])
            if job.facts in self._earlier:
                waits |= self._writers_before(job, keys)
            self._needs.extend(sorted(waits))
            self._ends.append(len(self._needs))

    def _writers_before(self, job: _JobRuns, keys: PartitionSet) -> set[int]:
        """Return the runs of other jobs that write the same partitions first."""
        own = {output.dataset: output for output in job.facts.outputs}
        waits: set[int] = set()
        for dataset, other in self._earlier[job.facts]:
            mapping = own[dataset].mapping
            assert mapping is not None
            written = self._memo.required(mapping, keys)
            for maker, output in self._makers[dataset]:
                if maker is other:
                    made = other.batches.made_by(output, self._memo, begun=False)[written]
                    waits.update([other.first + place for place in made])
        return waits

    def _find_order(self) -> list[int] | None:
        """Number the waves of runs from 1, and return a possible run order, None without any."""
        count = len(self._ids)
        counts = Counter(self._needs)
        ends = array("Q", [0, *accumulate(counts[number] for number in range(count))])
        place, after = ends[:], array("I", bytes(4 * len(self._needs)))
        waiting = array("I", bytes(4 * count))
        for number in range(count):
            needs = self._upstream(number)
            waiting[number] = len(needs)
            for up in needs:
                after[place[up]] = number
                place[up] += 1
        ready = [number for number in range(count) if not waiting[number]]
        self._wave = array("I", bytes(4 * count))
        order = []
        while ready:
            number = heapq.heappop(ready)
            order.append(number)
            wave = self._wave
            wave[number] = 1 + max([wave[up] for up in self._upstream(number)], default=0)
            for follower in after[ends[number] : ends[number + 1]]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, follower)
        return order if len(order) == count else None

    def _run(self, number: int, facts: JobFacts, keys: PartitionSet) -> PlannedRun:
        assert facts.calendar is not None
        memo, ids = self._memo, self._ids
        reads = [
            DatasetPartitions(dataset=edge.dataset, keys=None)
            if wanted is None or edge.mapping is None or edge.reads_whole
            else DatasetPartitions(
                dataset=edge.dataset, keys=memo.render(edge.mapping.upstream, wanted)
            )
            for edge, wanted in read_keys(facts, keys, memo.read)
        ]
        writes = [
            DatasetPartitions(
                dataset=output.dataset,
                keys=memo.render(
                    output.mapping.upstream,
                    written_keys(output, keys, memo.required(output.mapping, keys)),
                ),
            )
            for output in facts.outputs
            if output.mapping is not None
        ]
        return PlannedRun(
            id=ids[number],
            job=facts.ref,
            partitions=memo.render(facts.calendar, keys),
            count=len(keys),
            wave=self._wave[number],
            upstream=tuple([ids[up] for up in self._upstream(number)]),
            engine=facts.declaration.engine if facts.declaration else None,
            reads=tuple(reads),
            writes=tuple(writes),
        )


def _job_runs(propagation: Propagation) -> Iterator[_JobRuns]:
    shared: dict[tuple[PartitionSet, str | int], _Batches] = {}
    first = 0
    for facts, result in propagation.results.items():
        if not result.planned:
            continue
        policy = _policy(result)
        found = shared.get((result.planned, policy))
        if found is None:
            found = _Batches(list(map(propagation.memo.intern, batches(result))))
            shared[result.planned, policy] = found
        yield _JobRuns(facts, found, first)
        first += len(found.keys)


def _run_id(facts: JobFacts, keys: PartitionSet, memo: KeyMemo) -> str:
    assert facts.calendar is not None
    ref = facts.ref
    name = f"{ref.namespace!r} {ref.name!r} {memo.render(facts.calendar, keys)!r}"
    return "r-" + hashlib.sha256(name.encode()).hexdigest()[:16]
