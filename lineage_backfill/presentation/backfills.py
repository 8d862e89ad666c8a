"""What is told of the documents that `status`, `report` and `history` print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from lineage_backfill.model import DatasetRef, JobRef, RunState
from lineage_backfill.presentation.names import Names, keys_on_a_line
from lineage_backfill.presentation.text import safe

Document = Mapping[str, Any]

#: The states in which the runs of one job need not be told apart.
_ALIKE = (RunState.PENDING, RunState.SKIPPED, RunState.BLOCKED)


def particulars(document: Document) -> Iterator[tuple[str, str]]:
    """Yield what is kept of a backfill beside its runs, with the words that go before it."""
    yield "what", document["description"]
    yield "why", document["reason"]
    for name, value in document["parameters"].items():
        yield "with", f"{name} = {json.dumps(value)}"
    yield "code", document["code_version"]
    for words, name in (("to start at", "scheduled_for"), ("expires at", "expires_at")):
        yield words, to_the_second(document[name]) if document[name] else ""
    yield "deleted", "yes" if document["deleted"] else ""
    yield "driven by", document["driver"]["owner"] if document["driver"] else ""


def together(runs: Iterable[Document]) -> list[Document]:
    """Return the runs in their order; those of one job that wait for the same thing are one row."""
    groups: dict[object, dict[str, Any]] = {}
    for run in runs:
        waits = run["state"] in _ALIKE and not run["attempt"]
        group = (run["state"], *run["job"].values(), run["error"]) if waits else run["id"]
        if group in groups:
            groups[group]["partitions"] += run["partitions"]
        else:
            groups[group] = {**run, "partitions": list(run["partitions"])}
    return list(groups.values())


def names_in(document: Document) -> Names:
    """Return what shortens the names in a report."""
    jobs = (*document["outputs"], *document["not_succeeded"], *document["not_planned"])
    datasets = (DatasetRef(**one["dataset"]) for one in document["outputs"])
    return Names((*datasets, *(JobRef(**one["job"]) for one in jobs)))


def who_and_when(document: Document) -> str:
    """Return who has run a backfill, and from when to when."""
    by = f"by {safe(document['submitted_by'])}, " if document["submitted_by"] else ""
    return f"{by}from {to_the_second(document['submitted_at'])} to {ended(document)}"


def seconds(taken: float | None) -> str:
    """Return how long something took."""
    return "" if taken is None else f"{taken:,.1f} s"


def left_stale(job: Document) -> str:
    """Return the keys of a job that a plan leaves stale, on a line."""
    return keys_on_a_line(tuple(job["left_stale"])) if job["left_stale"] else ""


def to_the_second(text: str | None) -> str:
    """Return an instant to the second, in UTC."""
    return "-" if text is None else f"{text[:19]}Z"


def ended(document: Document) -> str:
    """Return when a backfill ended."""
    return to_the_second(document["ended_at"])


def took(run: Mapping[str, Any]) -> str:
    """Return how long the last attempt of a run took; empty where it has not ended."""
    if run["started_at"] is None or run["ended_at"] is None:
        return ""
    ended, started = (datetime.fromisoformat(run[one]) for one in ("ended_at", "started_at"))
    return seconds((ended - started).total_seconds())
