"""What Marquez lists: which jobs and datasets still exist, and what has no events left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.http import AGAIN
from lineage_backfill.lineage.events.build import LISTENER
from lineage_backfill.lineage.events.event_facets import parse_time
from lineage_backfill.model import JobRef
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.marquez.api import (
    Api,
    Edges,
    Name,
    as_items,
    as_stored,
    below,
    dataset_path,
    ends_of,
    job_path,
    listed,
    listing,
    segment,
)
from lineage_backfill.sources.marquez.history import EventHistory, is_whole

_STATES = {"COMPLETED": "COMPLETE", "FAILED": "FAIL", "ABORTED": "ABORT"}
#: Most names of one job: parents may have parents, even in a cycle.
_MAX_NAMES = 100
#: How many of the newest runs and versions of a job without events are read.
_NEWEST = 100
#: How much earlier than its row a job's newest event may be: the server rounds times, and uses its
#: own clock if that event ends no run.
_ROUNDING, _TRANSIT = timedelta(milliseconds=1), timedelta(minutes=1)
_LATER = timedelta(microseconds=1)  # the least that makes an event later


class Catalogue:
    """The names in Marquez, and the pages of what its events do not say.

    `history` has folded the events into its builder; `fold` adds the rest to it.
    """

    def __init__(self, api: Api, history: EventHistory) -> None:
        self._api = api
        self._history = history
        self._builder = history.builder
        rows = api.readable("deleted namespaces cannot be recognised", self._namespace_rows) or ()
        self._namespaces = {row["name"]: row for row in rows}
        jobs = api.readable("the jobs are listed in parts", lambda: self._found("job"))
        self._has_holes = jobs is None
        jobs = list(api.readable_rows("jobs", "jobs")) if jobs is None else jobs
        what = "datasets that no job names cannot be listed"
        datasets = api.readable(what, lambda: self._found("dataset"))
        #: The time of the event of each job that arrived last.
        self._jobs = {_name(row): row["updatedAt"] for row in jobs if _name(row)[0] != LISTENER}
        self._datasets = {_name(row) for row in datasets or ()}
        #: The names of jobs with events, each with those of its listed rows.
        self._stored: dict[Name, list[Name]] = {}
        self._covered: set[Name] = set()
        self._parents: set[Name] = set()
        self._find_rows()
        self._dataset_pages: set[Name] = set()

    def without_run(self) -> list[Any]:
        """Return what the server keeps of events without a run, as events.

        Every job and dataset is read.
        """
        events: list[Any] = []
        for name, rows in sorted(self._stored.items()):
            page = self._api.find(job_path(rows[0])) if rows else None
            if page is None:
                continue
            item = {"namespace": name[0], "name": name[1]}
            if facets := page.get("facets"):
                job = {**item, "facets": facets}
                events.append({"eventTime": page["updatedAt"], "job": job})
            if ends_of(page) != self._builder.named_by(JobRef(*name)):
                events += self._declared(JobRef(*name), page, self._versions(rows[0]))
        for name in sorted(self._datasets):
            item = {"namespace": name[0], "name": name[1]}
            path = f"{dataset_path(name)}/versions"
            for row in self._api.rows(path, "versions", offset="0"):
                if row.get("facets") and row.get("createdByRun") is None:
                    dataset = {**item, "facets": row["facets"]}
                    events.append({"eventTime": row["createdAt"], "dataset": dataset})
        return events

    def fold(self) -> None:
        """Add jobs and datasets without events; drop deleted jobs, and rename renamed ones."""
        for name in sorted(name for name, rows in self._stored.items() if not rows):
            self._fold_missing(name)
        for name, rows in sorted(self._stored.items()):
            if rows and self._is_incomplete(name, rows[0]):
                self._fold_job(rows[0], name)
        for name in sorted(self._jobs.keys() - self._covered):
            self._fold_job(name)
        known = self._builder.dataset_names()
        listed_ones = self._datasets - (self._history.heard - known)
        for one in sorted(known - listed_ones) if listed_ones else ():
            text = ": unknown to Marquez, perhaps deleted; edges are kept"
            self._api.notices.append(Notice(text, ":".join(one)))
        for one in sorted(listed_ones - known):
            self._builder.add_dataset(*one)

    # Names

    def _namespace_rows(self) -> list[Any]:
        return self._api.rows("namespaces", "namespaces", offset="0")

    def _found(self, kind: str) -> list[Any]:
        return self._api.rows("search", "results", q="%", filter=kind)

    def _find_rows(self) -> None:
        for name, parents in self._history.parents.items():
            names = self._stored_names(name)
            self._stored[name] = sorted(names & self._jobs.keys())
            # The row of a parent is in the child's namespace, whatever the event said.
            above = {one for parent in parents for one in (parent, (name[0], parent[1]))}
            self._parents |= above
            self._covered |= names | {as_stored(one) for one in above}

    def _stored_names(self, name: Name) -> set[Name]:
        """Return the names under which Marquez may store a job: prefixed with its parents."""
        parents = self._history.parents
        names = {name[1]}
        todo = [(parent, name[1]) for parent in parents[name]]
        seen = set(todo)
        while todo:
            parent, child = todo.pop()
            full = below(parent[1], child)
            names.add(full)
            above = {(one, full) for one in parents.get(parent, ())} - seen
            if len(seen) < _MAX_NAMES:
                seen |= above
                todo += above
        return {as_stored((name[0], full)) for full in names}

    # Jobs with events

    def _fold_missing(self, name: Name) -> None:
        """Drop a deleted job, and rename a renamed one."""
        ref, stored = JobRef(*name), as_stored(name)
        hidden = self._namespaces.get(stored[0], {}).get("isHidden")
        try:
            page = None if hidden else self._api.find(job_path(stored))
        except HTTPStatusError as error:
            if error.status == 500:  # it exists, but is unreadable
                return
            raise
        if page is None:
            self._drop_deleted(ref)
        elif page["name"] == stored[1] and not self._has_holes:
            raise LineageError(
                f"{ref} has a page in Marquez, but is missing in its list of jobs", hint=AGAIN
            )
        elif page["name"] != name[1] and not page["name"].endswith(f".{name[1]}"):
            new = JobRef(name[0], page["name"])
            self._builder.rename_job(ref, new)
            text = " in Marquez; their events belong to one job"
            self._api.notices.append(Notice(text, str(new), f"{ref} was renamed "))

    def _drop_deleted(self, job: JobRef) -> None:
        """Drop a job that Marquez deleted, not one whose events it refused: that has no runs."""
        run_ids = self._builder.run_ids(job)
        if run_ids and self._api.find(f"jobs/runs/{segment(run_ids[-1])}") is None:
            text = ": unknown to Marquez, which refused the events; kept"
            self._api.notices.append(Notice(text, str(job)))
            return
        self._builder.drop_job(job)
        text = ": deleted in Marquez, the events are left out"
        self._api.notices.append(Notice(text, str(job), leaves_out=True))

    def _is_incomplete(self, name: Name, stored: Name) -> bool:
        """Return whether the events of a job may lack those of its last completed run.

        Marquez deletes old runs with all their events; a run that continues may lose its START.
        """
        ref = JobRef(*name)
        if self._builder.is_silent(ref) or self._is_behind(name, stored):
            return True
        return self._builder.is_open(ref) and not self._is_whole(stored[0])

    def _is_behind(self, name: Name, stored: Name) -> bool:
        """Return whether an event of a job was removed that came after all that are left.

        An event also updates the row of the parent that it names.
        """
        if name in self._parents or self._builder.newest is None:
            return False
        last, is_end = self._builder.last_event(name)
        updated = parse_time(self._jobs[stored])
        return last + (_ROUNDING if is_end else _TRANSIT) < updated <= self._builder.newest

    def _is_whole(self, namespace: str) -> bool:
        row = self._namespaces.get(namespace)
        if row is not None and "is_whole" not in row:
            row["is_whole"] = is_whole(self._api, namespace, row["createdAt"])
        return row is not None and bool(row["is_whole"])

    # Pages of jobs and datasets

    def _fold_job(self, stored: Name, name: Name | None = None) -> None:
        """Fold in a job from its own pages; `name` is that of its events, if there are any."""
        try:
            page = self._api.get(job_path(stored))
            versions = self._versions(stored)
            runs = self._api.rows(f"{job_path(stored)}/runs", "runs", limit=_NEWEST, offset="0")
        except HTTPStatusError as error:
            raise LineageError(
                f"{JobRef(*stored)}: its events do not say what it reads and writes, and its page"
                f" cannot be read: {error}",
                hint="Repair it in Marquez, or delete the job there.",
            ) from error
        ref = JobRef(*(name or (stored[0], page["name"])))
        item = {"namespace": ref.namespace, "name": ref.name}
        if name is None:
            job = {**item, "facets": _tagged(page)}
            self._builder.add({"eventTime": page["updatedAt"], "job": job})
            if parent := page.get("parentJobName"):
                self._builder.add_parent(ref, JobRef(stored[0], parent))
        is_named, failed = self._fold_runs(item, runs, versions, has_events=name is not None)
        if is_named:
            events = self._declared(ref, page, versions)
        else:  # the page may show datasets of a failed run, which are not edges
            shown = [] if _is_of(failed, ends_of(page)) else [ends_of(page)]
            left = [ends_of(row) for row in versions if row["latestRun"] is None]
            events = self._as_event(ref, page, _union(shown + left))
        for event in events:
            self._read_datasets(event)
            self._builder.add(event)

    def _versions(self, stored: Name) -> list[Any]:
        """Return the versions of a job, one for each set of datasets that runs of it had."""
        path = f"{job_path(stored)}/versions"
        return self._api.rows(path, "versions", limit=_NEWEST, offset="0")

    def _declared(self, ref: JobRef, page: Any, versions: list[Any]) -> list[Any]:
        """Return the version on a job's page as an event, if no run that is left had it.

        An event without a run made it, or a run that Marquez has removed.
        """
        shown = ends_of(page)
        if any(row["latestRun"] is None and ends_of(row) == shown for row in versions):
            return self._as_event(ref, page, shown)
        return []

    def _as_event(self, ref: JobRef, page: Any, ends: Edges) -> list[Any]:
        """Return an event that names these datasets in addition to those of the last run."""
        reads, writes = self._builder.named_by(ref)
        more = (ends[0] - reads) | (ends[1] - writes)
        if not more:
            return []
        completed = self._builder.completed_at(ref)
        if completed:
            without = listing(map(":".join, sorted(more)))
            text = f": Marquez names {without} without a run; they count as part of its last run"
            self._api.notices.append(Notice(text, str(ref)))
        when = (completed + _LATER).isoformat() if completed else page["createdAt"]
        item = {"namespace": ref.namespace, "name": ref.name}
        sides = {"inputs": as_items(reads | ends[0]), "outputs": as_items(writes | ends[1])}
        return [{"eventTime": when, "job": item} | sides]

    def _fold_runs(
        self, item: dict[str, str], runs: list[Any], versions: list[Any], *, has_events: bool
    ) -> tuple[bool, set[Name]]:
        """Fold in the runs of a job as events.

        Returns whether a completed run names its datasets, and the datasets of runs that failed or
        are left out.
        """
        is_named, failed = False, set[Name]()
        ref = JobRef(item["namespace"], item["name"])
        reported = self._builder.run_ids(ref) if has_events else []
        by_version = {row["version"]: ends_of(row) for row in versions}
        for run in runs:
            state = _STATES.get(run["state"], "RUNNING")
            ends = [_ends_of_run(run)]
            if state == "COMPLETE":  # datasets whose versions were removed are left there alone
                version = (run.get("jobVersion") or {}).get("version")
                ends.append(by_version.get(version, (set(), set())))
            reads, writes = _union(ends)
            # A run without datasets may be a known run of a parent, under an id of Marquez.
            is_parent = has_events and not (reads or writes) and run["id"] not in reported
            if is_parent or _is_bare(run):
                continue
            is_ignored = run["id"] in self._history.ignore
            if is_ignored or state in ("FAIL", "ABORT"):
                failed |= reads | writes
            if is_ignored:
                continue
            is_named |= state == "COMPLETE" and bool(reads or writes)
            for event in _events_of(run, item, state, (reads, writes)):
                self._read_datasets(event)
                self._builder.add(event)
        return is_named, failed

    def _read_datasets(self, event: Any) -> None:
        """Fold in the pages of the datasets that an event names."""
        for one in (*event.get("inputs", ()), *event.get("outputs", ())):
            name = _name(one)
            if name in self._dataset_pages:
                continue
            self._dataset_pages.add(name)
            page = self._api.readable(":".join(name), partial(self._api.find, dataset_path(name)))
            if page is None:
                continue
            facets = {"schema": {"fields": page.get("fields")}, **_tagged(page)}
            # The page of an alias is that of its dataset.
            item = {"namespace": page["namespace"], "name": page["name"], "facets": facets}
            self._builder.add({"eventTime": page["updatedAt"], "dataset": item})


def _name(row: Any) -> Name:
    return row["namespace"], row["name"]


def _union(edges: Iterable[Edges]) -> Edges:
    reads, writes = set[Name](), set[Name]()
    for one in edges:
        reads |= one[0]
        writes |= one[1]
    return reads, writes


def _is_of(names: set[Name], ends: Edges) -> bool:
    return bool(names) and names >= ends[0] | ends[1]


def _is_bare(run: Any) -> bool:
    """Return whether a run has no more than Marquez makes of a parent run that a child names.

    Such a run never ends there.
    """
    return (
        run["state"] == "RUNNING"
        and run["createdAt"] == run["updatedAt"] == run.get("startedAt")
        and not (run.get("facets") or run["inputDatasetVersions"] or run["outputDatasetVersions"])
    )


def _ends_of_run(run: Any) -> Edges:
    """Return the datasets of a run."""
    reads, writes = (
        {_name(one["datasetVersionId"]) for one in listed(run, side)}
        for side in ("inputDatasetVersions", "outputDatasetVersions")
    )
    return reads, writes


def _events_of(run: Any, item: dict[str, str], state: str, ends: Edges) -> Iterator[Any]:
    """Yield a run as the events of its start and its end."""
    facets = {
        _name(one["datasetVersionId"]): one.get("facets")
        for side in ("inputDatasetVersions", "outputDatasetVersions")
        for one in run[side]
    }
    inputs, outputs = (
        [one | {"facets": facets.get(_name(one))} for one in as_items(side)] for side in ends
    )
    event = {
        "run": {"runId": run["id"], "facets": _run_facets(run)},
        "job": item,
        "inputs": inputs,
        "outputs": outputs,
    }
    started = run.get("startedAt")
    kind, when = ("START", started) if started else ("OTHER", run["createdAt"])
    yield event | {"eventType": kind, "eventTime": when}
    if state != "RUNNING":
        ended = run.get("endedAt") or run["updatedAt"]
        yield event | {"eventType": state, "eventTime": ended}


def _run_facets(run: Any) -> dict[str, Any]:
    """Return the facets of a run, with its nominal time."""
    facets = dict(run.get("facets") or {})
    arguments = run.get("args") or {}
    start = run.get("nominalStartTime") or arguments.get("nominal_start_time")
    end = run.get("nominalEndTime") or arguments.get("nominal_end_time")
    if start and not facets.get("nominalTime"):
        facets["nominalTime"] = {"nominalStartTime": start, "nominalEndTime": end}
    return facets


def _tagged(page: Any) -> dict[str, Any]:
    """Return the facets of a page, with the tags that users set in Marquez."""
    facets = dict(page.get("facets") or {})
    if page.get("tags"):
        facets["tags"] = {"tags": [{"key": tag} for tag in page["tags"]]}
    return facets
