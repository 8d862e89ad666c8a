"""Finds partitions that are missing or older than their inputs.

The inputs of a partition are known from the commit that wrote it, if the job records the versions
that it read; else from the start of its run; else from the time of the commit. A partition is stale
if an input partition changed later. What cannot be known is reported, not guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.coverage import covers
from lineage_backfill.partitions.keys import NOTHING, PartitionSet, Point
from lineage_backfill.partitions.mapping import paired_axes
from lineage_backfill.partitions.text import render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.request import ChangedJob
from lineage_backfill.project.resolve.resolver import Input, JobFacts, Output, never_written
from lineage_backfill.staleness.contents import Contents, Runs
from lineage_backfill.staleness.record import LATER, Change, PartitionBuild, Run, TableRecord

_FILES = "files of {} that others wrote hold rows of several keys each"


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """Run keys that are older than an input, which last changed at `at`."""

    dataset: DatasetRef
    keys: PartitionSet
    at: datetime
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingInput:
    """Partitions of an input that were never written."""

    dataset: DatasetRef
    calendar: Calendar
    keys: PartitionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """The staleness of the run keys of one job.

    `missing` were never written, `older` were written before an input changed, `running` are being
    written. `unjudged` cannot be judged; `why` explains it. `missing_inputs` are inputs that no job
    writes and that do not exist; `waiting` are the keys that fail until they are written.
    """

    job: JobRef
    calendar: Calendar | None
    missing: PartitionSet = NOTHING
    older: tuple[Older, ...] = ()
    running: PartitionSet = NOTHING
    unjudged: PartitionSet = NOTHING
    why: tuple[str, ...] = ()
    missing_inputs: tuple[MissingInput, ...] = ()
    waiting: PartitionSet = NOTHING

    @property
    def runnable(self) -> PartitionSet:
        """The stale keys that can run now."""
        return self.stale - self.waiting

    @property
    def stale(self) -> PartitionSet:
        """The run keys that were never written or are older than their inputs."""
        keys = self.missing
        for one in self.older:
            keys |= one.keys
        return keys

    @property
    def is_unknown(self) -> bool:
        """Whether none of its keys could be judged."""
        if not self.why or self.stale or self.running:
            return False
        unjudged = self.unjudged
        return self.calendar is None or not unjudged or not self.calendar.existing - unjudged

    def asked(self) -> ChangedJob | None:
        """Return a request for exactly the keys that can run now; None if there are none."""
        keys = self.runnable
        if not keys:
            return None
        assert self.calendar is not None
        return ChangedJob(job=self.job, keys=render(self.calendar, keys), exact=True)


def find_stale(
    resolver: Resolver,
    *,
    tables: Mapping[DatasetRef, TableRecord],
    runs: Runs,
    jobs: Collection[JobRef],
    since: datetime | None = None,
) -> tuple[Staleness, ...]:
    """Return the staleness of each job, without keys that end before `since`."""
    judge = Judge(resolver, tables, runs, since=since)
    return tuple(judge.job(resolver.job(ref)) for ref in sorted(jobs))


class Judge:
    """Decides which run keys are stale, by one record of tables and runs.

    An input partition has changed since a key last read it if a later change is recorded, by
    version or else by time, unless both are proven to have the same content. Changes of `claimed`
    partitions are left out: cutoff judges them by content alone. So are `ignored` inputs.
    """

    def __init__(
        self,
        resolver: Resolver,
        tables: Mapping[DatasetRef, TableRecord],
        runs: Runs,
        *,
        since: datetime | None = None,
        contents: Contents | None = None,
        claimed: Mapping[DatasetRef, PartitionSet] | None = None,
        ignored: Collection[DatasetRef] = (),
    ) -> None:
        self._resolver = resolver
        self._tables = tables
        self._runs = runs
        self._since = since
        self._contents = contents or Contents(resolver, runs, tables.get)
        self._claimed = claimed or {}
        self._ignored = ignored
        self._changes: dict[DatasetRef, tuple[Change, ...]] = {}

    def job(self, facts: JobFacts) -> Staleness:
        """Return the staleness of one job."""
        calendar = facts.calendar
        problem = facts.problem or next((one.data.unknown[0] for one in facts.unknown), "")
        if calendar is None or problem:
            why = problem or "the partitioning of its runs is unknown"
            return Staleness(job=facts.ref, calendar=calendar, why=(why,))
        found = [self._side(facts, side, calendar) for side in self._sides(facts, calendar)]
        running = self._running(facts.ref) & self._wanted(calendar, found)
        joined = _joined(facts.ref, calendar, found, running)
        return replace(joined, missing_inputs=tuple(self._missing_inputs(facts, joined.stale)))

    @staticmethod
    def _sides(facts: JobFacts, calendar: Calendar) -> list[_Side]:
        sides = [_Side.of(output, calendar) for output in facts.outputs]
        return sides or [_Side.itself(calendar)]

    def _running(self, job: JobRef) -> PartitionSet:
        return PartitionSet.union(run.keys for run in self._runs(job) if run.ended_at is None)

    def _evidence(self, facts: JobFacts, side: _Side) -> _Evidence:
        table = self._table(facts, side)
        return _Evidence(side, table, self._runs(facts.ref), facts.ref)

    def _missing_inputs(self, facts: JobFacts, stale: PartitionSet) -> Iterator[MissingInput]:
        """Yield input partitions that stale keys read, that no job writes and that do not exist."""
        for edge in facts.live if stale else ():
            table, calendar = self._tables.get(edge.dataset), edge.data.calendar
            made = self._resolver.edges.writers.get(edge.dataset)
            if made or table is None or calendar is None or edge.on_missing == "read":
                continue
            if edge.is_sparse:
                continue
            lost = never_written(edge, stale, table.written) if table.is_whole else NOTHING
            if lost:
                yield MissingInput(dataset=edge.dataset, calendar=calendar, keys=lost)

    @staticmethod
    def _wanted(calendar: Calendar, found: Iterable[Staleness]) -> PartitionSet:
        keys = NOTHING
        for one in found:
            keys |= one.stale
        return calendar.clip(keys)

    # --- one output -----------------------------------------------------------------------------

    def _side(self, facts: JobFacts, side: _Side, calendar: Calendar) -> Staleness:
        known = self._evidence(facts, side)
        wanted = side.written(self._existing(calendar, side, known))
        judged, why = known.judged(wanted)
        missing = self._expected(facts, side, judged - known.made, known.made)
        older, unsure = [], NOTHING
        for edge in facts.live:
            if edge.dataset in self._ignored:
                continue
            stale, newest, doubt, trouble = self._older(facts, side, known, edge)
            unsure |= doubt & judged
            stale = side.run_keys(stale & wanted)
            if stale and newest is not None:
                older.append(
                    Older(dataset=edge.dataset, keys=stale, at=newest.at, version=newest.version)
                )
                if not newest.is_exact:
                    why += (f"perhaps too many: {_FILES.format(edge.dataset)}",)
            why += trouble
        if unsure:
            why += ("the logs do not go back to its last write, or to its inputs",)
        return Staleness(
            job=facts.ref,
            calendar=calendar,
            missing=side.run_keys(missing),
            older=tuple(older),
            unjudged=side.run_keys((wanted - judged) | unsure),
            why=why,
        )

    def _expected(
        self, facts: JobFacts, side: _Side, missing: PartitionSet, made: PartitionSet
    ) -> PartitionSet:
        """Return those of the missing partitions that have to exist; none of a sparse output.

        Of runtime keys these are the keys that an input holds. Where no input has them, a period
        is missing if none of its keys was made.
        """
        if side.output is not None and side.output.data.is_sparse:
            return NOTHING
        if not side.calendar.is_open or not missing:
            return missing
        held = [
            found for edge in facts.live if (found := self._held(facts, side, edge)) is not None
        ]
        if held:
            return missing & PartitionSet.union(held)
        mask = side.calendar.full_mask
        return missing - PartitionSet.of((ordinals, mask) for ordinals, _ in made.boxes)

    def _held(self, facts: JobFacts, side: _Side, edge: Input) -> PartitionSet | None:
        """Return the partitions that an input with keys of their dimension leads to."""
        table, calendar = self._tables.get(edge.dataset), edge.data.calendar
        if table is None or calendar is None or edge.own or facts.calendar is None:
            return None
        open_axes = {axis.name for axis in facts.calendar.statics if axis.runtime}
        if not open_axes <= paired_axes(calendar, facts.calendar).keys():
            return None
        return self._reached(facts, side, edge, table.written)

    def _table(self, facts: JobFacts, side: _Side) -> TableRecord | None:
        """Return the facts in a log about the partitions that this job writes, if any."""
        if side.output is None:
            return None
        table = self._tables.get(side.output.dataset)
        if table is None:
            return None
        alone = self._resolver.edges.writers.get(side.output.dataset, ()) == (facts.ref,)
        if alone:
            return table
        # With several writers, a commit must name its job.
        if any(build.job is None for build in table.builds) or table.old:
            return None
        return TableRecord(
            changes=table.changes,
            builds=tuple(one for one in table.builds if one.job == facts.ref),
            since=table.since,
            whole=table.whole,
        )

    def _existing(self, calendar: Calendar, side: _Side, known: _Evidence) -> PartitionSet:
        """Return the existing run keys in question."""
        keys = calendar.existing
        time = calendar.time
        if time is None:
            return keys
        first = time.first
        if first is None:
            made = side.run_keys(known.made).ordinals
            first = made.lo if made else time.last + 1
        if self._since is not None:
            first = max(first, time.grid.at(int(self._since.timestamp())))
        return keys.map_time(lambda held: held.clip(first, time.last))

    # --- one input ------------------------------------------------------------------------------

    def _older(
        self, facts: JobFacts, side: _Side, known: _Evidence, edge: Input
    ) -> tuple[PartitionSet, Change | None, PartitionSet, tuple[str, ...]]:
        """Return the partitions written before the input changed, and those that may have been.

        Also returns the newest of those changes, and what cannot be known, as text.
        """
        changes = self._changes_of(edge.dataset)
        if changes is None:
            return NOTHING, None, NOTHING, (f"it is not recorded when {edge.dataset} changed",)
        before = known.by_place(edge.dataset, changes)
        stale = seen = doubt = NOTHING
        newest, is_exact = None, True
        table = self._tables.get(edge.dataset)
        if table is not None and table.since is not None:
            # Its log no longer shows whether it changed before or after they were written.
            reached = self._reached(facts, side, edge, table.old)
            doubt |= reached & known.made_before(table.since)
        for place, change in enumerate(changes):
            seen |= before.get(place, NOTHING)
            reached = self._reached(facts, side, edge, change.keys)
            hit = self._differing(facts, side, edge, reached & seen, change.keys)
            if hit:
                stale |= hit
                is_exact &= change.is_exact
                newest = replace(change, is_exact=is_exact)
            if known.since is not None and reached & known.old:
                if change.at >= known.since:
                    stale |= reached & known.old
                    newest = change
                else:
                    doubt |= reached & known.old
        return stale, newest, doubt - stale, ()

    def _differing(
        self,
        facts: JobFacts,
        side: _Side,
        edge: Input,
        partitions: PartitionSet,
        changed: PartitionSet,
    ) -> PartitionSet:
        """Return the partitions of the output, without those proven to come from equal contents."""
        keys = side.run_keys(partitions)
        if not keys:
            return keys
        keys = self._contents.differing(facts, keys, [edge], {edge.dataset: changed})
        return partitions & side.written(keys)

    def _reached(
        self, facts: JobFacts, side: _Side, edge: Input, changed: PartitionSet
    ) -> PartitionSet:
        """Return the partitions of the output that are built from these of the input."""
        assert edge.mapping is not None
        return side.written(edge.corrects(edge.mapping.affected(changed)))

    def _changes_of(self, dataset: DatasetRef) -> tuple[Change, ...] | None:
        """Return the changes of a dataset, oldest first; None if not recorded."""
        if dataset not in self._changes:
            table = self._tables.get(dataset)
            found = self._by_runs(dataset) if table is None else table.changes
            claimed = self._claimed.get(dataset)
            if claimed:
                found = [replace(one, keys=one.keys - claimed) for one in found]
            self._changes[dataset] = tuple(found)
        known = self._changes[dataset]
        return known if known or dataset in self._tables else None

    def _by_runs(self, dataset: DatasetRef) -> Sequence[Change]:
        """Return the changes of a dataset from the runs of its writers."""
        found = []
        for writer in self._resolver.edges.writers.get(dataset, ()):
            for output in self._resolver.job(writer).outputs:
                if output.dataset == dataset and output.mapping is not None:
                    found += [
                        Change(keys=output.mapping.required(run.keys), at=run.ended_at)
                        for run in self._runs(writer)
                        if run.is_certain and run.ended_at is not None
                    ]
        return sorted(found, key=lambda change: change.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One output of a job; or its own run keys, if they are more precise."""

    calendar: Calendar
    output: Output | None = None

    @classmethod
    def of(cls, output: Output, run: Calendar) -> _Side:
        """Return the side of an output; the run keys if each writes only part of a partition."""
        calendar = output.data.calendar
        assert calendar is not None
        return cls(calendar=calendar, output=output) if covers(run, calendar) else cls.itself(run)

    @classmethod
    def itself(cls, run: Calendar) -> _Side:
        """Return the run keys as the side that is written."""
        return cls(calendar=run)

    def written(self, keys: PartitionSet) -> PartitionSet:
        """Return the partitions that run keys write."""
        if self.output is None or self.output.mapping is None:
            return keys
        return self.output.mapping.required(keys)

    def run_keys(self, partitions: PartitionSet) -> PartitionSet:
        """Return the run keys that write partitions."""
        if self.output is None or self.output.mapping is None:
            return partitions
        return self.output.mapping.affected(partitions)


class _Evidence:
    """The last build of each partition of an output, from table log and recorded runs."""

    def __init__(
        self, side: _Side, table: TableRecord | None, runs: Iterable[Run], job: JobRef
    ) -> None:
        self._table = table
        self.old = table.old if table is not None else NOTHING
        self.since = table.since if table is not None else None
        by_point: dict[Point, PartitionBuild] = {}
        changed: dict[Point, datetime] = {}
        for build in table.builds if table is not None else ():
            by_point.update(dict.fromkeys(build.keys.points(), build))
        for change in table.changes if table is not None else ():
            changed.update(dict.fromkeys(change.keys.points(), change.at))
        ended = (run for run in runs if run.is_certain and run.ended_at is not None)
        for run in sorted(ended, key=lambda run: run.ended_at or LATER):
            _add_run(by_point, changed, side.written(run.keys), run, job)
        self._groups = _grouped(by_point)
        self.made = self.old
        for keys in self._groups.values():
            self.made |= keys
        self.old -= PartitionSet.union(self._groups.values())

    def judged(self, wanted: PartitionSet) -> tuple[PartitionSet, tuple[str, ...]]:
        """Return the partitions for which it is known whether they were written."""
        table = self._table
        if table is not None and table.whole:
            groups = self._groups.items()
            unsure = wanted & PartitionSet.union(k for one, k in groups if not one.is_certain)
            return wanted - unsure, (_FILES.format("its output"),) if unsure else ()
        if not self.made:
            return NOTHING, ("no table log and no recorded run shows when it was written",)
        if table is not None:
            return wanted & self.made, ("the log of its table is incomplete",)
        first = self.made.ordinals.lo
        known = wanted.map_time(lambda ordinals: ordinals.clip(first, ordinals.hi))
        if known == wanted:
            return wanted, ()
        return known, ("the recorded runs do not go back so far",)

    def made_before(self, instant: datetime) -> PartitionSet:
        """Return the partitions that may have been built from data before the instant."""
        found = [keys for one, keys in self._groups.items() if (one.read_at or one.at) < instant]
        return PartitionSet.union([*found, self.old])

    def by_place(
        self, dataset: DatasetRef, changes: Sequence[Change]
    ) -> Mapping[int, PartitionSet]:
        """Return the partitions by the number of changes that their build included."""
        times = [change.at for change in changes]
        versions = [change.version for change in changes]
        known = [version for version in versions if version is not None]
        found: dict[int, PartitionSet] = defaultdict(lambda: NOTHING)
        for build, keys in self._groups.items():
            # A table that began later has its own numbers: it was dropped and created again.
            is_it = len(known) == len(changes) and not (times and times[0] > build.at)
            if dataset in build.read and is_it:
                place = bisect_right(known, build.read[dataset])
            else:
                place = bisect_right(times, build.read_at or build.at)
            found[place] |= keys
        return found


def _add_run(
    by_point: dict[Point, PartitionBuild],
    changed: Mapping[Point, datetime],
    written: PartitionSet,
    run: Run,
    job: JobRef,
) -> None:
    """Apply what a recorded run wrote, unless a later commit contradicts it."""
    assert run.ended_at is not None
    alone = PartitionBuild(
        keys=written, at=run.ended_at, read_at=run.started_at, read=run.read, job=job
    )
    joined: dict[PartitionBuild, PartitionBuild] = {}
    for point in written.points():
        known = by_point.get(point)
        if point in changed and changed[point] > run.ended_at:
            continue  # someone else committed later, or it was undone
        if known is None or run.started_at >= known.at:
            by_point[point] = alone  # there was nothing to commit, or nothing changed
        elif not known.read:
            # The commit is this run's; its inputs are at most as new as its start.
            found = replace(known, read_at=run.started_at, read=run.read, job=job, is_certain=True)
            joined.setdefault(known, found)
            by_point[point] = joined[known]


def _grouped(by_point: Mapping[Point, PartitionBuild]) -> dict[PartitionBuild, PartitionSet]:
    points: dict[PartitionBuild, list[Point]] = {}
    for point, build in by_point.items():
        points.setdefault(build, []).append(point)
    return {build: PartitionSet.of_points(found) for build, found in points.items()}


def _joined(
    job: JobRef, calendar: Calendar, found: Sequence[Staleness], running: PartitionSet
) -> Staleness:
    """Return the staleness of a job with several outputs: stale in one is stale."""
    missing = PartitionSet.union(one.missing for one in found) - running
    older: dict[DatasetRef, Older] = {}
    for item in (item for one in found for item in one.older):
        held = older.get(item.dataset)
        keys = item.keys - missing - running
        newest = item if held is None or item.at > held.at else held
        if held is not None:
            keys |= held.keys
        if keys:
            older[item.dataset] = replace(newest, keys=keys)
    stale = PartitionSet.union([missing, *(one.keys for one in older.values())])
    return Staleness(
        job=job,
        calendar=calendar,
        missing=missing,
        older=tuple(older.values()),
        running=running,
        unjudged=PartitionSet.union(one.unjudged for one in found) - stale - running,
        why=tuple(dict.fromkeys(text for one in found for text in one.why)),
    )
