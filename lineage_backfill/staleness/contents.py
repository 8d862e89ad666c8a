"""What partitions hold now, and what run keys last read, by the fingerprints of recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet, Point
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.resolve.resolver import Input, JobFacts
from lineage_backfill.staleness.digests import DigestCodec
from lineage_backfill.staleness.record import LATER, Change, Run, TableRecord

#: Returns the recorded runs of a job, oldest first.
Runs = Callable[[JobRef], Iterable[Run]]


@dataclass(frozen=True, slots=True)
class _Held:
    """The content of a partition, and the run that wrote it; `digest` is None if uncertain."""

    digest: str | None
    version: int | None
    run: Run


class Contents:
    """Finds the run keys whose inputs hold what the keys' own last runs read.

    A partition has a known content if the last run that may have written it reported a fingerprint,
    and its table's log shows no later change. `doubted` partitions count as unknown unless
    `backfill` wrote them. `parameters` is a hash: runs with others are not comparable.
    """

    def __init__(
        self,
        resolver: Resolver,
        runs: Runs,
        tables: Callable[[DatasetRef], TableRecord | None],
        *,
        parameters: str | None = None,
        doubted: Mapping[DatasetRef, PartitionSet] | None = None,
        backfill: str = "",
    ) -> None:
        self._resolver = resolver
        self._runs = runs
        self._tables = tables
        self._parameters = parameters
        self._doubted = doubted or {}
        self._backfill = backfill
        self._codec = DigestCodec(resolver)
        self._last: dict[JobRef, dict[Point, Run]] = {}
        self._others: dict[JobRef, dict[PartitionSet, Run]] = {}
        self._now: dict[DatasetRef, dict[Point, _Held]] = {}
        self._changes: dict[DatasetRef, dict[Point, Change]] = {}

    def differing(
        self,
        facts: JobFacts,
        keys: PartitionSet,
        edges: Iterable[Input],
        changed: Mapping[DatasetRef, PartitionSet],
    ) -> PartitionSet:
        """Return the keys whose inputs along these edges may differ from what they last read.

        An input partition of unknown content counts only if it is among the `changed` ones.
        """
        edges = list(edges)
        groups, found = self._by_last_run(facts, keys)
        for run, group in groups:
            for edge in edges:
                found |= self._behind(facts, edge, group - found, run, changed)
            found |= self._rewritten(facts, group - found)
        return found

    def has_runs(self, facts: JobFacts) -> bool:
        """Whether any run of our own is recorded for a job."""
        return bool(self._last_runs(facts))

    def add(self, facts: JobFacts, run: Run) -> None:
        """Add a run that has begun or ended after all others."""
        if facts.calendar is None:
            return
        self._last_runs(facts).update(dict.fromkeys(run.keys.points(), run))
        for output in facts.outputs:
            _lay(self._held(output.dataset), self._written(facts, output.dataset, run))

    def _behind(
        self,
        facts: JobFacts,
        edge: Input,
        keys: PartitionSet,
        run: Run,
        changed: Mapping[DatasetRef, PartitionSet],
    ) -> PartitionSet:
        """Return the keys that read a partition whose content is not what the run read."""
        mapping = edge.mapping
        if mapping is None or not keys:
            return keys
        now = self._held(edge.dataset)
        read, _ = self._codec.digests(run.document, "reads", edge.dataset)
        uncertain = set(changed.get(edge.dataset, NOTHING).points())
        others = []
        for point in mapping.required_unclipped(edge.corrected_by(keys)).points():
            held = now.get(point)
            if held is None:
                is_other = point in uncertain  # written by a job that no record shows
            else:
                is_other = (
                    held.digest is None
                    or read.get(point) != held.digest
                    or self._is_superseded(edge.dataset, point, held)
                )
            if is_other:
                others.append(point)
        readers = mapping.affected(PartitionSet.of_points(others))
        return edge.corrects(readers) & keys

    def _rewritten(self, facts: JobFacts, keys: PartitionSet) -> PartitionSet:
        """Return the keys whose output was changed by others since their last run."""
        found = NOTHING
        for output in facts.outputs if keys else ():
            if output.mapping is None:
                return keys
            held = self._held(output.dataset)
            changed = [
                point
                for point in output.mapping.required(keys).points()
                if point in held and self._is_superseded(output.dataset, point, held[point])
            ]
            found |= output.mapping.affected(PartitionSet.of_points(changed)) & keys
        return found

    def _is_superseded(self, dataset: DatasetRef, point: Point, held: _Held) -> bool:
        """Whether the table's log shows a change after the recorded write.

        Partition locks protect what this process has written.
        """
        if held.run.started_at is LATER:
            return False
        changes = self._changes.get(dataset)
        if changes is None:
            table = self._tables(dataset)
            changes = self._changes[dataset] = {
                point: change
                for change in (table.changes if table is not None else ())
                for point in change.keys.points()
            }
        change = changes.get(point)
        if change is None:
            return False
        if held.version is None:
            return change.at > (held.run.ended_at or held.run.started_at)
        # Without a version, files were changed without a commit.
        return change.version is None or change.version > held.version

    # --- runs -----------------------------------------------------------------------------------

    def _last_runs(self, facts: JobFacts) -> dict[Point, Run]:
        """Return the newest run of our own of each run key."""
        found = self._last.get(facts.ref)
        if found is None:
            found = self._last[facts.ref] = {}
            for run in self._runs(facts.ref):
                if run.is_ours:
                    found.update(dict.fromkeys(run.keys.points(), run))
        return found

    def _by_last_run(
        self, facts: JobFacts, keys: PartitionSet
    ) -> tuple[list[tuple[Run, PartitionSet]], PartitionSet]:
        """Return the keys by their last run, and those whose last run proves nothing."""
        last = self._last_runs(facts)
        groups: dict[Run, list[Point]] = {}
        unknown: list[Point] = []
        for point in keys.points():
            run = last.get(point)
            if run is None:
                unknown.append(point)
            else:
                groups.setdefault(run, []).append(point)
        found, doubtful = [], PartitionSet.of_points(unknown)
        for run, points in groups.items():
            group = PartitionSet.of_points(points)
            if self._proves(facts, run):
                since = [one.keys for one in self._outside(facts) if one.may_end_after(run)]
                outside = group & PartitionSet.union(since)
                doubtful |= outside
                found.append((run, group - outside))
            else:
                doubtful |= group
        return found, doubtful

    def _proves(self, facts: JobFacts, run: Run) -> bool:
        return self._codec.is_comparable(facts, run.document, self._parameters)

    def _outside(self, facts: JobFacts) -> Iterable[Run]:
        """Return the runs of a job that only have times: the last one for each set of keys."""
        found = self._others.get(facts.ref)
        if found is None:
            found = self._others[facts.ref] = {}
            for run in self._runs(facts.ref):
                held = found.get(run.keys)
                if not run.is_ours and (held is None or _ends_later(run, held)):
                    found[run.keys] = run
        return found.values()

    # --- contents -------------------------------------------------------------------------------

    def _held(self, dataset: DatasetRef) -> dict[Point, _Held]:
        """Return the current contents of a dataset's partitions; absent ones are unknown."""
        found = self._now.get(dataset)
        if found is None:
            found = self._now[dataset] = {}
            writers = [
                self._resolver.job(ref) for ref in self._resolver.edges.writers.get(dataset, ())
            ]
            every = [(run, facts) for facts in writers for run in self._runs(facts.ref)]
            for run, facts in sorted(every, key=lambda one: one[0].number):
                if run.is_ours:
                    _lay(found, self._written(facts, dataset, run))
            for facts in writers:
                for run in self._outside(facts):
                    self._doubt(found, dataset, facts, run)
            doubted = self._doubted.get(dataset, NOTHING)
            for point, held in found.items():
                if point in doubted and held.run.backfill != self._backfill:
                    found[point] = replace(held, digest=None)
        return found

    def _written(
        self, facts: JobFacts, dataset: DatasetRef, run: Run
    ) -> Iterator[tuple[Point, _Held]]:
        """Yield what a run wrote, or may have written."""
        mapping = next(one.mapping for one in facts.outputs if one.dataset == dataset)
        if mapping is None or facts.calendar is None:
            return
        written, version = self._codec.digests(run.document, "writes", dataset)
        for point in mapping.required(run.keys).points():
            yield point, _Held(written.get(point), version, run)

    @staticmethod
    def _doubt(
        held: dict[Point, _Held], dataset: DatasetRef, facts: JobFacts, outside: Run
    ) -> None:
        """Mark partitions as unknown that an outside run may have written since."""
        mapping = next(one.mapping for one in facts.outputs if one.dataset == dataset)
        written = mapping.required(outside.keys) if mapping is not None else NOTHING
        for point, one in held.items():
            if one.digest is not None and point in written and outside.may_end_after(one.run):
                held[point] = replace(one, digest=None)


def _ends_later(run: Run, other: Run) -> bool:
    return run.ended_at is None or (other.ended_at is not None and run.ended_at > other.ended_at)


def _lay(held: dict[Point, _Held], written: Iterable[tuple[Point, _Held]]) -> None:
    """Replace the contents of partitions with what a later run wrote.

    Of two runs of a backfill that merged into one partition, the later version counts.
    """
    for point, one in written:
        before = held.get(point)
        is_later = (
            before is None
            or before.digest is None
            or before.version is None
            or one.version is None
            or before.run.backfill != one.run.backfill
            or before.version <= one.version
        )
        if is_later:
            held[point] = one
