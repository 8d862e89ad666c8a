"""From changed partitions to stale run keys: which run, which are left stale, and why.

Two hops for each job: dirty partitions of its inputs make run keys stale, stale run keys make
partitions of its outputs dirty. Jobs are visited once, in an order in which they could run; only
jobs in a cycle of datasets are visited until nothing changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import render
from lineage_backfill.plan.catalog import Catalog, Input, JobFacts


class _Unknown:
    """Stands for dirty partitions of a dataset whose partitioning is unknown."""

    def __bool__(self) -> bool:
        return True


UNKNOWN: Final = _Unknown()
Dirty = PartitionSet | _Unknown
#: One key of one job.
_Node = tuple[JobRef, PartitionSet]


@dataclass(slots=True)
class JobResult:
    """What propagation found for one reached job.

    `stale` are all run keys that something makes stale, `planned` those that run, `left` those
    that do not. `cause` is why the job is not planned at all, or why keys are left: (kind, text,
    hint). `via` is the input through which the change came first, None for a root job.
    """

    facts: JobFacts
    level: int
    stale: PartitionSet = NOTHING
    planned: PartitionSet = NOTHING
    left: PartitionSet = NOTHING
    cause: tuple[str, str, str] | None = None
    left_causes: list[str] = field(default_factory=list)
    via: Input | None = None
    hops: int = 0
    stale_inputs: list[Input] = field(default_factory=list)
    pruned: list[DatasetRef] = field(default_factory=list)
    serial: bool = False  # its keys run one by one, in order


@dataclass(slots=True, kw_only=True)
class Propagation:
    """The outcome: results in run order, and what is dirty where.

    `first_maker` is the job through which the change came to a dataset on the shortest way;
    `cyclic` holds the groups of jobs that form a cycle of datasets.
    """

    results: dict[JobRef, JobResult]
    dirty: dict[DatasetRef, Dirty]
    unrepaired: dict[DatasetRef, Dirty]
    roots: Mapping[DatasetRef, Dirty]
    first_maker: dict[DatasetRef, JobRef]
    cyclic: list[tuple[JobRef, ...]]
    warnings: list[str]


Cut = Callable[[JobFacts, int], tuple[str, str, str] | None]


def propagate(
    catalog: Catalog,
    roots: Mapping[DatasetRef, Dirty],
    root_jobs: Mapping[JobRef, PartitionSet],
    *,
    cut: Cut,
    pruned: AbstractSet[tuple[JobRef, DatasetRef]],
    expired: Callable[[DatasetRef], PartitionSet],
    exact: bool = False,
) -> Propagation:
    """Carry the change from the roots down through every job that can be reached.

    `cut` says why a job is not to run (kind, text, hint), or None; it gets the job and its
    distance from the roots. `pruned` holds the edges that the changed columns miss, `expired`
    gives the partitions of a dataset that are past its retention.
    """
    run = _Run(catalog, roots, root_jobs, cut, pruned, expired, exact)
    return run.finish()


class _Run:
    def __init__(
        self,
        catalog: Catalog,
        roots: Mapping[DatasetRef, Dirty],
        root_jobs: Mapping[JobRef, PartitionSet],
        cut: Cut,
        pruned: AbstractSet[tuple[JobRef, DatasetRef]],
        expired: Callable[[DatasetRef], PartitionSet],
        exact: bool,
    ) -> None:
        self.catalog = catalog
        self.roots = roots
        self.root_jobs = root_jobs
        self.cut = cut
        self.pruned = pruned
        self.expired = expired
        self.exact = exact
        self.retained = any(declared.retention for declared in catalog.declarations.datasets)
        self.dirty: dict[DatasetRef, Dirty] = dict(roots)
        self.unrepaired: dict[DatasetRef, Dirty] = {}
        self.warnings: dict[str, None] = {}
        self.results: dict[JobRef, JobResult] = {}
        self.hops: dict[DatasetRef, int] = dict.fromkeys(roots, 0)
        self.first_maker: dict[DatasetRef, JobRef] = {}

    def finish(self) -> Propagation:
        distance = self._reach()
        groups = _order(self.catalog, distance)
        cyclic = []
        for level, jobs in groups:
            for ref in jobs:
                facts = self.catalog.job(ref)
                pruned = (
                    [e.dataset for e in facts.inputs if (ref, e.dataset) in self.pruned]
                    if self.pruned
                    else []
                )
                self.results[ref] = JobResult(facts=facts, level=level, pruned=pruned)
            if len(jobs) == 1:
                self._visit(self.results[jobs[0]], distance[jobs[0]])
            else:
                cyclic.append(jobs)
                self._visit_cycle(jobs, distance)
        return Propagation(
            results=self.results,
            dirty=self.dirty,
            unrepaired=self.unrepaired,
            roots=self.roots,
            first_maker=self.first_maker,
            cyclic=cyclic,
            warnings=list(self.warnings),
        )

    def _reach(self) -> dict[JobRef, int]:
        """Return every job that can be reached with its distance from the roots, in jobs."""
        catalog, readers = self.catalog, self.catalog.readers()
        distance: dict[JobRef, int] = dict.fromkeys(self.root_jobs, 1)
        queue: deque[tuple[DatasetRef, int]] = deque((ref, 0) for ref in self.roots)
        seen = set(self.roots)

        def enter(job: JobRef, steps: int) -> None:
            for output in catalog.job(job).outputs:
                if output.dataset not in seen:
                    seen.add(output.dataset)
                    queue.append((output.dataset, steps))

        for job in self.root_jobs:
            enter(job, 1)
        # The queue is kept in the order of distance: root jobs' outputs stand after the roots.
        while queue:
            dataset, steps = queue.popleft()
            for job in readers.get(dataset, ()):
                if job not in distance and dataset not in catalog.job(job).references:
                    distance[job] = steps + 1
                    enter(job, steps + 1)
        return distance

    # --- one job --------------------------------------------------------------------------------

    def _visit(self, result: JobResult, distance: int) -> None:
        facts = result.facts
        dirty, pruned = self.dirty, result.pruned
        stale_inputs = [
            edge
            for edge in facts.live
            if dirty.get(edge.dataset) and not (pruned and edge.dataset in pruned)
        ]
        result.stale_inputs = stale_inputs
        asked = self.root_jobs.get(facts.ref, NOTHING)
        if not stale_inputs and not asked:
            return
        self._find_via(result)
        cause = self._problem(facts, stale_inputs) or self.cut(facts, distance)
        calendar = facts.calendar
        if calendar is None or (cause is not None and cause[0] == "unknown"):
            result.cause = cause
            self._all_unrepaired(result)
            return
        stale, unwidened = self._stale_keys(result, asked)
        result.stale = stale
        result.serial = bool(facts.own)
        if not stale:
            return
        left = stale if cause else self._left(result, unwidened)
        result.cause = cause
        self._settle(result, left)

    def _find_via(self, result: JobResult) -> None:
        nearest = None
        for edge in result.stale_inputs:
            hops = self.hops.get(edge.dataset, 0)
            if not edge.own and (nearest is None or hops < nearest):
                nearest, result.via = hops, edge
        result.hops = (nearest or 0) + 1
        for output in result.facts.outputs:
            known = self.hops.get(output.dataset)
            if known is None or known > result.hops:
                self.hops[output.dataset] = result.hops
                self.first_maker[output.dataset] = result.facts.ref

    def _problem(
        self, facts: JobFacts, stale_inputs: Sequence[Input]
    ) -> tuple[str, str, str] | None:
        """Return why the job's stale keys cannot be known, or may not be run as declared."""
        if facts.problem is not None:
            return ("unknown", facts.problem, facts.hint)
        if not (facts.unknown or facts.endless):
            return None
        for edge in stale_inputs:
            if edge.mapping is None:
                return (
                    "unknown",
                    f"the partitioning of its input {edge.dataset} is unknown",
                    f"declare it: [[dataset]] name = {edge.dataset.name!r} and its grain",
                )
            endless = edge.mapping.unbounded
            if endless is not None:
                side = "its input" if endless is edge.mapping.upstream else "its reader's calendar:"
                return (
                    "unknown",
                    f"it reads all of {edge.dataset}, and {side} has no first key",
                    f"declare a start for {edge.dataset.name!r}, and for what it writes",
                )
        for edge in facts.unknown:
            self._warn(f"the partitioning of {edge.dataset} is unknown: {facts.ref} reads it whole")
        return None

    def _stale_keys(
        self, result: JobResult, asked: PartitionSet
    ) -> tuple[PartitionSet, PartitionSet]:
        """Return the stale run keys, and what they would be without the widening."""
        facts, calendar = result.facts, result.facts.calendar
        assert calendar is not None
        direct = calendar.clip(asked)
        own_stale = NOTHING
        for edge in result.stale_inputs:
            dirty = self.dirty[edge.dataset]
            assert edge.mapping is not None
            assert isinstance(dirty, PartitionSet)
            affected = edge.mapping.affected(dirty)
            if edge.own:
                own_stale |= affected
            else:
                direct |= affected
        widened = self._closed(result, widen(calendar, direct, facts.lookback) | own_stale)
        if not self.exact or not facts.lookback:
            return widened, widened
        return widened, self._closed(result, direct | own_stale)

    @staticmethod
    def _closed(result: JobResult, keys: PartitionSet) -> PartitionSet:
        """Return the keys and what they make stale through the job's own output."""
        own: Sequence[EdgeMapping] = result.facts.own
        if own and result.pruned:
            own = [
                edge.mapping
                for edge in result.facts.live
                if edge.own and edge.mapping and edge.dataset not in result.pruned
            ]
        while keys and own:
            wider = keys
            for mapping in own:
                wider = mapping.closure(wider)
            if len(own) == 1 or len(wider) == len(keys):
                return wider
            keys = wider
        return keys

    def _left(self, result: JobResult, unwidened: PartitionSet) -> PartitionSet:
        """Return the stale keys that must not run, for each reason there may be."""
        facts, calendar = result.facts, result.facts.calendar
        assert calendar is not None
        left = NOTHING
        if not (self.exact or self.unrepaired or self.retained):
            return left
        if self.exact:
            beyond = result.stale - unwidened
            if beyond:
                left |= beyond
                result.left_causes.append("--exact leaves out what lookback would correct")
        lost = own_lost = NOTHING
        for edge in facts.live:
            if edge.mapping is None:
                continue
            bad = self.unrepaired.get(edge.dataset)
            if isinstance(bad, PartitionSet) and bad and edge.dataset not in result.pruned:
                keys = edge.mapping.affected(bad) & result.stale
                if keys:
                    result.left_causes.append(f"nobody repairs stale partitions of {edge.dataset}")
                    if edge.own:
                        own_lost |= keys
                    else:
                        lost |= keys
            gone = self.expired(edge.dataset) if self.retained else NOTHING
            if gone:
                keys = edge.mapping.affected(gone) & result.stale
                if keys:
                    result.left_causes.append(
                        f"{edge.dataset} no longer holds partitions that they need"
                        " (past its retention; --allow-expired runs them all the same)"
                    )
                    lost |= keys
        left |= (widen(calendar, lost, facts.lookback) | own_lost) & result.stale
        return (self._closed(result, left) & result.stale) if left else NOTHING

    def _settle(self, result: JobResult, left: PartitionSet) -> None:
        """Record which stale keys run and which stay, and what that makes of the outputs."""
        result.left = left
        result.planned = result.stale - left if left else result.stale
        for output in result.facts.outputs:
            assert output.mapping is not None
            _add(self.dirty, output.dataset, output.mapping.required(result.stale))
            if left:
                _add(self.unrepaired, output.dataset, output.mapping.required(left))

    def _all_unrepaired(self, result: JobResult) -> None:
        """Record that any partition of the outputs may be stale, and stay so."""
        for output in result.facts.outputs:
            calendar = self.catalog.calendar(output.dataset)
            extent: Dirty = UNKNOWN if calendar is None else calendar.existing
            _add(self.dirty, output.dataset, extent)
            _add(self.unrepaired, output.dataset, extent)

    def _warn(self, text: str) -> None:
        self.warnings[text] = None

    # --- cycles ---------------------------------------------------------------------------------

    def _visit_cycle(self, jobs: Sequence[JobRef], distance: Mapping[JobRef, int]) -> None:
        """Visit the jobs of a cycle of datasets until nothing changes, then judge it by keys."""
        self._until_stable(jobs, distance)
        for ref in jobs:
            self.results[ref].serial = True
        tied, sentence = self._true_cycle(jobs)
        if tied:
            for ref, keys in tied.items():
                result = self.results[ref]
                result.left_causes.append(sentence)
                if keys == result.stale:
                    result.cause = ("cycle", sentence, "declare how the keys travel on that way")
                self._settle(result, result.left | keys)
            self._until_stable(jobs, distance, keep=tied)

    def _until_stable(
        self,
        jobs: Sequence[JobRef],
        distance: Mapping[JobRef, int],
        keep: Mapping[JobRef, PartitionSet] | None = None,
    ) -> None:
        while True:
            before = [(self.results[ref].stale, self.results[ref].left) for ref in jobs]
            for ref in jobs:
                old = self.results[ref]
                fresh = JobResult(facts=old.facts, level=old.level, pruned=old.pruned)
                self.results[ref] = fresh
                self._visit(fresh, distance[ref])
                fresh.serial = True
                if keep and ref in keep and fresh.stale:
                    fresh.left_causes += [
                        cause for cause in old.left_causes if cause not in fresh.left_causes
                    ]
                    fresh.cause = fresh.cause or old.cause
                    self._settle(fresh, fresh.left | keep[ref])
            if before == [(self.results[ref].stale, self.results[ref].left) for ref in jobs]:
                return

    def _true_cycle(self, jobs: Sequence[JobRef]) -> tuple[dict[JobRef, PartitionSet], str]:
        """Return the run keys that wait for themselves, and one such cycle edge by edge."""
        needs = self._needs(jobs)
        nodes: dict[_Node, list[_Node]] = {node: [] for node in needs}
        for node, made_by in needs.items():
            for maker in made_by:
                nodes[maker].append(node)
        waiting = {node: len(made_by) for node, made_by in needs.items()}
        ready = [node for node, count in waiting.items() if not count]
        while ready:
            for follower in nodes[ready.pop()]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)
        tied: dict[JobRef, PartitionSet] = {}
        for (ref, key), count in waiting.items():
            if count:
                tied[ref] = tied.get(ref, NOTHING) | key
        if not tied:
            return {}, ""
        return tied, self._name_cycle({n for n, count in waiting.items() if count}, needs)

    def _needs(self, jobs: Sequence[JobRef]) -> dict[_Node, dict[_Node, None]]:
        """Return, for each stale key of the jobs, the stale keys of the jobs that it needs."""
        makers: dict[DatasetRef, list[tuple[JobRef, EdgeMapping]]] = {}
        for ref in jobs:
            for output in self.results[ref].facts.outputs:
                if output.mapping is not None:
                    makers.setdefault(output.dataset, []).append((ref, output.mapping))
        needs: dict[_Node, dict[_Node, None]] = {}
        for ref in jobs:
            facts = self.results[ref].facts
            for key in single_keys(self.results[ref].stale):
                found = needs[ref, key] = {}
                assert facts.calendar is not None
                reading = read_keys(facts.calendar, key, facts.lookback)
                for edge in facts.live:
                    if edge.mapping is None:
                        continue
                    wanted = edge.mapping.required(key if edge.own else reading)
                    for maker, mapping in makers.get(edge.dataset, ()):
                        making = mapping.affected(wanted) & self.results[maker].stale
                        found.update(((maker, one), None) for one in single_keys(making))
        return needs

    def _name_cycle(self, tied: set[_Node], needs: Mapping[_Node, Iterable[_Node]]) -> str:
        node = min(tied, key=lambda n: (n[0], n[1].ordinals.lo))
        path = [node]
        while True:
            node = next(other for other in needs[node] if other in tied)
            if node in path:
                cycle = [*path[path.index(node) :], node]
                break
            path.append(node)

        def show(job: JobRef, key: PartitionSet) -> str:
            calendar = self.results[job].facts.calendar
            assert calendar is not None
            return f"{job}[{render(calendar, key)[0]}]"

        return "a cycle: " + " needs ".join(show(*part) for part in cycle)


def widen(calendar: Calendar, keys: PartitionSet, lookback: int) -> PartitionSet:
    """Return K-lookback .. K for every key K, as far as they exist."""
    if not lookback or not keys or calendar.time is None:
        return keys
    boxes = ((ordinals.dilate(lookback, 0), mask) for ordinals, mask in keys.boxes)
    return calendar.clip(PartitionSet.of(boxes))


def read_keys(calendar: Calendar, keys: PartitionSet, lookback: int) -> PartitionSet:
    """Return the existing run keys whose reads the partitions of `keys` depend on."""
    if not lookback or not keys or calendar.time is None:
        return keys
    boxes = ((ordinals.dilate(0, lookback), mask) for ordinals, mask in keys.boxes)
    return calendar.clip(PartitionSet.of(boxes))


def single_keys(keys: PartitionSet) -> Iterable[PartitionSet]:
    """Yield every key of the set as a set of its own, ascending in time."""
    for ordinals, mask in keys.boxes:
        for ordinal in ordinals:
            point = OrdinalSet.range(ordinal, ordinal)
            rest = mask
            while rest:
                low = rest & -rest
                yield PartitionSet(((point, low),))
                rest ^= low


def _add(into: dict[DatasetRef, Dirty], dataset: DatasetRef, extent: Dirty) -> None:
    held = into.get(dataset)
    if held is None:
        into[dataset] = extent
    elif isinstance(held, _Unknown) or isinstance(extent, _Unknown):
        into[dataset] = UNKNOWN
    else:
        into[dataset] = held | extent


def _order(catalog: Catalog, reached: Mapping[JobRef, Any]) -> list[tuple[int, tuple[JobRef, ...]]]:
    """Return (level, jobs) in an order in which they could run; several jobs form a cycle."""
    readers = catalog.readers()
    after: dict[JobRef, list[JobRef]] = {}
    waiting = dict.fromkeys(reached, 0)
    for job in reached:
        followers: set[JobRef] = set()
        for output in catalog.job(job).outputs:
            for reader in readers.get(output.dataset, ()):
                if (
                    reader in waiting
                    and reader != job
                    and reader not in followers
                    and output.dataset not in catalog.job(reader).references
                ):
                    followers.add(reader)
        after[job] = list(followers)
        for follower in followers:
            waiting[follower] += 1
    ordered: list[tuple[int, tuple[JobRef, ...]]] = []
    level = 1
    ready = sorted(job for job, count in waiting.items() if not count)
    left = len(waiting)
    while left:
        if not ready:
            return ordered + _order_cycles(after, waiting, level)
        ordered += [(level, (job,)) for job in ready]
        left -= len(ready)
        following = []
        for job in ready:
            for follower in after[job]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    following.append(follower)
        ready = sorted(following)
        level += 1
    return ordered


def _order_cycles(
    after: Mapping[JobRef, Sequence[JobRef]], waiting: Mapping[JobRef, int], level: int
) -> list[tuple[int, tuple[JobRef, ...]]]:
    """Order what is left once a cycle holds up the plain way: by strongly connected groups."""
    nodes = sorted(job for job, count in waiting.items() if count)
    component = _components(nodes, after)
    members: dict[int, list[JobRef]] = {}
    for job in nodes:
        members.setdefault(component[job], []).append(job)
    inner = {
        (component[job], component[follower])
        for job in nodes
        for follower in after[job]
        if component[job] != component[follower]
    }
    count = dict.fromkeys(members, 0)
    following: dict[int, list[int]] = {number: [] for number in members}
    for one, other in inner:
        count[other] += 1
        following[one].append(other)
    ordered = []
    ready = sorted((n for n, c in count.items() if not c), key=lambda n: members[n])
    while ready:
        ordered += [(level, tuple(members[number])) for number in ready]
        later = []
        for number in ready:
            for other in following[number]:
                count[other] -= 1
                if not count[other]:
                    later.append(other)
        ready = sorted(later, key=lambda n: members[n])
        level += 1
    return ordered


def _components(
    nodes: Sequence[JobRef], after: Mapping[JobRef, Sequence[JobRef]]
) -> dict[JobRef, int]:
    """Return the number of the strongly connected component of each node (Tarjan, iterative)."""
    allowed = set(nodes)
    index: dict[JobRef, int] = {}
    low: dict[JobRef, int] = {}
    component: dict[JobRef, int] = {}
    stack: list[JobRef] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(sorted(set(after[root]) & allowed)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, followers = work[-1]
            for follower in followers:
                if follower not in index:
                    index[follower] = low[follower] = len(index)
                    stack.append(follower)
                    work.append((follower, iter(sorted(set(after[follower]) & allowed))))
                    break
                if follower not in component:
                    low[node] = min(low[node], index[follower])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    number = len(component)
                    while True:
                        member = stack.pop()
                        component[member] = number
                        if member == node:
                            break
    return component
