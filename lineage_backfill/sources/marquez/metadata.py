"""Reads Marquez's catalogue: jobs without events, and renamed and deleted ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.lineage.events.event_facets import parent_run_id, parse_time
from lineage_backfill.model import JobRef
from lineage_backfill.sources.marquez.api import (
    LIST_PAGE,
    Api,
    Edges,
    Name,
    as_items,
    as_stored,
    below,
    counted,
    dataset_path,
    edges_of,
    job_path,
    listed,
    listing,
    segment,
    settled,
)
from lineage_backfill.sources.marquez.growing import runs_of
from lineage_backfill.sources.marquez.history import EventHistory, events_at, namespaces_of
from lineage_backfill.sources.marquez.lists import Lists
from lineage_backfill.sources.marquez.unshown import LATER, declared, ends_of, fold_unshown
from lineage_backfill.sources.web import AGAIN

#: Names that Marquez itself adds to the arguments of a run, from its facets.
_FROM_FACETS = frozenset({"nominal_start_time", "nominal_end_time", "run_id", "name", "namespace"})
_STATES = {"COMPLETED": "COMPLETE", "FAILED": "FAIL", "ABORTED": "ABORT"}
#: Most names of one job: parents may have parents, even in a cycle.
_MAX_NAMES = 100
#: Most jobs with events whose versions are read as well, a few milliseconds each.
_MAX_CHECKED = 100
#: How much earlier than its row a job's newest event may be: the server rounds times, and uses its
#: own clock if that event ends no run.
_ROUNDING, _TRANSIT = timedelta(milliseconds=1), timedelta(minutes=1)


class MarquezMetadata:
    """Folds into a builder what the catalogue has in addition to the events.

    `history` has folded the events into its builder. What events without a run said is kept in the
    file `cache`; `lists` were read together with the events.
    """

    def __init__(
        self,
        api: Api,
        history: EventHistory,
        cache: Path | None = None,
        lists: Lists | None = None,
    ) -> None:
        #: Jobs with events, by the name under which Marquez stores each.
        self.stored: dict[Name, Name] = {}
        #: All datasets in Marquez; empty if it cannot list them.
        self.datasets: set[Name] = set()
        self._api = api
        self._history = history
        self._cache = cache
        self._builder = history.builder
        self._parents = history.parents
        self._heard = history.heard
        self._datasets_asked: set[Name] = set()
        #: What the pages say of each dataset's names, by its current version.
        self._named: dict[str, list[dict[str, Any]]] = {}
        self._version_of: dict[Name, str] = {}
        #: Starts of runs that perhaps only their children name, each with its id and creation.
        self._unsure: list[tuple[tuple[str, str], Any]] = []
        #: The parent runs that runs name, each with the creation of that run.
        self._children: set[tuple[str, str]] = set()
        self._lists = lists or Lists(api)
        #: The latest time that events of it, or its children, may have given each job's row.
        self._last: dict[Name, datetime] = {}
        self._version_rows: dict[Name, list[Any]] = {}
        #: Jobs with parts whose parent run began before the first event.
        self._cut: list[str] = []

    def read(self) -> None:
        """Read jobs without events, and find jobs with events that were renamed or deleted."""
        all_names = {name: self._stored_names(name) for name in sorted(self._parents)}
        if any(map(self._lists.names["job"].isdisjoint, all_names.values())):
            self._lists.list_again("job")
        listed = self._lists.names["job"]
        covered: set[Name] = set()
        found: list[tuple[Name, Name]] = []
        for name, names in all_names.items():
            covered |= names
            for parent in self._parents[name]:
                # Its row is in the child's namespace, whatever the event said.
                covered |= {as_stored(parent), as_stored((name[0], parent[1]))}
            stored = sorted(names & listed)
            if not stored:
                self._find_missing(name)
                continue
            if len(stored) == 1:
                self.stored[stored[0]] = name
            found.append((name, stored[0]))
        self._note_last_events()
        self._check_versions([one for one in found if not self._complete(*one)])
        self._walk(sorted(listed - covered))
        if self._cut:
            self._api.warnings.append(
                "other runs under the same parent run may have been removed from Marquez, with"
                f" their edges, as the start of that run was: {listing(self._cut)}"
            )
        for key, start in self._unsure:
            if key not in self._children or key[0] in self._history.reporting:
                self._builder.add(start)
        self._builder.unite_parents()
        self._list_datasets()
        for pages in self._named.values():
            if len(pages) > 1:
                self._tie(pages)
        datasets = self.datasets or self._builder.dataset_names()
        fold_unshown(self._api, self._history, self.stored, datasets, self._cache)

    def _stored_names(self, name: Name) -> set[Name]:
        """Return the names under which Marquez may store a job: prefixed with its parents."""
        if not self._parents[name]:  # as most jobs
            return {as_stored(name)}
        names = {name[1]}
        todo = [(parent, name[1]) for parent in self._parents[name]]
        seen = set(todo)
        while todo:
            parent, child = todo.pop()
            full = below(parent[1], child)
            names.add(full)
            above = {(one, full) for one in self._parents.get(parent, ())} - seen
            if len(seen) < _MAX_NAMES:
                seen |= above
                todo += above
        return {as_stored((name[0], full)) for full in names}

    def _find_missing(self, name: Name) -> None:
        """Drop deleted jobs, and rename renamed ones."""
        ref, stored = JobRef(*name), as_stored(name)
        hidden = self._lists.namespaces.get(stored[0], {}).get("isHidden")
        try:
            page = None if hidden else self._api.get(job_path(stored))
        except HTTPStatusError as error:
            if error.status == 500:  # it exists, but is unreadable
                return
            if error.status != 404:
                raise
            page = None
        if page is None:
            self._drop_deleted(ref)
        elif page["name"] == stored[1] and not self._lists.has_holes:
            raise LineageError(
                f"{ref} has a page in Marquez, but is missing in its list of jobs",
                hint=AGAIN,
            )
        elif page["name"] != name[1] and not page["name"].endswith(f".{name[1]}"):
            new = JobRef(name[0], page["name"])
            self._builder.rename_job(ref, new)
            self._api.warnings.append(
                f"{ref} was renamed {new} in Marquez; their events belong to one job"
            )

    def _drop_deleted(self, job: JobRef) -> None:
        """Drop a job that Marquez deleted, not one whose events it refused: that has no runs."""
        try:
            self._api.get(f"jobs/runs/{segment(self._builder.run_ids(job)[-1])}")
        except HTTPStatusError as error:
            if error.status != 404:
                raise
            self._api.warnings.append(
                f"{job} is unknown to Marquez, which refused its events; kept"
            )
            return
        self._builder.drop_job(job)
        self._api.warnings.append(f"{job} was deleted in Marquez; its events are left out")

    def _note_last_events(self) -> None:
        """Note up to which time events may have updated each job's row in Marquez.

        An event also updates the row of the parent that it names.
        """
        last = {
            name: when + (_ROUNDING if is_end else _TRANSIT)
            for name, (when, is_end) in self._builder.last_events().items()
        }
        self._last = dict(last)
        for name in self._parents.keys() & last.keys():
            for parent in last.keys() & {(name[0], one[1]) for one in self._parents[name]}:
                self._last[parent] = max(self._last[parent], last[name] + _TRANSIT)

    def _is_behind(self, name: Name, stored: Name) -> bool:
        """Return whether an event of a job was removed that came after all that are left."""
        updated, last = self._lists.updated.get(stored), self._last.get(name)
        return updated is not None and last is not None and last < parse_time(updated)

    def _complete(self, name: Name, stored: Name) -> bool:
        """Read what a job's events no longer say: the datasets of its last completed run.

        Marquez deletes old runs with all their events; a run that continues may lose its START.
        Returns whether its runs or its page were read.
        """
        ref = JobRef(*name)
        silent, is_behind = self._builder.is_silent(ref), self._is_behind(name, stored)
        if not silent and (not self._builder.is_open(ref) or self._is_whole(stored[0])):
            return False
        item = {"namespace": name[0], "name": name[1]}
        try:
            told, failed = self._fold_runs(stored, item, newest=not is_behind, is_known=True)
            if is_behind:
                self._restore(stored, ref)
            if told or not silent:
                return True
            page = self._api.get(job_path(stored))
        except HTTPStatusError as error:
            raise LineageError(
                f"{ref}: its events do not say what it reads and writes,"
                f" and its page cannot be read: {error}",
                hint="Repair it in Marquez, or delete the job there.",
            ) from error
        self._confirm(stored, page)
        # As old as the job itself, so that runs in the history count as later.
        declared = {side: listed(page, side) for side in ("inputs", "outputs")}
        if self._history.ignore and failed.issuperset(set[Name]().union(*ends_of(page))):
            return True  # the page shows datasets of a run that is left out
        self._builder.add({"eventTime": page["createdAt"], "job": item} | declared)
        return True

    def _check_versions(self, names: list[tuple[Name, Name]]) -> None:
        """Find removed runs, later than the last one of a job or under the same parent run.

        What is left of them are the versions of the job: one for each set of datasets.
        """
        parts = {stored for name, stored in names if self._builder.is_part(JobRef(*name))}
        unsure = [one for one in names if one[1] in parts or self._is_behind(*one)]
        checked = unsure[:_MAX_CHECKED]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(self._last_runs, (stored for _, stored in checked)))
        for (name, stored), runs in zip(checked, found, strict=True):
            ref = JobRef(*name)
            if stored in parts:
                self._note_cut(ref, stored)
            unknown = runs - {*self._builder.run_ids(ref), *self._history.ignore}
            if unknown and not unknown <= self._history.arriving(self._api):
                # Some have no events, or no row: read with care, as edges come from it.
                item = {"namespace": ref.namespace, "name": ref.name}
                self._fold_runs(stored, item, is_known=True)
                self._restore(stored, ref)
        if len(unsure) > _MAX_CHECKED:
            self._api.warnings.append(
                f"of {len(unsure)} jobs with several runs under one parent run, or with later"
                f" events than those left, {_MAX_CHECKED} were checked for runs that were removed"
                " from Marquez"
            )

    def _last_runs(self, stored: Name) -> set[str | None]:
        """Return the last run of each version that names datasets; None for a removed one.

        One answer is enough.
        """
        path = f"{job_path(stored)}/versions"

        def read() -> list[Any]:
            answer = self._api.ask(path, limit=str(LIST_PAGE), offset="0").value()
            return counted(path, answer, self._api.rows(answer, "versions"), 0, LIST_PAGE)

        try:
            rows = settled(read)
            if len(rows) == LIST_PAGE:
                rows = self._versions(stored)
        except HTTPStatusError as error:
            if error.status not in (404, 500):
                raise
            self._api.warnings.append(f"{JobRef(*stored)}: its versions cannot be read: {error}")
            return set()
        return {row["latestRun"] and row["latestRun"]["id"] for row in rows if any(ends_of(row))}

    def _note_cut(self, ref: JobRef, stored: Name) -> None:
        """Note a job if retention may have removed runs under the parent run of its last one."""
        above, has_begun = self._builder.last_parent(ref)
        if self._history.reporting:  # the row of a run outlives its events
            has_begun = above in self._history.reporting
        if not (has_begun or self._is_whole(stored[0])):
            self._cut.append(str(ref))

    def _restore(self, stored: Name, ref: JobRef, page: Any = None) -> bool:
        """Fold in the datasets of removed runs that may have been part of the last run, or later.

        They are added to those of the last run, as they may be of a failed one. Returns whether
        there are any.
        """
        left = [row for row in self._versions(stored) if row["latestRun"] is None]
        rows = [ends_of(row) for row in left]
        if left and not self._builder.is_part(ref):
            page = page or self._api.get(job_path(stored))
            # A version that a job event made is as old as the job.
            made = [row for row in left if row["createdAt"] != page["createdAt"]]
            rows = [ends for ends in map(ends_of, made) if ends == ends_of(page)]
        reads, writes = self._builder.named_by(ref)
        more = {one for row in rows for one in (*(row[0] - reads), *(row[1] - writes))}
        if not more:
            return False
        last, _ = self._builder.last_event((ref.namespace, ref.name))
        self._known(as_items(more))
        sides = {
            "inputs": as_items(reads.union(*(row[0] for row in rows))),
            "outputs": as_items(writes.union(*(row[1] for row in rows))),
        }
        item = {"namespace": ref.namespace, "name": ref.name}
        self._builder.add({"eventTime": (last + LATER).isoformat(), "job": item} | sides)
        self._api.warnings.append(
            f"{ref}: Marquez has removed runs that named {listing(map(':'.join, sorted(more)))};"
            " they count as part of its last run"
        )
        return True

    def _versions(self, stored: Name) -> list[Any]:
        """Return the versions of a job, one for each set of datasets that runs of it had."""
        if stored not in self._version_rows:
            rows = self._api.pages(f"{job_path(stored)}/versions", "versions")
            self._version_rows[stored] = list(rows)
        return self._version_rows[stored]

    def _is_whole(self, namespace: str) -> bool:
        """Return whether the first event of a namespace still exists: then all of its events do.

        A namespace is as old as the first event that named it.
        """
        row = self._lists.namespaces.get(namespace)
        if row is None:
            return False
        if "is_whole" not in row:
            events = events_at(self._api, row["createdAt"])
            row["is_whole"] = any(namespace in namespaces_of(event) for event in events)
        return bool(row["is_whole"])

    def _list_datasets(self) -> None:
        """Add datasets that no job names; report those that only jobs name, not Marquez."""
        known = self._builder.dataset_names()
        if known - self._lists.names["dataset"]:
            self._lists.list_again("dataset")
        self.datasets = self._lists.names["dataset"] - (self._heard - known)
        if not self.datasets:
            return
        for namespace, name in sorted(known - self.datasets):
            self._api.warnings.append(
                f"{namespace}:{name} is unknown to Marquez, perhaps deleted;"
                " the edges of its jobs are kept"
            )
        for namespace, name in sorted(self.datasets - known):
            self._builder.add_dataset(namespace, name)
        if not self._history.oldest:
            for unasked in sorted(self.datasets - self._datasets_asked):
                self._read_dataset(unasked)  # no events name it

    def _walk(self, names: list[Name]) -> None:
        """Read jobs without events, and the jobs around them, until none is new."""
        seen = set(names)
        todo = deque(names)
        while todo:
            name = todo.popleft()
            for found in self._read_job(name):
                if found not in seen and found not in self._parents:
                    seen.add(found)
                    todo.append(found)

    def _read_job(self, name: Name) -> list[Name]:
        """Fold in one job from its own pages; return the jobs that are shown around it."""
        try:
            page = self._api.get(job_path(name))
        except HTTPStatusError as error:
            raise LineageError(
                f"{JobRef(*name)} has no events, and its page cannot be read: {error}",
                hint="Repair it in Marquez, or delete the job there.",
            ) from error
        item = {"namespace": name[0], "name": page["name"], "facets": _tagged(page)}
        told, failed = self._fold_runs(name, item)
        if not told:
            self._confirm(name, page)
        inputs, outputs = (list(listed(page, side)) for side in ("inputs", "outputs"))
        around: list[Name] = []
        # The page has everything that `/lineage` shows, which takes seconds on a large server.
        if self._lists.has_holes or not (told or inputs or outputs):
            (reads, writes), around = self._surroundings(name)
            inputs += as_items(reads)
            outputs += as_items(writes)
        self._builder.add({"eventTime": page["updatedAt"], "job": item})
        ref = JobRef(name[0], page["name"])
        # The page may show datasets of a failed run, which are not edges.
        if not told and not self._are_of(failed, (*inputs, *outputs)):
            # Of a run that has not ended it may show a part: such runs count as later.
            when = page["updatedAt" if self._builder.completed_at(ref) else "createdAt"]
            sides = {"inputs": self._known(inputs), "outputs": self._known(outputs)}
            self._builder.add({"eventTime": when, "job": item} | sides)
        if parent := page.get("parentJobName"):
            self._builder.add_parent(ref, JobRef(name[0], parent))
        if self._builder.is_part(ref):
            self._note_cut(ref, name)
        is_restored = self._restore(name, ref, page)
        named = told and not is_restored
        for other in list(declared(self._api, self._builder, name, ref, page)) if named else ():
            self._known([*other["inputs"], *other["outputs"]])
            self._builder.add(other)
        return around

    def _confirm(self, name: Name, page: Any) -> None:
        """Raise LineageError if a job's page, all that is known of it, is not the same again."""
        if ends_of(self._api.get(job_path(name))) != ends_of(page):
            raise LineageError(f"{JobRef(*name)}: its page differs each time", hint=AGAIN)

    def _fold_runs(
        self, name: Name, item: dict[str, Any], *, newest: bool = False, is_known: bool = False
    ) -> tuple[bool, set[Name]]:
        """Fold in a job's runs as events.

        Returns whether a completed run names its datasets, and the datasets of runs that failed or
        are left out. With `newest`, runs before the last one that started and completed are
        skipped, if it has no parent run. `is_known`: the job has events.
        """
        told, failed = False, set[Name]()
        reported = {*self._builder.run_ids(JobRef(*item.values()))} if is_known else ()
        versions = {row["version"]: ends_of(row) for row in self._versions(name)}
        for run in runs_of(self._api, f"{job_path(name)}/runs"):
            state = _STATES.get(run["state"], "RUNNING")
            ignored = run["id"] in self._history.ignore
            facets = _run_facets(run)
            # Datasets whose versions were removed are left in the version of the job alone.
            version = (run.get("jobVersion") or {}).get("version")
            ends = versions.get(version, (set(), set())) if state == "COMPLETE" else (set(), set())
            event = {
                "run": {"runId": run["id"], "facets": facets},
                "job": item,
                "inputs": self._known([*as_items(ends[0]), *_named(run, "inputDatasetVersions")]),
                "outputs": self._known([*as_items(ends[1]), *_named(run, "outputDatasetVersions")]),
            }
            sides = (*event["inputs"], *event["outputs"])
            if is_known and not sides and run["id"] not in reported:
                continue  # perhaps a known run of a parent, under an id that Marquez gave it
            if ignored or state in ("FAIL", "ABORT"):
                failed |= {(one["namespace"], one["name"]) for one in sides}
            if ignored:
                continue
            told |= state == "COMPLETE" and bool(sides)
            parent_run = parent_run_id(facets.get("parent") or {})
            if parent_run:
                self._children.add((parent_run, run["createdAt"]))
            # The runs of a job with events are known from these.
            self._fold_run(run, event, state, is_known=is_known)
            # The newest start comes first, runs that never started come last. Other runs under the
            # same parent run, which count together, may be anywhere after it.
            if newest and state == "COMPLETE" and run.get("startedAt") and parent_run is None:
                break
        return told, failed

    def _fold_run(self, run: Any, event: Any, state: str, *, is_known: bool) -> None:
        """Fold in a run by its START and its end."""
        began = "START" if run.get("startedAt") else "OTHER"
        started = run.get("startedAt") or run["createdAt"]
        start = event | {"eventType": began, "eventTime": started}
        if _is_bare(run):
            self._unsure += [] if is_known else [((run["id"], run["createdAt"]), start)]
            return
        self._builder.add(start)
        ended = run.get("endedAt")
        if state != "RUNNING":
            self._builder.add(event | {"eventType": state, "eventTime": ended or run["updatedAt"]})
        elif ended and not is_known:
            self._api.warnings.append(
                f"{event['job']['namespace']}:{event['job']['name']}: an event came after run"
                f" {run['id']} had ended, and Marquez no longer shows how; the edges of its last"
                " completed run count as well"
            )

    def _surroundings(self, name: Name) -> tuple[Edges, list[Name]]:
        """Return the job's edges in `/lineage`, and the other jobs in the answer.

        Names are known from the list of all jobs; neighbours are read only if it is incomplete, as
        the graph around a table with thousands of readers takes minutes.
        """
        depth = "1" if self._lists.has_holes else "0"
        try:
            answer = self._api.get("lineage", nodeId=f"job:{name[0]}:{name[1]}", depth=depth)
        except HTTPStatusError as error:
            if error.status not in (404, 500):  # names with ambiguous node ids
                raise
            self._api.warnings.append(f"{JobRef(*name)}: its lineage cannot be shown: {error}")
            return (set(), set()), []
        jobs = dict(edges_of(self._api.rows(answer, "graph")))
        return jobs.get(name, (set(), set())), sorted(jobs)

    def _known(self, items: Iterable[Any]) -> list[Any]:
        """Return the distinct datasets as a list, after reading their own pages."""
        datasets = {(item["namespace"], item["name"]): item for item in items}
        for name in datasets.keys() - self._datasets_asked:
            self._datasets_asked.add(name)
            self._read_dataset(name)
        return list(datasets.values())

    def _read_dataset(self, name: Name) -> None:
        try:
            page = self._api.get(dataset_path(name))
        except HTTPStatusError as error:
            if error.status not in (404, 500):
                raise
            self._api.warnings.append(f"{name[0]}:{name[1]}: its page cannot be read: {error}")
            return
        # `/column-lineage` has less about the current version than these facets: not which columns
        # are INDIRECT, no columns that are in no schema, and only one of two writers. Its other
        # edges are of older versions and failed runs, which must not be followed.
        facets = {"schema": {"fields": page.get("fields")}, **_tagged(page)}
        # The page of an alias is that of its dataset.
        item = {"namespace": page["namespace"], "name": page["name"], "facets": facets}
        self._builder.add({"eventTime": page["updatedAt"], "dataset": item})
        if version := page.get("currentVersion"):
            kept = {
                one: page.get(one) for one in ("namespace", "name", "physicalName", "updatedAt")
            }
            self._named.setdefault(version, []).append(kept | {"links": facets.get("symlinks")})
            self._version_of[page["namespace"], page["name"]] = version

    def _are_of(self, names: set[Name], items: Iterable[Any]) -> bool:
        """Return whether these are all names of those datasets; a page also has their aliases."""
        found = {(item["namespace"], item["name"]) for item in self._known(items)}
        for version in {self._version_of[name] for name in names if name in self._version_of}:
            found -= {(one["namespace"], one["name"]) for one in self._named[version]}
        return found <= names

    def _tie(self, pages: list[dict[str, Any]]) -> None:
        """Fold in that one dataset has all these names.

        Its symlinks are gone once a run has written it without them.
        """
        if any(one["links"] for one in pages):
            return
        first = next((one for one in pages if one["name"] == one["physicalName"]), pages[0])
        links = [{"namespace": one["namespace"], "name": one["name"]} for one in pages]
        item = {"namespace": first["namespace"], "name": first["name"]}
        when = (parse_time(first["updatedAt"]) + LATER).isoformat()
        facets = {"symlinks": {"identifiers": links}}
        self._builder.add({"eventTime": when, "dataset": {**item, "facets": facets}})


def _is_bare(run: Any) -> bool:
    """Return whether a run has no more than Marquez makes of a parent run that a child names.

    Such a run never ends there. A run with one START of its own may look the same: it sent an
    event, or was not created in the same millisecond as a child.
    """
    return (
        run["state"] == "RUNNING"
        and run["createdAt"] == run["updatedAt"] == run.get("startedAt")
        and not (run.get("facets") or run["inputDatasetVersions"] or run["outputDatasetVersions"])
    )


def _named(run: Any, side: str) -> Iterator[dict[str, Any]]:
    """Yield the dataset versions of a run as an event names datasets."""
    for item in listed(run, side):
        ref = item["datasetVersionId"]
        yield {"namespace": ref["namespace"], "name": ref["name"], "facets": item.get("facets")}


def _run_facets(run: Any) -> dict[str, Any]:
    """Return the facets of a run, with its nominal time and arguments."""
    facets = dict(run.get("facets") or {})
    arguments = run.get("args") or {}
    start = run.get("nominalStartTime") or arguments.get("nominal_start_time")
    end = run.get("nominalEndTime") or arguments.get("nominal_end_time")
    if start and not facets.get("nominalTime"):
        facets["nominalTime"] = {"nominalStartTime": start, "nominalEndTime": end}
    if given := arguments.keys() - _FROM_FACETS:
        rows = [{"key": name, "value": arguments[name]} for name in sorted(given)]
        facets.setdefault("executionParameters", {"parameters": rows})
    return facets


def _tagged(page: Any) -> dict[str, Any]:
    """Return the facets of a page, with the tags that users set in Marquez."""
    facets = dict(page.get("facets") or {})
    if page.get("tags"):
        facets["tags"] = {"tags": [{"key": tag} for tag in page["tags"]]}
    return facets
