"""Resolves jobs and datasets from lineage and declarations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.identity.families import Family, find_families
from lineage_backfill.lineage.identity.merge import last_completed
from lineage_backfill.lineage.inference import infer
from lineage_backfill.lineage.inference.recorded import whole_keys
from lineage_backfill.lineage.snapshot import LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.mapping import KeyFunction, Record
from lineage_backfill.partitions.memo import KeyMemo
from lineage_backfill.partitions.text import parse, parse_partitions
from lineage_backfill.planning.edges import Edges
from lineage_backfill.planning.runtime import RuntimeKeys
from lineage_backfill.plans.request import Request
from lineage_backfill.project.declarations import CalendarDeclaration, Declarations
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import DeclaredNames
from lineage_backfill.project.resolve.resolver import (
    DatasetFacts,
    DeclarationResolver,
    JobFacts,
    Output,
    OwnInput,
)
from lineage_backfill.project.unmatched import Unmatched, unmatched

#: For each job, and at least, before results of mappings are found again by the next plan: so few
#: that a planner which serves many requests holds less than twice what it does after ten.
_MOST_RESULTS: Final = (4, 64)
#: Ways of writing that leave what others wrote.
ADDING: Final = ("append", "merge")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
K = TypeVar("K")
V = TypeVar("V")


class _Lazy(dict[K, V]):
    """A mapping that computes values on first lookup."""

    def __init__(self, find: Callable[[K], V]) -> None:
        self._find = find

    def __missing__(self, key: K) -> V:
        found = self[key] = self._find(key)
        return found


class Resolver(DeclarationResolver):
    """Resolves lineage and declarations lazily, each dataset and job once, at one time.

    It can serve several plans, except with runtime keys: those of `request` count, and those that
    tables hold (`seen`), by dimension. A mapping `last` reads the newest key at `newest_at`, by
    default now.
    """

    def __init__(
        self,
        snapshot: LineageSnapshot,
        declarations: Declarations,
        *,
        now: datetime,
        request: Request | None = None,
        functions: Mapping[str, KeyFunction] | None = None,
        seen: Mapping[str, Collection[str]] | None = None,
        newest_at: datetime | None = None,
    ) -> None:
        asked = request or Request()
        names = DeclaredNames(declarations)
        self.snapshot = snapshot
        self.edges = Edges(snapshot, declarations.namespace, names, former=asked.include_former)
        self._sent_lineage = _SentLineage(snapshot, self.edges)

        def bare(at: datetime = now) -> DeclarationResolver:
            return DeclarationResolver(
                declarations, names, self._sent_lineage, now=at, runtime_keys=lambda _: ()
            )

        super().__init__(
            declarations,
            names,
            self._sent_lineage,
            now=now,
            runtime_keys=RuntimeKeys(bare, snapshot, self.edges, asked, seen or {}),
            functions=functions,
        )
        if newest_at is not None:
            self.newest = bare(newest_at)
        self._asked = {one.job: one.keys for one in asked.jobs}
        self._memo = KeyMemo()
        #: The other jobs that read an output of a job, except as a reference.
        self.followers: Mapping[JobFacts, tuple[JobFacts, ...]] = _Lazy(self._find_followers)

    @cached_property
    def unmatched(self) -> Sequence[Unmatched]:
        """The exact names of the project file that are not known."""
        snapshot = self.snapshot
        nodes, jobs = snapshot.datasets.values(), snapshot.jobs.values()
        parents = [node.parent for node in jobs if node.parent]
        return unmatched(
            self.declarations,
            set(snapshot.datasets).union(
                *(node.aliases for node in nodes), *(node.inner for node in jobs)
            ),
            set(snapshot.jobs).union(parents, *(node.parts for node in jobs)),
            nodes=snapshot.jobs,
            only_near=snapshot.source == "project",
        )

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Names that look like partitions, where nothing declares their calendar."""
        jobs = self.snapshot.jobs.values()
        former = (ref for node in jobs for ref in (*node.former_reads, *node.former_writes))
        found = find_families({*self.snapshot.datasets, *former})
        return find_families(
            ref for family in found for ref in family.members if not self._is_stated(ref)
        )

    def _is_stated(self, ref: DatasetRef) -> bool:
        table, node = self.dataset_declaration(ref), self.snapshot.datasets.get(ref)
        if table is not None and (table.calendar or table.dimensions or not is_glob(table.name)):
            return True
        return node is not None and node.partitioning is not None

    @cached_property
    def shared_outputs(self) -> Collection[DatasetRef]:
        """The datasets that several jobs write."""
        return {ref for ref, writers in self.edges.writers.items() if len(writers) > 1}

    @cached_property
    def last_runs(self) -> Mapping[JobRef, datetime]:
        """When the last completed run of each job ended."""
        return last_completed(self.snapshot)

    def write_mode(self, facts: JobFacts, output: Output) -> str | None:
        """Return how a job writes an output, as declared, else by its lineage."""
        if output.policy.says_mode:
            return output.policy.mode
        return self._sent_lineage.write_mode(facts.ref, output.dataset)

    def records(self, ref: JobRef, data: DatasetFacts, run: Calendar) -> tuple[Record, ...]:
        """Return what runs in the lineage have read of an input, the last ones first."""
        node = self.snapshot.datasets.get(data.ref)
        names = {data.ref, *(node.aliases if node else ())}
        found = []
        for record in self._readings.get(ref, ()):
            for name, key in record.read:
                if name not in names or data.calendar is None:
                    continue
                try:
                    read = parse(data.calendar, parse_partitions(key))
                except UsageError:
                    continue  # not a key of its calendar
                found.append((whole_keys(record, run), read))
        return tuple(found)

    @cached_property
    def _readings(self) -> Mapping[JobRef, Sequence[ObservedRun]]:
        """The completed runs of each job that are known to have read one key, the last first."""
        found = defaultdict[JobRef, list[ObservedRun]](list)
        recorded = [one for one in self.snapshot.history if one.read and one.state == "COMPLETE"]
        for run in sorted(
            recorded, key=lambda one: (one.ended_at or _EPOCH, one.run_id), reverse=True
        ):
            found[run.job].append(run)
        return found

    def asked_keys(self, ref: JobRef) -> tuple[str, ...]:
        """Return the keys that the request names of a job; none where a range or box is named."""
        asked = self._asked.get(ref) or ()
        keys = dict.fromkeys(key for key in asked if isinstance(key, str))
        is_plain = all(isinstance(key, str) and ".." not in key and key != "*" for key in asked)
        return tuple(keys) if is_plain else ()

    def memo(self) -> KeyMemo:
        """Return results of mappings, with those of earlier plans unless they are too many."""
        for_each, at_least = _MOST_RESULTS
        if len(self._memo) > max(for_each * self.known_jobs, at_least):
            self._memo = KeyMemo()
        return self._memo

    def inference(self, job: JobRef) -> infer.Inference | None:
        """Return the run calendar inferred from the history of a job."""
        return self._sent_lineage.inference(job)

    def evidence(self, facts: JobFacts) -> str | None:
        """Return the evidence of an inferred run calendar; None if it was not inferred."""
        if not self.snapshot.history:
            return None
        jobs = [facts.ref] if facts.origin == "inferred" else []
        for edge in facts.outputs:
            if edge.data.origin == "inferred":
                jobs += [facts.ref, *self.edges.writers.get(edge.dataset, ())]
        found = (self.inference(job) for job in jobs)
        return next((inference.evidence for inference in found if inference is not None), None)

    def _find_followers(self, facts: JobFacts) -> tuple[JobFacts, ...]:
        readers = self.edges.readers
        unique = {
            self.job(reader): None
            for output in facts.outputs
            for reader in readers.get(output.data.ref, ())
        }
        unique.pop(facts, None)
        found = tuple(unique)
        if any(reader.references for reader in found):
            made = {output.data.ref for output in facts.outputs}
            found = tuple(
                reader
                for reader in found
                if not reader.references or any(edge.data.ref in made for edge in reader.live)
            )
        return found


class _SentLineage:
    """A snapshot as a resolver sees it; see `project.resolver.Lineage`."""

    def __init__(self, snapshot: LineageSnapshot, edges: Edges) -> None:
        self._snapshot = snapshot
        self._edges = edges
        self._inferred: Mapping[JobRef, infer.Inference] | None = None
        self.declared_reads = edges.declared_reads
        self.declared_writes = edges.declared_writes
        self.reads = edges.reads
        self.writes = edges.writes

    def place(self, job: JobRef) -> int:
        return self._edges.jobs.get(job, len(self._edges.jobs))

    def dataset_facet(self, dataset: DatasetRef) -> Mapping[str, Any] | None:
        node = self._snapshot.datasets.get(dataset)
        return None if node is None else node.partitioning

    def job_facet(self, job: JobRef) -> Mapping[str, Any] | None:
        node = self._snapshot.jobs.get(job)
        return None if node is None else node.partitioning

    def write_mode(self, job: JobRef, dataset: DatasetRef) -> str | None:
        node = self._snapshot.jobs.get(job)
        return dict(node.modes).get(dataset) if node and node.modes else None

    def covering(self, job: JobRef, dataset: DatasetRef) -> DatasetRef | None:
        node = self._snapshot.jobs.get(job)
        covers = node.covers if node else ()
        return next((name for name, covered in covers if covered == dataset), None)

    def own_input(self, job: JobRef, dataset: DatasetRef) -> OwnInput:
        node = self._snapshot.jobs.get(job)
        if node is None:
            return "own"
        merges = self.write_mode(job, dataset) == "merge"
        if not merges and dataset not in node.inner:
            return "own"
        writers = self._edges.writers.get(dataset, ())
        adding = all(self.write_mode(one, dataset) in ADDING for one in writers)
        return "target" if merges and adding else "handed"

    def inference(self, job: JobRef) -> infer.Inference | None:
        if self._inferred is None:
            self._inferred = infer.infer_all(self._snapshot.history, self._snapshot.jobs.values())
        return self._inferred.get(job)

    def infer_job(self, job: JobRef) -> CalendarDeclaration | None:
        found = self.inference(job)
        return None if found is None else found.calendar

    def infer_dataset(self, dataset: DatasetRef) -> CalendarDeclaration | None:
        """Return the partitioning on which the writers of a dataset agree."""
        if not self._snapshot.history:
            return None
        writers = self._edges.writers.get(dataset, ())
        found = {calendar for job in writers if (calendar := self.infer_job(job)) is not None}
        return found.pop() if len(found) == 1 else None
