"""The lineage snapshot: jobs, datasets and edges as one immutable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.notice import Notice, in_families

if TYPE_CHECKING:
    import networkx as nx


#: An instant with a zone, also where it is read from a file.
Instant = Annotated[datetime, Meta(tz=True)]


class AirflowTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Airflow task of a job, from the `airflow` run facet.

    `inlets` and `outlets` are its declared URIs, `timetable` is its DAG's, as sent. It failed
    because of the URIs `inactive`, which belong to an asset of another name.
    """

    dag: str
    task: str
    inlets: tuple[str, ...] = ()
    outlets: tuple[str, ...] = ()
    inactive: tuple[str, ...] = ()
    timetable: Mapping[str, Any] | None = None


# There are tens of thousands of these: creating a Struct is many times faster than a dataclass.
class JobNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of the lineage.

    `partitioning` is the `lineageBackfill_partitioning` job facet as sent, or None.
    `reads` and `writes` are sorted; `former_*` are edges that only older runs had. `inner`
    are the datasets between its `parts`, the jobs it combines; they are inputs only if other jobs
    write them. `from_columns` are reads that only its column lineage names, `covers` the tables
    that it reads by a name around theirs, each after that name. `modes` are known ways of writing:
    append, merge or overwrite. `past_reads` are the inputs of each completed run, if they differ,
    `edges_of` the span whose runs the reads are from. `stable_id` is its producer's own.
    `names_nothing` marks a job, or a part of it, that writes and whose events name no dataset.
    """

    ref: JobRef
    reads: tuple[DatasetRef, ...] = ()
    writes: tuple[DatasetRef, ...] = ()
    former_reads: tuple[DatasetRef, ...] = ()
    former_writes: tuple[DatasetRef, ...] = ()
    parent: JobRef | None = None
    processing: str | None = None  # BATCH or STREAM
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    query: str | None = None  # the SQL that it runs
    partitioning: Mapping[str, Any] | None = None
    airflow: AirflowTask | None = None
    is_action: bool = False  # of a Spark application, as Spark's listener sends it
    inner: tuple[DatasetRef, ...] = ()
    parts: tuple[JobRef, ...] = ()
    from_columns: tuple[DatasetRef, ...] = ()
    covers: tuple[tuple[DatasetRef, DatasetRef], ...] = ()
    modes: tuple[tuple[DatasetRef, str], ...] = ()
    past_reads: tuple[tuple[Instant, tuple[DatasetRef, ...]], ...] = ()
    edges_of: str | None = None
    stable_id: str | None = None
    is_test: bool = False
    names_nothing: bool = False


class DatasetNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dataset of the lineage.

    `partitioning` is the `lineageBackfill_partitioning` dataset facet as sent, or None.
    """

    ref: DatasetRef
    fields: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    aliases: tuple[DatasetRef, ...] = ()
    partitioning: Mapping[str, Any] | None = None


class ColumnEdge(Struct, frozen=True, kw_only=True, order=True, forbid_unknown_fields=True):
    """One output column that depends on one input column.

    `direct` is False where the column only decides which rows there are (filter, join, group by…).
    An INDIRECT dependency of the whole output has `output_column` "*".
    """

    job: JobRef
    input: DatasetRef
    input_column: str
    output: DatasetRef
    output_column: str
    direct: bool = True


class ObservedRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recorded run of a job, for inference and estimates. Times are aware and in UTC.

    `partition_key` holds the keys that it was run for, `written` those that it wrote, both as users
    write them, `read` each input that it read one key of; `backfill` is the id of its backfill.
    """

    job: JobRef
    run_id: str
    state: str  # RUNNING, COMPLETE, FAIL, ABORT
    started_at: Instant | None = None
    ended_at: Instant | None = None
    nominal_start: Instant | None = None
    nominal_end: Instant | None = None
    partition_key: str | None = None
    written: str | None = None
    read: tuple[tuple[DatasetRef, str], ...] = ()
    backfill: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class LineageSnapshot:
    """The lineage from one source at one time.

    `taken_at` is aware and in UTC. `notices` tell the problems of the source.
    """

    jobs: Mapping[JobRef, JobNode]
    datasets: Mapping[DatasetRef, DatasetNode]
    column_edges: tuple[ColumnEdge, ...] = ()
    history: tuple[ObservedRun, ...] = ()
    source: str = "memory"  # events, marquez, snapshot, project, memory
    taken_at: datetime | None = None
    notices: tuple[Notice, ...] = ()

    @classmethod
    def of(
        cls,
        jobs: Iterable[JobNode],
        datasets: Iterable[DatasetNode] = (),
        **rest: Any,
    ) -> LineageSnapshot:
        """Build a snapshot from job nodes; datasets named only by edges are added."""
        job_map = {node.ref: node for node in sorted(jobs, key=lambda node: node.ref)}
        dataset_map = {node.ref: node for node in datasets}
        for node in job_map.values():
            for ref in (*node.reads, *node.writes):
                if ref not in dataset_map:
                    dataset_map[ref] = DatasetNode(ref=ref)
        return cls(
            jobs=job_map,
            datasets={ref: dataset_map[ref] for ref in sorted(dataset_map)},
            **rest,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices as sentences, one for each family."""
        return tuple(in_families(self.notices))

    @cached_property
    def content_hash(self) -> str:
        """`sha256:…` over jobs, datasets, edges and column lineage; not over history or times."""
        lines: list[list[Any]] = [
            ["job", *_ref(n.ref), [_ref(r) for r in n.reads], [_ref(w) for w in n.writes]]
            for n in self.jobs.values()
        ]
        lines += [["dataset", *_ref(n.ref), n.partitioning] for n in self.datasets.values()]
        lines += [
            ["column", *_ref(edge.job), *_ref(edge.input), edge.input_column]
            + [*_ref(edge.output), edge.output_column, edge.direct]
            for edge in self.column_edges
        ]
        text = json.dumps(lines, sort_keys=True, separators=(",", ":"), default=str)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def readers(self) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        """The jobs that read each dataset, sorted."""
        return _invert((node.ref, node.reads) for node in self.jobs.values())

    @cached_property
    def writers(self) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        """The jobs that write each dataset, sorted."""
        return _invert((node.ref, node.writes) for node in self.jobs.values())

    def graph(self) -> nx.DiGraph[DatasetRef | JobRef]:
        """Return a new `networkx.DiGraph` whose nodes are `DatasetRef` and `JobRef` values.

        Edges point along the data: dataset → job that reads it, job → dataset that it writes. A
        node has `kind`, dataset or job, and what its `DatasetNode` or `JobNode` says beside edges.
        A read has `from_columns`, and `read_as` with the name that the job reads it by; a write has
        its `mode` if known: append, merge or overwrite.
        """
        import networkx as nx  # slow to load, and a plan needs no graph

        graph: nx.DiGraph[DatasetRef | JobRef] = nx.DiGraph()
        graph.add_nodes_from((node.ref, _attributes(node)) for node in self.datasets.values())
        for job in self.jobs.values():
            graph.add_node(job.ref, **_attributes(job))
            around = {one: name for name, one in job.covers}
            modes = dict(job.modes)
            for ref in job.reads:
                graph.add_edge(
                    ref, job.ref, from_columns=ref in job.from_columns, read_as=around.get(ref, ref)
                )
            for ref in job.writes:
                graph.add_edge(job.ref, ref, mode=modes.get(ref))
        return graph


#: What the graph says by its nodes and edges.
_GRAPH = {
    *("ref", "reads", "writes", "former_reads", "former_writes", "inner", "from_columns"),
    *("covers", "modes", "past_reads"),
}


def _attributes(node: DatasetNode | JobNode) -> dict[str, Any]:
    members = {name: getattr(node, name) for name in node.__struct_fields__ if name not in _GRAPH}
    return {"kind": node.ref.kind, **members}


def _ref(ref: DatasetRef | JobRef) -> list[str]:
    return [ref.namespace, ref.name]


def _invert(
    edges: Iterable[tuple[JobRef, Iterable[DatasetRef]]],
) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
    found: dict[DatasetRef, list[JobRef]] = {}
    for job, datasets in edges:
        for dataset in datasets:
            found.setdefault(dataset, []).append(job)
    return {dataset: tuple(jobs) for dataset, jobs in found.items()}
