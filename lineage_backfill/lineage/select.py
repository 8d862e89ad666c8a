"""Selectors: which jobs of a graph a text such as `daily_*+2` or `tag:finance` means."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

_SELECTOR = re.compile(r"(?:(\d*)(\+))?(.*?)(?:(\+)(\d*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The graph that selectors walk: what jobs read and write, and who reads and writes it."""

    jobs: Collection[JobRef]
    reads: Callable[[JobRef], Iterable[DatasetRef]]
    writes: Callable[[JobRef], Iterable[DatasetRef]]
    readers: Mapping[DatasetRef, Iterable[JobRef]]
    writers: Mapping[DatasetRef, Iterable[JobRef]]


def select(texts: Iterable[str], snapshot: LineageSnapshot, graph: Neighbours) -> set[JobRef]:
    """Return the jobs that any of the selectors means.

    `name` or a glob names jobs, or the jobs that write datasets of that name; `tag:` and `owner:`
    go by what the lineage says of jobs or of what they write, `ns:` by the namespace. `x+` adds
    everything downstream, `x+2` two jobs deep, `+x` upstream; from a dataset that no job writes,
    its readers are the first. Raises UnknownNameError for a selector that means nothing, UsageError
    for an empty one.
    """
    chosen: set[JobRef] = set()
    for text in texts:
        match = _SELECTOR.fullmatch(text.strip())
        if match is None or not match[3]:
            raise UsageError(f"cannot read the selector {text!r}", hint="write it like daily_*+2")
        base = _base(match[3], snapshot, graph)
        sources = _unwritten(match[3], graph) if match[4] else set()
        if not base and not sources:
            raise UnknownNameError(
                f"the selector {text!r} matches no job",
                hint="check its spelling, or quote the glob",
            )
        chosen |= base
        if match[4]:
            chosen |= _walk(base, match[5], graph.writes, graph.readers)
            if match[5] != "0":
                steps = str(int(match[5]) - 1) if match[5] else ""
                chosen |= _walk(sources, steps, graph.writes, graph.readers)
        if match[2]:
            chosen |= _walk(base, match[1], graph.reads, graph.writers)
    return chosen


def _base(text: str, snapshot: LineageSnapshot, graph: Neighbours) -> set[JobRef]:
    kind, colon, value = text.partition(":")
    if colon and kind == "ns":
        return {job for job in graph.jobs if fnmatchcase(job.namespace, value)}
    if colon and kind in ("tag", "owner"):
        attribute = "tags" if kind == "tag" else "owners"

        def says(node: JobNode | DatasetNode) -> bool:
            return any(fnmatchcase(word, value) for word in getattr(node, attribute))

        data = (ref for ref, node in snapshot.datasets.items() if says(node))
        writers = {job for ref in data for job in graph.writers.get(ref, ())}
        return writers | {node.ref for node in snapshot.jobs.values() if says(node)}
    by_dataset = {
        job for dataset, jobs in graph.writers.items() if _named(dataset, text) for job in jobs
    }
    return {job for job in graph.jobs if _named(job, text)} | by_dataset


def _unwritten(text: str, graph: Neighbours) -> set[JobRef]:
    """Return the readers of the datasets of that name which no job writes."""
    return {
        job
        for dataset, jobs in graph.readers.items()
        if not graph.writers.get(dataset) and _named(dataset, text)
        for job in jobs
    }


def _named(ref: DatasetRef | JobRef, text: str) -> bool:
    # Compared as it stands first: a name may itself hold what a glob is made of.
    return text in (ref.name, str(ref)) or any(
        fnmatchcase(name, text) for name in (ref.name, str(ref))
    )


def _walk(
    start: Iterable[JobRef],
    depth: str,
    edges: Callable[[JobRef], Iterable[DatasetRef]],
    jobs: Mapping[DatasetRef, Iterable[JobRef]],
) -> set[JobRef]:
    seen = set(start)
    front = set(start)
    steps = int(depth) if depth else None
    while front and steps != 0:
        front = {job for at in front for ref in edges(at) for job in jobs.get(ref, ())} - seen
        seen |= front
        steps = None if steps is None else steps - 1
    return seen
