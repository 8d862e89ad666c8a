"""Metrics of a run store for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from lineage_backfill.model import BackfillState, RunState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Backfills:
    """A Prometheus collector that reads the run store at each scrape."""

    def __init__(
        self,
        backfills: Sequence[Mapping[str, Any]],
        tallies: Mapping[str, Mapping[RunState, int]],
        drivers: int,
    ) -> None:
        self._backfills = backfills
        self._tallies = tallies
        self._drivers = drivers

    def collect(self) -> Iterator[Any]:
        states = Counter(one["state"] for one in self._backfills)
        yield _by_state(
            "lineage_backfill_backfills",
            "Backfills in the run store",
            {state: states[state] for state in BackfillState},
        )
        runs: Counter[RunState] = Counter()
        open_: Counter[RunState] = Counter()
        for one in self._backfills:
            tally = self._tallies.get(one["id"], {})
            runs.update(tally)
            if BackfillState(one["state"]).is_under_way:
                open_.update(tally)
        yield _by_state(
            "lineage_backfill_runs",
            "Runs of all backfills in the run store",
            {state: runs[state] for state in RunState},
        )
        yield _by_state(
            "lineage_backfill_open_runs",
            "Runs of unfinished backfills",
            {state: open_[state] for state in RunState},
        )
        yield GaugeMetricFamily(
            "lineage_backfill_drivers",
            "Live drivers of this project",
            value=self._drivers,
        )


def _by_state(name: str, what: str, numbers: Mapping[str, int]) -> Any:
    family = GaugeMetricFamily(name, what, labels=["state"])
    for state, number in numbers.items():
        family.add_metric([str(state)], number)
    return family


def render(
    backfills: Sequence[Mapping[str, Any]],
    tallies: Mapping[str, Mapping[RunState, int]],
    drivers: int,
) -> str:
    """Return the metrics in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Backfills(backfills, tallies, drivers))
    return str(generate_latest(registry).decode())
