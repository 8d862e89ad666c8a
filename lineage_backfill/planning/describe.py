"""Describes each job of a plan: status, keys and reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.propagate import JobResult, Propagation
from lineage_backfill.planning.routes import Routes
from lineage_backfill.plans.plan import JobStatus, PlannedJob
from lineage_backfill.project.resolve.resolver import Input, JobFacts

#: Of a longer path from the change to a job, only the first and last hops are kept.
LONGEST_PATH: Final = 24
_SKIPPED: Final = {
    "columns": "it reads none of the changed columns",
    "up_to_date": "no existing key reads a changed partition",
}
BLOCKING: Final = frozenset({"unknown", "cycle", "protected", "not_idempotent", "withheld"})


class Describer:
    """Describes the jobs of one propagation; `asked` are the jobs named in the request."""

    def __init__(
        self,
        resolver: Resolver,
        propagation: Propagation,
        routes: Routes,
        asked: Collection[JobFacts],
        *,
        exact: bool,
    ) -> None:
        self._resolver = resolver
        self._propagation = propagation
        self._asked = asked
        self._exact = exact
        self._routes = routes
        self._refs: dict[DatasetRef | JobRef, dict[str, str]] = {}
        self._edges: dict[Input, dict[str, Any]] = {}
        self._paths: dict[JobRef, tuple[Any, ...]] = {}

    def jobs(self) -> tuple[PlannedJob, ...]:
        """Return every affected job, in a possible run order."""
        levels = self._propagation.levels
        return tuple([self._job(facts, level) for level, jobs in levels for facts in jobs])

    def _job(self, facts: JobFacts, level: int) -> PlannedJob:
        result, calendar = self._propagation.results[facts], facts.calendar
        render = self._propagation.memo.render
        status = _status(result)
        return PlannedJob(
            job=facts.ref,
            status=status,
            level=level,
            partitions=render(calendar, result.planned) if calendar else (),
            count=len(result.planned),
            left_stale=render(calendar, result.left) if calendar else (),
            reason=self._reason(facts, result, status),
        )

    def _reason(self, facts: JobFacts, result: JobResult, status: JobStatus) -> dict[str, Any]:
        stale_inputs = self._propagation.stale_inputs(facts)
        reason: dict[str, Any] = {"kind": _reason_kind(result, stale_inputs, status)}
        if result.cause is not None:
            reason["text"] = result.cause[1]
            if result.cause[2]:
                reason["hint"] = result.cause[2]
        elif status == "skipped":
            reason["text"] = _SKIPPED[reason["kind"]]
        reason |= self._left(result, status)
        if status == "skipped":
            return reason
        if facts in self._asked:
            reason["asked"] = True
        path = self._path(facts.ref)
        if path:
            reason["path"] = list(_shorten(path))
        reason["inputs"] = [self._edge_of(facts.ref, edge) for edge in stale_inputs]
        if facts.lookback and not self._exact:
            reason["lookback"] = facts.lookback
        if facts.own:
            reason["self_dependent"] = True
        evidence = self._resolver.evidence(facts)
        if evidence is not None:
            reason["inferred"] = evidence
        return reason

    def _left(self, result: JobResult, status: JobStatus) -> dict[str, Any]:
        """Return the members about keys and inputs that the plan leaves out."""
        members: dict[str, Any] = {}
        if result.by_choice and (result.left or status == "blocked"):
            members["by_choice"] = True
        if result.left_causes:
            members["left"] = list(dict.fromkeys(text for _, text in result.left_causes))
        if result.pruned:
            members["pruned"] = [self.ref(dataset) for dataset in result.pruned]
        return members

    def _edge(self, edge: Input) -> dict[str, Any]:
        found = self._edges.get(edge)
        if found is None:
            found = {"dataset": self.ref(edge.dataset), "mapping": _mapping_name(edge)}
            if edge.declared:
                found["declared"] = True
            self._edges[edge] = found
        return found

    def _edge_of(self, job: JobRef, edge: Input) -> dict[str, Any]:
        """Return an input of a job, with what tells it where `inputs` of events do not."""
        found, node = self._edge(edge), self._resolver.snapshot.jobs.get(job)
        dirty = self._propagation.dirty.get(edge.data)
        if edge.mapping and isinstance(dirty, PartitionSet) and edge.mapping.inferred(dirty):
            found = found | {"inferred": True}
        if node is not None and edge.dataset in node.from_columns:
            return found | {"from_columns": True}
        covers = node.covers if node is not None else ()
        names = [self.ref(name) for name, dataset in covers if dataset == edge.dataset]
        return found | {"within": names[0]} if names else found

    def _path(self, ref: JobRef) -> tuple[Any, ...]:
        """Return the shortest path from a root; a hop is dataset, mapping and job."""
        found = self._paths.get(ref)
        if found is not None:
            return found
        chain: list[tuple[JobRef, Input]] = []
        seen = set()
        at: JobRef | None = ref
        while at is not None and at not in self._paths and at not in seen:
            via = self._routes.via.get(at)
            if via is None:
                break
            seen.add(at)
            chain.append((at, via))
            at = None if via.data in self._propagation.roots else self._routes.maker.get(via.data)
        path: tuple[Any, ...] = self._paths.get(at, ()) if at is not None else ()
        for job, via in reversed(chain):
            hop = {
                "dataset": self.ref(via.dataset),
                "mapping": _mapping_name(via),
                "job": self.ref(job),
            }
            path = self._paths[job] = _shorten((*path, hop))
        return path

    def ref(self, ref: DatasetRef | JobRef) -> dict[str, str]:
        """Return a name as a document, the same object each time."""
        found = self._refs.get(ref)
        if found is None:
            found = self._refs[ref] = named(ref)
        return found


def _status(result: JobResult) -> JobStatus:
    if result.planned:
        return "planned"
    if result.cause is not None and (result.left or result.cause[0] == "unknown"):
        return "blocked" if result.cause[0] in BLOCKING else "left_stale"
    if not result.left:
        return "skipped"
    only_gone = all(kind == "expired" for kind, _ in result.left_causes)
    return "blocked" if only_gone else "left_stale"


def _reason_kind(result: JobResult, stale_inputs: Sequence[Input], status: JobStatus) -> str:
    if status == "skipped":
        return "columns" if result.pruned and not stale_inputs else "up_to_date"
    if result.cause is not None:
        return result.cause[0]
    if status == "planned":
        return "stale" if stale_inputs else "asked"
    return "expired" if status == "blocked" else "unrepaired"


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
