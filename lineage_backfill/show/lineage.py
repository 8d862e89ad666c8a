"""Documents and lines that describe jobs and datasets of the lineage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from lineage_backfill.lineage.identity.families import Family
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.planning.edges import Edges
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import Moment, safe, to_the_second
from lineage_backfill.show.words import measured

Ref = DatasetRef | JobRef


def lines(
    ref: Ref, edges: Edges, names: Names, moment: Moment = to_the_second
) -> list[tuple[str, Sequence[str]]]:
    """Return the kind of a job or dataset and the lines that describe it.

    `moment` shows an instant, by default in UTC.
    """
    if isinstance(ref, DatasetRef):
        return list(_of_dataset(edges.shown.datasets[ref], edges, names))
    return list(_of_job(edges.shown.jobs[ref], edges, names, moment))


def sides(job: JobNode, edges: Edges, names: Names) -> tuple[list[str], list[str]]:
    """Return what a job reads and writes; edges of the project file alone are marked."""
    return (
        _marked(job.reads, edges.declared_reads.get(job.ref, ()), names),
        _marked(job.writes, edges.declared_writes.get(job.ref, ()), names),
    )


def _marked(refs: Iterable[Ref], declared: Collection[Ref], names: Names) -> list[str]:
    return [f"{names(ref)} (declared)" if ref in declared else names(ref) for ref in refs]


def _of_job(
    node: JobNode, edges: Edges, names: Names, moment: Moment
) -> Iterator[tuple[str, Sequence[str]]]:
    snapshot = edges.shown
    yield from zip(("Reads", "Writes"), sides(node, edges, names), strict=True)
    yield "Read before", _each(node.former_reads, names)
    yield "Wrote before", _each(node.former_writes, names)
    yield "Stands for", _each(node.parts, names)
    yield "Part of", _each([node.parent] if node.parent else (), names)
    yield (
        "Columns",
        [
            f"{names(edge.input)}.{edge.input_column} {'→' if edge.direct else '⇢'}"
            f" {names(edge.output)}.{edge.output_column}"
            for edge in snapshot.column_edges
            if edge.job == node.ref
        ],
    )
    yield "Kind", [node.processing] if node.processing else ()
    task = node.airflow
    yield "Airflow", [f"task {task.task} of DAG {task.dag}"] if task else ()
    yield from _of_both(node)
    yield "Query", (node.query or "").splitlines()
    runs = [run for run in snapshot.history if run.job == node.ref]
    yield "Runs", list(_runs(runs, moment))


def _of_dataset(
    node: DatasetNode, edges: Edges, names: Names
) -> Iterator[tuple[str, Sequence[str]]]:
    ref, snapshot = node.ref, edges.shown
    jobs = snapshot.jobs.values()
    for title, found, declared in (
        ("Written by", snapshot.writers, edges.declared_writes),
        ("Read by", snapshot.readers, edges.declared_reads),
    ):
        by_file = {job for job, refs in declared.items() if ref in refs}
        yield title, _marked(found.get(ref, ()), by_file, names)
    yield "Written before by", _each([job.ref for job in jobs if ref in job.former_writes], names)
    yield "Read before by", _each([job.ref for job in jobs if ref in job.former_reads], names)
    yield "Also known as", [safe(ref) for ref in node.aliases]
    yield "Columns", node.fields
    yield from _of_both(node)


def _of_both(node: JobNode | DatasetNode) -> Iterator[tuple[str, Sequence[str]]]:
    yield "Owners", node.owners
    yield "Tags", node.tags
    if node.partitioning is not None:
        yield "Partitioning", [json.dumps(node.partitioning, ensure_ascii=False, default=str)]


def _each(refs: Iterable[Ref], names: Names) -> list[str]:
    return [names(ref) for ref in refs]


def _runs(runs: Sequence[ObservedRun], moment: Moment) -> Iterator[str]:
    if not runs:
        return
    states = Counter(run.state for run in runs)
    yield ", ".join(f"{number:,} {state.lower()}" for state, number in sorted(states.items()))
    took = [
        (run.ended_at - run.started_at).total_seconds()
        for run in runs
        if run.state == "COMPLETE" and run.ended_at and run.started_at
    ]
    if took:
        yield f"median duration {measured(median(took))}"
    runs = sorted(runs, key=lambda run: (run.ended_at or run.started_at or _NEVER, run.run_id))
    for what, run in zip(("the newest", *["before"] * _RUNS_SHOWN), runs[::-1], strict=False):
        yield f"{what}: {run.state.lower()}{_when(run, moment)}"


#: Runs that are shown besides the newest one.
_RUNS_SHOWN = 4
_NEVER = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


def _when(run: ObservedRun, moment: Moment) -> str:
    parts = []
    if run.ended_at or run.started_at:
        parts.append(moment(run.ended_at or run.started_at))
    if run.partition_key:
        parts.append(f"for {run.partition_key}")
    elif run.nominal_start:
        until = f" to {moment(run.nominal_end)}" if run.nominal_end else ""
        parts.append(f"for {moment(run.nominal_start)}{until}")
    if run.written:
        parts.append(f"wrote {run.written}")
    if run.ended_at and run.started_at:
        parts.append(f"in {measured((run.ended_at - run.started_at).total_seconds())}")
    return f" {' '.join(parts)}" if parts else ""


def document(
    snapshot: LineageSnapshot, edges: Edges, families: Iterable[Family], ref: Ref | None = None
) -> dict[str, Any]:
    """Return a lineage as a document: jobs, datasets and warnings; of one name what touches it."""
    jobs: Iterable[JobNode] = edges.shown.jobs.values()
    datasets: Iterable[DatasetNode] = edges.shown.datasets.values()
    if ref is not None:
        jobs = [job for job in jobs if ref in (job.ref, *job.reads, *job.writes)]
        datasets = [dataset for dataset in datasets if dataset.ref == ref]
    return {
        "schema_version": 1,
        "kind": "lineage",
        **origin(snapshot),
        "jobs": [_job(node, edges) for node in jobs],
        "datasets": [_dataset(node) for node in datasets],
        "families": [
            {
                "dataset": named(family.dataset),
                "pattern": family.pattern,
                "names": [ref.name for ref in family.members],
            }
            for family in families
        ],
        "warnings": list(snapshot.warnings),
    }


def origin(snapshot: LineageSnapshot) -> dict[str, Any]:
    """Return the members that identify the lineage of a document."""
    return {
        "source": snapshot.source,
        "hash": snapshot.content_hash,
        "taken_at": snapshot.taken_at and snapshot.taken_at.isoformat(),
    }


def _job(node: JobNode, edges: Edges) -> dict[str, Any]:
    return {
        "job": named(node.ref),
        "reads": [named(ref) for ref in node.reads],
        "writes": [named(ref) for ref in node.writes],
        **_present(
            declared_reads=[named(ref) for ref in edges.declared_reads.get(node.ref, ())],
            declared_writes=[named(ref) for ref in edges.declared_writes.get(node.ref, ())],
            former_reads=[named(ref) for ref in node.former_reads],
            former_writes=[named(ref) for ref in node.former_writes],
            parent=node.parent and named(node.parent),
            parts=[named(ref) for ref in node.parts],
            processing=node.processing,
            airflow=node.airflow and {"dag": node.airflow.dag, "task": node.airflow.task},
            owners=list(node.owners),
            tags=list(node.tags),
            query=node.query,
            partitioning=node.partitioning,
        ),
    }


def _dataset(node: DatasetNode) -> dict[str, Any]:
    return {
        "dataset": named(node.ref),
        **_present(
            columns=list(node.fields),
            aliases=[named(ref) for ref in node.aliases],
            owners=list(node.owners),
            tags=list(node.tags),
            partitioning=node.partitioning,
        ),
    }


def _present(**members: Any) -> Mapping[str, Any]:
    """Return the members that are not empty."""
    return {name: value for name, value in members.items() if value not in (None, [])}
