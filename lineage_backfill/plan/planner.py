"""The planner: a pure function from a request and what is known to a plan."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.graph.columns import ALL, missed_edges
from lineage_backfill.graph.lineage import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.graph.names import unknown as unknown_name
from lineage_backfill.graph.select import Neighbours, select
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, WHOLE, PartitionSet
from lineage_backfill.partitions.mapping import KeyFunction
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.plan.catalog import Catalog, Input, JobFacts
from lineage_backfill.plan.declarations import Declarations
from lineage_backfill.plan.plan import DatasetPartitions, JobStatus, Plan, PlannedJob, PlannedRun
from lineage_backfill.plan.propagate import UNKNOWN, Dirty, JobResult, Propagation, propagate
from lineage_backfill.plan.request import Request
from lineage_backfill.plan.runs import count_runs, make_runs

#: Of a longer way from the change to a job, the first and the last hops are shown.
LONGEST_PATH: Final = 24


def build_plan(
    request: Request,
    snapshot: LineageSnapshot,
    declarations: Declarations,
    *,
    now: datetime,
    functions: Mapping[str, KeyFunction] | None = None,
) -> Plan:
    """Return the plan for a request: exactly the runs that the change makes stale, in order.

    `now` is aware; keys that are not complete by then are not planned. `functions` holds the
    loaded functions of `python` mappings by their names. Raises UsageError for a request or a
    declaration that cannot be planned. Same values in, same plan out.
    """
    with _collector_paused():
        return Planning(request, snapshot, declarations, now=now, functions=functions).plan()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Planning makes many objects and no garbage: collecting meanwhile only costs time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roots:
    datasets: dict[DatasetRef, PartitionSet]
    unknown: dict[DatasetRef, KeySet | None]
    jobs: dict[JobRef, PartitionSet]


class Planning:
    """One planning session: the plan, and answers about it that a plan is too small to hold."""

    def __init__(
        self,
        request: Request,
        snapshot: LineageSnapshot,
        declarations: Declarations,
        *,
        now: datetime,
        functions: Mapping[str, KeyFunction] | None = None,
    ) -> None:
        if now.tzinfo is None:
            raise UsageError("`now` has no time zone", hint="give an instant such as …T00:00:00Z")
        self.request = request
        self.declarations = declarations
        self.snapshot = snapshot
        self.now = now.astimezone(UTC)
        self.catalog = Catalog(
            snapshot, declarations, now=now, request=request, functions=functions
        )
        self._warnings: dict[str, None] = {}
        self._refs: dict[DatasetRef | JobRef, dict[str, str]] = {}
        self._edges: dict[int, dict[str, Any]] = {}
        self._paths: dict[JobRef, tuple[Any, ...]] = {}
        self._roots = self._find_roots()
        self._missed = self._find_missed()
        self.propagation = self._propagate()

    # --- gathering ------------------------------------------------------------------------------

    def _find_roots(self) -> _Roots:
        if not self.request.changed and not self.request.jobs:
            raise UsageError(
                "nothing is said to have changed", hint="name a dataset, or a job with --job"
            )
        datasets: dict[DatasetRef, PartitionSet] = {}
        unknown: dict[DatasetRef, KeySet | None] = {}
        known_datasets = self.snapshot.datasets
        for changed in self.request.changed:
            ref = changed.dataset
            if ref not in known_datasets and ref not in self.catalog.all_datasets():
                raise unknown_name(str(ref), self.catalog.all_datasets(), kind="dataset")
            calendar = self.catalog.calendar(ref)
            if calendar is None:
                unknown[ref] = changed.keys
                continue
            keys = self._parse(calendar, changed.keys, f"dataset {ref}")
            datasets[ref] = datasets.get(ref, NOTHING) | keys
        jobs: dict[JobRef, PartitionSet] = {}
        for rerun in self.request.jobs:
            job = rerun.job
            if job not in self.snapshot.jobs and job not in self.catalog.all_jobs():
                raise unknown_name(str(job), self.catalog.all_jobs(), kind="job")
            calendar = self.catalog.job(job).calendar
            if calendar is None:
                jobs[job] = WHOLE  # it is blocked, whatever its keys are
                continue
            keys = self._parse(calendar, rerun.keys, f"job {job}")
            jobs[job] = jobs.get(job, NOTHING) | keys
        return _Roots(datasets=datasets, unknown=unknown, jobs=jobs)

    def _parse(self, calendar: Calendar, keys: KeySet | None, what: str) -> PartitionSet:
        try:
            return parse(calendar, keys, lambda text: self._warn(f"{what}: {text}"))
        except UsageError as error:
            error.message = f"{what}: {error.message}"
            error.args = (error.message,)
            raise

    def _find_missed(self) -> frozenset[tuple[JobRef, DatasetRef]]:
        columns = frozenset(self.request.columns)
        if not columns:
            return frozenset()
        changed = [*self._roots.datasets, *self._roots.unknown]
        if not changed:
            self._warn(
                "--columns says nothing of a job that is run again: it makes all columns anew"
            )
        for ref in changed:
            node = self.snapshot.datasets.get(ref)
            if node is not None and node.fields:
                unknown = sorted(columns - set(node.fields))
                if unknown:
                    raise UnknownNameError(
                        f"dataset {ref} has no column {', '.join(unknown)}",
                        hint=f"its columns are {', '.join(node.fields[:12])}",
                    )
        dirty = dict.fromkeys(changed, columns)
        for job in self._roots.jobs:
            # A job that runs again makes all of its outputs anew.
            dirty.update(dict.fromkeys(self.catalog.writes(job), frozenset({ALL})))
        missed, blind = missed_edges(
            dirty,
            self.snapshot.column_edges,
            self.catalog.readers(),
            self.catalog.writes,
        )
        if blind:
            names = _few(sorted({str(job) for job, _ in blind}))
            self._warn(f"kept, for lack of column lineage: {names}")
        return missed

    def _propagate(self) -> Propagation:
        roots: dict[DatasetRef, Dirty] = dict(self._roots.datasets)
        roots.update(dict.fromkeys(self._roots.unknown, UNKNOWN))
        return propagate(
            self.catalog,
            roots,
            self._roots.jobs,
            cut=self._make_cut(),
            pruned=self._missed,
            expired=self._expired,
            exact=self.request.exact,
        )

    def _make_cut(self) -> Any:
        request, allow = self.request, self.request.allow
        selected: set[JobRef] | None = None
        excluded: set[JobRef] = set()
        if request.select or request.exclude:
            graph = Neighbours(
                jobs=self.catalog.all_jobs(),
                reads=self.catalog.reads,
                writes=self.catalog.writes,
                readers=self.catalog.readers(),
                writers=self.catalog.writers(),
            )
            if request.select:
                selected = select(request.select, self.snapshot, graph)
            excluded = select(request.exclude, self.snapshot, graph)

        def cut(facts: JobFacts, distance: int) -> tuple[str, str, str] | None:
            declared = facts.declaration
            if facts.ref in excluded:
                return ("excluded", "excluded by --exclude", "")
            if selected is not None and facts.ref not in selected:
                return ("excluded", "not chosen by --select", "")
            if request.depth is not None and distance > request.depth:
                return ("depth", f"more than {request.depth} jobs away from the change", "")
            if declared is not None and declared.protected and "protected" not in allow:
                return ("protected", "the job is protected", "run it with --allow-protected")
            if declared is not None and not declared.idempotent and "not-idempotent" not in allow:
                return (
                    "not_idempotent",
                    "the job is not idempotent",
                    "run it with --allow-not-idempotent",
                )
            return None

        return cut

    def _expired(self, dataset: DatasetRef) -> PartitionSet:
        declared = self.catalog.dataset_declaration(dataset)
        if declared is None or declared.retention is None or "expired" in self.request.allow:
            return NOTHING
        calendar = self.catalog.calendar(dataset)
        if calendar is None or calendar.time is None:
            return NOTHING
        time = calendar.time
        gone = time.existing.clip(None, time.last - declared.retention)
        return PartitionSet.of([(gone, calendar.full_mask)])

    def _warn(self, text: str) -> None:
        self._warnings[text] = None

    # --- the plan -------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan."""
        results = self.propagation.results
        count = count_runs(self.propagation, self.catalog)
        limit = self.declarations.limits.max_runs
        runs: tuple[PlannedRun, ...] | None = None
        if count <= limit or "max-runs" in self.request.allow:
            runs = make_runs(self.propagation, self.catalog, reverse=self.request.reverse)
        jobs = tuple(self._job(result) for result in results.values())
        self._say(results.values(), count, limit, listed=runs is not None)
        planned = [job for job in jobs if job.status == "planned"]
        return Plan(
            now=self.now.isoformat().replace("+00:00", "Z"),
            request=self._request_document(),
            lineage={
                "source": self.snapshot.source,
                **self._fingerprints(),
                "taken_at": self.snapshot.taken_at.isoformat().replace("+00:00", "Z")
                if self.snapshot.taken_at
                else None,
            },
            changed=self._changed(),
            jobs=jobs,
            runs=runs,
            totals={
                "jobs": len(planned),
                "runs": count,
                "partitions": sum(job.count for job in planned),
            },
            warnings=tuple(self._warnings),
        )

    def _changed(self) -> tuple[DatasetPartitions, ...]:
        found = []
        for ref, keys in self._roots.datasets.items():
            calendar = self.catalog.calendar(ref)
            assert calendar is not None
            found.append(DatasetPartitions(dataset=ref, keys=render(calendar, keys)))
        for ref, given in self._roots.unknown.items():
            found.append(DatasetPartitions(dataset=ref, keys=given))
        return tuple(sorted(found, key=lambda part: part.dataset))

    def _job(self, result: JobResult) -> PlannedJob:
        facts = result.facts
        calendar = facts.calendar
        partitions = render(calendar, result.planned) if calendar and result.planned else ()
        left = render(calendar, result.left) if calendar and result.left else ()
        status = _status(result)
        return PlannedJob(
            job=facts.ref,
            status=status,
            level=result.level,
            partitions=partitions,
            count=len(result.planned),
            left_stale=left,
            reason=self._reason(result, status),
        )

    def _reason(self, result: JobResult, status: JobStatus) -> dict[str, Any]:
        reason: dict[str, Any] = {"kind": _reason_kind(result, status)}
        if result.cause is not None:
            reason["text"] = result.cause[1]
            if result.cause[2]:
                reason["hint"] = result.cause[2]
        elif status == "skipped":
            reason["text"] = _SKIPPED[reason["kind"]]
        if result.left_causes:
            reason["left"] = list(dict.fromkeys(result.left_causes))
        if result.pruned:
            reason["pruned"] = [self._ref(dataset) for dataset in result.pruned]
        if status == "skipped":
            return reason
        if result.facts.ref in self._roots.jobs:
            reason["asked"] = True
        path = self._path(result)
        if path:
            reason["path"] = list(_shorten(path))
        reason["inputs"] = [self._edge(edge) for edge in result.stale_inputs]
        if result.facts.lookback and not self.request.exact:
            reason["lookback"] = result.facts.lookback
        if any(edge.own and not edge.reference for edge in result.facts.inputs):
            reason["self_dependent"] = True
        evidence = self.catalog.evidence(result.facts)
        if evidence is not None:
            reason["inferred"] = evidence
        return reason

    def _edge(self, edge: Input) -> dict[str, Any]:
        found = self._edges.get(id(edge))
        if found is None:
            found = {"dataset": self._ref(edge.dataset), "mapping": _mapping_name(edge)}
            if edge.declared:
                found["declared"] = True
            self._edges[id(edge)] = found
        return found

    def _path(self, result: JobResult) -> tuple[Any, ...]:
        """Return the shortest way from a root: a hop is dataset, mapping and job."""
        ref = result.facts.ref
        found = self._paths.get(ref)
        if found is not None:
            return found
        chain = []
        at: JobResult | None = result
        while at is not None and at.facts.ref not in self._paths and at.via is not None:
            chain.append(at)
            maker = self.propagation.first_maker.get(at.via.dataset)
            if at.via.dataset in self.propagation.roots or maker is None:
                at = None
            else:
                at = self.propagation.results[maker]
                if at in chain:
                    at = None
        path: tuple[Any, ...] = self._paths.get(at.facts.ref, ()) if at is not None else ()
        for step in reversed(chain):
            assert step.via is not None
            hop = {
                "dataset": self._ref(step.via.dataset),
                "mapping": _mapping_name(step.via),
                "job": self._ref(step.facts.ref),
            }
            path = _shorten((*path, hop))
            self._paths[step.facts.ref] = path
        return path

    def _ref(self, ref: DatasetRef | JobRef) -> dict[str, str]:
        found = self._refs.get(ref)
        if found is None:
            found = self._refs[ref] = {"namespace": ref.namespace, "name": ref.name}
        return found

    def _request_document(self) -> dict[str, Any]:
        request = self.request
        document: dict[str, Any] = {
            "changed": [
                {"dataset": self._ref(part.dataset), "partitions": _listed(part.keys)}
                for part in request.changed
            ]
        }
        if request.jobs:
            document["jobs"] = [
                {"job": self._ref(part.job), "partitions": _listed(part.keys)}
                for part in request.jobs
            ]
        for name in ("columns", "select", "exclude"):
            if getattr(request, name):
                document[name] = list(getattr(request, name))
        for name in ("depth", "exact", "reverse", "include_former"):
            if getattr(request, name) not in (None, False):
                document[name] = getattr(request, name)
        if request.allow:
            document["allow"] = sorted(request.allow)
        return document

    def _fingerprints(self) -> dict[str, Any]:
        """Return the hash of what the plan rests on: edges and declarations of its closure.

        Run history, and jobs that the change does not reach, are not part of it. `parts` holds a
        short hash of each job and dataset, so that a stale plan can name what moved.
        """
        catalog, snapshot, results = self.catalog, self.snapshot, self.propagation.results
        texts: dict[int, str] = {}

        def text(declared: object) -> str:
            # Thousands of jobs share a declaration: each is written out once.
            found = texts.get(id(declared))
            if found is None:
                found = texts[id(declared)] = repr(declared)
            return found

        lines = {"zone": repr(self.declarations.zone)}
        datasets: set[DatasetRef] = {*self._roots.datasets, *self._roots.unknown}
        for ref in sorted(results):
            facts = results[ref].facts
            reads = [edge.dataset for edge in facts.inputs]
            writes = [edge.dataset for edge in facts.outputs]
            datasets.update(reads, writes)
            edges = sorted(map(_line, reads)), sorted(map(_line, writes))
            sent = _sent(snapshot.jobs.get(ref))
            lines["job " + _line(ref)] = f"{edges} {text(facts.declaration)} {sent}"
        for dataset in sorted(datasets):
            sent = _sent(snapshot.datasets.get(dataset))
            declared = text(catalog.dataset_declaration(dataset))
            lines["dataset " + _line(dataset)] = f"{declared} {sent}"
        for edge in sorted(snapshot.column_edges):
            if edge.job in results:
                lines["job " + _line(edge.job)] += f" {edge!r}"
        whole = hashlib.sha256()
        parts = {}
        for name, line in lines.items():
            digest = hashlib.sha256(line.encode()).digest()
            whole.update(name.encode() + b"\n" + digest)
            parts[name] = digest[:6].hex()
        return {"hash": "sha256:" + whole.hexdigest(), "parts": parts}

    # --- what is said aloud ---------------------------------------------------------------------

    def _say(self, results: Collection[JobResult], count: int, limit: int, *, listed: bool) -> None:
        for text in (*self.catalog.troubles, *self.propagation.warnings):
            self._warn(text)
        for ref in self._roots.unknown:
            self._warn(f"the partitioning of {ref} is unknown: what reads it is blocked")
        planned = [result.facts for result in results if result.planned]
        self._say_missing(planned)
        incomplete = [
            text for result in results if not result.left for text in self._beyond(result)
        ]
        inferred = [str(facts.ref) for facts in planned if self.catalog.evidence(facts) is not None]
        engineless = [
            str(facts.ref)
            for facts in planned
            if facts.declaration is None or facts.declaration.engine is None
        ]
        for names, text in (
            (incomplete, "not planned, for these keys are not complete or do not exist yet"),
            (inferred, "partitioning inferred from run history"),
            (engineless, "no engine is declared, so `run` would refuse"),
        ):
            if names:
                self._warn(f"{text}: {_few(names)}")
        if not listed:
            self._warn(
                f"{count} runs are more than max_runs = {limit}: they are counted, not listed"
                " (--allow-max-runs lists and runs them)"
            )

    def _say_missing(self, planned: Iterable[JobFacts]) -> None:
        lacking: dict[int, list[str]] = {}  # what each mapping looked for in vain
        for facts in planned:
            for edge in facts.live:
                if edge.mapping is None:
                    continue
                sentences = lacking.get(id(edge.mapping))
                if sentences is None:
                    sentences = lacking[id(edge.mapping)] = edge.mapping.missing()
                for sentence in sentences:
                    self._warn(f"{facts.ref} and its input {edge.dataset}: {sentence}")

    def _beyond(self, result: JobResult) -> list[str]:
        """Return the newest key that the change would make stale if it existed yet, if any."""
        time = result.facts.calendar.time if result.facts.calendar else None
        reached = [
            beyond
            for edge in result.stale_inputs
            if edge.mapping is not None
            and edge.mapping.reaches_beyond
            and isinstance(dirty := self.propagation.dirty[edge.dataset], PartitionSet)
            and (beyond := edge.mapping.beyond(dirty)) is not None
        ]
        if time is None or not reached:
            return []
        return [f"{result.facts.ref.name} {time.grid.label(max(reached))}"]


_SKIPPED: Final = {
    "columns": "it reads none of the changed columns",
    "up_to_date": "none of its existing keys reads a changed partition",
}

_BLOCKING: Final = frozenset({"unknown", "cycle", "protected", "not_idempotent"})


def _status(result: JobResult) -> JobStatus:
    if result.planned:
        return "planned"
    if result.cause is not None and (result.left or result.cause[0] == "unknown"):
        return "blocked" if result.cause[0] in _BLOCKING else "left_stale"
    if not result.left:
        return "skipped"
    only_gone = all("past its retention" in cause for cause in result.left_causes)
    return "blocked" if only_gone else "left_stale"


def _reason_kind(result: JobResult, status: JobStatus) -> str:
    if status == "skipped":
        return "columns" if result.pruned and not result.stale_inputs else "up_to_date"
    if result.cause is not None:
        return result.cause[0]
    if status == "planned":
        return "stale" if result.stale_inputs else "asked"
    return "expired" if status == "blocked" else "unrepaired"


def _sent(node: JobNode | DatasetNode | None) -> str:
    """Return the partitioning facet that a node sent, as text that ignores its members' order."""
    facet = node.partitioning if node is not None else None
    return "" if facet is None else json.dumps(facet, sort_keys=True, default=str)


def _line(ref: DatasetRef | JobRef) -> str:
    return f"{ref.namespace}:{ref.name}"


def _mapping_name(edge: Input) -> str:
    return edge.mapping.name if edge.mapping is not None else "unknown"


def _shorten(path: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(path) <= LONGEST_PATH:
        return path
    half = LONGEST_PATH // 2
    head, tail = path[:half], path[-half + 1 :]
    middle = path[half : len(path) - half + 1]
    left_out = sum(hop.get("elided", 1) for hop in middle)
    return (*head, {"elided": left_out}, *tail)


def _listed(keys: KeySet | None) -> list[Any] | None:
    return None if keys is None else list(keys)


def _few(names: list[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
