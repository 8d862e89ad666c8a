"""Propagates changed partitions to stale run keys: which run, which stay stale, and why.

Two hops for each job: dirty partitions of its inputs make run keys stale, stale run keys make
partitions of its outputs dirty. Jobs are visited once, in a possible run order; only jobs in a
cycle of datasets are visited until nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Final

from lineage_backfill.lineage.columns import Path
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.closure import OwnEdge
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.memo import KeyMemo
from lineage_backfill.partitions.text import as_text, render
from lineage_backfill.planning.cycles import further_keys, is_ordered
from lineage_backfill.planning.extents import UNKNOWN, Dirty, Extents, united
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.resolve.resolver import (
    DatasetFacts,
    Input,
    JobFacts,
    Output,
    unknown_reads,
    unlisted_reads,
    writing_keys,
)

#: One key of one job.
_Node = tuple[JobFacts, PartitionSet]
#: The dirty partitions of each output of a job.
_Made = Sequence[PartitionSet]
_Followers = Mapping[JobFacts, Sequence[JobFacts]]
#: A level, its jobs in order, and whether they form a cycle of datasets.
_Group = tuple[int, Sequence[JobFacts], bool]
#: Why a job does not run: kind, text and hint.
Cause = tuple[str, str, str]
#: Why keys are left stale while others run: kind (exact, unrepaired, expired, cycle), text.
LeftCause = tuple[str, str]
#: Cuts that the request asks for; any other cut needs a decision.
_BY_CHOICE = frozenset({"excluded", "depth"})
_GONE: Final = (
    "what they write is past the retention of its dataset (--allow-expired runs them anyway)"
)


@dataclass(slots=True, eq=False)
class JobResult:
    """The result for an affected job, or for many equal jobs: `facts` are of the first.

    `stale` are all stale run keys, `planned` those that run, `left` those that do not. `cause` is
    why the job is not planned at all, or why keys are left: (kind, text, hint). `by_choice` says
    that the request itself asked to leave them. `stale_inputs` None means the inputs that are dirty
    in the end.
    """

    facts: JobFacts
    stale: PartitionSet = NOTHING
    planned: PartitionSet = NOTHING
    left: PartitionSet = NOTHING
    cause: Cause | None = None
    left_causes: tuple[LeftCause, ...] = ()
    by_choice: bool = True
    stale_inputs: Sequence[Input] | None = ()
    pruned: Sequence[DatasetRef] = ()
    serial: bool = False  # its keys run one by one, in order
    #: The stale keys of each group of outputs with equal staleness.
    parts: Sequence[PartitionSet] = ()


@dataclass(frozen=True, slots=True)
class _Ways:
    """The outputs of a job, grouped by the inputs whose changed columns they do not use."""

    outputs: Sequence[Sequence[Output]]
    missed: Sequence[AbstractSet[DatasetRef]]

    def to(self, edge: Input) -> tuple[int, ...]:
        """Return the numbers of the groups that become stale through an input."""
        return tuple([n for n, missed in enumerate(self.missed) if edge.dataset not in missed])

    def own(self, facts: JobFacts) -> list[OwnEdge]:
        """Return how the job's own outputs make it stale."""
        made = {
            output.data: (number, output.mapping)
            for number, outputs in enumerate(self.outputs if facts.own else ())
            for output in outputs
        }
        found = []
        for edge in facts.live if facts.own else ():
            group, writes = made.get(edge.data, (0, None))
            if edge.own and edge.mapping is not None and writes is not None:
                to = self.to(edge)
                found.append(OwnEdge(reads=edge.mapping, writes=writes, of=group, to=to))
        if facts.past is not None:
            groups = range(len(self.outputs))
            found += [replace(facts.past, of=group, to=(group,)) for group in groups]
        return found


@dataclass(slots=True, kw_only=True)
class Propagation:
    """The outcome: results in run order, dirty partitions, and those that no run repairs.

    Equal jobs share a result: `shares` holds how many do. `levels` holds the
    jobs by their depth, in run order too, `cyclic` the groups that form a cycle of datasets,
    `read_whole` the jobs that are assumed to read all of a dataset with unknown partitioning.
    """

    results: dict[JobFacts, JobResult]
    shares: Mapping[JobResult, int]
    levels: list[tuple[int, Sequence[JobFacts]]]
    dirty: Extents
    unrepaired: dict[DatasetFacts, Dirty]
    roots: Mapping[DatasetFacts, Dirty]
    memo: KeyMemo
    cyclic: list[tuple[JobFacts, ...]]
    read_whole: Mapping[DatasetFacts, Iterable[JobFacts]]

    def stale_inputs(self, facts: JobFacts) -> Sequence[Input]:
        """Return the inputs through which the change reaches a job."""
        found = self.results[facts].stale_inputs
        return found if found is not None else _dirty_inputs(facts, self.dirty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Limits on which stale keys run and which stale inputs count.

    `cut` returns why a job must not run, or None; it gets the job and its distance from the roots,
    and is called for guarded jobs only, unless `cuts_any`. `pruned` holds the paths that the
    changed columns miss, `expired` gives the partitions of a dataset that are past its retention.
    `unwidened` are keys of root jobs that lookback does not widen.
    """

    cut: Callable[[JobFacts, int], Cause | None]
    cuts_any: bool
    pruned: AbstractSet[Path]
    expired: Callable[[DatasetFacts], PartitionSet] | None
    unwidened: Mapping[JobFacts, PartitionSet]
    exact: bool


def propagate(
    resolver: Resolver,
    roots: Mapping[DatasetFacts, Dirty],
    root_jobs: Mapping[JobFacts, PartitionSet],
    constraints: Constraints,
) -> Propagation:
    """Propagate the change from the roots through every job downstream."""
    return _Run(resolver, roots, root_jobs, constraints).finish()


class _Run:
    def __init__(
        self,
        resolver: Resolver,
        roots: Mapping[DatasetFacts, Dirty],
        root_jobs: Mapping[JobFacts, PartitionSet],
        constraints: Constraints,
    ) -> None:
        self.resolver = resolver
        self.roots = roots
        self.root_jobs = root_jobs
        self.constraints = constraints
        self.dirty = Extents()
        for data, keys in roots.items():
            self.dirty.add(data, keys)
        self.unrepaired: dict[DatasetFacts, Dirty] = {}
        self._unchosen: set[DatasetFacts] = set()  # unrepaired, but not by choice
        self.read_whole: dict[DatasetFacts, dict[JobFacts, None]] = {}
        self.results: dict[JobFacts, JobResult] = {}
        self.memo = resolver.memo()
        self._alike: dict[tuple[object, ...], tuple[JobResult, _Made]] = {}
        self.is_plain = not (
            constraints.cuts_any or constraints.pruned or constraints.expired or constraints.exact
        )

    def finish(self) -> Propagation:
        results = self.results
        groups = _order(self._starts(), self.resolver.followers)
        self.dirty.make_room(self.resolver.known_datasets)
        for _, jobs, tied in groups:
            if tied:
                self._visit_cycle(jobs)
                continue
            for facts in jobs:
                if self.is_plain and facts.is_plain and facts not in self.root_jobs:
                    results[facts] = self._visit_plain(facts)
                else:
                    results[facts] = self._visit(facts)
        return Propagation(
            results=self.results,
            shares=Counter(self.results.values()),
            levels=[(level, jobs) for level, jobs, _ in groups],
            dirty=self.dirty,
            unrepaired=self.unrepaired,
            roots=self.roots,
            memo=self.memo,
            cyclic=[tuple(jobs) for _, jobs, tied in groups if tied],
            read_whole=self.read_whole,
        )

    def _starts(self) -> dict[JobFacts, None]:
        """Return the jobs that are requested or read a root."""
        found = dict.fromkeys(self.root_jobs)
        for data in self.roots:
            for ref in self.resolver.edges.readers.get(data.ref, ()):
                facts = self.resolver.job(ref)
                if data.ref not in facts.references:
                    found[facts] = None
        return found

    @cached_property
    def _distances(self) -> Mapping[JobFacts, int]:
        """The distance of each affected job from the roots, in jobs, itself included."""
        front = list(self._starts())
        distances = dict.fromkeys(front, 1)
        for facts in front:
            for follower in self.resolver.followers[facts]:
                if follower not in distances:
                    distances[follower] = distances[facts] + 1
                    front.append(follower)
        return distances

    # --- one job --------------------------------------------------------------------------------

    def _visit_plain(self, facts: JobFacts) -> JobResult:
        """Visit a job without constraints, the common case.

        Thousands of them differ only in names: they share the result of the first of a kind.
        """
        dirty = self.dirty.by_number
        changed = tuple(map(dirty.__getitem__, facts.sources))
        alike = (facts.kind, *changed)
        found = self._alike.get(alike)
        if self.unrepaired and any(edge.data in self.unrepaired for edge in facts.live):
            return self._visit(facts)
        if found is None:
            found = self._alike[alike] = self._find_plain(facts)
        for output, keys in zip(facts.outputs, found[1], strict=True):
            number = output.data.number
            if dirty[number] is not None:
                self.dirty.add(output.data, keys)
            elif keys.boxes:
                dirty[number] = keys
        return found[0]

    def _find_plain(self, facts: JobFacts) -> tuple[JobResult, _Made]:
        """Return the result of a job without constraints, and its dirty outputs."""
        assert facts.calendar is not None
        stale = self._affected(_dirty_inputs(facts, self.dirty), NOTHING)
        if facts.beyond:
            stale = writing_keys(facts.outputs, stale)
        made = []
        for output in facts.outputs:
            assert output.mapping is not None
            made.append(self.memo.required(output.mapping, stale))
        return JobResult(facts, stale, stale, stale_inputs=None), made

    def _visit(self, facts: JobFacts) -> JobResult:
        constraints = self.constraints
        ways = self._ways(facts)
        result = JobResult(facts)
        if constraints.pruned:
            result.pruned = [edge.dataset for edge in facts.live if not ways.to(edge)]
        stale_inputs = _dirty_inputs(facts, self.dirty, result.pruned)
        asked = self.root_jobs.get(facts, NOTHING)
        if not stale_inputs and not asked.boxes:
            return result
        result.stale_inputs = stale_inputs
        cause = None
        if facts.problem is not None or facts.unknown or facts.endless:
            cause = self._problem(facts, stale_inputs)
        blocked = cause is not None
        cut = None
        if constraints.cuts_any or facts.guarded:
            cut = constraints.cut(facts, self._distances[facts])
        result.by_choice = not blocked if cut is None else cut[0] in _BY_CHOICE
        cause = cause or cut
        if facts.calendar is None or (blocked and not _knows_keys(facts, stale_inputs)):
            result.cause = cause
            self._all_unrepaired(facts, result)
            return result
        result.parts, unwidened = self._stale_keys(facts, ways, stale_inputs, asked)
        if any(edge.undeclared for edge in facts.live):
            # However it reads its own output, a key reads earlier ones: any later key may be stale.
            reached = facts.calendar.onward(_joined(result.parts))
            result.parts = [reached] * len(result.parts)
        if facts.beyond:
            result.parts = list(map(writing_keys, ways.outputs, result.parts))
            unwidened = list(map(writing_keys, ways.outputs, unwidened))
        result.stale = _joined(result.parts)
        if result.stale.boxes:
            result.serial = bool(facts.own)
            result.cause = cause
            self._settle(facts, result, self._not_run(facts, result, ways, unwidened))
        return result

    def _ways(self, facts: JobFacts) -> _Ways:
        """Return which inputs of a job lead to which of its outputs."""
        pruned, outputs = self.constraints.pruned, facts.outputs
        if not pruned or not outputs:
            return _Ways((outputs,), (frozenset(),))
        groups: dict[frozenset[DatasetRef], list[Output]] = {}
        for output in outputs:
            missed = (e.dataset for e in facts.live)
            paths = frozenset(d for d in missed if (facts.ref, d, output.dataset) in pruned)
            groups.setdefault(paths, []).append(output)
        return _Ways(tuple(groups.values()), tuple(groups))

    def _problem(self, facts: JobFacts, stale_inputs: Sequence[Input]) -> Cause | None:
        """Return why the job's stale keys are unknown, or may not run as declared."""
        problem = unknown_reads(facts, (*stale_inputs, *unlisted_reads(facts)))
        if problem is not None:
            return ("unknown", *problem)
        for edge in facts.unknown if facts.origin != "request" else ():
            self.read_whole.setdefault(edge.data, {})[facts] = None
        return None

    def _stale_keys(
        self, facts: JobFacts, ways: _Ways, stale_inputs: Sequence[Input], asked: PartitionSet
    ) -> tuple[Sequence[PartitionSet], Sequence[PartitionSet]]:
        """Return the stale run keys, and what they would be without the widening.

        Each for the groups of outputs with equal staleness.
        """
        calendar = facts.calendar
        assert calendar is not None
        exact_keys = rerun = NOTHING
        if asked.boxes:
            if facts.lookback:
                exact_keys = calendar.clip(self.constraints.unwidened.get(facts, NOTHING))
            rerun = self.memo.intern(calendar.clip(asked - exact_keys))
        found, unwidened = [], []
        for group in range(len(ways.outputs)):
            inputs = [e for e in stale_inputs if group in ways.to(e)]
            direct = self._affected([e for e in inputs if not e.own], rerun)
            if not facts.lookback and not facts.own:
                found.append(direct)
                continue
            own = self._affected([e for e in inputs if e.own], NOTHING) | exact_keys
            wide = [e.corrects(self._affected([e], NOTHING)) for e in inputs if not e.own]
            wide.append(calendar.with_earlier(rerun, facts.lookback))
            found.append(PartitionSet.union([*wide, own]))
            unwidened.append(direct | own)
        if not facts.lookback and not facts.own:
            return found, found
        edges = ways.own(facts)
        widened = self.memo.closure(edges, found)
        if not self.constraints.exact or not facts.lookback:
            return widened, widened
        return widened, self.memo.closure(edges, unwidened)

    def _affected(self, inputs: Iterable[Input], keys: PartitionSet) -> PartitionSet:
        """Return the keys, and the run keys that dirty partitions of the inputs make stale."""
        for edge in inputs:
            changed = self.dirty[edge.data]
            assert edge.mapping is not None
            assert isinstance(changed, PartitionSet)
            affected = self.memo.affected(edge.mapping, changed)
            if keys is NOTHING:
                keys = affected
            elif affected is not keys:
                keys = self.memo.unite(keys, affected)
        return keys

    def _not_run(
        self, facts: JobFacts, result: JobResult, ways: _Ways, unwidened: Sequence[PartitionSet]
    ) -> PartitionSet:
        """Return the stale keys that are not run: all of a job that is blocked or left out."""
        constraints = self.constraints
        if result.cause is not None:
            return result.stale
        if self.unrepaired or constraints.exact or constraints.expired:
            return self._left(facts, result, ways, unwidened)
        return NOTHING

    def _left(
        self, facts: JobFacts, result: JobResult, ways: _Ways, unwidened: Sequence[PartitionSet]
    ) -> PartitionSet:
        """Return the stale keys that must not run, by reason."""
        calendar, constraints = facts.calendar, self.constraints
        assert calendar is not None
        left = NOTHING
        causes: list[LeftCause] = []
        if constraints.exact:
            left = result.stale - _joined(unwidened)
            if left:
                causes.append(("exact", "--exact leaves out what lookback would correct"))
        for edge in facts.live:
            if edge.mapping is None:
                continue
            bad = self.unrepaired.get(edge.data)
            lost: list[tuple[PartitionSet, LeftCause]] = []
            if isinstance(bad, PartitionSet) and edge.dataset not in result.pruned:
                text = f"no run repairs the stale partitions of {edge.dataset}"
                lost.append((bad, ("unrepaired", text)))
            if constraints.expired and (gone := constraints.expired(edge.data)):
                text = (
                    f"{edge.dataset} no longer holds partitions that they need"
                    " (past its retention; --allow-expired runs them anyway)"
                )
                lost.append((gone, ("expired", text)))
            for partitions, why in lost:
                # All that a key reads: its own reads, and those that lookback adds.
                keys = edge.mapping.needing(partitions)
                if keys := edge.corrects(keys) & result.stale:
                    left |= keys
                    causes.append(why)
                    if why[0] == "expired" or edge.data in self._unchosen:
                        result.by_choice = False
        if constraints.expired and (gone := self._write_gone(facts, result.stale)):
            left |= gone
            causes.append(("expired", _GONE))
            result.by_choice = False
        result.left_causes = tuple(causes)
        return self._left_with(left, calendar, result, ways.own(facts))

    def _write_gone(self, facts: JobFacts, stale: PartitionSet) -> PartitionSet:
        """Return the stale keys that write only partitions past the retention of outputs."""
        find, live, any_gone = self.constraints.expired, NOTHING, False
        for output in facts.outputs:
            if find is None or output.mapping is None:
                return NOTHING
            gone = find(output.data)
            any_gone = any_gone or bool(gone)
            kept = self.memo.required(output.mapping, stale) - gone
            live |= output.mapping.affected_unclipped(kept)
        return stale - live if any_gone else NOTHING

    def _left_with(
        self, left: PartitionSet, calendar: Calendar, result: JobResult, own: Sequence[OwnEdge]
    ) -> PartitionSet:
        """Return the left keys, with those that cannot run without them."""
        while True:
            # A run of `*` rewrites every key of its dimension: one left key leaves the run.
            closed = calendar.with_star(left, result.stale)
            if own and closed:
                parts = [closed & part for part in result.parts]
                closed = _joined(self.memo.closure(own, parts)) & result.stale
            if closed == left:
                return left
            left = closed

    def _settle(self, facts: JobFacts, result: JobResult, left: PartitionSet) -> None:
        """Record which stale keys run and which stay, and mark the outputs dirty."""
        result.left = left
        result.planned = result.stale - left if left.boxes else result.stale
        for outputs, part in zip(self._ways(facts).outputs, result.parts, strict=True):
            for output in outputs:
                if output.mapping is None:
                    self._mark(output.data, UNKNOWN)
                    continue
                self.dirty.add(output.data, self.memo.required(output.mapping, part))
                if left.boxes:
                    unrepaired = output.mapping.required(part & left)
                    _add(self.unrepaired, output.data, unrepaired)
                    if not result.by_choice:
                        self._unchosen.add(output.data)

    def _all_unrepaired(self, facts: JobFacts, result: JobResult) -> None:
        """Record that any partition of the outputs may be stale and stays so."""
        for output in facts.outputs:
            calendar = output.data.calendar
            self._mark(output.data, UNKNOWN if calendar is None else calendar.existing)
            if not result.by_choice:
                self._unchosen.add(output.data)

    def _mark(self, data: DatasetFacts, extent: Dirty) -> None:
        self.dirty.add(data, extent)
        _add(self.unrepaired, data, extent)

    # --- cycles ---------------------------------------------------------------------------------

    def _visit_cycle(self, jobs: Sequence[JobFacts]) -> None:
        """Visit the jobs of a cycle of datasets until nothing changes, then judge it by keys."""
        self.results.update((facts, JobResult(facts)) for facts in jobs)
        plain = self.is_plain and not self.unrepaired
        if plain and all(facts.is_plain and facts not in self.root_jobs for facts in jobs):
            self._run_around(jobs)
        self._until_stable(jobs)
        if is_ordered(jobs):
            return
        tied, sentence = self._true_cycle(jobs)
        if tied:
            for facts, keys in tied.items():
                result = self.results[facts]
                result.left_causes += (("cycle", sentence),)
                result.by_choice = False
                if keys == result.stale:
                    result.cause = ("cycle", sentence, "Declare the mappings on this path.")
                self._settle(facts, result, result.left | keys)
            self._until_stable(jobs, keep=tied)

    def _run_around(self, jobs: Sequence[JobFacts]) -> None:
        """Mark what one job after the other makes stale all along the cycle."""
        for facts in jobs:
            self.results[facts] = self._visit(facts)
        for facts, keys in further_keys(jobs, lambda one: self.results[one].stale):
            for output in facts.outputs:
                assert output.mapping is not None, "a plain job knows its outputs"
                self.dirty.add(output.data, self.memo.required(output.mapping, keys))

    def _until_stable(
        self, jobs: Sequence[JobFacts], keep: Mapping[JobFacts, PartitionSet] | None = None
    ) -> None:
        results = self.results
        while True:
            before = [(results[facts].stale, results[facts].left) for facts in jobs]
            for facts in jobs:
                old = results[facts]
                fresh = results[facts] = self._visit(facts)
                fresh.serial = True
                if keep and facts in keep and fresh.stale:
                    fresh.left_causes = tuple(dict.fromkeys((*fresh.left_causes, *old.left_causes)))
                    fresh.cause = fresh.cause or old.cause
                    fresh.by_choice = False
                    self._settle(facts, fresh, fresh.left | keep[facts])
            if before == [(results[facts].stale, results[facts].left) for facts in jobs]:
                return

    def _true_cycle(self, jobs: Sequence[JobFacts]) -> tuple[dict[JobFacts, PartitionSet], str]:
        """Return the run keys that wait for themselves, with one such cycle edge by edge."""
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
        stuck = _in_cycles({node for node, count in waiting.items() if count}, needs)
        if not stuck:
            return {}, ""
        tied: dict[JobFacts, PartitionSet] = {}
        for facts, key in stuck:
            tied[facts] = tied.get(facts, NOTHING) | key
        return tied, self._name_cycle(stuck, needs)

    def _needs(self, jobs: Sequence[JobFacts]) -> dict[_Node, dict[_Node, None]]:
        """Return, for each key of the jobs that may run, those of the jobs that it needs."""
        makers: dict[DatasetFacts, list[tuple[JobFacts, EdgeMapping]]] = {}
        for facts in jobs:
            for output in facts.outputs:
                if output.mapping is not None:
                    makers.setdefault(output.data, []).append((facts, output.mapping))
        needs: dict[_Node, dict[_Node, None]] = {}
        for facts in jobs:
            planned = self.results[facts].planned
            for key in planned.singles():
                found = needs[facts, key] = {}
                if facts.past is not None:
                    before = self.memo.required(facts.past.reads, key) & planned
                    found.update(((facts, one), None) for one in before.singles())
                for edge in facts.live:
                    if edge.mapping is None:
                        continue
                    wanted = self.memo.required(edge.mapping, edge.corrected_by(key))
                    for maker, mapping in makers.get(edge.data, ()):
                        build = self.memo.affected(mapping, wanted) & self.results[maker].planned
                        found.update(((maker, one), None) for one in build.singles())
        return needs

    def _name_cycle(self, tied: set[_Node], needs: Mapping[_Node, Iterable[_Node]]) -> str:
        # One key is one box: its ordinal, and the mask of its static keys.
        node = min(tied, key=lambda n: (n[0].ref, n[1].ordinals.lo, n[1].boxes[0][1]))
        path = [node]
        while True:
            node = next(other for other in needs[node] if other in tied)
            if node in path:
                cycle = [*path[path.index(node) :], node]
                break
            path.append(node)

        def show(facts: JobFacts, key: PartitionSet) -> str:
            assert facts.calendar is not None
            return f"{facts.ref}[{as_text(render(facts.calendar, key)[0])}]"

        return "a cycle: " + " needs ".join(show(*part) for part in cycle)


def _in_cycles(waiting: set[_Node], needs: Mapping[_Node, Iterable[_Node]]) -> set[_Node]:
    """Return the nodes that need themselves, of those that are never ready."""
    if not waiting:
        return set()
    import networkx as nx  # slow to import, and true cycles are rare

    graph = nx.DiGraph((node, one) for node in waiting for one in needs[node] if one in waiting)
    groups = nx.strongly_connected_components(graph)
    return {n for group in groups for n in group if len(group) > 1 or graph.has_edge(n, n)}


def _knows_keys(facts: JobFacts, stale_inputs: Sequence[Input]) -> bool:
    """Whether the stale keys of a blocked job are still known."""
    return not facts.guessed and all(
        edge.mapping is not None and edge.mapping.unbounded is None for edge in stale_inputs
    )


def _joined(sets: Sequence[PartitionSet]) -> PartitionSet:
    return sets[0] if len(sets) == 1 else PartitionSet.union(sets)


def _dirty_inputs(
    facts: JobFacts, dirty: Extents, pruned: Sequence[DatasetRef] = ()
) -> Sequence[Input]:
    held = dirty.by_number
    edges = zip(facts.live, facts.sources, strict=True)
    found = [edge for edge, number in edges if held[number] is not None]
    if pruned:
        return [edge for edge in found if edge.dataset not in pruned]
    return facts.live if len(found) == len(facts.live) else found


def _add(into: dict[DatasetFacts, Dirty], data: DatasetFacts, extent: Dirty) -> None:
    if extent:
        held = into.get(data)
        into[data] = extent if held is None else united(held, extent)


_PLACE: Final = attrgetter("place")


def _order(starts: Iterable[JobFacts], followers: _Followers) -> list[_Group]:
    """Return the reachable jobs in a possible run order, level by level."""
    waiting = dict.fromkeys(starts, 0)
    front = list(waiting)
    for facts in front:
        for follower in followers[facts]:
            if follower in waiting:
                waiting[follower] += 1
            else:
                waiting[follower] = 1
                front.append(follower)
    groups: list[_Group] = []
    placed, ready = 0, [facts for facts in front if not waiting[facts]]
    while ready:
        ready.sort(key=_PLACE)
        groups.append((len(groups) + 1, ready, False))
        placed += len(ready)
        later = []
        for facts in ready:
            for follower in followers[facts]:
                left = waiting[follower] - 1
                if left:
                    waiting[follower] = left
                else:
                    later.append(follower)
        ready = later
    if placed < len(front):
        return list(_order_cycles(sorted(front, key=_PLACE), followers))
    return groups


def _order_cycles(nodes: Sequence[JobFacts], followers: _Followers) -> Iterator[_Group]:
    """Order jobs by strongly connected groups, for graphs with cycles."""
    import networkx as nx  # slow to import, and cycles of datasets are rare

    graph: nx.DiGraph[JobFacts] = nx.DiGraph((job, one) for job in nodes for one in followers[job])
    graph.add_nodes_from(nodes)
    groups = nx.condensation(graph)
    for level, generation in enumerate(nx.topological_generations(groups), 1):
        members = (sorted(groups.nodes[number]["members"], key=_PLACE) for number in generation)
        for tied in sorted(members, key=lambda jobs: jobs[0].place):
            yield level, tied, len(tied) > 1
