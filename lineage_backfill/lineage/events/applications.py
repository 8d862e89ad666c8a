"""Spark applications: which actions their last completed run still had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lineage_backfill.lineage.events.folded import NOTHING, Dataset, Job, Name
from lineage_backfill.lineage.spans import DEFAULT_LENGTH, DEFAULT_SPAN, varies


def superseded_actions(jobs: Mapping[Name, Job]) -> tuple[set[Name], dict[Name, str]]:
    """Return the actions that the last completed run of their application did not have.

    Of an application that reads other inputs each run, only those before a span of time; the others
    come with that span.
    """
    below: dict[Name, list[Job]] = {}
    for job in jobs.values():
        if job.is_action and job.parent and job.runs:
            below.setdefault(job.parent[1], []).append(job)
    superseded, spans = set[Name](), dict[Name, str]()
    for parent, actions in below.items():
        last, sets = _completed(jobs.get(parent), actions)
        if last is None:
            continue
        loads = varies(sets)
        for job in actions:
            runs = job.runs.values()
            newest = max(run.last for run in runs)
            if newest > last[0] or any(run.parent == last[1] for run in runs):
                continue
            if loads and newest > last[0] - DEFAULT_LENGTH:
                spans[job.name] = DEFAULT_SPAN
            else:
                superseded.add(job.name)
    return superseded, spans


def _completed(
    application: Job | None, actions: Iterable[Job]
) -> tuple[tuple[datetime, str] | None, list[frozenset[Dataset]]]:
    """Return the last completed run of an application, and the inputs of all such runs in order.

    Those whose actions named no datasets take nothing away.
    """
    found: dict[str, frozenset[Dataset]] = {}
    for job in actions:
        for run in job.runs.values():
            if run.parent and run.completed and run.run_io != NOTHING:
                found[run.parent] = found.get(run.parent, frozenset()) | run.run_io.reads
    known = application.runs if application else {}
    ended = sorted(
        (one.completed, run_id)
        for run_id in found
        if (one := known.get(run_id)) is not None and one.completed
    )
    return (ended[-1] if ended else None), [found[run_id] for _, run_id in ended if found[run_id]]
