"""Resolves datasets, jobs and edges: calendars, mappings, write policies.

The first of these wins: the project file (an exact name, then the first glob), the facet sent with
the lineage, inference from run history; what none of them knows is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions import mapping as mappings
from lineage_backfill.partitions.calendar import Calendar, TimeAxis
from lineage_backfill.partitions.closure import OwnEdge
from lineage_backfill.partitions.coverage import covers
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping, KeyFunction, MappingSpec, Record
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.project import facets
from lineage_backfill.project.declarations import (
    BatchPolicy,
    CalendarDeclaration,
    DatasetDeclaration,
    DatasetPartitioning,
    Declarations,
    JobDeclaration,
    JobPartitioning,
    OnMissing,
    ReadDeclaration,
    WriteDeclaration,
    WritePolicy,
    parquet_refusal,
)
from lineage_backfill.project.locations import shared_place
from lineage_backfill.project.matching import (
    DeclaredNames,
    edge_in_force,
    heading,
    refuse_twice,
)
from lineage_backfill.project.merge import calendar as calendar_in_force
from lineage_backfill.project.merge import is_mapped_as, merged_edge, with_counts, with_facet
from lineage_backfill.project.resolve.calendars import Calendars
from lineage_backfill.project.resolve.mapping_specs import declares_self, mapping_spec
from lineage_backfill.project.resolve.physical_columns import (
    distinct_form,
    indistinct_keys,
    on_the_clock,
    physical_columns,
    repeated,
    unplaced,
)

#: An output that a job reads: as its own earlier keys, the target of a MERGE, handed from one of
#: its parts to another, or as what all its keys before have made.
OwnInput = Literal["own", "target", "handed", "past"]
Origin = Literal["declared", "facet", "inferred", "outputs", "inputs", "request"]
E = TypeVar("E", ReadDeclaration, WriteDeclaration)
_NOTHING_SENT: Final = JobPartitioning()
_DEFAULT_POLICY: Final = WritePolicy()
_TIMELESS: Final = (
    "it depends on its past, and its run keys have no time",
    "Declare its run calendar in its [[job]]: grain and start.",
)
#: Mappings that mean nothing without the input's calendar.
_BY_KEYS: Final = ("window", "offset", "last", "as_of")
_WINS: Final = "Declare the job's reads in the project file, which wins."


# Facts are compared by identity: each exists once, and they are keys of the planner's tables. Their
# members are final for the type checker only: objects that refuse to be changed take several times
# as long to make, and a plan makes tens of thousands.


@dataclass(slots=True, eq=False)
class DatasetFacts:
    """The facts of one dataset for the planner; `calendar` None if unknown."""

    ref: Final[DatasetRef]
    calendar: Final[Calendar | None]
    origin: Final[Origin | None]
    declaration: Final[DatasetDeclaration | None]
    number: Final[int]  # within one resolver, from 0
    home: Final[str | None]  # the namespace of bare names in the project file

    @property
    def is_sparse(self) -> bool:
        """Whether a key that was never written does not count as missing."""
        return self.declaration is not None and bool(self.declaration.sparse)

    @property
    def unknown(self) -> tuple[str, str]:
        """The sentence that its partitioning is unknown, and what to do."""
        return (
            f"the partitioning of {self.ref} is unknown",
            f"Declare it {heading(self.ref, self.home)} and its grain.",
        )

    def refuse_unplaced(self, *, keyed: bool = False) -> None:
        """Raise DeclarationError without a location, or, if `keyed`, without its columns."""
        lacks = unplaced(self.declaration, self.calendar if keyed else None)
        if lacks == "location":
            raise DeclarationError(
                f"no location is declared for dataset {self.ref}",
                hint=f"Declare it {heading(self.ref, self.home)} and its location or table.",
            )
        if lacks:
            raise DeclarationError(
                f"dataset {self.ref} is partitioned, and its physical columns are not declared",
                hint='Declare them: columns = { ds = "%Y-%m-%d" }.',
            )


@dataclass(slots=True, eq=False)
class Input:
    """One input of a job for the planner; `mapping` None if a side is unknown."""

    data: Final[DatasetFacts]
    mapping: Final[EdgeMapping | None]
    own: Final[bool] = False  # the job's own output: self-dependence
    reference: Final[bool] = False  # a `none` mapping: never makes stale, orders nothing
    declared: Final[bool] = False  # added by the project file, not found in the lineage
    read: Final[ReadDeclaration | None] = None  # the declaration of the edge
    undeclared: Final[bool] = False  # self-dependence without a declared mapping
    merges: Final[bool] = False  # the target of a MERGE, which is inferred to be a reference
    lookback: Final[int] = 0  # its own, else that of the job's outputs

    @property
    def dataset(self) -> DatasetRef:
        """The name of the dataset read."""
        return self.data.ref

    @property
    def misdeclared(self) -> bool:
        """Whether it is self-dependence with a declared mapping that is not allowed there."""
        read = self.read
        return self.undeclared and read is not None and bool(read.mapping or read.dimensions)

    @property
    def reads_whole(self) -> bool:
        """Whether runs read the whole dataset, without keys."""
        return self.mapping is None or self.mapping.reads_whole

    @property
    def judged_whole(self) -> bool:
        """Whether its partitions cannot be listed, so that any written one is enough."""
        calendar = self.data.calendar
        if not self.reads_whole or calendar is None:
            return self.reads_whole
        is_listed = calendar.bounded and not (calendar.is_whole or calendar.is_open)
        return not is_listed or not calendar.existing

    def corrected_by(self, keys: PartitionSet) -> PartitionSet:
        """Return the run keys whose reads decide what these write: with its lookback after them."""
        if not self.lookback or self.mapping is None:
            return keys
        return keys | self.mapping.run.dilate(keys, 0, self.lookback)

    def corrects(self, keys: PartitionSet) -> PartitionSet:
        """Return what the reads of run keys decide: the keys, and its lookback before them."""
        if not self.lookback or self.mapping is None:
            return keys
        return self.mapping.run.dilate(keys, self.lookback, 0)

    @property
    def on_missing(self) -> OnMissing:
        """When a run fails because partitions were never written; never for a reference."""
        if self.reference:
            return "read"
        return (self.read and self.read.on_missing) or "guard"

    @property
    def is_sparse(self) -> bool:
        """Whether keys never written do not count as missing: no `on_missing` is declared."""
        stated = self.read is not None and self.read.on_missing is not None
        return self.data.is_sparse and not stated


@dataclass(slots=True, eq=False)
class Output:
    """One output of a job; `mapping` relates the job's run keys to its partitions."""

    data: Final[DatasetFacts]
    mapping: Final[EdgeMapping | None]
    policy: Final[WritePolicy]
    declared: Final[bool] = False

    @property
    def dataset(self) -> DatasetRef:
        """The name of the dataset written."""
        return self.data.ref

    @property
    def says_mode(self) -> bool:
        """Whether it has partitions or a declared mode; no default replaces a whole table."""
        calendar = self.data.calendar
        return self.policy.says_mode or bool(calendar and not calendar.is_whole)

    def refuse_undeclared(self) -> None:
        """Raise DeclarationError for a write that must be declared: its risk is taken knowingly."""
        declared, refusal = self.data.declaration, parquet_refusal(self.policy)
        if declared is not None and declared.format == "parquet" and refusal:
            raise DeclarationError(f"{self.dataset}: {refusal[0]}", hint=refusal[1])
        if not self.says_mode:
            raise DeclarationError(
                f"{self.dataset} is not partitioned, and nothing declares how it is written: a run "
                "would replace all of it",
                hint='Declare it in [[job.writes]]: mode = "full" replaces the whole table, '
                '"append" adds rows, "merge" updates them by their key.',
            )


_Read = tuple[DatasetFacts, ReadDeclaration | None]
_Write = tuple[DatasetFacts, WriteDeclaration | None]


@dataclass(slots=True, eq=False)
class JobFacts:
    """The facts of one job for the planner; `problem` says why it cannot be planned.

    A plain job has no problem, only known and bounded inputs, and no guards, and its stale keys are
    exactly those that read dirty partitions.
    """

    ref: Final[JobRef]
    place: Final[int]  # among all jobs, by name
    calendar: Final[Calendar | None]
    origin: Final[Origin | None]
    inputs: Final[tuple[Input, ...]]
    outputs: Final[tuple[Output, ...]]
    references: Final[frozenset[DatasetRef]]  # inputs with a `none` mapping
    live: Final[tuple[Input, ...]]  # the other inputs
    sources: Final[tuple[int, ...]]  # the numbers of their datasets
    own: Final[tuple[EdgeMapping, ...]]  # how it reads its own outputs
    past: Final[OwnEdge | None]  # how each run key needs the one before, if it depends on its past
    unknown: Final[tuple[Input, ...]]  # live inputs of unknown partitioning, to it at least
    endless: Final[
        bool
    ]  # whether an input or its reader would have to be listed without a first key
    lacking: Final[tuple[Input, ...]]  # inputs whose labels may not all have one of its own
    lookback: Final[int]  # the largest of its inputs
    batch: Final[BatchPolicy | None]  # from the project file or its facet
    declaration: Final[JobDeclaration | None]
    problem: Final[str | None]
    hint: Final[str]
    guessed: Final[bool]  # how it reads is unreadable, or declared of its own output as cannot be
    guarded: Final[bool]  # runs only if a guard rail is overridden
    beyond: Final[bool]  # whether some run keys may write no partition; see `writing_keys`
    is_plain: Final[bool]
    kind: Final[
        int
    ]  # equal for jobs of one declaration and calendar whose edges have the same mappings


class Lineage(Protocol):
    """The lineage as a resolver sees it."""

    @property
    def declared_reads(self) -> Mapping[JobRef, Sequence[DatasetRef]]:
        """The inputs from the project file only, by job."""

    @property
    def declared_writes(self) -> Mapping[JobRef, Sequence[DatasetRef]]:
        """The outputs from the project file only, by job."""

    def reads(self, job: JobRef) -> tuple[DatasetRef, ...]:
        """Return the inputs of a job."""

    def writes(self, job: JobRef) -> tuple[DatasetRef, ...]:
        """Return the outputs of a job."""

    def place(self, job: JobRef) -> int:
        """Return the place of a job among all, by name."""

    def dataset_facet(self, dataset: DatasetRef) -> Mapping[str, Any] | None:
        """Return the partitioning facet that was sent of a dataset."""

    def job_facet(self, job: JobRef) -> Mapping[str, Any] | None:
        """Return the partitioning facet that was sent of a job."""

    def infer_dataset(self, dataset: DatasetRef) -> CalendarDeclaration | None:
        """Return the calendar that run history tells of a dataset."""

    def infer_job(self, job: JobRef) -> CalendarDeclaration | None:
        """Return the calendar that run history tells of a job's runs."""

    def own_input(self, job: JobRef, dataset: DatasetRef) -> OwnInput:
        """Return what it means that a job reads its output."""

    def covering(self, job: JobRef, dataset: DatasetRef) -> DatasetRef | None:
        """Return the folder or glob by which a job reads a dataset, if any."""


class DeclarationResolver:
    """Resolves declarations lazily, each dataset and job once, at one moment.

    `lineage` tells edges, facets and inferred calendars, `runtime_keys` the keys that are known by
    now of a runtime dimension, `functions` are those of python mappings by their names.
    """

    def __init__(
        self,
        declarations: Declarations,
        names: DeclaredNames,
        lineage: Lineage,
        *,
        now: datetime,
        runtime_keys: Callable[[str], Iterable[str]],
        functions: Mapping[str, KeyFunction] | None = None,
    ) -> None:
        self.declarations = declarations
        self._functions = functions or {}
        self._names = names
        self._lineage = lineage
        self._calendars = Calendars(declarations.zone, int(now.timestamp()), runtime_keys)
        self._resolved: dict[DatasetPartitioning, Calendar] = {}
        self._datasets: dict[DatasetRef, DatasetFacts] = {}
        self._placed: dict[str, DatasetRef] = {}
        #: What is wrong with datasets that lie where another one lies.
        self.misplaced: dict[DatasetRef, DeclarationError] = {}
        self._jobs: dict[JobRef, JobFacts] = {}
        self._kinds: dict[object, int] = {}
        self._pairs: dict[object, tuple[str, str] | None] = {}
        self._inputs: dict[object, Input] = {}
        self._mappings: dict[object, EdgeMapping] = {}
        self._checked: set[JobDeclaration] = set()
        self._sent_facets: dict[JobRef, JobPartitioning] = {}
        #: Which keys are the newest for mappings `last`; None: those of now.
        self.newest: DeclarationResolver | None = None
        #: Sentences about facets that could not be believed, by what sent them.
        self.troubles: dict[DatasetRef | JobRef, str] = {}

    # --- datasets -------------------------------------------------------------------------------

    def dataset(self, ref: DatasetRef) -> DatasetFacts:
        """Return what the plan needs to know of one dataset."""
        found = self._datasets.get(ref)
        if found is None:
            own = self.dataset_declaration(ref)
            sent = self._sent_dataset(ref, own)
            declared = own if own is None or sent is None else with_facet(own, sent)
            calendar, origin = self._find_calendar(ref, own, declared or sent)
            found = self._datasets[ref] = DatasetFacts(
                ref, calendar, origin, declared, len(self._datasets), self.declarations.namespace
            )
            self._note_place(ref, declared)
        return found

    @property
    def known_datasets(self) -> int:
        """How many datasets were asked for: the numbers of their facts are less."""
        return len(self._datasets)

    @property
    def known_jobs(self) -> int:
        """How many jobs were asked for."""
        return len(self._jobs)

    def calendar(self, ref: DatasetRef) -> Calendar | None:
        """Return the calendar of a dataset, None where nothing tells it."""
        return self.dataset(ref).calendar

    def dataset_declaration(self, ref: DatasetRef) -> DatasetDeclaration | None:
        """Return what the project file says of a dataset."""
        found = self._names.datasets.find(ref)
        return None if found is None else found.of(ref.name)

    def _note_place(self, ref: DatasetRef, declared: DatasetDeclaration | None) -> None:
        place = declared and (declared.location or declared.table)
        if place and (other := self._placed.setdefault(place, ref)) != ref:
            text, hint = shared_place(place, other, ref)
            self.misplaced[ref] = DeclarationError(text, hint=hint)

    def layers(self, ref: DatasetRef | JobRef) -> Sequence[Any]:
        """Return the declarations of a dataset or job, the most exact one first."""
        names: Any = self._names.datasets if isinstance(ref, DatasetRef) else self._names.jobs
        found: Sequence[Any] = names.layers(ref)
        return found

    def sent_dataset(self, ref: DatasetRef) -> DatasetPartitioning | None:
        """Return the facet that was sent of a dataset, if it says anything."""
        return self._sent_dataset(ref, self.dataset_declaration(ref))

    def sent_job(self, ref: JobRef) -> JobPartitioning | None:
        """Return the facet that was sent of a job; None where none was sent."""
        return self._sent(ref)[0] if self._lineage.job_facet(ref) is not None else None

    def job_declaration(self, ref: JobRef) -> JobDeclaration | None:
        """Return what the project file says of a job."""
        return self._names.jobs.find(ref)

    def _sent_dataset(
        self, ref: DatasetRef, own: DatasetDeclaration | None
    ) -> DatasetPartitioning | None:
        """Return the facet that was sent of a dataset; None where it says nothing."""
        facet = self._lineage.dataset_facet(ref)
        if facet is None:
            return None
        what = f"the facet of dataset {ref}"
        counts = own is None or not own.has_kind
        try:
            sent = facets.read_dataset(facet, what)
            if sent.has_kind:
                columns = tuple(sent.named_columns)
                self._calendars.resolve(sent.calendar, sent.dimensions, columns, what)
        except UsageError as error:
            # Lineage is not ours: what it says wrongly makes a dataset unknown, no plan fail.
            if counts:
                self.troubles[ref] = f"ignored: {error}"
            return None
        # Columns alone add to a calendar that is declared.
        return sent if sent.has_kind or own is not None else None

    def _find_calendar(
        self,
        ref: DatasetRef,
        own: DatasetDeclaration | None,
        declared: DatasetPartitioning | None,
    ) -> tuple[Calendar | None, Origin | None]:
        origin: Origin = "declared" if own is not None and own.has_kind else "facet"
        if declared is None or not declared.has_kind:
            inferred = self._lineage.infer_dataset(ref)
            if inferred is None:
                return None, None
            layers = [DatasetPartitioning(calendar=inferred)]
            whole, dimensions = calendar_in_force([declared, *layers] if declared else layers)
            columns = () if declared is None else tuple(declared.named_columns)
            return self._calendars.resolve(whole, dimensions, columns, f"dataset {ref}"), "inferred"
        calendar = self._resolved.get(declared)  # thousands of datasets share a declaration
        if calendar is None:
            calendar = self._resolved[declared] = self._calendars.resolve(
                declared.calendar,
                declared.dimensions,
                tuple(declared.named_columns),
                f"dataset {ref}",
            )
        return calendar, origin

    # --- jobs -----------------------------------------------------------------------------------

    def job(self, ref: JobRef) -> JobFacts:
        """Return what the plan needs to know of one job."""
        found = self._jobs.get(ref)
        if found is None:
            found = self._jobs[ref] = self._find_job(ref)
        return found

    # --- facets ---------------------------------------------------------------------------------

    def dataset_facet(self, ref: DatasetRef) -> Mapping[str, Any]:
        """Return the partitioning facet to send of a dataset; empty where nothing is declared."""
        declared = self.dataset(ref).declaration
        if declared is not None and declared.has_kind:
            return facets.dataset_facet(declared, self.declarations.zone)
        return self._lineage.dataset_facet(ref) or {}

    def job_facet(self, facts: JobFacts) -> Mapping[str, Any]:
        """Return the partitioning facet to send of a job; empty where nothing is declared."""
        declared = facts.declaration
        if declared is None or not declared.has_kind:
            declared = None
        stated = declared or self._sent_facets.get(facts.ref, _NOTHING_SENT)
        effective = JobDeclaration(
            name=facts.ref.name,
            calendar=stated.calendar,
            dimensions=stated.dimensions,
            batch=facts.batch,
            depends_on_past=facts.past is not None or None,
            reads=tuple(
                replace(edge.read, dataset=edge.dataset.name, namespace=edge.dataset.namespace)
                for edge in facts.inputs
                if edge.read is not None
            ),
            writes=tuple(
                WriteDeclaration(
                    dataset=edge.dataset.name,
                    namespace=edge.dataset.namespace,
                    mode=edge.policy.mode if edge.policy.says_mode else None,
                    on_empty=edge.policy.on_empty,
                    on_drift=edge.policy.on_drift,
                    lookback=edge.policy.lookback,
                )
                for edge in facts.outputs
                if edge.policy != _DEFAULT_POLICY
            ),
        )
        return facets.job_facet(effective, self.declarations.zone)

    @property
    def mappings(self) -> Iterable[EdgeMapping]:
        """The mappings made so far; thousands of edges share a few."""
        return self._mappings.values()

    def _sent_below(
        self, ref: JobRef, declared: JobDeclaration | None
    ) -> tuple[JobPartitioning, str]:
        """Return a job's facet, as far as it counts keys of the calendar in force."""
        sent, unreadable = self._sent(ref)
        return sent if declared is None else with_counts((declared, sent))[1], unreadable

    def _find_job(self, ref: JobRef) -> JobFacts:
        declared = self._names.jobs.find(ref)
        sent, unreadable = self._sent_below(ref, declared)
        reads, writes = self._sides(ref, declared, sent)
        calendar, origin, problem, hint = self._run_calendar(ref, declared, sent, reads, writes)
        # Continuing with the defaults would mean guessing what the job declares.
        unfit = ""
        if sent.reads:
            reads, unfit = self._without_unfit(ref, reads, writes, sent.reads, calendar)
        refused = unfit if _says_edges(declared) else unreadable or unfit
        past, timeless = self._past(declared, sent, calendar)
        run = _travelling(calendar, origin)
        inputs, outputs, trouble = self._edges(ref, reads, writes, run, bool(past))
        problem, hint = _first((problem, hint), (refused, _WINS), timeless, trouble)
        found = _live(inputs)
        lookback = max(
            [edge.lookback for edge in found.live if not edge.own], default=_lookback(writes)
        )
        guarded = declared is not None and bool(declared.protected or declared.idempotent is False)
        beyond = not all(map(_takes_all, outputs))
        own = found.own if past is None else (*found.own, past.reads)
        unusual = problem or found.unknown or found.endless or guarded or own or lookback
        return JobFacts(
            ref=ref,
            place=self._lineage.place(ref),
            calendar=calendar,
            origin=origin,
            inputs=inputs,
            outputs=outputs,
            references=found.references,
            live=found.live,
            sources=tuple([edge.data.number for edge in found.live]),
            own=own,
            past=past,
            unknown=found.unknown,
            endless=found.endless,
            lacking=found.lacking,
            lookback=lookback,
            batch=(declared and declared.batch) or sent.batch,
            declaration=declared,
            problem=problem,
            hint=hint,
            guessed=bool(refused) or any(edge.misdeclared for edge in inputs),
            guarded=guarded,
            beyond=beyond,
            is_plain=calendar is not None and not unusual,
            kind=self._kind(declared, sent.batch, calendar, found.live, outputs),
        )

    def _past(
        self, declared: JobDeclaration | None, sent: JobPartitioning, run: Calendar | None
    ) -> tuple[OwnEdge | None, tuple[str, str] | None]:
        """Return how each run key needs the one before, if so, or why it cannot."""
        stated = None if declared is None else declared.depends_on_past
        if run is None or not (sent.depends_on_past if stated is None else stated):
            return None, None
        if run.time is None:
            return None, _TIMELESS
        key = ("past", run)
        if key not in self._mappings:
            before = mappings.MappingSpec(kind="offset", before=1, after=-1)
            self._mappings[key] = mappings.build(run, run, before)
        same = self._mappings.setdefault((run, run), mappings.build(run, run))
        return OwnEdge(reads=self._mappings[key], writes=same), None

    def _sides(
        self, ref: JobRef, declared: JobDeclaration | None, sent: JobPartitioning
    ) -> tuple[list[_Read], list[_Write]]:
        """Return what a job reads and writes, each with what is declared or sent of the edge."""
        self._refuse_twice(ref, declared)
        reads, writes = self._lineage.reads(ref), self._lineage.writes(ref)
        own_reads = () if declared is None else declared.reads
        own_writes = () if declared is None else declared.writes
        return (
            [
                (
                    self.dataset(one),
                    self._in_force(own_reads, sent.reads, one, reads)
                    or self._of_covering(ref, own_reads, sent.reads, one, reads),
                )
                for one in reads
            ],
            [
                (self.dataset(one), self._in_force(own_writes, sent.writes, one, writes))
                for one in writes
            ],
        )

    def _in_force(
        self, own: Sequence[E], sent: Sequence[E], dataset: DatasetRef, side: Sequence[DatasetRef]
    ) -> E | None:
        """Return what is in force of an edge: as the project states it, then as it was sent."""
        if not own and not sent:
            return None
        found = edge_in_force(own, dataset, side, self.declarations.namespace) if own else None
        facet = edge_in_force(sent, dataset, side, None) if sent else None
        if found is None or facet is None:
            return found or facet
        return merged_edge((found, facet))

    def _of_covering(
        self,
        ref: JobRef,
        own: Sequence[ReadDeclaration],
        sent: Sequence[ReadDeclaration],
        dataset: DatasetRef,
        side: Sequence[DatasetRef],
    ) -> ReadDeclaration | None:
        """Return what is in force of the folder or glob by which a job reads a dataset."""
        around = self._lineage.covering(ref, dataset) if own or sent else None
        return around and self._in_force(own, sent, around, side)

    def _own_kinds(
        self, ref: JobRef, reads: Sequence[_Read], writes: Sequence[_Write], *, past: bool = False
    ) -> dict[DatasetRef, OwnInput]:
        """Return what it means that a job reads some of its outputs."""
        made = {data.ref for data, _ in writes}
        return {
            data.ref: "own"
            if read is not None and (read.mapping or read.dimensions)
            else "past"
            if past
            else self._lineage.own_input(ref, data.ref)
            for data, read in reads
            if data.ref in made
        }

    def _without_unfit(
        self,
        ref: JobRef,
        reads: Sequence[_Read],
        writes: Sequence[_Write],
        sent: Sequence[ReadDeclaration],
        calendar: Calendar | None,
    ) -> tuple[list[_Read], str]:
        """Return the reads without the mappings of a facet that do not fit, and the first problem.

        Lineage is not ours: what it says wrongly blocks a job, no plan fails.
        """
        kinds = self._own_kinds(ref, reads, writes)
        kept, problem = [], ""
        for data, read in reads:
            fits = True
            if read and read.mapping != "none" and any(is_mapped_as(read, one) for one in sent):
                try:
                    self._read_mapping(ref, data, read, calendar, own=data.ref in kinds)
                except DeclarationError as error:
                    fits = False
                    problem = problem or error.within("the facet of ").message
            kept.append((data, read if fits else None))
        return kept, problem

    def _edges(
        self,
        ref: JobRef,
        reads: Sequence[_Read],
        writes: Sequence[_Write],
        calendar: Calendar | None,
        past: bool,
    ) -> tuple[tuple[Input, ...], tuple[Output, ...], tuple[str, str] | None]:
        """Return the edges of a job and the first problem with one, with its hint."""
        kinds = self._own_kinds(ref, reads, writes, past=past)
        lookback = _lookback(writes)
        inputs = tuple(
            [
                self._input(ref, data, read, calendar, kinds.get(data.ref), lookback)
                for data, read in reads
            ]
        )
        found = [self._output(ref, data, write, calendar) for data, write in writes]
        troubles = [
            (
                f"it reads its own output {edge.dataset}, and how is not declared",
                'Declare that edge: mapping = "offset" with by < 0, "window", or "none".',
            )
            for edge in inputs
            if edge.undeclared
        ]
        troubles += [trouble for _, trouble in found if trouble]
        return inputs, tuple([output for output, _ in found]), troubles[0] if troubles else None

    def _kind(
        self,
        declared: JobDeclaration | None,
        batch: BatchPolicy | None,
        calendar: Calendar | None,
        inputs: Sequence[Input],
        outputs: Sequence[Output],
    ) -> int:
        """Return a number that jobs share whose keys travel alike."""
        mappings = tuple([edge.mapping for edge in inputs])
        kind = (declared, batch, calendar, mappings, tuple([edge.mapping for edge in outputs]))
        return self._kinds.setdefault(kind, len(self._kinds))

    def _sent(self, ref: JobRef) -> tuple[JobPartitioning, str]:
        """Return what the job's facet says, and why it cannot be believed, if so."""
        facet = self._lineage.job_facet(ref)
        if facet is None:
            return _NOTHING_SENT, ""
        what = f"the facet of job {ref}"
        try:
            sent = facets.read_job(facet, what)
            if sent.has_kind:
                self._calendars.resolve(sent.calendar, sent.dimensions, (), what)
        except UsageError as error:
            self.troubles[ref] = f"ignored: {error}"
            return _NOTHING_SENT, str(error)
        self._sent_facets[ref] = sent
        reads, writes = self._lineage.reads(ref), self._lineage.writes(ref)
        for text in facets.unused(sent, reads, writes, what)[:1]:
            self.troubles[ref] = f"ignored: {text}"
        return sent, ""

    def _refuse_twice(self, ref: JobRef, declared: JobDeclaration | None) -> None:
        if declared is not None and declared not in self._checked:
            self._checked.add(declared)
            for edges in (declared.reads, declared.writes):
                refuse_twice(edges, self.declarations.namespace, f"job {ref}")

    def stated_calendar(self, ref: JobRef) -> Calendar | None:
        """Return the run calendar that the project file or the job's facet states, if any."""
        return self._stated_calendar(ref, self._names.jobs.find(ref), self._sent(ref)[0])[0]

    def _stated_calendar(
        self, ref: JobRef, declared: JobDeclaration | None, sent: JobPartitioning
    ) -> tuple[Calendar | None, Origin | None]:
        layers = [one for one in (declared, sent) if one is not None]
        origin: Origin = "declared" if declared is not None and declared.has_kind else "facet"
        if not any(one.has_kind for one in layers):
            return None, None
        whole, dimensions = calendar_in_force(layers)
        return self._calendars.resolve(whole, dimensions, (), f"job {ref}"), origin

    def _run_calendar(
        self,
        ref: JobRef,
        declared: JobDeclaration | None,
        sent: JobPartitioning,
        reads: Sequence[_Read],
        writes: Sequence[_Write],
    ) -> tuple[Calendar | None, Origin | None, str | None, str]:
        calendar, stated = self._stated_calendar(ref, declared, sent)
        if calendar is not None:
            return calendar, stated, None, ""
        if writes:
            side, origin = [data for data, _ in writes], "outputs"
            unknown = [data for data in side if data.calendar is None]
        else:
            side = [data for data, read in reads if not (read and read.mapping == "none")]
            origin, unknown = "inputs", []
        known = tuple([data.calendar for data in side if data.calendar is not None])
        if not known and (own := self._calendar_of_runs(ref, not writes)) is not None:
            return *own, None, ""
        if unknown:
            text, hint = unknown[0].unknown
            if len(unknown) > 1:
                text = f"{text}, and {len(unknown) - 1} more of its outputs"
            return None, None, text, hint
        if not known:
            table = heading(ref, self.declarations.namespace)
            return (
                None,
                None,
                "the partitioning of its runs is unknown",
                f"Declare it {table} and its grain.",
            )
        shared = self._calendars.share(known)
        if shared is None:
            table = heading(ref, self.declarations.namespace)
            return (
                None,
                None,
                f"its {origin} have different calendars",
                f"Declare its run calendar {table} and its grain.",
            )
        return shared, "outputs" if origin == "outputs" else "inputs", None, ""

    def _calendar_of_runs(self, ref: JobRef, alone: bool) -> tuple[Calendar, Origin] | None:
        """Return what past runs or the request say of a job's keys; past runs only if `alone`."""
        inferred, asked = self._lineage.infer_job(ref), self.asked_keys(ref)
        stated = inferred or (CalendarDeclaration(keys=asked) if asked else None)
        if stated is None or (inferred and not alone):
            return None
        calendar = self._calendars.resolve(stated, (), (), f"job {ref}")
        return calendar, "inferred" if inferred else "request"

    def _input(
        self,
        ref: JobRef,
        data: DatasetFacts,
        read: ReadDeclaration | None,
        run: Calendar | None,
        kind: OwnInput | None,
        lookback: int,
    ) -> Input:
        own, merges = kind in ("own", "target", "past"), kind == "target"
        extra = self._lineage.declared_reads
        added = bool(extra) and data.ref in extra.get(ref, ())
        if read is not None and read.lookback is not None:
            lookback = read.lookback
            if own and lookback:
                raise DeclarationError(
                    f"job {ref}, input {data.ref}: lookback does not apply to the job's own output",
                    hint="Leave it out; a window reads more of its earlier keys.",
                )
        key = (data, run, read, kind, added, lookback, ref if is_last(read) else None)
        found = self._inputs.get(key)
        if found is None:
            reference = kind in ("target", "past") or (read is not None and read.mapping == "none")
            found = self._inputs[key] = Input(
                data,
                None if reference else self._read_mapping(ref, data, read, run, own=own),
                own,
                reference,
                added,
                read,
                own and not reference and not (read is not None and declares_self(read)),
                merges,
                0 if own or reference else lookback,
            )
        return found

    def _read_mapping(
        self,
        ref: JobRef,
        data: DatasetFacts,
        read: ReadDeclaration | None,
        run: Calendar | None,
        *,
        own: bool,
    ) -> EdgeMapping | None:
        upstream = data.calendar
        if upstream is None and not own and read is not None and read.mapping in _BY_KEYS:
            what = f"{read.mapping} over a dataset whose keys nothing knows"
            raise DeclarationError(f"job {ref}, input {data.ref}: {what}", hint=data.unknown[1])
        if upstream is None or run is None:
            return None
        key = (upstream, run, read, own, (ref, data.ref) if is_last(read) else None)
        mapping = self._mappings.get(key)
        if mapping is None:
            try:
                spec = (
                    mappings.DEFAULT
                    if read is None
                    else mapping_spec(read, self._functions, own=own)
                )
                if is_last(read):
                    spec = self._newest(ref, data, run, spec)
                mapping = mappings.build(upstream, run, spec)
            except UsageError as error:
                raise DeclarationError(
                    f"job {ref}, input {data.ref}: {error.message}", hint=error.hint
                ) from None
            self._mappings[key] = mapping
        return mapping

    def _newest(
        self, ref: JobRef, data: DatasetFacts, run: Calendar, spec: MappingSpec
    ) -> MappingSpec:
        """Return a mapping that may be `last` with the newest key and what runs have read."""
        newest = None if self.newest is None else self.newest.calendar(data.ref)
        return replace(spec, newest=newest, records=self.records(ref, data, run))

    def asked_keys(self, ref: JobRef) -> tuple[str, ...]:
        """Return the keys that a request names of a job, without ranges."""
        return ()

    def records(self, ref: JobRef, data: DatasetFacts, run: Calendar) -> tuple[Record, ...]:
        """Return what runs are recorded to have read of an input, the last ones first."""
        return ()

    def _output(
        self,
        ref: JobRef,
        data: DatasetFacts,
        write: WriteDeclaration | None,
        run: Calendar | None,
    ) -> tuple[Output, tuple[str, str] | None]:
        extra = self._lineage.declared_writes
        added = bool(extra) and data.ref in extra.get(ref, ())
        calendar, policy = data.calendar, _DEFAULT_POLICY if write is None else write.policy
        if calendar is None:
            return Output(data, None, policy, added), None if run is None else data.unknown
        if run is None:
            return Output(data, None, policy, added), None
        key = (run, calendar)
        mapping = self._mappings.get(key)
        if mapping is None:
            # The relation "output partition p is made by the run keys that intersect it".
            mapping = self._mappings[key] = mappings.build(calendar, run)
        trouble = None
        mode = policy.mode
        if mapping.unbounded is calendar:
            trouble = (
                f"one run key writes all of {data.ref}, which has no first key",
                f"Declare a start for {data.ref.name!r}.",
            )
        elif mode == "full" and not run.is_whole:
            trouble = (
                f"one run key would replace all of its output {data.ref} (mode full)",
                f'Declare mode = "overwrite" in [[job.writes]] of {ref.name!r}.',
            )
        elif mode != "merge" and not covers(run, calendar):
            text = f"its output {data.ref} is coarser than its run calendar: one run key would"
            part = "add a part that no later run can replace"
            trouble = (
                f"{text} {part if mode == 'append' else 'replace a whole partition with a part'}",
                f'Declare mode = "merge" in [[job.writes]] of {ref.name!r}, or the right calendar.',
            )
        elif mode == "overwrite" and (pair := self.indistinct_keys(data)):
            text = (
                f"keys {' and '.join(pair)} of its output {data.ref} are one partition of its table"
            )
            trouble = (
                f"{text}: one run key would clear what others wrote",
                distinct_form(data.declaration),
            )
        return Output(data, mapping, policy, added), trouble

    def indistinct_keys(self, data: DatasetFacts) -> tuple[str, str] | None:
        """Return two keys of a dataset that are one partition of its table; None if none are."""
        if data.declaration is None or data.calendar is None:
            return None
        columns = physical_columns(data.declaration)
        if not columns:
            return None
        key = (data.calendar, tuple(columns.items()))
        if key not in self._pairs:
            self._pairs[key] = indistinct_keys(data.calendar, columns)
        return self._pairs[key]

    def repeated(self, data: DatasetFacts, keys: PartitionSet) -> tuple[str, str] | None:
        """Return a key of a set and another one that its table cannot tell apart by the clock."""
        if data.calendar is None or data.declaration is None:
            return None
        return repeated(data.calendar, on_the_clock(data.declaration), keys)

    def shared(self, data: DatasetFacts, keys: PartitionSet) -> tuple[str, str] | None:
        """Return why keys cannot be replaced where clocks go back, and what to do; else None."""
        declared = data.declaration
        if declared is None or declared.time_column or not (found := self.repeated(data, keys)):
            return None
        column, pair = next(iter(physical_columns(declared))), " and ".join(found)
        text = f"{pair} of {data.ref} are one partition of its table: one of them cannot be"
        hint = f"Store the key itself, with its offset: column = {column!r}."
        return f"{text} replaced without the other", hint


def _travelling(calendar: Calendar | None, origin: Origin | None) -> Calendar | None:
    """Return a run calendar if it is known how its keys travel along edges."""
    return None if origin == "request" else calendar


def _first(*problems: tuple[str | None, str] | None) -> tuple[str | None, str]:
    """Return the first problem with its hint."""
    return next((one for one in problems if one and one[0]), (None, ""))


class _Live(NamedTuple):
    """The inputs of a job that count, and those among them that need more than their keys."""

    references: frozenset[DatasetRef]
    live: tuple[Input, ...]
    own: tuple[EdgeMapping, ...]
    unknown: tuple[Input, ...]
    endless: bool
    lacking: tuple[Input, ...]


def _live(inputs: tuple[Input, ...]) -> _Live:
    references, live, own, unknown, lacking = [], [], [], [], []
    endless = False
    for edge in inputs:
        mapping = edge.mapping
        if edge.reference:
            references.append(edge.data.ref)
            continue
        live.append(edge)
        if mapping is None:
            unknown.append(edge)
            continue
        if edge.own:
            own.append(mapping)
        if mapping.may_lack:
            lacking.append(edge)
        endless = endless or mapping.unbounded is not None
    return _Live(
        references=frozenset(references),
        live=tuple(live),
        own=tuple(own),
        unknown=tuple(unknown),
        endless=endless,
        lacking=tuple(lacking),
    )


def is_last(read: ReadDeclaration | None) -> bool:
    """Whether a job reads the newest key of an input, which its own records concern."""
    if read is None:
        return False
    return "last" in (read.mapping, *(part.mapping for part in read.dimensions.values()))


def _lookback(writes: Iterable[_Write]) -> int:
    """Return the lookback of inputs that state none: the largest of the outputs."""
    return max([write.policy.lookback for _, write in writes if write], default=0)


def _says_edges(declared: JobDeclaration | None) -> bool:
    return declared is not None and bool(declared.reads or declared.writes)


def written_keys(
    output: Output, keys: PartitionSet, existing: PartitionSet | None = None
) -> PartitionSet:
    """Return the partitions of an output that run keys write; its mapping is known.

    They are those that have begun: a run of a period that is not complete writes into partitions
    that do not exist yet. There are none where a run key lies outside the output's bounds.
    `existing` are those that exist, where they are known already.
    """
    mapping = output.mapping
    assert mapping is not None, "a job without a problem knows its outputs"
    if not keys:
        return NOTHING
    found = mapping.required(keys) if existing is None else existing
    time, run = mapping.upstream.time, mapping.run.time
    zoned = mapping.upstream.zoned or mapping.run.zoned
    within = time is None or run is None or _is_within(keys.ordinals.hi, run, time)
    if found and within and not zoned:
        return found
    reached = mapping.required_unclipped(keys)
    if time is None:
        return reached
    first, begun = time.first, time.begun
    if mapping.upstream.zoned:
        return mapping.upstream.clip(reached, begun=True)
    return reached.map_time(lambda ordinals: ordinals.clip(first, begun))


def writing_keys(outputs: Iterable[Output], keys: PartitionSet) -> PartitionSet:
    """Return the run keys that write a partition of any of these outputs; others are never run."""
    writes = NOTHING
    for output in outputs:
        if output.mapping is None or _takes_all(output):
            return keys
        writes |= output.mapping.affected_unclipped(written_keys(output, keys)) & keys
    return writes


def _takes_all(output: Output) -> bool:
    """Whether each run key writes a partition of an output, as far as its bounds show."""
    mapping = output.mapping
    if mapping is None:
        return True
    time, run = mapping.upstream.time, mapping.run.time
    if time is None and run is not None:
        return True
    if mapping.may_lack or mapping.has_gaps:
        return False
    if time is None or run is None:
        return True
    if time.first is not None and (
        run.first is None or run.grid.end(run.first) <= time.grid.start(time.first)
    ):
        return False
    return _is_within(run.last, run, replace(time, last=max(time.last, time.begun)))


def _is_within(key: int, run: TimeAxis, time: TimeAxis) -> bool:
    """Whether the interval of a run key ends before another calendar's next key begins."""
    if run.grid is time.grid:
        return key <= time.last
    return run.grid.end(key) <= time.grid.start(time.last + 1)


def read_keys(
    facts: JobFacts,
    keys: PartitionSet,
    read: Callable[[EdgeMapping, PartitionSet], PartitionSet] = EdgeMapping.read,
) -> Iterator[tuple[Input, PartitionSet | None]]:
    """Yield each input with the partitions that run keys read of it, None where no keys are known.

    `read` stands for `EdgeMapping.read`.
    """
    for edge in facts.inputs:
        yield edge, None if edge.mapping is None else read_by(edge, keys, read)


def read_by(
    edge: Input,
    keys: PartitionSet,
    read: Callable[[EdgeMapping, PartitionSet], PartitionSet] = EdgeMapping.read,
) -> PartitionSet:
    """Return the partitions of one input that run keys read; its mapping is known."""
    assert edge.mapping is not None
    return read(edge.mapping, edge.corrected_by(keys))


def never_written(edge: Input, keys: PartitionSet, written: PartitionSet) -> PartitionSet:
    """Return the partitions that run keys require of an input and that are not in `written`.

    None of an input whose mapping is unknown: which it requires is unknown, too.
    """
    if edge.mapping is None:
        return NOTHING
    needed = read_by(edge, keys)
    if edge.judged_whole:
        return NOTHING if written else needed
    return needed - without_gaps(edge, written)


def without_gaps(edge: Input, written: PartitionSet) -> PartitionSet:
    """Return the written partitions of an input; of a sparse one, with all the keys before them."""
    calendar = edge.data.calendar
    if not edge.is_sparse or calendar is None or calendar.time is None:
        return written
    first = calendar.time.floor
    return written | calendar.clip(
        written.map_time(lambda ordinals: OrdinalSet.range(first, ordinals.hi)), begun=True
    )


def expired(data: DatasetFacts) -> PartitionSet:
    """Return the partitions of a dataset that are past its retention."""
    declared, calendar = data.declaration, data.calendar
    if declared is None or declared.retention is None or calendar is None or calendar.time is None:
        return NOTHING
    kept = declared.retention
    return PartitionSet.of(
        (axis.existing.clip(None, axis.last - kept), mask) for mask, axis in calendar.parts
    )


def unlisted_reads(facts: JobFacts) -> list[Input]:
    """Return the inputs whose partitions would have to be listed, but have no first key."""
    if not facts.endless:
        return []
    return [
        edge
        for edge in facts.live
        if (how := edge.mapping) and how.unbounded is how.upstream and not how.reads_whole
    ]


def unknown_reads(facts: JobFacts, edges: Iterable[Input]) -> tuple[str, str] | None:
    """Return why a job that is to read some of its inputs cannot be run, and what to do."""
    if facts.problem is not None:
        return facts.problem, facts.hint
    for edge in edges:
        if edge.mapping is None and edge.data.calendar is not None:
            text = f"how its keys read {edge.dataset} is unknown"
            return text, "Declare the partitioning of what it writes."
        if edge.mapping is None:
            return edge.data.unknown
        endless = edge.mapping.unbounded
        if endless is not None:
            side = "its input" if endless is edge.mapping.upstream else "its reader's calendar:"
            return (
                f"it reads all of {edge.dataset}, and {side} has no first key",
                f"Declare a start for {edge.dataset.name!r}, and for what it writes.",
            )
    return None
