"""Reports where Marquez's own graph differs from the events, which are used.

Its graph loses the edges of a job while a run is active or after it failed, uses those of the run
whose end arrived last, and omits deleted datasets.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

from lineage_backfill.errors import HTTPStatusError, ServiceUnreachableError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.sources.marquez.api import Api, Edges, Name, edges_of, listing

T = TypeVar("T")

#: Limits of the comparison: it is a check on which the plan does not depend. With 10,000 jobs a
#: server needs seconds for one of these requests.
_REQUESTS = 64
_SECONDS = 1.0
_AT_ONCE = 2
#: If a dataset has more jobs than this, the server needs seconds for one of their graphs.
_HUB = 50


def compare(
    api: Api,
    lineage: LineageSnapshot,
    stored: Mapping[Name, Name],
    datasets: Collection[Name],
    is_united: Callable[[JobRef], bool],
) -> None:
    """Report the jobs whose edges differ; `stored` maps Marquez's names of jobs to ours.

    Of several runs under one parent run (`is_united`), Marquez shows only the last.
    """
    unfinished = _unfinished(lineage)
    lacking: list[str] = []
    differing: list[str] = []
    compared = 0
    for name, edges in _shown(api, lineage, stored):
        node = lineage.jobs[JobRef(*stored[name])]
        compared += 1
        more, fewer = _difference(lineage, node, edges, datasets)
        if fewer and not more and node.ref in unfinished:
            lacking.append(str(node.ref))
        elif more or (fewer and not is_united(node.ref)):
            said = [f"shows also {listing(more)}"] if more else []
            said += [f"lacks {listing(fewer)}"] if fewer else []
            differing.append(f"{node.ref} {' and '.join(said)}")
    for what, jobs in (
        ("lacks edges, since a run has started or failed, of", lacking),
        ("differs from the events, which are followed:", differing),
    ):
        if jobs:
            api.warnings.append(f"Marquez's own graph {what} {listing(jobs)}")
    if compared < len(stored):
        api.warnings.append(
            f"Marquez's own graph was compared for {compared} of {len(stored)} jobs"
        )


def _shown(
    api: Api, lineage: LineageSnapshot, stored: Mapping[Name, Name]
) -> Iterator[tuple[Name, Edges]]:
    """Yield jobs with the edges that Marquez shows, up to the limits."""
    refs = {name: JobRef(*stored[name]) for name in sorted(stored)}
    refs = {name: ref for name, ref in refs.items() if ref in lineage.jobs}
    seen: set[Name] = set()
    near: list[Name] = []
    far = _far_apart(lineage, refs, near)
    # The first answer often holds all of a small graph.
    first = islice(far, int(len(refs) <= _HUB))
    stages = (first, far, ((name, 1) for name in near if name not in seen))
    left, deadline = _REQUESTS, time.monotonic() + _SECONDS

    def asked(stage: Iterable[tuple[Name, int]]) -> Iterator[Future[list[Any]]]:
        nonlocal left
        for name, depth in stage:
            if not left or time.monotonic() > deadline:
                return
            left -= 1
            yield pool.submit(_graph_around, api, name, depth)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for answer in chain.from_iterable(_ahead(asked(stage), _AT_ONCE) for stage in stages):
                for found, edges in edges_of(answer.result()):
                    if found in stored and found not in seen:
                        seen.add(found)
                        yield found, edges
        except ServiceUnreachableError:
            return


def _ahead(items: Iterable[T], number: int) -> Iterator[T]:
    """Yield the items; this many are under way before the first is waited for."""
    taken: deque[T] = deque()
    for item in items:
        taken.append(item)
        if len(taken) == number:
            yield taken.popleft()
    yield from taken


def _far_apart(
    lineage: LineageSnapshot, refs: Mapping[Name, JobRef], near: list[Name]
) -> Iterator[tuple[Name, int]]:
    """Yield jobs whose answers do not overlap, each with a depth; add the others to `near`."""
    expected = set[JobRef]()
    for name, ref in refs.items():
        if ref in expected:
            near.append(name)
            continue
        around = _around(lineage, ref)
        expected |= around
        yield name, int(bool(around))


def _around(lineage: LineageSnapshot, job: JobRef) -> set[JobRef]:
    """Return the jobs in an answer of depth 1; none beside a hub."""
    node = lineage.jobs[job]
    around = {job}
    for ref in (*node.reads, *node.writes):
        jobs = (*lineage.readers.get(ref, ()), *lineage.writers.get(ref, ()))
        if len(jobs) > _HUB:
            return set()
        around.update(jobs)
    return around


def _graph_around(api: Api, name: Name, depth: int) -> list[Any]:
    """Return the nodes around a job; none if Marquez cannot show them."""
    try:
        # Read once: it is only a check, and may take the server seconds.
        node = f"job:{name[0]}:{name[1]}"
        answer = api.ask("lineage", nodeId=node, depth=str(depth)).value()
    except HTTPStatusError as error:
        if error.status not in (404, 500):  # names with ambiguous node ids
            raise
        return []
    return api.rows(answer, "graph")


def _difference(
    lineage: LineageSnapshot, node: JobNode, edges: Edges, datasets: Collection[Name]
) -> tuple[list[str], list[str]]:
    """Return the edges that only Marquez's graph has, and those that only we have."""
    more, fewer = set[str](), set[str]()
    for word, ours, theirs in (("reads", node.reads, edges[0]), ("writes", node.writes, edges[1])):
        names = {ref: {ref, *lineage.datasets[ref].aliases} for ref in ours}
        known = {(ref.namespace, ref.name) for refs in names.values() for ref in refs}
        more |= {f"{word} {':'.join(name)}" for name in theirs - known}
        fewer |= {
            f"{word} {ref}"
            for ref, refs in names.items()
            # Datasets unknown to Marquez have been reported already.
            if theirs.isdisjoint(found := {(one.namespace, one.name) for one in refs})
            and not found.isdisjoint(datasets or found)
        }
    return sorted(more), sorted(fewer)


def _unfinished(lineage: LineageSnapshot) -> set[JobRef]:
    """Return the jobs whose newest run has not completed."""
    newest = {
        run.job: run.state for run in lineage.history
    }  # the newest run of each job comes last
    return {job for job, state in newest.items() if state != "COMPLETE"}
