"""What is told of a plan: its roots, its jobs as a tree or a graph, how much it is, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.missing import MissingReads
from lineage_backfill.planning.plan import Plan, PlannedJob
from lineage_backfill.presentation.draw import Drawing, Edge, Node
from lineage_backfill.presentation.names import Names, keys_on_a_line
from lineage_backfill.presentation.text import counted
from lineage_backfill.presentation.words import before, lasting, mapping_in_words
from lineage_backfill.runs.simulate import Estimate, Spread


def roots(plan: Plan) -> Iterator[tuple[DatasetRef | JobRef, KeySet | None]]:
    """Yield what the request names, with its keys; None where it is whole."""
    for one in plan.changed:
        yield one.dataset, one.keys
    for job in plan.request.get("jobs", ()):
        keys = job.get("partitions")
        ref = JobRef(job["job"]["namespace"], job["job"]["name"])
        yield ref, None if keys is None else tuple(keys)


def lost_in_words(lost: MissingReads) -> str:
    """Return what was never written of an input, and what runs that need it do."""
    keys = keys_on_a_line(lost.partitions)
    does = f"fails for {keys_on_a_line(lost.failing)}" if lost.failing else "reads them as empty"
    return f"{lost.dataset} {keys} never written; {lost.job} {does}"


def amount(plan: Plan) -> str:
    """Return how much would run, as one line."""
    text = ", ".join(counted(plan.totals[f"{what}s"], what) for what in ("job", "partition", "run"))
    waves = max((run.wave for run in plan.runs or ()), default=0)
    return text + (f" in {counted(waves, 'wave')}" if waves else "")


def how_long(estimate: Estimate) -> str:
    """Return how long a plan takes as a line; what is not known is said to be unknown."""
    if estimate.makespan is None:
        return "unknown: too few past runs of its jobs are known"
    unknown = len(estimate.unknown)
    if unknown:
        least = f"at least {spread_in_words(estimate.makespan)}"
        return f"{least}; unknown of {counted(unknown, 'job')}, for too few past runs are known"
    return f"about {spread_in_words(estimate.makespan)}"


def spread_in_words(spread: Spread) -> str:
    """Return what half of the past would have taken at most, and nine of ten."""
    typical, slow = lasting(spread.p50), lasting(spread.p90)
    return typical if typical == slow else f"{typical}, {slow} if all is slow (p90)"


def tree(jobs: Sequence[PlannedJob]) -> list[tuple[str, PlannedJob]]:
    """Return the jobs as a tree, each with its guide.

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
    # A circle of reasons has no top; its jobs are shown all the same.
    return rows + [("", job) for job in chain.from_iterable(below.values())]


def drawing(plan: Plan) -> Drawing:
    """Return the plan as a graph: what changed, the jobs it reaches, and the data between them."""
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
    for job in plan.jobs:
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
    title = "What changed, and what it makes stale"
    return Drawing(title=title, nodes=tuple(nodes), edges=tuple(edges))


def whole_or_keys(keys: KeySet | None) -> str:
    """Return the keys on a line; None stands for the whole of it."""
    return "whole" if keys is None else keys_on_a_line(keys)
