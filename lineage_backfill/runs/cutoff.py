"""Early cutoff: keys of a run that need not run, as their inputs are unchanged.

A key is cut off only if every stale partition that it reads now has the contents that the job's own
last run of that key is recorded to have read. The last *write* is not enough: a cancelled backfill
may have repaired the input but not its reader. The run store knows what its own runs wrote, unless
a table's log shows a later change; a partition named as changed is unknown until it is written
again.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import count
from typing import Any, Final

from msgspec import structs

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet, Point
from lineage_backfill.partitions.text import KeySet, expand, parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import DatasetPartitions, Plan, PlannedRun
from lineage_backfill.plans.request_json import request_from_dict
from lineage_backfill.ports import Trace
from lineage_backfill.project.resolve.physical_columns import physical_columns, physical_values
from lineage_backfill.project.resolve.resolver import Input, JobFacts
from lineage_backfill.runs.external import OutsideRuns
from lineage_backfill.staleness.staleness import TableRecord
from lineage_backfill.staleness.table_keys import stored

#: Returns the traces of a job that may overlap these keys.
Traces = Callable[[JobRef, KeySet], Iterable[Trace]]
#: Returns the histories of datasets' tables, for those with a readable log.
Logs = Callable[[Iterable[DatasetRef]], Mapping[DatasetRef, TableRecord]]
#: Contents of partitions, as digests of their fingerprints; None if unknown.
Digests = dict[Point, str | None]

_LENGTH: Final = 16  # characters of a digest: 12 bytes are enough to distinguish contents
_UNKNOWN: Final = "-" * _LENGTH
#: The number of the first trace of this process: above all numbers in the store.
_FIRST_NUMBER: Final = 1 << 62
#: When runs of this process count as begun: later than all runs in the lineage.
_LATER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Held:
    """The contents of a partition by the run store; `digest` is None if uncertain."""

    digest: str | None
    backfill_id: str
    version: int | None
    since: datetime | None


class Cutoff:
    """Judges the runs of a plan and its tails, and tracks what they read and write.

    Runs with other `parameters` are not comparable.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        resolver: Resolver,
        traces: Traces,
        outside: OutsideRuns,
        *,
        logs: Logs,
        backfill_id: str = "",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._resolver = resolver
        self._traces = traces
        self._outside = outside
        self._logs = logs
        self._backfill_id = backfill_id
        self._given = json.dumps(parameters or {}, sort_keys=True, default=str)
        self._planned: dict[JobRef, PartitionSet] = defaultdict(_nothing)
        self._asked: dict[JobRef, PartitionSet] = {}
        self._pruned: dict[JobRef, frozenset[DatasetRef]] = {}
        self._stale: dict[DatasetRef, PartitionSet] = defaultdict(_nothing)
        #: As stated when the plan was made.
        self._changed: dict[DatasetRef, PartitionSet] = defaultdict(_nothing)
        #: By any run of the plan.
        self._read: dict[DatasetRef, PartitionSet] = defaultdict(_nothing)
        self._numbers = count(_FIRST_NUMBER)
        self._known: dict[JobRef, list[Trace]] = {}  # the oldest first
        self._last: dict[JobRef, dict[Point, Trace]] = {}
        self._now: dict[DatasetRef, dict[Point, _Held]] = {}
        self._stored: dict[
            tuple[DatasetRef, frozenset[tuple[str, str]]], dict[frozenset[tuple[str, Any]], Point]
        ] = {}
        for plan in plans:
            self._take(plan)

    def _take(self, plan: Plan) -> None:
        for part in plan.changed:
            calendar = self._resolver.calendar(part.dataset)
            if calendar is not None:
                self._changed[part.dataset] |= parse(calendar, part.keys)
                self._stale[part.dataset] |= parse(calendar, part.keys)
        for job in plan.jobs:
            facts = self._resolver.job(job.job)
            if job.partitions and facts.calendar is not None:
                pruned = job.reason.get("pruned", ())
                self._pruned[job.job] = frozenset(DatasetRef(**ref) for ref in pruned)
                self._take_keys(facts, facts.calendar, parse(facts.calendar, job.partitions))
        for rerun in request_from_dict(plan.request, "the plan").jobs:
            facts = self._resolver.job(rerun.job)
            if facts.calendar is not None:
                keys = facts.calendar.clip(parse(facts.calendar, rerun.keys))
                self._asked[rerun.job] = facts.calendar.with_earlier(keys, facts.lookback)

    def _take_keys(self, facts: JobFacts, calendar: Calendar, keys: PartitionSet) -> None:
        self._planned[facts.ref] |= keys
        for edge in facts.live:
            if edge.mapping is not None:
                reading = calendar.with_later(keys, _lookback(facts, edge))
                self._read[edge.dataset] |= edge.mapping.required_unclipped(reading)
        for output in facts.outputs:
            if output.mapping is not None:
                self._stale[output.dataset] |= output.mapping.required(keys)

    # --- judging --------------------------------------------------------------------------------

    def judge(self, run: PlannedRun) -> tuple[PlannedRun | None, KeySet]:
        """Return the needed part of the run (None: nothing), and the keys that are cut off.

        Call it after all upstream runs have ended.
        """
        facts = self._resolver.job(run.job)
        calendar = facts.calendar
        if calendar is None or not self._last_runs(facts):
            return run, ()
        keys = parse(calendar, run.partitions)
        needed = self._needed(facts, calendar, keys)
        if needed == keys:
            return run, ()
        cut_off = render(calendar, keys - needed)
        return (_narrowed(run, facts, calendar, needed) if needed else None), cut_off

    def without(self, run: PlannedRun, cut_off: KeySet) -> PlannedRun:
        """Return a run without the keys that were cut off earlier."""
        return without(self._resolver, run, cut_off)

    def _needed(self, facts: JobFacts, calendar: Calendar, keys: PartitionSet) -> PartitionSet:
        """Return the keys that must run."""
        needed = keys & self._asked.get(facts.ref, NOTHING)
        groups, unknown = self._by_last_run(facts, keys - needed)
        needed |= unknown
        for trace, group in groups:
            reached = NOTHING
            for edge in facts.live:
                if edge.mapping is None or edge.dataset in self._pruned.get(facts.ref, ()):
                    continue
                stale, changed = self._reached(facts, calendar, edge, group, trace)
                reached |= stale
                needed |= changed
            # A key without stale inputs was planned for a reason unknown here.
            needed |= group - reached
            needed |= self._lost(facts, group - needed)
        return needed

    def _lost(self, facts: JobFacts, keys: PartitionSet) -> PartitionSet:
        """Return the keys whose output has changed since the last run known to the store."""
        lost = NOTHING
        for output in facts.outputs if keys else ():
            if output.mapping is None:
                return keys
            held = self._holds(output.dataset)
            changed = [
                point
                for point in output.mapping.required(keys).points()
                if point in held and self._is_changed_since(output.dataset, point, held[point])
            ]
            lost |= output.mapping.affected(PartitionSet.of_points(changed)) & keys
        return lost

    def _by_last_run(
        self, facts: JobFacts, keys: PartitionSet
    ) -> tuple[list[tuple[Trace, PartitionSet]], PartitionSet]:
        """Return the keys by their last run, and those whose last run is uncertain."""
        last, basis = self._last_runs(facts), self._job_basis(facts)
        groups: dict[int, tuple[Trace, list[Point]]] = {}
        unknown: list[Point] = []
        for point in keys.points():
            trace = last.get(point)
            if trace is None or trace.contents is None or trace.contents["basis"] != basis:
                unknown.append(point)
            else:
                groups.setdefault(trace.number, (trace, []))[1].append(point)
        found, lost = [], PartitionSet.of_points(unknown)
        for trace, points in groups.values():
            group = PartitionSet.of_points(points)
            outside = group & self._outside.since(facts.ref, trace.since)
            lost |= outside
            found.append((trace, group - outside))
        return found, lost

    def _reached(
        self,
        facts: JobFacts,
        calendar: Calendar,
        edge: Input,
        keys: PartitionSet,
        trace: Trace,
    ) -> tuple[PartitionSet, PartitionSet]:
        """Return the keys that read stale partitions of an input, and those that read changed ones.

        A partition that is not stale in this plan also counts if the store knows that it was
        rewritten: an earlier backfill may not have reached this reader.
        """
        mapping, lookback = edge.mapping, _lookback(facts, edge)
        assert mapping is not None
        wanted = mapping.required_unclipped(calendar.with_later(keys, lookback))
        stale = wanted & self._stale.get(edge.dataset, NOTHING)
        stale_points = set(stale.points())
        named = set((wanted & self._changed.get(edge.dataset, NOTHING)).points())
        now = self._holds(edge.dataset)
        read, _ = self._fingerprints(trace, "reads", edge.dataset)
        changed = []
        for point in wanted.points():
            held = now.get(point)
            if held is None:
                is_other = point in stale_points  # changed by a writer unknown to the store
            else:
                is_other = (
                    held.digest is None
                    or read.get(point) != held.digest
                    or (point in named and held.backfill_id != self._backfill_id)
                    or self._is_changed_since(edge.dataset, point, held)
                )
            if is_other:
                changed.append(point)

        def readers(partitions: PartitionSet) -> PartitionSet:
            return calendar.with_earlier(mapping.affected(partitions), lookback) & keys

        return readers(stale), readers(PartitionSet.of_points(changed))

    def _is_changed_since(self, dataset: DatasetRef, point: Point, held: _Held) -> bool:
        """Whether the table's log shows a change after the write recorded in the store.

        Partition locks protect what this process has written.
        """
        if held.since is _LATER or held.version is None:
            return False
        changes = self._last_changes.get(dataset, {})
        if point not in changes:
            return False
        version = changes[point]  # None: others have changed files of a Parquet table
        return version is None or version > held.version

    @cached_property
    def _last_changes(self) -> Mapping[DatasetRef, Mapping[Point, int | None]]:
        """The version of the last change of each partition, from the logs of all tables.

        They are read once, when the first key may be cut off.
        """
        touched = {
            ref: self._read.get(ref, NOTHING) | self._stale.get(ref, NOTHING)
            for ref in self._read | self._stale
        }
        return {
            ref: {
                point: change.version
                for change in record.changes
                for point in (change.keys & touched[ref]).points()
            }
            for ref, record in self._logs(touched).items()
        }

    # --- tracking ------------------------------------------------------------------------

    def opened(self, run: PlannedRun) -> None:
        """Record that the run will be submitted: its outputs become unknown."""
        self._note(self._trace(run, None))

    def closed(self, run: PlannedRun, result: Mapping[str, Any] | None) -> Trace:
        """Record the result file of a successful run, and return its trace."""
        facts = self._resolver.job(run.job)
        contents = None
        if result is not None and facts.calendar is not None and "inputs" in result:
            contents = {
                "basis": self._job_basis(facts),
                "reads": self._packed(result.get("inputs", ())),
                "writes": self._packed(result.get("outputs", ())),
            }
        trace = self._trace(run, contents)
        self._note(trace)
        return trace

    def _trace(self, run: PlannedRun, contents: Mapping[str, Any] | None) -> Trace:
        return Trace(
            job=run.job,
            keys=run.partitions,
            contents=contents,
            backfill_id=self._backfill_id,
            since=_LATER,
            number=next(self._numbers),
        )

    def _note(self, trace: Trace) -> None:
        facts = self._resolver.job(trace.job)
        if facts.calendar is None:
            return
        last = self._last_runs(facts)
        for point in parse(facts.calendar, trace.keys).points():
            last[point] = trace
        for output in facts.outputs:
            self._lay(self._holds(output.dataset), output.dataset, trace)

    # --- from the store -------------------------------------------------------------------

    def _last_runs(self, facts: JobFacts) -> dict[Point, Trace]:
        """Return the newest trace of each run key of a job that is relevant to the plan."""
        found = self._last.get(facts.ref)
        if found is None:
            found = self._last[facts.ref] = {}
            if facts.calendar is not None:
                for trace in self._traces_of(facts):
                    keys = _parsed(facts.calendar, trace.keys)
                    found.update(dict.fromkeys(keys.points(), trace))
        return found

    def _traces_of(self, facts: JobFacts) -> list[Trace]:
        """Return the traces of a job for its planned keys, and for keys that wrote what is read.

        The oldest come first.
        """
        found = self._known.get(facts.ref)
        if found is None:
            keys = self._planned.get(facts.ref, NOTHING)
            for output in facts.outputs:
                if output.mapping is not None and output.dataset in self._read:
                    keys |= output.mapping.affected(self._read[output.dataset])
            traces: Iterable[Trace] = ()
            if facts.calendar is not None and keys:
                traces = self._traces(facts.ref, render(facts.calendar, keys))
            found = self._known[facts.ref] = sorted(traces, key=lambda trace: trace.number)
        return found

    def _holds(self, dataset: DatasetRef) -> dict[Point, _Held]:
        """Return the current contents of a dataset's partitions; absent ones are unknown."""
        found = self._now.get(dataset)
        if found is None:
            found = self._now[dataset] = {}
            writers = [
                self._resolver.job(ref) for ref in self._resolver.edges.writers.get(dataset, ())
            ]
            traces = [trace for facts in writers for trace in self._traces_of(facts)]
            for trace in sorted(traces, key=lambda trace: trace.number):
                self._lay(found, dataset, trace)
            for facts in writers:
                self._doubt(found, dataset, facts)
        return found

    def _lay(self, held: dict[Point, _Held], dataset: DatasetRef, trace: Trace) -> None:
        """Replace the contents of partitions with what one attempt wrote."""
        facts = self._resolver.job(trace.job)
        mapping = next(one.mapping for one in facts.outputs if one.dataset == dataset)
        if mapping is None or facts.calendar is None:
            return
        written, version = self._fingerprints(trace, "writes", dataset)
        for point in mapping.required(_parsed(facts.calendar, trace.keys)).points():
            one = _Held(written.get(point), trace.backfill_id, version, trace.since)
            if not _ended_later(held.get(point), one):
                held[point] = one

    def _doubt(self, held: dict[Point, _Held], dataset: DatasetRef, facts: JobFacts) -> None:
        """Mark partitions as unknown that a run outside of this store may have written since."""
        latest: dict[PartitionSet, datetime | None] = {}
        mapping = next(one.mapping for one in facts.outputs if one.dataset == dataset)
        for run in self._outside.of(facts.ref) if mapping is not None else ():
            assert mapping is not None
            written = mapping.required(run.keys)
            known = latest.get(written, run.ended_at)
            latest[written] = known and run.ended_at and max(known, run.ended_at)
        for written, ended_at in latest.items():
            for point, one in held.items():
                if point in written and (
                    ended_at is None or one.since is None or ended_at >= one.since
                ):
                    held[point] = replace(one, digest=None)

    # --- the documents --------------------------------------------------------------------------

    def _packed(self, parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the partitions of a result file with their fingerprints, range by range."""
        packed = []
        for part in parts:
            dataset = DatasetRef(part["dataset"]["namespace"], part["dataset"]["name"])
            calendar = self._resolver.calendar(dataset)
            if calendar is None:
                continue
            digests: dict[Point, str] = {}
            for one in part["partitions"]:
                points = self._named(dataset, calendar, one, part.get("types") or {})
                digests.update(dict.fromkeys(points, _digest(one.get("fingerprint"))))
            keys = PartitionSet.of_points(digests)
            packed.append(
                {
                    "dataset": [dataset.namespace, dataset.name],
                    "basis": self._dataset_basis(dataset, calendar),
                    "version": part.get("version"),
                    "keys": render(calendar, keys),
                    "digests": "".join(digests[point] for point in keys.points()),
                }
            )
        return packed

    def _named(
        self,
        dataset: DatasetRef,
        calendar: Calendar,
        partition: Mapping[str, Any],
        types: Mapping[str, str],
    ) -> Iterable[Point]:
        """Return the partition in a result file, by its key or by its column values.

        A run that reads a whole table gets no keys, and reports the column values.
        """
        values = partition.get("values")
        if values is None:
            return _parsed(calendar, (partition["key"],)).points()

        def told(values: Mapping[str, str | None]) -> frozenset[tuple[str, str | None]]:
            return frozenset((c, stored(text, types.get(c, ""))) for c, text in values.items())

        which = dataset, frozenset(types.items())
        if which not in self._stored:
            declared = self._resolver.dataset_declaration(dataset)
            columns = physical_columns(declared) if declared else {}
            self._stored[which] = {
                told(physical_values(key, columns)): point
                for point in calendar.existing.points()
                for key in expand(calendar, PartitionSet.of_points([point]))
            }
        point = self._stored[which].get(told(values))
        return () if point is None else (point,)

    def _fingerprints(
        self, trace: Trace, what: str, dataset: DatasetRef
    ) -> tuple[Digests, int | None]:
        """Return a dataset's contents as an attempt read or wrote it, and the table's version."""
        calendar = self._resolver.calendar(dataset)
        name = [dataset.namespace, dataset.name]
        parts = () if trace.contents is None or calendar is None else trace.contents[what]
        for part in parts:
            assert calendar is not None
            if part["dataset"] != name or part["basis"] != self._dataset_basis(dataset, calendar):
                continue
            points = list(_parsed(calendar, part["keys"]).points())
            text = part["digests"]
            digests = [text[at : at + _LENGTH] for at in range(0, len(text), _LENGTH)]
            if len(points) == len(digests):  # otherwise its calendar has other bounds now
                known = (None if one == _UNKNOWN else one for one in digests)
                return dict(zip(points, known, strict=True)), part["version"]
        return {}, None

    def _job_basis(self, facts: JobFacts) -> str:
        """Return what must be equal for two runs of a job to be comparable."""
        assert facts.calendar is not None
        return _hash(*_identity(facts.calendar), facts.lookback, self._given)

    def _dataset_basis(self, dataset: DatasetRef, calendar: Calendar) -> str:
        """Return what must be equal for a dataset's keys to mean the same partitions."""
        declared = self._resolver.dataset_declaration(dataset)
        stored = (declared.location, declared.table, declared.columns) if declared else ()
        return _hash(*_identity(calendar), *stored)


def without(resolver: Resolver, run: PlannedRun, cut_off: KeySet) -> PlannedRun:
    """Return a run without some of its keys, and without their reads and writes."""
    facts = resolver.job(run.job)
    if not cut_off or facts.calendar is None:
        return run
    keys = parse(facts.calendar, run.partitions) - parse(facts.calendar, cut_off)
    return _narrowed(run, facts, facts.calendar, keys)


def _narrowed(
    run: PlannedRun, facts: JobFacts, calendar: Calendar, keys: PartitionSet
) -> PlannedRun:
    edges = {edge.dataset: edge for edge in facts.inputs}
    reads = []
    for part in run.reads:
        edge = edges[part.dataset]
        if part.keys is None or edge.mapping is None:
            reads.append(part)
            continue
        reading = calendar.with_later(keys, _lookback(facts, edge))
        upstream = edge.mapping.upstream
        wanted = edge.mapping.required_unclipped(reading) & parse(upstream, part.keys)
        reads.append(DatasetPartitions(dataset=part.dataset, keys=render(upstream, wanted)))
    writes = [
        DatasetPartitions(
            dataset=output.dataset,
            keys=render(output.mapping.upstream, output.mapping.required(keys)),
        )
        for output in facts.outputs
        if output.mapping is not None
    ]
    return structs.replace(
        run,
        partitions=render(calendar, keys),
        count=len(keys),
        reads=tuple(reads),
        writes=tuple(writes),
    )


def _lookback(facts: JobFacts, edge: Input) -> int:
    """Return how far the reads along an edge are widened; not at all to the job's own output."""
    return 0 if edge.own else facts.lookback


def _ended_later(held: _Held | None, other: _Held) -> bool:
    """Whether the first of two runs of a backfill that merged into one partition ended later."""
    return (
        held is not None
        and held.digest is not None
        and held.version is not None
        and other.version is not None
        and held.backfill_id == other.backfill_id
        and held.version > other.version
    )


def _identity(calendar: Calendar) -> Iterator[object]:
    yield calendar.zone
    yield calendar.order
    for axis in calendar.statics:
        yield axis.name, axis.keys
    if calendar.time is not None:
        grid = calendar.time.grid
        yield grid.family, grid.label(grid.at(0))  # slices of N minutes are counted from a start


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _digest(fingerprint: str | None) -> str:
    if fingerprint is None:
        return _UNKNOWN
    digest = hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest[: _LENGTH * 3 // 4]).decode()


def _parsed(calendar: Calendar, keys: Sequence[Any]) -> PartitionSet:
    """Return the keys that exist in the calendar."""
    found = NOTHING
    for key in keys:
        with suppress(UsageError):
            found |= parse(calendar, (key,))
    return found


def _nothing() -> PartitionSet:
    return NOTHING
