"""The planner: a pure function from request, lineage and declarations to a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.lineage.columns import ALL, Path, column_parts, missed_edges
from lineage_backfill.lineage.names import unknown as unknown_name
from lineage_backfill.lineage.select import select
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, WHOLE, PartitionSet
from lineage_backfill.partitions.mapping import KeyFunction
from lineage_backfill.partitions.text import KeySet, as_text, parse, render
from lineage_backfill.planning.describe import Describer
from lineage_backfill.planning.extents import UNKNOWN, Dirty
from lineage_backfill.planning.fingerprint import fingerprint
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.notices import notices
from lineage_backfill.planning.propagate import (
    Cause,
    Constraints,
    Propagation,
    propagate,
)
from lineage_backfill.planning.routes import Routes
from lineage_backfill.planning.runs import Runs, count_runs
from lineage_backfill.planning.runtime import names_runtime_keys
from lineage_backfill.planning.writers import decisions_on, meetings
from lineage_backfill.plans.notice import Notice, in_families
from lineage_backfill.plans.plan import DatasetPartitions, Decision, Plan, PlannedJob
from lineage_backfill.plans.request import ChangedDataset, Request, request_to_dict
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.resolve.resolver import DatasetFacts, JobFacts, expired
from lineage_backfill.typed import instant_text


def build_plan(
    request: Request,
    snapshot: LineageSnapshot,
    declarations: Declarations,
    *,
    now: datetime,
    functions: Mapping[str, KeyFunction] | None = None,
    newest_at: datetime | None = None,
) -> Plan:
    """Return the plan for a request: exactly the runs that the change makes stale, in order.

    `now` is aware; keys that are not complete by then are not planned. `functions` holds the
    loaded functions of `python` mappings by their names. Raises UsageError for a request or a
    declaration that cannot be planned. A mapping `last` reads the newest key at `newest_at`, by
    default now. Same values in, same plan out.
    """
    planner = Planner(snapshot, declarations, now=now, functions=functions, newest_at=newest_at)
    return planner.plan(request)


class Planner:
    """Plans requests on one lineage, with one project file, at one time.

    Facts about jobs and datasets are reused by the next request. Takes the same values as
    `build_plan`.
    """

    def __init__(
        self,
        snapshot: LineageSnapshot,
        declarations: Declarations,
        *,
        now: datetime,
        functions: Mapping[str, KeyFunction] | None = None,
        newest_at: datetime | None = None,
    ) -> None:
        if now.tzinfo is None:
            raise UsageError(
                "`now` has no time zone", hint="Give a time with a zone, such as …T00:00:00Z."
            )
        self.snapshot = snapshot
        self.declarations = declarations
        self.now = now.astimezone(UTC)
        self._functions = functions
        self._newest_at = newest_at
        self._resolvers: dict[bool, Resolver] = {}

    def plan(self, request: Request) -> Plan:
        """Return the plan for a request; raises UsageError if it cannot be planned."""
        return self.session(request).plan()

    def session(self, request: Request) -> Planning:
        """Return the planning of a request, for questions that the plan does not answer."""
        return Planning(request, self._resolver(request), self.now)

    def _resolver(self, request: Request) -> Resolver:
        # The keys of a job that nothing declares are those that the request names.
        found = None if request.jobs else self._resolvers.get(request.include_former)
        if found is None:
            found = Resolver(
                self.snapshot,
                self.declarations,
                now=self.now,
                request=request,
                functions=self._functions,
                newest_at=self._newest_at,
            )
            if not self._depends_on_request and not request.jobs:
                self._resolvers[request.include_former] = found
        return found

    @cached_property
    def _depends_on_request(self) -> bool:
        return names_runtime_keys(self.snapshot, self.declarations)


class Planning:
    """The planning of one request; computes the parts of its plan on first use."""

    def __init__(self, request: Request, resolver: Resolver, now: datetime) -> None:
        self.request = request
        self.resolver = resolver
        self._now = now
        self._warnings: dict[Notice, None] = {}
        self._roots: dict[DatasetFacts, PartitionSet] = {}
        self._unknown: dict[DatasetFacts, KeySet | None] = {}
        self._root_jobs: dict[JobFacts, PartitionSet] = {}
        self._unwidened: dict[JobFacts, PartitionSet] = {}
        self._find_roots()
        roots: dict[DatasetFacts, Dirty] = {**self._roots, **dict.fromkeys(self._unknown, UNKNOWN)}
        self.propagation: Propagation = propagate(
            resolver, roots, self._root_jobs, self._restraints()
        )

    # --- gathering ------------------------------------------------------------------------------

    def _find_roots(self) -> None:
        resolver, edges = self.resolver, self.resolver.edges
        if not self.request.changed and not self.request.jobs:
            raise UsageError("no change is named", hint="Name a dataset, or a job with --job.")
        for changed in self.request.changed:
            ref = changed.dataset
            if ref not in resolver.snapshot.datasets and ref not in edges.datasets:
                raise unknown_name(str(ref), edges.datasets, kind="dataset")
            self._refuse_unread(ref)
            data = resolver.dataset(ref)
            if data.calendar is None:
                self._unknown[data] = changed.keys
                continue
            keys, named = NOTHING, changed.keys
            if named and data.calendar.is_whole and all(".." in str(key) for key in named):
                self._warn(f"dataset {ref} is not partitioned: all of it counts as changed")
                named = None
            if named or changed.log is None:
                keys = self._parse(data.calendar, named, f"dataset {ref}")
            self._say_logged(changed)
            self._roots[data] = self._roots.get(data, NOTHING) | keys
        for rerun in self.request.jobs:
            if rerun.job not in edges.jobs:
                raise unknown_name(str(rerun.job), edges.jobs, kind="job")
            job = resolver.job(rerun.job)
            if job.calendar is None:
                self._root_jobs[job] = WHOLE  # it is blocked for all keys
                continue
            keys = self._parse(job.calendar, rerun.keys, f"job {rerun.job}")
            if early := keys - job.calendar.clip(keys):
                texts = listed(render(job.calendar, early), name=as_text)
                text = f": not planned, not in its calendar yet: {texts}"
                self._warnings[Notice(text, f"job {rerun.job}", leaves_out=True)] = None
            before, unwidened = (
                found.get(job, NOTHING) for found in (self._root_jobs, self._unwidened)
            )
            self._unwidened[job] = unwidened | (keys - before) if rerun.exact else unwidened - keys
            self._root_jobs[job] = before | keys

    def _refuse_unread(self, ref: DatasetRef) -> None:
        """Raise UnknownNameError for a declared dataset that no job reads."""
        edges, known = self.resolver.edges, self.resolver.snapshot.datasets
        if ref not in known and not (edges.readers.get(ref) or edges.writers.get(ref)):
            hint = unknown_name(ref.name, known, kind="dataset").hint
            raise UnknownNameError(
                f"dataset {ref} is not in the lineage, and no [[job]] declares to read it",
                hint=f"{hint} A `location` or `table` in its"
                " [[dataset]] ties it to the name that jobs send.",
            )

    def _say_logged(self, changed: ChangedDataset) -> None:
        log = changed.log
        if log is not None and log.by_files:
            self._warn(
                f"dataset {changed.dataset}: these keys have rows in changed files; perhaps not all"
                " of them changed"
            )
        if log is not None and log.ignored:
            names = listed(log.ignored)
            self._warn(f"dataset {changed.dataset}: these changed partitions do not exist: {names}")
        elif log is not None and not changed.keys:
            self._warn(
                f"dataset {changed.dataset}: no change in its table after version {log.after}"
            )

    def _parse(self, calendar: Calendar, keys: KeySet | None, what: str) -> PartitionSet:
        try:
            return parse(calendar, keys, lambda text: self._warn(f"{what}: {text}"))
        except UsageError as error:
            named = error.within(f"{what}: ")
            ends = [end for one in keys or () for end in str(one).split("..")]
            are_days = all(re.search(r"\d", end) for end in ends)  # not today, yesterday
            if calendar.time is not None and not are_days:
                newest = calendar.time.grid.label(calendar.time.last)
                named.hint = f"{error.hint} The newest key is {newest}."
            raise named from error

    def _find_missed(self) -> frozenset[Path]:
        snapshot, edges = self.resolver.snapshot, self.resolver.edges
        columns = frozenset(self.request.columns)
        if not columns:
            return frozenset()
        changed = [data.ref for data in (*self._roots, *self._unknown)]
        if not changed:
            self._warn("--columns does not apply to --job: a re-run job rewrites all columns")
        self._check_columns(changed)
        dirty = dict.fromkeys(changed, columns)
        for job in self._root_jobs:
            # A job that runs again rewrites all of its outputs.
            dirty.update(dict.fromkeys(edges.writes(job.ref), frozenset({ALL})))

        def readers(ref: DatasetRef) -> list[JobRef]:
            found = map(self.resolver.job, edges.readers.get(ref, ()))
            return [facts.ref for facts in found if ref not in facts.references]

        missed, blind = missed_edges(
            dirty, snapshot.column_edges, readers=readers, reads=edges.reads, writes=edges.writes
        )
        if blind:
            names = sorted({str(job) for job, _ in blind})
            self._warn(
                "planned despite --columns, because their column lineage is unknown:"
                f" {listed(names)}"
            )
        return missed

    def _check_columns(self, changed: Iterable[DatasetRef]) -> None:
        """Refuse columns that neither a changed dataset nor its column lineage has."""
        snapshot = self.resolver.snapshot
        for ref in changed:
            node = snapshot.datasets.get(ref)
            edges = snapshot.column_edges
            traced = {edge.input_column for edge in edges if edge.input == ref}
            traced |= {edge.output_column for edge in edges if edge.output == ref}
            known = (node and node.fields) or sorted(traced - {ALL})
            parts = {part for one in known for part in column_parts(one)}
            unknown = [c for c in self.request.columns if parts.isdisjoint(column_parts(c))]
            if not known or not unknown:
                continue
            names = ", ".join(sorted(unknown))
            raise UnknownNameError(
                f"dataset {ref} has no known column {names}",
                hint=f"Its known columns are {listed(known, 12)}. Without --columns all readers "
                "are planned.",
            )

    def _restraints(self) -> Constraints:
        request = self.request
        retained = any(declared.retention for declared in self.resolver.declarations.datasets)
        chosen = bool(
            request.select or request.exclude or request.depth is not None or request.withheld
        )
        return Constraints(
            cut=self._make_cut(),
            cuts_any=chosen,
            pruned=self._find_missed(),
            expired=cache(expired) if retained and "expired" not in request.allow else None,
            unwidened=self._unwidened,
            exact=request.exact,
        )

    def _make_cut(self) -> Callable[[JobFacts, int], Cause | None]:
        request, allow = self.request, self.request.allow
        withheld = frozenset(request.withheld)
        selected: set[JobRef] | None = None
        excluded: set[JobRef] = set()
        if request.select or request.exclude:
            graph = self.resolver.edges.graph
            if request.select:
                selected = select(request.select, graph)
            excluded = select(request.exclude, graph)

        def cut(facts: JobFacts, distance: int) -> Cause | None:
            declared = facts.declaration
            if facts.ref in withheld:
                return ("withheld", "you may not run the job", "Its operators may: see [access].")
            if facts.ref in excluded:
                return ("excluded", "excluded by --exclude", "")
            if selected is not None and facts.ref not in selected:
                return ("excluded", "not selected by --select", "")
            if request.depth is not None and distance > request.depth:
                away = f"more than {request.depth} job{'s' * (request.depth > 1)} away"
                return ("depth", f"{away} from the change", "")
            if declared is not None and declared.protected and "protected" not in allow:
                return ("protected", "the job is protected", "Run it with --allow-protected.")
            unrepeatable = declared is not None and declared.idempotent is False
            if unrepeatable and "not-idempotent" not in allow:
                return (
                    "not_idempotent",
                    "the job is not idempotent",
                    "run it with --allow-not-idempotent",
                )
            return None

        return cut

    def _warn(self, text: str) -> None:
        self._warnings[Notice(text)] = None

    # --- the plan -------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan."""
        count = count_runs(self.propagation)
        limit = self.resolver.declarations.limits.max_runs
        listed = count <= limit or "max-runs" in self.request.allow
        unknown = [data.ref for data in self._unknown]
        self._warnings |= dict.fromkeys(notices(self.resolver, self.propagation, unknown))
        if not listed:
            self._warn(
                f"{count} runs exceed max_runs = {limit}: they are counted, not listed"
                " (--allow-max-runs lists and runs them)"
            )
        planned = [(jobs, len(result.planned)) for result, jobs in self.propagation.shares.items()]
        return Plan(
            now=instant_text(self._now),
            request=request_to_dict(self.request),
            changed=self._changed(),
            totals={
                "jobs": sum(jobs for jobs, keys in planned if keys),
                "runs": count,
                "partitions": sum(jobs * keys for jobs, keys in planned),
            },
            limits={"max_runs": limit},
            warnings=tuple(in_families(self._warnings)),
            decisions=tuple(self._decisions()),
            details=_Details(self, listed=listed),
        )

    def _decisions(self) -> Iterator[Decision]:
        if unmatched := self.resolver.unmatched:
            used = {data.ref for data in (*self._roots, *self._unknown)}
            for facts in self.propagation.results:
                used.update(edge.dataset for edge in facts.inputs)
                used.update(edge.dataset for edge in facts.outputs)
            for one in unmatched:
                yield Decision(kind="unmatched", text=one.text, refused=one.bears_on(used))
        yield from decisions_on(meetings(self.propagation, self.resolver))
        yield from self._shared_partitions()

        if families := self.resolver.families:
            number, example = sum(len(one.members) for one in families), families[0].members[0]
            text = f"{number:,} dataset names look like partitions ({example.name}, …)"
            text += ": declare a pattern; `init` proposes one"
            yield Decision(kind="dated-names", text=text)

    def _shared_partitions(self) -> Iterator[Decision]:
        """Yield the outputs whose planned keys are one partition of their table with others."""
        required, seen = self.propagation.memo.required, set[str]()
        for facts, result in self.propagation.results.items():
            for output in facts.outputs if result.planned else ():
                if output.mapping is None or output.policy.mode != "overwrite":
                    continue
                keys = required(output.mapping, result.planned)
                if (found := self.resolver.shared(output.data, keys)) and found[0] not in seen:
                    seen.add(found[0])
                    yield Decision(kind="one-partition", text=f"`run` refuses: {'. '.join(found)}")

    def _changed(self) -> tuple[DatasetPartitions, ...]:
        found, render = [], self.propagation.memo.render
        for data, keys in self._roots.items():
            assert data.calendar is not None
            found.append(DatasetPartitions(dataset=data.ref, keys=render(data.calendar, keys)))
        for data, given in self._unknown.items():
            found.append(DatasetPartitions(dataset=data.ref, keys=given))
        return tuple(sorted(found, key=lambda part: part.dataset))

    @cached_property
    def routes(self) -> Routes:
        """The shortest paths from the roots."""
        return Routes(self.propagation, self._root_jobs)

    def jobs(self) -> tuple[PlannedJob, ...]:
        """Return the plan's entry for every affected job."""
        describer = Describer(
            self.resolver,
            self.propagation,
            self.routes,
            self._root_jobs,
            exact=self.request.exact,
        )
        return describer.jobs()

    @cached_property
    def runs(self) -> Runs:
        """The planned runs, without a limit."""
        return Runs(self.propagation, self.resolver, reverse=self.request.reverse)

    def lineage(self) -> Mapping[str, Any]:
        """Return the source of the lineage, and the hash of the plan's basis."""
        snapshot = self.resolver.snapshot
        roots = (data.ref for data in (*self._roots, *self._unknown))
        taken = snapshot.taken_at
        return {
            "source": snapshot.source,
            **fingerprint(self.resolver, self.propagation.results, roots),
            "taken_at": instant_text(taken) if taken else None,
        }


class _Details:
    """The parts of a plan that its planning computes on first use."""

    def __init__(self, planning: Planning, *, listed: bool) -> None:
        self._planning = planning
        self._listed = listed

    @property
    def jobs(self) -> tuple[PlannedJob, ...]:
        return self._planning.jobs()

    @property
    def runs(self) -> Runs | None:
        return self._planning.runs if self._listed else None

    @property
    def lineage(self) -> Mapping[str, Any]:
        return self._planning.lineage()
