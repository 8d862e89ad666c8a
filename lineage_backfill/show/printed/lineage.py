"""Documents of the lineage: `lineage show`, `lineage pull` and `graph`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from lineage_backfill.show.printed.common import Count, LineageOrigin, Name


class AirflowTask(TypedDict):
    """The task in Airflow that a job is."""

    dag: str
    task: str


class LineageJob(TypedDict):
    """Everything known about a job."""

    job: Name
    reads: list[Name]
    writes: list[Name]
    declared_reads: NotRequired[list[Name]]
    declared_writes: NotRequired[list[Name]]
    former_reads: NotRequired[list[Name]]
    former_writes: NotRequired[list[Name]]
    parent: NotRequired[Name]
    parts: NotRequired[list[Name]]
    processing: NotRequired[str]
    airflow: NotRequired[AirflowTask]
    owners: NotRequired[list[str]]
    tags: NotRequired[list[str]]
    query: NotRequired[str]
    partitioning: NotRequired[dict[str, Any]]


class LineageDataset(TypedDict):
    """Everything known about a dataset."""

    dataset: Name
    columns: NotRequired[list[str]]
    aliases: NotRequired[list[Name]]
    owners: NotRequired[list[str]]
    tags: NotRequired[list[str]]
    partitioning: NotRequired[dict[str, Any]]


class NameFamily(TypedDict):
    """Names that look like the partitions of one dataset."""

    dataset: Name
    pattern: str
    names: list[str]


class Lineage(LineageOrigin):
    """The jobs and datasets of the lineage: what `lineage show --json` prints."""

    schema_version: Literal[1]
    kind: Literal["lineage"]
    jobs: list[LineageJob]
    datasets: list[LineageDataset]
    families: list[NameFamily]
    warnings: list[str]


class LineagePull(LineageOrigin):
    """A saved snapshot: what `lineage pull --json` prints."""

    schema_version: Literal[1]
    kind: Literal["lineage_pull"]
    file: str
    bytes: Count
    jobs: Count
    datasets: Count
    runs: Count
    warnings: list[str]


class GraphNode(TypedDict):
    """A job or a dataset; `layer` counts the nodes before it, a `start` was asked for."""

    id: str
    kind: Literal["dataset", "job"]
    namespace: str
    name: str
    layer: Count
    start: bool


#: `from` is a keyword, so this one is not a class.
GraphEdge = TypedDict("GraphEdge", {"from": str, "to": str})


class Graph(LineageOrigin):
    """A part of the lineage as a graph: what `graph --json` prints."""

    schema_version: Literal[1]
    kind: Literal["graph"]
    nodes: list[GraphNode]
    edges: list[GraphEdge]
