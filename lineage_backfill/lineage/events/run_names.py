"""One run under several names: a parent is its run id, whatever its events call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from lineage_backfill.lineage.events.folded import Job, Name, Run

_NEVER = datetime.min.replace(tzinfo=UTC)


def join_names(jobs: dict[Name, Job]) -> None:
    """Give each run of a parent that has two names to the later one, never to `unknown`.

    Spark's listener names an application that has no name yet `unknown`, and its actions below it.
    """
    parents = {job.parent[1] for job in jobs.values() if job.parent}
    nameless = {name for name in (*parents, *jobs) if _is_unknown(name)}
    named = jobs.values() if nameless else [jobs[name] for name in sorted(parents & jobs.keys())]
    owners: dict[str, list[Job]] = {}
    for job in named:
        for run_id in job.runs:
            owners.setdefault(run_id, []).append(job)
    moved = _join(owners, parents | nameless)
    if not (moved or nameless):
        return
    for job in jobs.values():
        if job.parent and job.parent[1] in moved | nameless:
            _rename_parent(job, owners)
    still = {job.parent[1] for job in jobs.values() if job.parent}
    for name in moved - still:
        if not jobs[name].runs and not jobs[name].declared:
            del jobs[name]


def _join(owners: dict[str, list[Job]], odd: set[Name]) -> set[Name]:
    """Give runs of several jobs to the last one, if one is `odd`; return the others' names."""
    moved = set[Name]()
    for run_id, several in owners.items():
        if len(several) > 1 and not odd.isdisjoint(job.name for job in several):
            *others, last = sorted(several, key=lambda job: _place(job, job.runs[run_id]))
            for job in others:
                _move(run_id, job, last)
                moved.add(job.name)
            owners[run_id] = [last]
    return moved


def _is_unknown(name: Name) -> bool:
    return name[1] == "unknown" or name[1].startswith("unknown.")


def _place(job: Job, run: Run) -> tuple[bool, datetime, Name]:
    return not _is_unknown(job.name), run.last, job.name


def _move(run_id: str, old: Job, new: Job) -> None:
    run, other = new.runs[run_id], old.runs.pop(run_id)
    run.started = min(_known(run.started, other.started), default=None)
    run.completed = max(_known(run.completed, other.completed), default=None)
    if (other.last, other.rank) > (run.last, run.rank):
        run.last, run.rank = other.last, other.rank
    run.run_io = run.run_io | other.run_io
    run.parent = run.parent or other.parent
    run.nominal = run.nominal or other.nominal
    run.index = max(run.index, other.index)
    run.wrote |= other.wrote
    run.read |= other.read
    if old.parent and old.parent[1] != new.name:
        new.parent = new.parent or old.parent


def _known(*times: datetime | None) -> Iterator[datetime]:
    return (when for when in times if when is not None)


def _rename_parent(job: Job, owners: Mapping[str, Iterable[Job]]) -> None:
    newest = max(job.runs.values(), key=lambda run: run.last, default=None)
    for owner in owners.get((newest and newest.parent) or "", ()):
        if owner is not job:
            job.parent = (job.parent[0] if job.parent else _NEVER, owner.name)
