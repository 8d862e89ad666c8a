"""Metrics of a run store for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from lineage_backfill.model import BackfillState, RunState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(
    backfills: Sequence[Mapping[str, Any]],
    tallies: Mapping[str, Mapping[RunState, int]],
    drivers: int,
) -> str:
    """Return the metrics in the text format of Prometheus."""
    runs: Counter[RunState] = Counter()
    open_: Counter[RunState] = Counter()
    for one in backfills:
        tally = tallies.get(one["id"], {})
        runs.update(tally)
        if BackfillState(one["state"]).is_under_way:
            open_.update(tally)
    states = Counter(BackfillState(one["state"]) for one in backfills)
    registry = CollectorRegistry()

    def by_state(name: str, what: str, every: Iterable[str], counts: Mapping[Any, int]) -> None:
        gauge = Gauge(f"lineage_backfill_{name}", what, ["state"], registry=registry)
        for state in every:
            gauge.labels(state).set(counts[state])

    by_state("backfills", "Backfills in the run store", BackfillState, states)
    by_state("runs", "Runs of all backfills in the run store", RunState, runs)
    by_state("open_runs", "Runs of unfinished backfills", RunState, open_)
    live = Gauge("lineage_backfill_drivers", "Live drivers of this project", registry=registry)
    live.set(drivers)
    return str(generate_latest(registry).decode())
