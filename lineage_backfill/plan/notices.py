"""What a plan says aloud: what it leaves out, what it believes, what it could not believe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.plan.catalog import Catalog, JobFacts
from lineage_backfill.plan.propagate import JobResult, Propagation

T = TypeVar("T")


def notices(
    catalog: Catalog, propagation: Propagation, unknown: Iterable[DatasetRef]
) -> Iterator[str]:
    """Yield the sentences; `unknown` are the roots whose partitioning nobody knows."""
    results = propagation.results.values()
    if catalog.troubles:
        yield from _troubles(catalog, results)
    yield from propagation.warnings
    for ref in unknown:
        yield f"the partitioning of {ref} is unknown: what reads it is blocked"
    if any(mapping.may_lack for mapping in catalog.mappings):
        yield from _lacking(results, propagation)
    if any(mapping.reaches_beyond for mapping in catalog.mappings):
        yield from _incomplete(results, propagation)
    planned = [result for result in results if result.planned.boxes]
    inferred = (
        [result for result in planned if catalog.evidence(result.facts) is not None]
        if catalog.snapshot.history
        else []
    )
    engineless = [result for result in planned if _has_no_engine(result.facts)]
    for found, text in (
        (inferred, "partitioning inferred from run history"),
        (engineless, "no engine is declared, so `run` would refuse"),
    ):
        if found:
            yield f"{text}: {few(found, lambda result: str(result.facts.ref))}"


def few(found: Sequence[T], name: Callable[[T], str], most: int = 5) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(map(name, found[:most]))
    return shown + (f" and {len(found) - most} more" if len(found) > most else "")


def _troubles(catalog: Catalog, results: Iterable[JobResult]) -> Iterator[str]:
    for result in results:
        facts = result.facts
        edges = [*(e.dataset for e in facts.inputs), *(e.dataset for e in facts.outputs)]
        for ref in (facts.ref, *edges):
            if ref in catalog.troubles:
                yield catalog.troubles[ref]


def _lacking(results: Iterable[JobResult], propagation: Propagation) -> Iterator[str]:
    for result in results:
        if not (result.planned or result.stale_inputs):
            continue
        for edge in result.facts.lacking:
            assert edge.mapping is not None
            dirty = propagation.dirty.get(edge.data)
            changed = dirty if isinstance(dirty, PartitionSet) else NOTHING
            for sentence in edge.mapping.missing(changed, result.planned):
                yield f"{result.facts.ref} and its input {edge.dataset}: {sentence}"


def _incomplete(results: Iterable[JobResult], propagation: Propagation) -> Iterator[str]:
    incomplete = [
        (result, newest)
        for result in results
        if not result.left and (newest := _beyond(result, propagation)) is not None
    ]
    if incomplete:
        names = few(incomplete, lambda pair: f"{pair[0].facts.ref.name} {_label(*pair)}")
        yield f"not planned, for these keys are not complete or do not exist yet: {names}"


def _has_no_engine(facts: JobFacts) -> bool:
    return facts.declaration is None or facts.declaration.engine is None


def _beyond(result: JobResult, propagation: Propagation) -> int | None:
    """Return the newest key that the change would make stale if it existed yet, if any."""
    newest: int | None = None
    for edge in result.stale_inputs:
        mapping = edge.mapping
        if mapping is not None and mapping.reaches_beyond:
            dirty = propagation.dirty[edge.data]
            found = mapping.beyond(dirty) if isinstance(dirty, PartitionSet) else None
            if found is not None and (newest is None or found > newest):
                newest = found
    return newest


def _label(result: JobResult, newest: int) -> str:
    calendar = result.facts.calendar
    assert calendar is not None
    assert calendar.time is not None
    return calendar.time.grid.label(newest)
