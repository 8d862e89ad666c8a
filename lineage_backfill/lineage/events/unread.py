"""Facets of events that are not understood, counted by who sent them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from lineage_backfill.lineage.events.event import DatasetFacets, JobFacets, OutputFacets, RunFacets

#: Facets of the OpenLineage specification that tell nothing of edges, keys or runs.
_TELL_NOTHING: Final = frozenset(
    {
        *("errorMessage", "externalQuery", "extractionError", "environmentVariables", "sourceCode"),
        *("tags", "dataSource", "version", "datasetVersion", "storage"),
        *("datasetType", "documentation", "catalog", "hierarchy", "dataQualityMetrics"),
        *("dataQualityAssertions", "inputStatistics"),
    }
)
_OF_RUNS: Final = _TELL_NOTHING | RunFacets.__annotations__.keys()
_OF_JOBS: Final = _TELL_NOTHING | JobFacets.__annotations__.keys()
_OF_DATASETS: Final = _TELL_NOTHING | DatasetFacets.__annotations__.keys()
_OF_SIDES: Final = _TELL_NOTHING | OutputFacets.__annotations__.keys()


class Unread(NamedTuple):
    """A facet that is not understood, its sender, and how many events hold it."""

    producer: str
    facet: str
    events: int


def unread_facets(events: Iterable[Any]) -> list[Unread]:
    """Return the facets that are not understood, those of most events first.

    What is not an event is skipped.
    """
    found = Counter[tuple[str, str]]()
    for event in events:
        if isinstance(event, dict):
            found.update(set(_unread(event)))
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return [Unread(*key, number) for key, number in ordered]


def _unread(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    run, job = event.get("run"), event.get("job")
    sides = [event.get("dataset")]
    for side in ("inputs", "outputs"):
        told = event.get(side)
        sides += told if isinstance(told, list) else []
    groups = [(run, "facets", _OF_RUNS), (job, "facets", _OF_JOBS)]
    for item in sides:
        groups.append((item, "facets", _OF_DATASETS))
        groups += [(item, name, _OF_SIDES) for name in ("inputFacets", "outputFacets")]
    for item, member, understood in groups:
        facets = item.get(member) if isinstance(item, dict) else None
        for name, facet in facets.items() if isinstance(facets, dict) else ():
            if name not in understood and isinstance(facet, dict):
                yield str(facet.get("_producer") or event.get("producer") or "?"), name
