"""The lineage of a dbt project, from its `manifest.json`.

Names are those that dbt-ol sends. A view or table without partitions is rebuilt as a whole; a
microbatch model has the calendar of its batches, and so has what it reads by `event_time`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lineage_backfill.errors import LineageError, NoLineageError
from lineage_backfill.files import read_file, reason
from lineage_backfill.lineage.identity.merge import last_completed, newest_of
from lineage_backfill.lineage.identity.naming import spelling
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.dbt_results import read_results
from lineage_backfill.sources.parsing import parse

_VERSIONS = ("v10", "v11", "v12")
#: What dbt-ol calls the databases of adapters, where it is not the adapter's name.
_SCHEMES = {"athena": "awsathena", "sqlserver": "mssql"}
#: Schemes under which others name the tables of an adapter.
_OTHERS = {
    "databricks": ("databricks", "unitycatalog", "hive", "spark"),
    "spark": ("spark", "hive"),
    "postgres": ("postgres", "postgresql"),
    "redshift": ("redshift", "postgres"),
    "sqlserver": ("mssql", "sqlserver"),
}
#: Batches from fine to coarse, with the form of their labels.
_BATCHES = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m-01", "year": "%Y-01-01"}
_TABLES = ("model", "seed", "snapshot", "source")
_STRATEGIES = {
    "append": "append",
    "delete+insert": "merge",
    "insert_overwrite": "overwrite",
    "merge": "merge",
    "microbatch": "overwrite",
}
_NONE = LineageSnapshot.of([])


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the manifest: its id, members and settings."""

    id: str
    members: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        return self.members.get("config") or {}

    @property
    def kind(self) -> str:
        return self.id.partition(".")[0]

    @property
    def is_inner(self) -> bool:
        return self.config.get("materialized") == "ephemeral"

    @property
    def is_view(self) -> bool:
        return self.config.get("materialized") == "view"

    @property
    def has_time(self) -> bool:
        return bool(self.config.get("event_time"))

    @property
    def is_microbatch(self) -> bool:
        return self.config.get("incremental_strategy") == "microbatch"

    @property
    def table(self) -> str:
        """The name of its table, as dbt-ol sends it."""
        name = self.members["name" if self.kind == "source" else "alias"]
        return ".".join(filter(None, (*self.place, name)))

    @property
    def names(self) -> set[str]:
        """The names of its table, in small letters."""
        names = (self.table, *(one.name for one in _physical(self, "")))
        return {name.casefold() for name in names}

    @property
    def place(self) -> tuple[str | None, str | None]:
        return self.members.get("database"), self.members.get("schema")

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(sorted(self.members.get("tags") or ()))

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names that dbt-ol gives its job, by command; none if it is not one."""
        kind, _, name = self.id.partition(".")
        whole = ".".join(filter(None, (*self.place, name)))
        if kind == "model" and not self.is_inner:
            return whole, f"{whole}.build.run", self.id
        if kind == "snapshot":
            return f"{whole}.snapshot", f"{whole}.build.snapshot", self.id
        return ()

    @property
    def mode(self) -> str:
        """How it writes its table."""
        if self.kind == "snapshot":
            return "merge"
        if self.config.get("materialized") != "incremental":
            return "overwrite"
        default = "merge" if self.config.get("unique_key") else "append"
        return _STRATEGIES.get(self.config.get("incremental_strategy") or default, default)


class DbtSource:
    """Lineage from the `manifest` of a dbt project, with the runs of the results beside it.

    `namespace` is that of its jobs, `dataset_namespace` that of its tables, as
    `postgres://host:5432`; without them, those under which other lineage has them.
    """

    def __init__(
        self,
        *,
        project: Path,
        manifest: str,
        namespace: str | None = None,
        dataset_namespace: str | None = None,
    ) -> None:
        self._file = project / manifest
        self._namespace = namespace
        self._datasets = dataset_namespace

    def read(self) -> LineageSnapshot:
        """Return the lineage of the project; raises LineageError if it is not complete."""
        return self.read_beside(_NONE)

    def read_beside(self, others: LineageSnapshot) -> LineageSnapshot:
        """Return the lineage with the names that `others` have; raises LineageError."""
        try:
            document = parse(read_file(self._file))
        except FileNotFoundError as error:
            hint = "Run `dbt parse`, which writes target/manifest.json, or correct the path."
            raise NoLineageError(f"{self._file}: no such file", hint=hint) from error
        except (OSError, ValueError, RecursionError) as error:
            raise self._error(f"cannot be read: {reason(error)}") from error
        try:
            return self._read(document, others)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._error(f"not of the shape of a manifest: {error!r}") from error

    def _read(self, document: Any, others: LineageSnapshot) -> LineageSnapshot:
        about = document["metadata"]
        version = about["dbt_schema_version"].rpartition("/")[2].removesuffix(".json")
        if version not in _VERSIONS:
            known = listed(_VERSIONS)
            raise self._error(
                f"a manifest of version {version}; known are {known} (dbt 1.6 to 1.11)"
            )
        nodes = {
            name: _Node(name, members)
            for name, members in {**document["nodes"], **document["sources"]}.items()
            if name.partition(".")[0] in _TABLES
        }
        inputs = self._inputs(nodes)
        space, notices = self._space(str(about["adapter_type"]), nodes.values(), others)
        refs = {node.id: DatasetRef(space, node.table) for node in nodes.values()}
        batches = _batches(nodes, inputs)
        text = "dbt: `event_time` says that a view has the rows of its inputs at the same time: "
        views = sorted(refs[one] for one in batches if nodes[one].is_view)
        notices += (Notice("", str(view), text) for view in views)
        jobs = self._jobs(inputs, refs, batches, others)
        have_runs = {run.job for run in others.history}
        without = {str(job.stable_id): job.ref for job in jobs if job.ref not in have_runs}
        return LineageSnapshot.of(
            jobs,
            _datasets(nodes.values(), refs, batches, others),
            history=read_results(self._file.with_name("run_results.json"), without),
            source="dbt",
            taken_at=datetime.fromisoformat(about["generated_at"]),
            notices=tuple(notices),
        )

    def _jobs(
        self,
        inputs: Iterable[tuple[_Node, list[_Node]]],
        refs: Mapping[str, DatasetRef],
        batches: Mapping[str, _Batch],
        others: LineageSnapshot,
    ) -> list[JobNode]:
        names = _Names(others, self._namespace)
        made = [(node, reads, names.find(node, refs[node.id])) for node, reads in inputs]
        spaces = {ref.namespace for _, _, ref in made if ref}
        home = self._namespace or (spaces.pop() if len(spaces) == 1 else "dbt")
        return [
            JobNode(
                ref=ref or JobRef(home, node.jobs[0]),
                reads=tuple(sorted({refs[one.id] for one in reads})),
                writes=(refs[node.id],),
                tags=node.tags,
                partitioning=_reads(node, reads, refs, batches),
                modes=((refs[node.id], node.mode),),
                stable_id=node.id,
            )
            for node, reads, ref in made
            if node.jobs
        ]

    def _inputs(self, nodes: Mapping[str, _Node]) -> list[tuple[_Node, list[_Node]]]:
        """Return each node with the tables that it reads, those of ephemeral models for these."""

        def expanded(node: _Node, above: tuple[str, ...]) -> Iterator[_Node]:
            for name in (node.members.get("depends_on") or {}).get("nodes") or ():
                if name.partition(".")[0] not in _TABLES or name in above:
                    continue
                if name not in nodes:
                    raise self._error(f"{node.id} depends on {name}, which it does not have")
                one = nodes[name]
                yield from expanded(one, (*above, name)) if one.is_inner else (one,)

        return [(node, list(expanded(node, (node.id,)))) for node in nodes.values()]

    def _space(
        self, adapter: str, nodes: Iterable[_Node], others: LineageSnapshot
    ) -> tuple[str, list[Notice]]:
        """Return the namespace of the tables, and a warning where it is not known."""
        scheme = _SCHEMES.get(adapter, adapter)
        if self._datasets or scheme == "bigquery":
            return self._datasets or scheme, []
        names = {name for node in nodes for name in node.names}
        schemes = _OTHERS.get(adapter, (scheme,))
        known = {
            ref
            for dataset in others.datasets.values()
            for ref in (dataset.ref, *dataset.aliases)
            if ref.namespace.partition(":")[0] in schemes and ref.name.casefold() in names
        }
        for one in schemes:
            if found := _spaces(ref for ref in known if ref.namespace.partition(":")[0] == one):
                if len(found) == 1:
                    return found[0], []
                raise LineageError(
                    f"{self._file}: its tables are known as those of {listed(found)}",
                    hint=f'Name one with the source: dataset_namespace = "{found[0]}".',
                )
        text = (
            f"dbt: the tables of {self._file.name} are in namespace {scheme}, and no other lineage"
            f" has them; name theirs with the source, as dataset_namespace = "
            f'"{scheme}://host:port"'
        )
        return scheme, [Notice(text)] if others.datasets else []

    def _error(self, what: str) -> LineageError:
        hint = "Write it again with `dbt parse`: nothing is planned from a part of the lineage."
        return LineageError(f"{self._file}: {what}", hint=hint)


def _spaces(refs: Iterable[DatasetRef]) -> list[str]:
    """Return the namespaces of names, each in one of its spellings."""
    found = dict[str, str]()
    for ref in sorted(refs):
        read = spelling(ref)
        found.setdefault(read.space if read else ref.namespace, ref.namespace)
    return list(found.values())


class _Names:
    """The names of a project's jobs in other lineage, or in one namespace of it."""

    def __init__(self, others: LineageSnapshot, space: str | None) -> None:
        self._jobs = others.jobs
        self._ended = last_completed(others)
        self._known: dict[str, list[JobRef]] = {}
        for ref, job in others.jobs.items():
            if not job.is_test and space in (None, ref.namespace):
                for name in {job.stable_id, ref.name} - {None}:
                    self._known.setdefault(str(name), []).append(ref)

    def find(self, node: _Node, table: DatasetRef) -> JobRef | None:
        """Return the name of a node's job whose run was last; of other databases it is another."""
        found = {ref for name in node.jobs for ref in self._known.get(name, ())}
        same = [ref for ref in found if self._writes(ref, table)]
        return newest_of(same, self._ended) if same else None

    def _writes(self, ref: JobRef, table: DatasetRef) -> bool:
        writes = self._jobs[ref].writes
        return not writes or table.name.casefold() in {one.name.casefold() for one in writes}


def _datasets(
    nodes: Iterable[_Node],
    refs: Mapping[str, DatasetRef],
    batches: Mapping[str, _Batch],
    others: LineageSnapshot,
) -> list[DatasetNode]:
    written = {ref.name.casefold() for ref in others.writers}
    # dbt-ol names an ephemeral model as an input of its readers.
    return [
        DatasetNode(
            ref=refs[node.id],
            fields=tuple(node.members.get("columns") or ()),
            tags=node.tags,
            aliases=_physical(node, refs[node.id].namespace),
            partitioning=_partitioning(node, batches.get(node.id), written),
        )
        for node in nodes
        if not node.is_inner or refs[node.id] in others.datasets
    ]


@dataclass(frozen=True, slots=True)
class _Batch:
    """The batches of a table: their size and the instant of the first one."""

    size: str
    begin: datetime

    def __or__(self, other: _Batch) -> _Batch:
        """Return the finer batches, from the earlier begin."""
        size = min(self.size, other.size, key=list(_BATCHES).index)
        return _Batch(size, min(self.begin, other.begin))

    @property
    def facet(self) -> dict[str, str]:
        return {
            "grain": self.size,
            "zone": "UTC",
            "start": self.begin.strftime(_BATCHES[self.size]),
        }


def _batches(
    nodes: Mapping[str, _Node], inputs: Collection[tuple[_Node, list[_Node]]]
) -> dict[str, _Batch]:
    """Return the batches of microbatch models, and of what is read in them by `event_time`."""
    found = {
        node.id: _Batch(
            node.config["batch_size"], datetime.fromisoformat(str(node.config["begin"]))
        )
        for node in nodes.values()
        if node.is_microbatch
    }
    below = {node.id: reads for node, reads in inputs}
    todo = list(found)
    while todo:
        name = todo.pop()
        for one in below[name]:
            # A table is written as a whole: any of its rows may change.
            if one.has_time and (one.is_view or one.kind == "source"):
                batch = found[name] | found.get(one.id, found[name])
                if found.get(one.id) != batch:
                    found[one.id] = batch
                    todo.append(one.id)
    return found


def _partitioning(
    node: _Node, batch: _Batch | None, written: Collection[str]
) -> dict[str, str] | None:
    """Return the calendar of a table; None for a source that other lineage writes."""
    if batch is None and node.kind == "source" and not node.names.isdisjoint(written):
        return None
    return batch.facet if batch else {"grain": "none"}


def _reads(
    node: _Node,
    inputs: Iterable[_Node],
    refs: Mapping[str, DatasetRef],
    batches: Mapping[str, _Batch],
) -> dict[str, Any] | None:
    """Return the inputs of a batch that dbt does not filter by time: they are read as a whole."""
    whole = [refs[one.id] for one in inputs if one.id in batches and not one.has_time]
    if node.id not in batches or not whole:
        return None
    edges = [{"namespace": ref.namespace, "name": ref.name} for ref in sorted(set(whole))]
    return {"reads": [{"dataset": edge, "mapping": "all"} for edge in edges]}


def _physical(node: _Node, space: str) -> tuple[DatasetRef, ...]:
    """Return the name of a source's table where its node has another one."""
    table = node.members.get("identifier") or node.members["name"]
    if node.kind != "source" or table == node.members["name"]:
        return ()
    return (DatasetRef(space, ".".join(filter(None, (*node.place, table)))),)
