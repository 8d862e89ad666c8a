"""Makes the keys and run specs of scheduled runs, which no backfill has planned.

Keys, reads and writes are resolved by the same functions as in a plan. The edges declared by the
job and the project file replace the lineage.
"""

from __future__ import annotations

import importlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

from lineage_backfill.errors import (
    AmbiguousNameError,
    DeclarationError,
    MissingKeyError,
    SpecError,
)
from lineage_backfill.model import DatasetRef, JobRef, did_you_mean
from lineage_backfill.partitions.calendar import Calendar as RunCalendar
from lineage_backfill.partitions.grid import cron_grid
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.schedule import RunStart, run_keys
from lineage_backfill.partitions.text import (
    KeySet,
    expand,
    parse,
    parse_partitions,
    render,
)
from lineage_backfill.project import facets
from lineage_backfill.project.code import joined
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
    JobPartitioning,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import (
    DeclaredNames,
    named_dataset,
    target,
    unused_globs,
)
from lineage_backfill.project.resolve.functions import mapping_functions
from lineage_backfill.project.resolve.resolver import (
    DeclarationResolver,
    JobFacts,
    OwnInput,
    expired,
    read_keys,
    unknown_reads,
    unlisted_reads,
    writing_keys,
    written_keys,
)
from lineage_backfill.project.resolve.runtime_keys import KnownKeys, add_run, declared_keys
from lineage_backfill.project.settings import Project
from lineage_backfill.project.unmatched import unmatched
from lineage_backfill.runspec.build import RunIdentity, SpecBuilder
from lineage_backfill.runspec.parse import refuse_shared_place
from lineage_backfill.runspec.values import JobSpec, RunSpec
from spark_runtime.configuration import address_of, outbox_of
from spark_runtime.errors import InputMissingError, NothingToRunError
from spark_runtime.job.dagrun import DagRun
from spark_runtime.job.datasets import Calendar, Dataset, Dimension, Read, Write, calendar_of

Batch = Literal["key", "range"]

_AS_DECLARED = JobPartitioning()
_log = logging.getLogger(__name__)
#: How far the clock of this machine may be behind that of the scheduler.
_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """The arguments of a run; without any, it is for the newest key of its calendar.

    `keys` are its keys; a text may hold several, separated by commas. `interval` is a data interval
    such as Airflow's: the keys that became complete in (start, end], or the newest key if both are
    equal. It ends at most a day from now. `schedule` is the cron expression that starts the run, in
    `schedule_zone`: the run adds the keys since its previous firing; by default that of the project
    file, if the job collects such gaps. `exact` leaves out the keys that a lookback or a
    schedule adds. The data for the job in `dag_run` takes precedence over all these.
    """

    keys: Sequence[str] = ()
    interval: tuple[datetime, datetime] | None = None
    schedule: str | None = None
    schedule_zone: str | None = None
    exact: bool = False
    dag_run: DagRun = field(default_factory=DagRun)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    result_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeclaredJob:
    """A job as declared by the project file and the job itself; the file takes precedence."""

    ref: JobRef
    entrypoint: str
    declarations: Declarations
    lineage: _OwnEdges
    functions: Mapping[str, Callable[[Any], Any]]

    def resolver(self, now: datetime, runtime_keys: Mapping[str, set[str]]) -> DeclarationResolver:
        """Return the resolver of the job as of an instant."""
        return DeclarationResolver(
            self.declarations,
            DeclaredNames(self.declarations),
            self.lineage,
            now=now,
            runtime_keys=lambda name: runtime_keys.get(name, ()),
            functions=self.functions,
        )


class _OwnEdges:
    """The edges and facets of one job, used instead of a lineage; see `resolver.Lineage`."""

    def __init__(
        self,
        reads: Iterable[DatasetRef],
        writes: Iterable[DatasetRef],
        job_facet: Mapping[str, Any],
        dataset_facets: Mapping[DatasetRef, Mapping[str, Any]],
    ) -> None:
        self._reads = tuple(dict.fromkeys(reads))
        self._writes = tuple(dict.fromkeys(writes))
        self._job_facet = job_facet
        self._dataset_facets = dataset_facets
        self.declared_reads: Mapping[JobRef, Sequence[DatasetRef]] = {}
        self.declared_writes: Mapping[JobRef, Sequence[DatasetRef]] = {}

    def reads(self, job: JobRef) -> tuple[DatasetRef, ...]:
        return self._reads

    def writes(self, job: JobRef) -> tuple[DatasetRef, ...]:
        return self._writes

    def place(self, job: JobRef) -> int:
        return 0

    def dataset_facet(self, dataset: DatasetRef) -> Mapping[str, Any] | None:
        return self._dataset_facets.get(dataset)

    def job_facet(self, job: JobRef) -> Mapping[str, Any] | None:
        return self._job_facet

    def infer_dataset(self, dataset: DatasetRef) -> CalendarDeclaration | None:
        return None

    def infer_job(self, job: JobRef) -> CalendarDeclaration | None:
        return None

    def own_input(self, job: JobRef, dataset: DatasetRef) -> OwnInput:
        return "own"

    def covering(self, job: JobRef, dataset: DatasetRef) -> DatasetRef | None:
        return None


def find_job(project: Project, named: str) -> tuple[JobRef, JobDeclaration | None]:
    """Return the job of a name or an entrypoint, and its declaration in the file.

    Raises AmbiguousNameError if several have the name.
    """
    home = project.declarations.namespace or "default"
    tables = [one for one in project.declarations.jobs if not is_glob(one.name)]
    refs = {JobRef(one.namespace or home, one.name): one for one in tables}
    found = [ref for ref in refs if named in (ref.name, str(ref))]
    found = [ref for ref in found if ref.namespace == home] or found
    found = found or [ref for ref, one in refs.items() if one.entrypoint == named][:1]
    if len(found) > 1:
        raise AmbiguousNameError(
            f"{named!r} is the name of several jobs",
            hint=f"Write one of {', '.join(map(str, found))}.",
        )
    ref = found[0] if found else JobRef(home, _short(named))
    return ref, DeclaredNames(project.declarations).jobs.find(ref)


def _short(named: str) -> str:
    """Return the name of a job given by its entrypoint: that of its function or its file."""
    if named.endswith((".py", ".sql")):
        return Path(named).stem
    return named.rpartition(":")[2]


def declare(
    project: Project,
    name: str,
    *,
    entrypoint: str = "",
    reads: Iterable[Read] = (),
    writes: Iterable[Write] = (),
    calendar: Calendar | Sequence[Dimension] | None = None,
    runs: JobPartitioning = _AS_DECLARED,
) -> DeclaredJob:
    """Return a job as declared by the project file and the job itself; the file takes precedence.

    Raises DeclarationError if neither names an output, or the job's declaration is invalid.
    """
    declarations = project.declarations
    ref, table = find_job(project, name)
    coded: dict[DatasetRef, DatasetDeclaration] = {}

    def resolve(given: Dataset | str) -> DatasetRef:
        if isinstance(given, str):
            return named_dataset(declarations, given)
        found = DatasetRef(given.namespace or declarations.namespace or "default", given.name)
        declaration = given.declaration(found, project.code)
        if coded.setdefault(found, declaration) != declaration:
            raise DeclarationError(
                f"{found} is declared in two ways",
                hint="Use one Dataset wherever the job names it.",
            )
        return found

    read = [(resolve(one.dataset), one) for one in reads]
    _refuse_two_ways(ref, read)
    written = [(resolve(one.dataset), one) for one in writes]
    keys = calendar_of(calendar, f"job {ref}", project.code)
    home = project.declarations.namespace
    layers = DeclaredNames(declarations).jobs.layers(ref)
    coded_job = JobDeclaration(
        name=ref.name,
        namespace=None if ref.namespace in (home, "default") else ref.namespace,
        calendar=keys.calendar,
        dimensions=keys.dimensions,
        reads=tuple(
            dict.fromkeys(
                replace(one.how, dataset=data.name, namespace=_space(data, home))
                for data, one in read
            )
        ),
        writes=tuple(
            replace(one.declaration(data), namespace=_space(data, home)) for data, one in written
        ),
        batch=runs.batch,
        depends_on_past=runs.depends_on_past,
    )
    known = {named_dataset(declarations, one.name) for one in declarations.datasets} | coded.keys()
    inputs = [data for data, _ in read]
    outputs = [data for data, _ in written]
    for layer in layers:
        for found, edges in ((inputs, layer.reads), (outputs, layer.writes)):
            named = _targets(edges, home, known, tuple(found))
            found.extend(one for one in dict.fromkeys(named) if one not in found)
    if not outputs:
        raise _without_output(ref, declarations)
    return DeclaredJob(
        ref=ref,
        entrypoint=(table and table.entrypoint) or entrypoint,
        declarations=joined(declarations, [coded_job], coded.values()),
        lineage=_OwnEdges(inputs, outputs, {}, {}),
        functions=mapping_functions(
            [table] if table else (),
            _load,
            hint="Start from the project's folder, or install the module as a package.",
        ),
    )


def _without_output(ref: JobRef, declarations: Declarations) -> DeclarationError:
    near = did_you_mean(ref.name, (one.name for one in declarations.jobs if one.writes))
    return DeclarationError(
        f"job {ref} declares no output", hint=f"Declare it in [[job.writes]]. {near}".strip()
    )


def _targets(
    edges: Iterable[ReadDeclaration | WriteDeclaration],
    home: str | None,
    known: Iterable[DatasetRef],
    side: tuple[DatasetRef, ...],
) -> list[DatasetRef]:
    """Return the datasets that declared edges name beside those of the code."""
    found = (target(edge, home, known, side) for edge in edges)
    return [ref for ref in found if ref is not None]


def _space(data: DatasetRef, home: str | None) -> str | None:
    """Return the namespace of an edge; None where a bare name means it."""
    return None if data.namespace == home else data.namespace


def _refuse_two_ways(ref: JobRef, read: Iterable[tuple[DatasetRef, Read]]) -> None:
    """Raise DeclarationError if a job reads one dataset in two ways: both would get one of them."""
    ways: dict[DatasetRef, ReadDeclaration] = {}
    for data, one in read:
        if ways.setdefault(data, one.how) != one.how:
            raise DeclarationError(
                f"job {ref} reads {data} in two ways",
                hint="Declare one that covers both, such as a window, and filter it in the job.",
            )


def run_specs(
    job: DeclaredJob,
    project: Project,
    request: StartRequest,
    now: datetime,
    *,
    batch: Batch = "range",
) -> list[RunSpec]:
    """Return the run specs of a job that was started at an instant, in order.

    It is one run, or one for each key if the job computes them one by one or reads its own output
    for the previous key. An Airflow run that a backfill created has its run spec. Raises
    NothingToRunError if no key became complete, and the tool's errors for invalid declarations.
    """
    handed = request.dag_run.spec_for(JobSpec(name=job.ref, entrypoint=job.entrypoint))
    if handed is not None and not request.dag_run.is_cleared:
        return [handed]
    if handed is not None:
        request = replace(request, keys=[str(one.key) for one in handed.keys], exact=True)
    resolver, planned = resolve(job, request, now)
    facts = resolver.job(job.ref)
    for text in unused_globs(job.lineage, job.declarations.namespace, job.ref, facts.declaration):
        _log.warning(text)
    used = {*job.lineage.reads(job.ref), *job.lineage.writes(job.ref)}
    for one in unmatched(project.declarations, used, {job.ref}, only_near=True):
        _log.warning(one.text)
    one_by_one = (
        _calendar(job, resolver).chunks(planned, 1) if facts.own or batch == "key" else None
    )
    runs = [planned] if one_by_one is None else list(one_by_one)
    if request.result_path is not None and len(runs) > 1:
        raise SpecError(
            f"{job.ref} does its {len(runs)} keys in as many runs, and one result file was asked "
            "for",
            hint="Name one key, or leave out --result.",
        )
    builder = SpecBuilder(
        resolver, root=project.root, outbox=outbox_of(project), url=address_of(project)
    )
    specs = [_run_spec(builder, facts, job, request, keys) for keys in runs]
    for spec in specs:
        refuse_shared_place(spec)
    return specs


def _run_spec(
    builder: SpecBuilder,
    facts: JobFacts,
    job: DeclaredJob,
    request: StartRequest,
    keys: PartitionSet,
) -> RunSpec:
    run_id = str(uuid.uuid4())
    reads = [
        (edge.data, None if edge.reads_whole else wanted) for edge, wanted in read_keys(facts, keys)
    ]
    for data, wanted in reads:
        gone = expired(data)
        if wanted is not None and wanted & gone and data.calendar is not None:
            lost = ", ".join(map(str, render(data.calendar, wanted & gone)))
            raise InputMissingError(
                f"the run needs {lost} of {data.ref}, which is past its retention",
                hint="Where it is still there, raise the dataset's `retention`.",
            )
    return builder.build(
        RunIdentity(
            run_id=run_id,
            token=run_id,
            parameters=request.parameters,
            result_path=request.result_path,
            keys_derived=not request.keys,
        ),
        JobSpec(name=job.ref, entrypoint=job.entrypoint),
        keys,
        reads=[(data.ref, wanted) for data, wanted in reads],
        writes=[(output.dataset, written_keys(output, keys)) for output in facts.outputs],
    )


def resolve(
    job: DeclaredJob, request: StartRequest, now: datetime
) -> tuple[DeclarationResolver, PartitionSet]:
    """Return the resolver of a job that was started at an instant, and the keys of its run.

    A key derived from the clock is logged as a warning. Raises the errors of `run_specs`.
    """
    named: KeySet = tuple(key for text in request.keys for key in parse_partitions(text))
    if request.interval is not None:
        # Its end has passed, whatever this machine's clock says.
        now = max(now, _ended(request.interval[1], now, is_named=bool(named)))
    runtime = _declared_keys(job)
    add_run(runtime, named, job.ref, job.lineage.writes(job.ref), job.resolver(now, {}))

    @cache
    def at(instant: int) -> DeclarationResolver:
        return job.resolver(datetime.fromtimestamp(instant, UTC), runtime)

    start = _start(job, request, now)
    resolver = at(start.now)
    calendar = _calendar(job, resolver)
    if named:
        start = replace(start, keys=parse(calendar, named, _log.warning))
    facts = resolver.job(job.ref)
    try:
        keys = run_keys(lambda t: _calendar(job, at(t)), start, lookback=facts.lookback)
    except MissingKeyError as error:
        raise NothingToRunError(error.message, hint=error.hint) from error
    if not keys:
        raise NothingToRunError(
            f"no key of the run's calendar became complete {_between(start.interval)}",
            hint="There is nothing to do.",
        )
    if not named and request.interval is None and not calendar.is_whole:
        _log.warning(
            "the run was started without a key; derived from the clock (%s, %s): %s",
            now.isoformat(timespec="seconds"),
            calendar.zone,
            ", ".join(_text(key.label) for key in expand(calendar, keys)),
        )
    return resolver, writing_keys(facts.outputs, keys) or keys  # a run that writes none is refused


def _ended(end: datetime, now: datetime, *, is_named: bool) -> datetime:
    """Return the end of a data interval; that of a run with named keys may be later than now.

    Raises SpecError for any other one that is in the future.
    """
    latest = now + _CLOCK_SKEW
    if end > latest and not is_named:
        raise SpecError(
            f"the data interval ends at {end.isoformat(timespec='minutes')}, and now it is"
            f" {now.isoformat(timespec='minutes')}",
            hint="Check the interval, and the clock of this machine.",
        )
    return min(end, latest)


def _start(job: DeclaredJob, request: StartRequest, now: datetime) -> RunStart:
    """Return the start of a run without named keys."""
    instant = int(now.timestamp())
    resolver = job.resolver(now, _declared_keys(job))
    declared = resolver.job(job.ref).declaration
    has_schedule = request.schedule is not None or (declared is not None and declared.schedule)
    if request.schedule_zone is not None and not has_schedule:
        raise SpecError(
            f"job {job.ref} is started with a schedule zone, but without a schedule",
            hint="Add the cron expression that starts it.",
        )
    if request.interval is not None:
        after, until = (int(end.timestamp()) for end in request.interval)
        return RunStart(now=instant, interval=(after, until), exact=request.exact)
    expression, zone = request.schedule, request.schedule_zone
    if expression is None and declared is not None and declared.collect_schedule_gaps:
        expression, zone = declared.schedule, zone or declared.schedule_zone
    if expression is None:
        return RunStart(now=instant, exact=request.exact)
    schedule = cron_grid(expression, zone or _calendar(job, resolver).zone)
    return RunStart(now=instant, schedule=schedule, exact=request.exact)


def _declared_keys(job: DeclaredJob) -> KnownKeys:
    facet = job.lineage.job_facet(job.ref) or {}
    return declared_keys(job.declarations, facets.read_job(facet, f"job {job.ref}").reads)


def _calendar(job: DeclaredJob, resolver: DeclarationResolver) -> RunCalendar:
    """Return the run calendar of a job; raises DeclarationError if a plan would block it."""
    facts = resolver.job(job.ref)
    for trouble in resolver.troubles.values():
        raise DeclarationError(trouble.removeprefix("ignored: "), hint=facts.hint)
    # A run lists what it reads, but never maps inputs to runs.
    unknown = [edge for edge in facts.live if edge.mapping is None]
    problem = unknown_reads(facts, (*unknown, *unlisted_reads(facts)))
    if problem is not None or facts.calendar is None:
        text, hint = problem or ("the partitioning of its runs is unknown", "")
        raise DeclarationError(f"job {job.ref}: {text}", hint=hint)
    return facts.calendar


def _between(interval: tuple[int, int] | None) -> str:
    if interval is None or interval[0] == interval[1]:
        return "so far"
    instants = [datetime.fromtimestamp(one, UTC) for one in interval]
    after, until = (instant.isoformat(timespec="minutes") for instant in instants)
    return f"between {after} and {until}"


def _text(label: str | Mapping[str, str]) -> str:
    if isinstance(label, str):
        return label
    return "/".join(f"{name}={key}" for name, key in label.items())


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
