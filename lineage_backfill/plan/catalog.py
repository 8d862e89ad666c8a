"""What is known of each dataset and job for one plan: calendars, mappings, policies.

Where partitioning is declared, the first of these wins: the project file, the facet sent with the
lineage, inference from run history; what none of them knows is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import translate
from itertools import chain
from typing import Final, Generic, Literal, Protocol, TypeVar, cast

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.graph.lineage import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions import mapping as mappings
from lineage_backfill.partitions.calendar import EVERY, Calendar, TimeAxis
from lineage_backfill.partitions.grid import cron_grid, every_grid, grain_grid, refines
from lineage_backfill.partitions.mapping import EdgeMapping, KeyFunction, MappingSpec
from lineage_backfill.partitions.text import KeySet, parse_partitions, static_axis
from lineage_backfill.plan import facets, infer
from lineage_backfill.plan.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
    DimensionDeclaration,
    DimensionMapping,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.plan.request import Request

Origin = Literal["declared", "facet", "inferred", "outputs", "inputs"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str | None: ...


D = TypeVar("D", bound=_Named)
Edge = TypeVar("Edge", bound=ReadDeclaration | WriteDeclaration)
_NOTHING_DECLARED: Final = JobDeclaration(name="")
_NOTHING_SENT: Final = facets.JobFacet()
_MISSING: Final = object()
_GLOB: Final = re.compile(r"[*?\[]")


class _Matcher(Generic[D]):
    """Finds the declaration of a name: an exact one beats a glob, the first glob wins."""

    def __init__(self, declarations: Iterable[D], namespace: str | None) -> None:
        self._namespace = namespace
        self._exact: dict[tuple[str | None, str], D] = {}
        self._globs: list[tuple[re.Pattern[str], re.Pattern[str] | None, D]] = []
        for declaration in declarations:
            space = declaration.namespace or namespace
            if is_glob(declaration.name):
                space_glob = re.compile(translate(space)) if space else None
                self._globs.append(
                    (re.compile(translate(declaration.name)), space_glob, declaration)
                )
                continue
            if (space, declaration.name) in self._exact:
                raise DeclarationError(
                    f"{declaration.name!r} is declared twice", hint="keep one of the two tables"
                )
            self._exact[space, declaration.name] = declaration

    def find(self, ref: DatasetRef | JobRef) -> D | None:
        exact = self._exact
        found = exact.get((ref.namespace, ref.name)) or exact.get((None, ref.name))
        if found is not None or not self._globs:
            return found
        for name, space, declaration in self._globs:
            if name.match(ref.name) and (space is None or space.match(ref.namespace)):
                return declaration
        return None

    def exact(self) -> Iterable[tuple[str | None, D]]:
        """Return the declarations of single names with their namespaces."""
        return ((space, declaration) for (space, _), declaration in self._exact.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of a job as the planner sees it; `mapping` None where a side is unknown."""

    dataset: DatasetRef
    mapping: EdgeMapping | None
    own: bool = False  # the job's own output: self-dependence
    reference: bool = False  # a `none` mapping: never makes stale, orders nothing
    declared: bool = False  # added by the project file, not found in the lineage
    undeclared: bool = False  # self-dependence of which nobody said how it goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output of a job; `mapping` relates the job's run keys to its partitions."""

    dataset: DatasetRef
    mapping: EdgeMapping | None
    declared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """All that the planner needs of one job; `problem` says why it cannot be planned at all."""

    ref: JobRef
    calendar: Calendar | None
    origin: Origin | None
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    references: frozenset[DatasetRef]  # inputs with a `none` mapping
    live: tuple[Input, ...]  # the other inputs
    own: tuple[EdgeMapping, ...]  # how it reads its own outputs
    unknown: tuple[Input, ...]  # live inputs whose partitioning is unknown, to it at least
    endless: bool  # whether an input or its reader would have to be listed without a first key
    lookback: int
    declaration: JobDeclaration | None
    problem: str | None = None
    hint: str = ""


class Catalog:
    """Resolves the declarations of one plan lazily, each dataset and job once."""

    def __init__(
        self,
        snapshot: LineageSnapshot,
        declarations: Declarations,
        *,
        now: datetime,
        request: Request | None = None,
        functions: Mapping[str, KeyFunction] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.declarations = declarations
        self.now = int(now.timestamp())
        self._request = request or Request()
        self._functions = functions or {}
        self._datasets = _Matcher(declarations.datasets, declarations.namespace)
        self._jobs = _Matcher(declarations.jobs, declarations.namespace)
        self._declared: dict[DatasetRef, object] = {}
        self._calendars: dict[object, Calendar] = {}
        self._of_dataset: dict[DatasetRef, Calendar | None] = {}
        self._origins: dict[DatasetRef, Origin] = {}
        self._mappings: dict[object, EdgeMapping] = {}
        self._inputs: dict[object, Input] = {}
        self._facts: dict[JobRef, JobFacts] = {}
        self._sent: dict[JobRef, facets.JobFacet] = {}
        #: Sentences about facets that could not be believed, in the order in which they were met.
        self.troubles: dict[str, None] = {}
        self._shared: dict[tuple[int, ...], Calendar | None] = {}
        self._recorded: dict[str, set[str]] | None = None
        self._inferred: Mapping[JobRef, infer.Inference] | None = None
        self._extra_reads, self._extra_writes = self._declared_edges()
        self._readers: Mapping[DatasetRef, tuple[JobRef, ...]] | None = None
        self._writers: Mapping[DatasetRef, tuple[JobRef, ...]] | None = None

    # --- names and edges ------------------------------------------------------------------------

    def _declared_edges(
        self,
    ) -> tuple[dict[JobRef, list[DatasetRef]], dict[JobRef, list[DatasetRef]]]:
        reads: dict[JobRef, list[DatasetRef]] = {}
        writes: dict[JobRef, list[DatasetRef]] = {}
        for space, declaration in self._jobs.exact():
            ref = JobRef(space or self._home(declaration.name), declaration.name)
            node = self.snapshot.jobs.get(ref)
            for edges, found, into in (
                (declaration.reads, node.reads if node else (), reads),
                (declaration.writes, node.writes if node else (), writes),
            ):
                for edge in edges:
                    target = self.dataset_ref(edge.dataset, edge.namespace)
                    if target is not None and target not in found:
                        into.setdefault(ref, []).append(target)
        return reads, writes

    def _home(self, job: str) -> str:
        spaces = {ref.namespace for ref in self.snapshot.jobs if ref.name == job}
        return spaces.pop() if len(spaces) == 1 else "default"

    def dataset_ref(self, name: str, namespace: str | None) -> DatasetRef | None:
        """Return the dataset that a `[[job.reads]]` or `[[job.writes]]` names; None for a glob."""
        if is_glob(name):
            return None
        space = namespace or self.declarations.namespace
        if space is None:
            spaces = {ref.namespace for ref in self.snapshot.datasets if ref.name == name}
            space = spaces.pop() if len(spaces) == 1 else "default"
        return DatasetRef(space, name)

    def reads(self, job: JobRef) -> tuple[DatasetRef, ...]:
        """Return the inputs of a job: from the lineage, then declared ones."""
        node = self.snapshot.jobs.get(job)
        found = node.reads if node else ()
        if node and self._request.include_former:
            found = tuple(dict.fromkeys((*found, *node.former_reads)))
        extra = self._extra_reads.get(job)
        return tuple(dict.fromkeys((*found, *extra))) if extra else found

    def writes(self, job: JobRef) -> tuple[DatasetRef, ...]:
        """Return the outputs of a job: from the lineage, then declared ones."""
        node = self.snapshot.jobs.get(job)
        found = node.writes if node else ()
        if node and self._request.include_former:
            found = tuple(dict.fromkeys((*found, *node.former_writes)))
        extra = self._extra_writes.get(job)
        return tuple(dict.fromkeys((*found, *extra))) if extra else found

    def all_jobs(self) -> set[JobRef]:
        """Return all jobs of the lineage and those that only the project file knows."""
        return {*self.snapshot.jobs, *self._extra_reads, *self._extra_writes}

    def all_datasets(self) -> set[DatasetRef]:
        """Return all datasets of the lineage and those that only the project file knows."""
        found = set(self.snapshot.datasets)
        for edges in (self._extra_reads, self._extra_writes):
            for refs in edges.values():
                found.update(refs)
        for space, declaration in self._datasets.exact():
            if space is not None:
                found.add(DatasetRef(space, declaration.name))
        return found

    def readers(self) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        """Return the jobs that read each dataset."""
        if self._readers is None:
            self._readers = self._with_extra(
                self.snapshot.readers, self._extra_reads, "former_reads"
            )
        return self._readers

    def writers(self) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        """Return the jobs that write each dataset."""
        if self._writers is None:
            self._writers = self._with_extra(
                self.snapshot.writers, self._extra_writes, "former_writes"
            )
        return self._writers

    def _with_extra(
        self,
        found: Mapping[DatasetRef, tuple[JobRef, ...]],
        extra: Mapping[JobRef, list[DatasetRef]],
        former: str,
    ) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        pairs = [(ref, job) for job, refs in extra.items() for ref in refs]
        if self._request.include_former:
            for node in self.snapshot.jobs.values():
                pairs += [(ref, node.ref) for ref in getattr(node, former)]
        if not pairs:
            return found
        merged = dict(found)
        for ref, job in pairs:
            if job not in merged.get(ref, ()):
                merged[ref] = (*merged.get(ref, ()), job)
        return merged

    def dataset_declaration(self, ref: DatasetRef) -> DatasetDeclaration | None:
        """Return what the project file says of a dataset."""
        found = self._declared.get(ref, _MISSING)
        if found is _MISSING:
            found = self._declared[ref] = self._datasets.find(ref)
        return cast(DatasetDeclaration | None, found)

    def job_declaration(self, ref: JobRef) -> JobDeclaration | None:
        """Return what the project file says of a job."""
        return self._jobs.find(ref)

    # --- calendars ------------------------------------------------------------------------------

    def calendar(self, ref: DatasetRef) -> Calendar | None:
        """Return the calendar of a dataset, None where nothing tells it."""
        try:
            return self._of_dataset[ref]
        except KeyError:
            found = self._of_dataset[ref] = self._find_calendar(ref)
            return found

    def origin(self, ref: DatasetRef) -> Origin | None:
        """Return where the calendar of a dataset is known from."""
        self.calendar(ref)
        return self._origins.get(ref)

    def _find_calendar(self, ref: DatasetRef) -> Calendar | None:
        declared = self.dataset_declaration(ref)
        if declared is not None and (declared.calendar or declared.dimensions):
            self._origins[ref] = "declared"
            return self._resolve(
                declared.calendar, declared.dimensions, tuple(declared.columns), f"dataset {ref}"
            )
        node = self.snapshot.datasets.get(ref)
        if node is not None and node.partitioning is not None:
            try:
                sent = facets.read_calendar(node.partitioning, f"the facet of dataset {ref}")
                found = self._resolve(*sent, f"the facet of dataset {ref}") if sent else None
            except UsageError as error:
                # Lineage is not ours: what it says wrongly makes a dataset unknown, no plan fail.
                self.troubles[f"not believed: {error}"] = None
                found = None
            if found is not None:
                self._origins[ref] = "facet"
                return found
        inferred = self._infer(ref)
        if inferred is not None:
            self._origins[ref] = "inferred"
            return self._resolve(inferred, (), (), f"dataset {ref}")
        return None

    def _infer(self, ref: DatasetRef) -> CalendarDeclaration | None:
        """Return what the history of a dataset's writers agrees on."""
        if not self.snapshot.history:
            return None
        found = {
            inference.calendar
            for job in self.writers().get(ref, ())
            if (inference := self.inference(job)) is not None
        }
        return found.pop() if len(found) == 1 else None

    def inference(self, job: JobRef) -> infer.Inference | None:
        """Return what the run history of a job tells of its run calendar."""
        if self._inferred is None:
            self._inferred = infer.infer_all(self.snapshot.history)
        return self._inferred.get(job)

    def evidence(self, facts: JobFacts) -> str | None:
        """Return what the run calendar of a job was inferred from; None where it was not."""
        if not self.snapshot.history:
            return None
        jobs = [facts.ref] if facts.origin == "inferred" else []
        for edge in facts.outputs:
            if self.origin(edge.dataset) == "inferred":
                jobs += [facts.ref, *self.writers().get(edge.dataset, ())]
        found = (self.inference(job) for job in jobs)
        return next((inference.evidence for inference in found if inference is not None), None)

    def _resolve(
        self,
        calendar: CalendarDeclaration | None,
        dimensions: tuple[DimensionDeclaration, ...],
        columns: tuple[str, ...],
        what: str,
    ) -> Calendar:
        column = columns[0] if len(columns) == 1 else ""
        key = (calendar, dimensions, column if calendar and calendar.keys else "")
        found = self._calendars.get(key)
        if found is None:
            try:
                found = self._make(calendar, dimensions, column)
            except UsageError as error:
                error.args = (f"{what}: {error.message}", *error.args[1:])
                error.message = error.args[0]
                raise
            found = self._calendars[key] = self._intern(found)
        return found

    def _make(
        self,
        calendar: CalendarDeclaration | None,
        dimensions: tuple[DimensionDeclaration, ...],
        column: str,
    ) -> Calendar:
        if calendar is not None:
            zone = calendar.zone or self.declarations.zone
            if calendar.grain == "none":
                return Calendar(zone=zone)
            if calendar.keys is not None:
                axis = static_axis(
                    column,
                    self._keys(calendar, column),
                    runtime=calendar.keys == "runtime",
                )
                return Calendar(statics=(axis,), zone=zone)
            return Calendar(time=self._time_axis("", calendar), zone=zone)
        time: TimeAxis | None = None
        statics = []
        zone = self.declarations.zone
        for dimension in dimensions:
            part = dimension.calendar
            if part.keys is not None:
                keys = self._keys(part, dimension.name)
                statics.append(static_axis(dimension.name, keys, runtime=part.keys == "runtime"))
            elif time is not None:
                raise DeclarationError(
                    f"{time.name!r} and {dimension.name!r} are both time dimensions",
                    hint="a product holds one at most",
                )
            else:
                time = self._time_axis(dimension.name, part)
                zone = part.zone or zone
        order = tuple(dimension.name for dimension in dimensions)
        if len(set(order)) < len(order):
            raise DeclarationError("two dimensions bear the same name", hint="rename one of them")
        return Calendar(time=time, statics=tuple(statics), order=order, zone=zone)

    def _time_axis(self, name: str, declared: CalendarDeclaration) -> TimeAxis:
        zone = declared.zone or self.declarations.zone
        if declared.cron is not None:
            grid = cron_grid(declared.cron, zone)
        elif declared.every is not None:
            if declared.start is None:
                raise DeclarationError(
                    "a calendar with `every` needs a start", hint="say when its first slice begins"
                )
            grid = every_grid(declared.every, declared.start, zone)
        elif declared.grain is not None:
            grid = grain_grid(declared.grain, zone)
        else:
            raise DeclarationError(
                "a calendar says neither grain nor cron, every or keys", hint="say one of them"
            )
        if declared.every is not None:
            first: int | None = 0
        else:
            first = grid.find(declared.start) if declared.start is not None else None
        end = grid.find(declared.end) if declared.end is not None else None
        if end is not None and first is not None and end < first:
            raise DeclarationError(
                f"the end {declared.end} lies before the start {declared.start}",
                hint="both are keys, and both are included",
            )
        now = grid.at(self.now)
        limit = now if end is None else min(now, end)
        complete = now - 1 if end is None else min(now - 1, end)
        last = now - 1 - declared.data_lag
        return TimeAxis(
            name=name,
            grid=grid,
            first=first,
            last=last if end is None else min(last, end),
            complete=complete,
            begun=limit,
        )

    def _keys(self, declared: CalendarDeclaration, name: str) -> tuple[str, ...]:
        if declared.keys is None or declared.keys == "runtime":
            return tuple(sorted(self._runtime_keys(name)))
        if not declared.keys:
            raise DeclarationError("a static calendar has no keys", hint="list them in `keys`")
        return declared.keys

    def _runtime_keys(self, name: str) -> set[str]:
        """Return the keys of a runtime dimension that are known by now.

        They are those of recorded runs and of the request, and those that another dimension of
        the same name has as static ones.
        """
        if self._recorded is None:
            self._recorded = {}
            named = [declared.dimensions for declared in self.declarations.datasets]
            named += [declared.dimensions for declared in self.declarations.jobs]
            for dimension in chain.from_iterable(named):
                if isinstance(dimension.calendar.keys, tuple):
                    known = self._recorded.setdefault(dimension.name, set())
                    known.update(dimension.calendar.keys)
            for record in self.snapshot.history:
                if record.partition_key:
                    try:
                        keys = parse_partitions(record.partition_key)
                    except UsageError:
                        continue  # not a key in our notation: it names no partition we know
                    self._record(keys, self.writes(record.job))
            for changed in self._request.changed:
                self._record(changed.keys or (), (changed.dataset,))
            for rerun in self._request.jobs:
                self._record(rerun.keys or (), self.writes(rerun.job))
        return self._recorded.get(name, set())

    def _record(self, keys: KeySet, datasets: Iterable[DatasetRef]) -> None:
        """Remember the keys under the names of the runtime dimensions that they belong to."""
        assert self._recorded is not None
        for dataset in datasets:
            declared = self._datasets.find(dataset)
            if declared is None:
                continue
            plain = declared.calendar is not None and declared.calendar.keys == "runtime"
            column = next(iter(declared.columns)) if len(declared.columns) == 1 else ""
            dimensions = {d.name for d in declared.dimensions if d.calendar.keys == "runtime"}
            for key in keys:
                named = {column: [key]} if isinstance(key, str) else key
                for name, values in named.items():
                    if name in dimensions or (plain and isinstance(key, str)):
                        texts = [values] if isinstance(values, str) else [str(v) for v in values]
                        found = self._recorded.setdefault(name, set())
                        found.update(text for text in texts if text != EVERY)

    def _intern(self, calendar: Calendar) -> Calendar:
        """Return the one object for equal calendars, so that identity stands for equality."""
        key = ("calendar", calendar.time, calendar.statics, calendar.order)
        return self._calendars.setdefault(key, calendar)

    def _share(self, calendars: tuple[Calendar, ...]) -> Calendar | None:
        """Return the calendar that all share: earliest start, newest last key; else None."""
        key = tuple(sorted({id(calendar) for calendar in calendars}))
        if len(key) == 1:
            return calendars[0]
        if key not in self._shared:
            self._shared[key] = self._merge(calendars)
        return self._shared[key]

    def _merge(self, calendars: tuple[Calendar, ...]) -> Calendar | None:
        first = calendars[0]
        for other in calendars[1:]:
            if (
                (first.time is None) != (other.time is None)
                or first.statics != other.statics
                or (first.time and other.time and first.time.grid is not other.time.grid)
                or first.order != other.order
            ):
                return None
        times = [calendar.time for calendar in calendars if calendar.time is not None]
        if not times:
            return first
        starts = [axis.first for axis in times if axis.first is not None]
        time = TimeAxis(
            name=times[0].name,
            grid=times[0].grid,
            first=min(starts) if len(starts) == len(times) else None,
            last=max(axis.last for axis in times),
            complete=max(axis.complete for axis in times),
            begun=max(axis.begun for axis in times),
        )
        return self._intern(
            Calendar(time=time, statics=first.statics, order=first.order, zone=first.zone)
        )

    # --- jobs -----------------------------------------------------------------------------------

    def job(self, ref: JobRef) -> JobFacts:
        """Return what the plan needs to know of one job."""
        found = self._facts.get(ref)
        if found is None:
            found = self._facts[ref] = self._find_job(ref)
        return found

    def _find_job(self, ref: JobRef) -> JobFacts:
        declared = self._jobs.find(ref)
        node = self.snapshot.jobs.get(ref)
        sent, unreadable = None, ""
        if node is not None and node.partitioning is not None:
            try:
                sent = facets.read_job(node.partitioning, f"the facet of job {ref}")
                if sent.calendar or sent.dimensions:
                    self._resolve(sent.calendar, sent.dimensions, (), f"the facet of job {ref}")
                self._sent[ref] = sent
            except UsageError as error:
                self.troubles[f"not believed: {error}"] = None
                sent, unreadable = None, str(error)
        said, told = declared or _NOTHING_DECLARED, sent or _NOTHING_SENT
        reads = [
            (dataset, self._declared_edge(dataset, said.reads, told.reads))
            for dataset in self.reads(ref)
        ]
        writes = [
            (dataset, self._declared_edge(dataset, said.writes, told.writes))
            for dataset in self.writes(ref)
        ]
        if declared is not None and (declared.reads or declared.writes):
            _check_edges(ref, declared)
        calendar, origin, problem, hint = self._run_calendar(
            ref, node, declared, sent, reads, writes
        )
        if unreadable and not problem and not (declared and (declared.reads or declared.writes)):
            # To go on with the defaults would be to guess what the job meant to say.
            problem, hint = unreadable, "declare the job's reads in the project file, which wins"
        lookback = max([write.lookback for _, write in writes if write], default=0)
        own = {dataset for dataset, _ in writes}
        inputs = []
        for dataset, read in reads:
            edge = self._input(ref, dataset, read, calendar, own=dataset in own)
            inputs.append(edge)
            if edge.undeclared and not problem:
                problem = f"it reads its own output {dataset}, and how is not declared"
                hint = 'declare that edge: mapping = "offset" with by < 0, "window", or "none"'
        outputs = []
        for dataset, write in writes:
            output, trouble = self._output(ref, dataset, write, calendar)
            outputs.append(output)
            if trouble and not problem:
                problem, hint = trouble
        live = tuple([edge for edge in inputs if not edge.reference])
        return JobFacts(
            ref=ref,
            calendar=calendar,
            origin=origin,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            references=frozenset([edge.dataset for edge in inputs if edge.reference]),
            live=live,
            own=tuple([edge.mapping for edge in live if edge.own and edge.mapping is not None]),
            unknown=tuple([edge for edge in live if edge.mapping is None]),
            endless=any(edge.mapping and edge.mapping.unbounded for edge in live),
            lookback=lookback,
            declaration=declared,
            problem=problem,
            hint=hint,
        )

    def _declared_edge(
        self, dataset: DatasetRef, declared: Iterable[Edge], sent: Iterable[Edge]
    ) -> Edge | None:
        """Return what is said of a job's edge: by the project file, else with the lineage."""
        found = find_edge(dataset, declared, self.declarations.namespace) if declared else None
        if found is None and sent:
            found = find_edge(dataset, sent, dataset.namespace)
        return found

    def _run_calendar(
        self,
        ref: JobRef,
        node: JobNode | None,
        declared: JobDeclaration | None,
        sent: facets.JobFacet | None,
        reads: list[tuple[DatasetRef, ReadDeclaration | None]],
        writes: list[tuple[DatasetRef, WriteDeclaration | None]],
    ) -> tuple[Calendar | None, Origin | None, str | None, str]:
        if declared is not None and (declared.calendar or declared.dimensions):
            calendar = self._resolve(declared.calendar, declared.dimensions, (), f"job {ref}")
            return calendar, "declared", None, ""
        if sent is not None and (sent.calendar or sent.dimensions):
            calendar = self._resolve(sent.calendar, sent.dimensions, (), f"job {ref}")
            return calendar, "facet", None, ""
        if writes:
            side, origin = [dataset for dataset, _ in writes], "outputs"
            unknown = [dataset for dataset in side if self.calendar(dataset) is None]
        else:
            side = [dataset for dataset, read in reads if not (read and read.mapping == "none")]
            origin, unknown = "inputs", []
        if unknown:
            return None, None, *_unknown_output(unknown)
        known = tuple(c for dataset in side if (c := self.calendar(dataset)) is not None)
        if not known:
            inferred = self.inference(ref)
            if inferred is not None:
                return self._resolve(inferred.calendar, (), (), f"job {ref}"), "inferred", None, ""
            return (
                None,
                None,
                "the partitioning of its runs is unknown",
                f"declare it: [[job]] name = {ref.name!r} and its grain",
            )
        shared = self._share(known)
        if shared is None:
            return (
                None,
                None,
                f"its {origin} have different calendars",
                f"declare its run calendar: [[job]] name = {ref.name!r} and its grain",
            )
        return shared, "outputs" if origin == "outputs" else "inputs", None, ""

    def _input(
        self,
        ref: JobRef,
        dataset: DatasetRef,
        read: ReadDeclaration | None,
        run: Calendar | None,
        *,
        own: bool,
    ) -> Input:
        added = bool(self._extra_reads) and dataset in self._extra_reads.get(ref, ())
        # Calendars are interned and declarations live as long as this: identity tells them.
        key = (dataset, id(run), id(read), own, added)
        found = self._inputs.get(key)
        if found is None:
            reference = read is not None and read.mapping == "none"
            mapping = None if reference else self._read_mapping(ref, dataset, read, run, own=own)
            found = self._inputs[key] = Input(
                dataset=dataset,
                mapping=mapping,
                own=own,
                reference=reference,
                declared=added,
                undeclared=own and not reference and not self._declares_self(read),
            )
        return found

    def _read_mapping(
        self,
        ref: JobRef,
        dataset: DatasetRef,
        read: ReadDeclaration | None,
        run: Calendar | None,
        *,
        own: bool,
    ) -> EdgeMapping | None:
        upstream = self.calendar(dataset)
        if upstream is None or run is None:
            return None
        key = (id(upstream), id(run), id(read), own)
        mapping = self._mappings.get(key)
        if mapping is None:
            try:
                mapping = mappings.build(upstream, run, self._spec(read, own=own))
            except UsageError as error:
                raise DeclarationError(
                    f"job {ref}, input {dataset}: {error.message}", hint=error.hint
                ) from None
            self._mappings[key] = mapping
        return mapping

    @staticmethod
    def _declares_self(read: ReadDeclaration | None) -> bool:
        if read is None:
            return False
        parts: tuple[ReadDeclaration | DimensionMapping, ...] = (read, *read.dimensions.values())
        return any(
            (part.mapping == "offset" and part.by < 0)
            or (part.mapping == "window" and part.before > 0)
            for part in parts
        )

    def _spec(self, read: ReadDeclaration | None, *, own: bool) -> MappingSpec:
        if read is None:
            return mappings.DEFAULT
        return _mapping_spec(read, self._functions, own=own)

    def _output(
        self,
        ref: JobRef,
        dataset: DatasetRef,
        write: WriteDeclaration | None,
        run: Calendar | None,
    ) -> tuple[Output, tuple[str, str] | None]:
        added = dataset in self._extra_writes.get(ref, ())
        calendar = self.calendar(dataset)
        if calendar is None:
            return Output(dataset=dataset, mapping=None, declared=added), _unknown_output([dataset])
        if run is None:
            return Output(dataset=dataset, mapping=None, declared=added), None
        key = (id(run), id(calendar), "write")
        mapping = self._mappings.get(key)
        if mapping is None:
            # The relation "output partition p is made by the run keys that intersect it".
            mapping = self._mappings[key] = mappings.build(calendar, run)
        trouble = None
        mode = write.mode if write else "overwrite"
        if mapping.unbounded is calendar:
            trouble = (
                f"one run key writes all of {dataset}, which has no first key",
                f"declare a start for {dataset.name!r}",
            )
        elif mode == "full" and not run.is_whole:
            trouble = (
                f"one run key would replace all of its output {dataset} (mode full)",
                f'declare mode = "overwrite" in [[job.writes]] of {ref.name!r}',
            )
        elif mode not in ("merge", "append") and not self._covers(run, calendar):
            text = f"its output {dataset} is coarser than its run calendar: one run key would"
            trouble = (
                f"{text} replace a whole partition with a part",
                f'declare mode = "merge" in [[job.writes]] of {ref.name!r}, or the right calendar',
            )
        return Output(dataset=dataset, mapping=mapping, declared=added), trouble

    def _covers(self, run: Calendar, output: Calendar) -> bool:
        """Whether one run key makes every partition of the output that it touches, whole."""
        if run is output:
            return True
        names = {axis.name for axis in output.statics}
        plain = not (run.order or output.order)
        if run.statics and not (
            names >= {axis.name for axis in run.statics} or (plain and output.statics)
        ):
            return False
        if run.time is None:
            return True
        return output.time is not None and refines(output.time.grid, run.time.grid, self.now)


def _check_edges(ref: JobRef, declared: JobDeclaration) -> None:
    for edges, word in ((declared.reads, "reads"), (declared.writes, "writes")):
        seen = set()
        for edge in edges:
            name = (edge.namespace, edge.dataset)
            if name in seen:
                raise DeclarationError(
                    f"job {ref} {word} {edge.dataset!r} twice in its declaration",
                    hint="keep one of the two tables",
                )
            seen.add(name)


def _unknown_output(datasets: Sequence[DatasetRef]) -> tuple[str, str]:
    names = ", ".join(str(dataset) for dataset in datasets)
    return (
        f"the partitioning of its output {names} is unknown",
        f"declare it: [[dataset]] name = {datasets[0].name!r} and its grain",
    )


def is_glob(name: str) -> bool:
    """Whether a declared name stands for all names that match it."""
    return _GLOB.search(name) is not None


def find_edge(dataset: DatasetRef, edges: Iterable[Edge], namespace: str | None) -> Edge | None:
    """Return the declared edge to a dataset; an exact name beats a glob, of two the first wins."""
    glob: Edge | None = None
    for edge in edges:
        space = edge.namespace or namespace
        if space is not None and space != dataset.namespace:
            continue
        if edge.dataset == dataset.name:
            return edge
        may_match = glob is None and is_glob(edge.dataset)
        if may_match and re.match(translate(edge.dataset), dataset.name):
            glob = edge
    return glob


def _mapping_spec(
    read: ReadDeclaration | DimensionMapping,
    functions: Mapping[str, KeyFunction],
    *,
    own: bool = False,
) -> MappingSpec:
    before, after = 0, 0
    if read.mapping == "window":
        # A job's window over its own output ends where the run key starts.
        before, after = read.before, -1 if own else read.after
    elif read.mapping == "offset":
        before, after = -read.by, read.by
    elif read.before or read.after or read.by:
        raise DeclarationError(
            "before, after and by belong to the mappings window and offset",
            hint=f"say mapping = {'offset' if read.by else 'window'!r}",
        )
    function = None
    dimensions: tuple[tuple[str, MappingSpec], ...] = ()
    if isinstance(read, ReadDeclaration):
        dimensions = tuple(
            (name, _mapping_spec(part, functions, own=own))
            for name, part in sorted(read.dimensions.items())
        )
        if read.mapping == "python":
            function = functions.get(read.function or "")
            if function is None:
                raise DeclarationError(
                    f"the function {read.function!r} of a python mapping was not loaded",
                    hint='write function = "module:name" and keep the module importable',
                )
    return MappingSpec(
        kind=read.mapping,
        before=before,
        after=after,
        table=tuple(sorted((key, tuple(reads)) for key, reads in read.map.items())),
        function=function,
        dimensions=dimensions,
    )
