"""Reads events without a run (job and dataset events), which Marquez's history omits.

The history only counts them; Marquez stores their content as versions without a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.files import reason
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.events.event_facets import parse_time
from lineage_backfill.model import JobRef
from lineage_backfill.sources.marquez.api import (
    Api,
    Edges,
    Name,
    as_items,
    dataset_path,
    job_path,
    listed,
)
from lineage_backfill.sources.marquez.history import EventHistory
from lineage_backfill.sources.records import NOT_WHOLE, read_records, write_records

_FORMAT = "lineage-backfill events that Marquez does not show"
_VERSION = 2
#: The least that makes an event later.
LATER = timedelta(microseconds=1)


def fold_unshown(
    api: Api,
    history: EventHistory,
    jobs: Mapping[Name, Name],
    datasets: Iterable[Name],
    cache: Path | None,
) -> None:
    """Fold in the content of these events; `jobs` maps Marquez's job names to ours.

    Every job and dataset is read; the file `cache` keeps the answers until the server's count
    changes, or its history is read from the beginning and is another one.
    """
    number, since = history.unshown
    if not number:
        return
    header = {"format": _FORMAT, "version": _VERSION, "oldest": history.oldest, "number": number}
    header |= {"born": history.born, "origin": history.origin}
    events = _load(cache, header) if cache else None
    if events is None:
        noted = len(api.warnings)
        events = list(chain(_of_jobs(api, history, jobs), _of_datasets(api, datasets, since)))
        if cache and len(api.warnings) == noted:
            try:
                # Rebuilt in minutes at most: speed matters more than size.
                write_records(cache, chain([header], events), level=1)
            except OSError as error:
                why = reason(error)
                api.warnings.append(f"{cache}: the events cannot be kept for next time: {why}")
    for event in events:
        history.builder.add(event)


def declared(
    api: Api, builder: LineageBuilder, stored: Name, ref: JobRef, page: Any
) -> Iterator[Any]:
    """Yield the declarations of a job as job events, if its page names other datasets.

    These are its versions without a run that Marquez dates to the creation of the job (others had a
    run that was removed); the one on its page is later than all runs that have ended.
    """
    shown = ends_of(page)
    if shown == builder.named_by(ref):
        return
    ended = builder.completed_at(ref)
    for row in api.pages(f"{job_path(stored)}/versions", "versions"):
        if row.get("latestRun") is None and row["createdAt"] == page["createdAt"]:
            reads, writes = named = ends_of(row)
            last = ended if named == shown else None
            yield {
                "eventTime": (last + LATER).isoformat() if last else row["createdAt"],
                "job": {"namespace": ref.namespace, "name": ref.name},
                "inputs": as_items(reads),
                "outputs": as_items(writes),
            }


def ends_of(row: Any) -> Edges:
    """Return the inputs and outputs of a job by its own page, or by one of its versions."""
    reads, writes = (
        {(item["namespace"], item["name"]) for item in listed(row, side)}
        for side in ("inputs", "outputs")
    )
    return reads, writes


def _of_jobs(api: Api, history: EventHistory, jobs: Mapping[Name, Name]) -> Iterator[Any]:
    for stored, name in sorted(jobs.items()):
        ref = JobRef(*name)
        try:
            page = api.get(job_path(stored))
            facets = page.get("facets")
            if facets:
                item = {"namespace": name[0], "name": name[1], "facets": facets}
                yield {"eventTime": page["updatedAt"], "job": item}
            yield from declared(api, history.builder, stored, ref, page)
        except HTTPStatusError as error:
            _report(api, str(ref), error)


def _of_datasets(api: Api, names: Iterable[Name], since: str) -> Iterator[Any]:
    begin = parse_time(since)
    for name in sorted(names):
        try:
            for row in api.pages(f"{dataset_path(name)}/versions", "versions"):
                if parse_time(row["createdAt"]) < begin:
                    break  # the newest comes first
                facets = row.get("facets")
                if facets and row.get("createdByRun") is None:
                    item = {"namespace": name[0], "name": name[1], "facets": facets}
                    yield {"eventTime": row["createdAt"], "dataset": item}
        except HTTPStatusError as error:
            _report(api, ":".join(name), error)


def _report(api: Api, what: str, error: HTTPStatusError) -> None:
    said = f"{what}: its job and dataset events cannot be read: {error}"
    if error.status == 404:  # deleted meanwhile
        api.warnings.append(said)
    elif error.status == 500:
        raise LineageError(
            said,
            hint="Try again. If it fails again, repair it in Marquez, or delete it there.",
        ) from error
    else:
        raise error


def _load(file: Path, header: Mapping[str, Any]) -> list[Any] | None:
    """Return the cached answers; None if there are none, or they are out of date."""
    try:
        records = list(read_records(file))
    except NOT_WHOLE:
        return None
    return records[1:] if records and records[0] == header else None
