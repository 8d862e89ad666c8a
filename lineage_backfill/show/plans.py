"""Describes a plan: summary, jobs by wave or group, graph, duration."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

from lineage_backfill.critic.unwritten import MissingReads
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.timeline import counts
from lineage_backfill.plans.plan import Plan, PlannedJob
from lineage_backfill.runs.estimate import Estimate
from lineage_backfill.show.draw import Drawing, Edge, Node
from lineage_backfill.show.names import Names, keys_in_short, keys_on_a_line
from lineage_backfill.show.text import UNKNOWN, counted, safe
from lineage_backfill.show.words import (
    before,
    in_words,
    mapping_in_words,
    time_in_words,
    why_left,
)

#: Above this many jobs they are shown in groups.
GROUPED_ABOVE = 30
#: Most jobs in a tree or drawing, groups, roots, and names on a line, without --all.
SHOWN_JOBS, SHOWN_GROUPS, SHOWN_ROOTS, SHOWN_NAMES = 200, 24, 3, 8
#: What needs a decision for jobs that do not run, by the kind of their reason.
_DECIDE = {
    "unknown": "blocked: a declaration is missing",
    "cycle": "blocked: part of a cycle",
    "protected": "protected (run with --allow-protected)",
    "not_idempotent": "not idempotent (run with --allow-not-idempotent)",
    "withheld": "beyond your role",
    "expired": "past a retention (run with --allow-expired)",
    "excluded": "left out by --select or --exclude",
    "depth": "left out by --depth",
    "unrepaired": "left stale downstream of these",
}
NOTHING = "nothing"
_NOT_REPAIRED = "inputs not repaired, so they stay stale; --all shows the partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """Facts shown with a plan: jobs in reach that it spares, owners, counts of keys, time.

    `estimate` is None if it was not made, or no runs are listed.
    """

    untouched: Sequence[JobRef] = ()
    owners: Mapping[JobRef, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[DatasetRef | JobRef, int] = field(default_factory=dict)
    estimate: Estimate | None = None

    @classmethod
    def of(cls, plan: Plan, resolver: Resolver, estimate: Estimate | None = None) -> PlanFacts:
        """Return the facts from lineage and declarations."""
        jobs = resolver.snapshot.jobs
        return cls(
            untouched=_untouched(plan, resolver),
            owners={ref: node.owners for ref, node in jobs.items() if node.owners},
            counts=counts(resolver, roots(plan)),
            estimate=estimate,
        )

    def owner(self, job: JobRef) -> str:
        """Return the owners of a job as text; empty if unknown."""
        return safe(", ".join(self.owners.get(job, ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A table row for one job of a plan, or a group of jobs.

    `wave` is that of the first and last run.
    """

    name: str
    jobs: tuple[PlannedJob, ...]
    wave: str
    count: int
    runs: int | None

    @property
    def runs_in_words(self) -> str:
        """The number of runs; a dash if there were too many to list."""
        return UNKNOWN if self.runs is None else f"{self.runs:,}"


class Rows:
    """The planned jobs as table rows, wave by wave: one each, or in groups."""

    def __init__(self, plan: Plan, facts: PlanFacts, names: Names) -> None:
        self._facts, self._names = facts, names
        self._runs: Counter[JobRef] | None = None if plan.runs is None else Counter()
        self._waves: dict[JobRef, tuple[int, int]] = {}
        for run in plan.runs or ():
            first, last = self._waves.get(run.job, (run.wave, run.wave))
            self._waves[run.job] = min(first, run.wave), max(last, run.wave)
            if self._runs is not None:
                self._runs[run.job] += 1
        planned = [job for job in plan.jobs if job.status == "planned"]
        self.jobs = sorted(planned, key=self._wave)

    def __len__(self) -> int:
        return len(self.jobs)

    def each(self) -> list[Row]:
        """Return a row for each job."""
        return [self._row(self._names(job.job), [job]) for job in self.jobs]

    def grouped(self) -> tuple[str, list[Row]]:
        """Return the heading of the group names, and a row for each group.

        A group is a wave and an owner (or a namespace if no owners are known), or only a wave, or
        several waves in a row: groups save at least two thirds of the lines.
        """
        most = min(SHOWN_GROUPS, len(self.jobs) // 3)
        owned = any(self._facts.owner(job.job) for job in self.jobs)
        groups = self._groups(
            lambda job: (self._facts.owner(job.job) or "-") if owned else safe(job.job.namespace)
        )
        if len(groups) <= most and len({row.name for row in groups}) > 1:
            return "Owner" if owned else "Namespace", groups
        waves = len({self._wave(job)[0] for job in self.jobs})
        return "", self._groups(lambda _: "", waves=-(-waves // most))

    def _groups(self, naming: Callable[[PlannedJob], str], *, waves: int = 1) -> list[Row]:
        """Return a group for each name in so many waves in a row."""
        order = sorted({self._wave(job)[0] for job in self.jobs})
        places = {wave: place // waves for place, wave in enumerate(order)}
        found: dict[tuple[int, str], list[PlannedJob]] = defaultdict(list)
        for job in self.jobs:
            found[places[self._wave(job)[0]], naming(job)].append(job)
        return [self._row(name, found[wave, name]) for wave, name in sorted(found)]

    def _wave(self, job: PlannedJob) -> tuple[int, int]:
        return self._waves.get(job.job, (job.level, job.level))

    def _row(self, name: str, jobs: Sequence[PlannedJob]) -> Row:
        waves = [self._wave(job) for job in jobs]
        first, last = min(wave for wave, _ in waves), max(wave for _, wave in waves)
        return Row(
            name=name,
            jobs=tuple(jobs),
            wave=f"{first}" if first == last else f"{first}-{last}",
            count=sum(job.count for job in jobs),
            runs=None if self._runs is None else sum(self._runs[job.job] for job in jobs),
        )


def _untouched(plan: Plan, resolver: Resolver) -> list[JobRef]:
    """Return the jobs downstream of the change that the plan does not list, sorted."""
    edges = resolver.edges
    front: list[DatasetRef] = [one.dataset for one in plan.changed]
    listed_jobs = {job.job for job in plan.jobs}
    for job in listed_jobs:
        front += edges.writes(job)
    seen, found = set(front), set[JobRef]()
    while front:
        for job in edges.readers.get(front.pop(), ()):
            if job not in listed_jobs and job not in found:
                found.add(job)
                new = [ref for ref in edges.writes(job) if ref not in seen]
                seen.update(new)
                front += new
    return sorted(found)


def roots(plan: Plan) -> Iterator[tuple[DatasetRef | JobRef, KeySet | None]]:
    """Yield the roots of the request with their keys; None for a whole dataset or job."""
    for one in plan.changed:
        yield one.dataset, one.keys
    for job in plan.request.get("jobs", ()):
        keys = job.get("partitions")
        ref = JobRef(job["job"]["namespace"], job["job"]["name"])
        yield ref, None if keys is None else tuple(keys)


def summary(plan: Plan, facts: PlanFacts, names: Names, *, every: bool = False) -> dict[str, str]:
    """Return the summary: what changed, what will run, what needs a decision.

    `every` lists all roots, not only the first few.
    """
    changed = [_changed(ref, keys, facts, names) for ref, keys in roots(plan)]
    runs = NOTHING
    if plan.totals["runs"]:
        runs = amount(plan)
        if facts.estimate is not None:
            left = facts.estimate.left
            runs += f"; {time_in_words(left.seconds, len(left.unknown))}"
    undecided = decisions(plan)
    target = plan.request.get("target")
    return {
        **({"Target": safe(target)} if target else {}),
        "Changed": listed(changed, len(changed) if every else SHOWN_ROOTS),
        "Will run": runs,
        "Needs you": "; ".join(undecided) or NOTHING,
    }


def decisions(plan: Plan) -> list[str]:
    """Return what needs a decision, each kind with its number of jobs."""
    kinds = Counter(
        str(job.reason.get("kind", ""))
        for job in plan.jobs
        if job.status in ("blocked", "left_stale")
    )
    causes = {job.reason["text"] for job in plan.jobs if job.reason.get("kind") == "unknown"}
    words = dict(_DECIDE)
    if len(causes) > 1:
        words["unknown"] = f"blocked: {len(causes):,} declarations are missing"
    order = [*words, *(kind for kind in kinds if kind not in words)]
    found = [f"{counted(kinds[k], 'job')} {words.get(k, k)}" for k in order if kinds[k]]
    partly = sum(job.status == "planned" and bool(job.left_stale) for job in plan.jobs)
    if partly:
        leave = "leaves" if partly == 1 else "leave"
        found.append(f"{counted(partly, 'job')} {leave} some partitions stale")
    if plan.runs is None:
        limit = plan.limits.get("max_runs", UNKNOWN)
        found.append(f"more runs than max_runs = {limit} (--allow-max-runs runs them)")
    engineless = len({run.job for run in plan.runs or () if run.engine is None})
    if engineless:
        found.append(f"{counted(engineless, 'job')} without an engine (`run` refuses)")
    return found + list(_named_decisions(plan))


def _named_decisions(plan: Plan) -> Iterator[str]:
    """Yield the decisions of the plan, those first without which `run` refuses."""
    refused = plan.refused
    by_kind = defaultdict[tuple[bool, str], list[str]](list)
    for one in plan.decisions:
        by_kind[one not in refused, one.kind].append(safe(one.text))
    for (is_allowed, kind), texts in sorted(by_kind.items()):
        yield listed(texts, 3) + ("" if is_allowed else f" (`run` refuses: --allow-{kind})")


def _changed(ref: DatasetRef | JobRef, keys: KeySet | None, facts: PlanFacts, names: Names) -> str:
    name = f"job {names(ref)}" if isinstance(ref, JobRef) else names(ref)
    if keys is None:
        return f"{name} (whole)"
    number = facts.counts.get(ref)
    if number == 0:
        return f"{name}: no partitions"
    much = "" if number is None else f"{counted(number, 'partition')}, "
    return f"{name}: {much}{keys_in_short(keys)}"


def not_run(plan: Plan, names: Names, *, each: bool = False) -> list[tuple[str, list[PlannedJob]]]:
    """Return the reasons not to run, or to run in part, with their jobs; causes first.

    Without `each` the jobs whose inputs are not repaired form one group.
    """
    found: dict[tuple[int, str], list[PlannedJob]] = defaultdict(list)
    places = {kind: place for place, kind in enumerate(_DECIDE)}
    for job in plan.jobs:
        if job.status != "planned" or job.left_stale:
            kind = job.reason.get("kind", "")
            follows = kind == "unrepaired" and job.status != "planned" and not each
            why = _NOT_REPAIRED if follows else _why_not(job, names)
            found[places.get(kind, -1) if job.status != "skipped" else len(places), why].append(job)
    return [(why, found[place, why]) for place, why in sorted(found, key=itemgetter(0))]


def _why_not(job: PlannedJob, names: Names) -> str:
    why = "" if job.status == "planned" else in_words(job.reason, names, job.partitions)
    if not job.left_stale:
        return why
    left = why_left(job.reason)
    stale = f"stays stale: {keys_in_short(job.left_stale)}" + (f" ({left})" if left else "")
    if why.endswith("."):
        return f"{why} S{stale[1:]}"
    return "; ".join(filter(None, (why, stale)))


def lost_in_words(lost: MissingReads) -> str:
    """Return the keys of an input that were never written, and their effect."""
    keys = keys_on_a_line(lost.partitions)
    does = f"fails for {keys_on_a_line(lost.failing)}" if lost.failing else "reads them as empty"
    return f"{lost.dataset} {keys} never written; {lost.job} {does}"


def amount(plan: Plan) -> str:
    """Return the numbers of jobs, partitions, runs and waves on one line."""
    text = ", ".join(counted(plan.totals[f"{what}s"], what) for what in ("job", "partition", "run"))
    waves = max((run.wave for run in plan.runs or ()), default=0)
    return text + (f" in {counted(waves, 'wave')}" if waves else "")


def tree(jobs: Sequence[PlannedJob]) -> list[tuple[str, PlannedJob]]:
    """Return the jobs as a tree, each with its guide lines.

    A job stands below the one before it on its reason's path; it may follow others too.
    """
    below: dict[JobRef | None, list[PlannedJob]] = {}
    listed = {job.job for job in jobs}
    for job in jobs:
        above = before(job)
        below.setdefault(above if above in listed else None, []).append(job)
    rows: list[tuple[str, PlannedJob]] = []
    todo = [("", "", job) for job in reversed(below.pop(None, []))]
    while todo:
        guide, indent, job = todo.pop()
        rows.append((guide, job))
        corner, side = "└ ", "  "
        for child in reversed(below.pop(job.job, [])):
            todo.append((indent + corner, indent + side, child))
            corner, side = "├ ", "│ "
    # A cycle of reasons has no top; its jobs are shown all the same.
    return rows + [("", job) for job in chain.from_iterable(below.values())]


def drawing(plan: Plan, *, most: int | None = None) -> Drawing:
    """Return the plan as a graph: changed datasets, affected jobs, and the data between them.

    Only the first `most` jobs are drawn; a node says how many are left out.
    """
    names = Names.of(plan)
    runs = Counter(run.job for run in plan.runs or ())
    nodes = [
        Node(
            key=part.dataset,
            kind="dataset",
            lines=(names(part.dataset), whole_or_keys(part.keys)),
            mark="changed",
        )
        for part in plan.changed
    ]
    edges: dict[Edge, None] = {}
    between: dict[DatasetRef, None] = {}
    writes = {(part.dataset, run.job): None for run in plan.runs or () for part in run.writes}
    for job in plan.jobs[:most]:
        lines = [names(job.job)]
        if job.partitions:
            lines.append(keys_on_a_line(job.partitions))
            lines += [counted(runs[job.job], "run")] if plan.runs is not None else []
        if job.left_stale:
            lines.append(f"left stale: {keys_on_a_line(job.left_stale)}")
        nodes.append(Node(key=job.job, kind="job", lines=tuple(lines), mark=job.status))
        for one in job.reason.get("inputs", ()):
            ref = DatasetRef(**one["dataset"])
            between[ref] = None
            label = mapping_in_words(one["mapping"])
            edges[Edge(source=ref, target=job.job, label=label)] = None
    read = dict(between)
    for dataset, writer in writes:
        if dataset in read:
            edges[Edge(source=writer, target=dataset)] = None
    known = {node.key for node in nodes}
    nodes += [
        Node(key=ref, kind="dataset", lines=(names(ref),)) for ref in read if ref not in known
    ]
    if most is not None and len(plan.jobs) > most:
        lines = [f"and {counted(len(plan.jobs) - most, 'more job')}; --all draws them"]
        nodes.append(Node(key=None, kind="job", lines=tuple(lines)))
    title = "What changed, and what it makes stale"
    return Drawing(title=title, nodes=tuple(nodes), edges=tuple(edges))


def whole_or_keys(keys: KeySet | None) -> str:
    """Return the keys on a line; None is the whole dataset."""
    return "whole" if keys is None else keys_on_a_line(keys)
