"""Lineage from Marquez: its event history by our own rule, its catalogue for what that lacks."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Literal
from urllib.parse import quote

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.graph.build import LineageBuilder
from lineage_backfill.graph.facets import parse_time
from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.sources.web import WebClient, WebSettings

View = Literal["events", "graph", "both"]
Name = tuple[str, str]

_API = "api/v1/"
#: The server hides what lies after 2030 unless it is told otherwise.
_FIRST, _LAST = "1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
_PAGE = 1_000
_MAX_PAGE = 1_000_000
_LIST_PAGE = 100
_STATES = {"COMPLETED": "COMPLETE", "FAILED": "FAIL", "ABORTED": "ABORT"}
#: What Marquez replaces by "_" in the namespace of a job.
_REPLACED = re.compile(r"[^a-zA-Z0-9:/_.@+-]")


class MarquezSource:
    """Lineage from a Marquez server, 0.50 or 0.51.

    `view` "events" reads the event history alone, "graph" the catalogue alone; "both" takes the
    edges from the events and asks the catalogue for jobs that have none (left), and for what was
    renamed or deleted. A partial answer is an error.
    """

    def __init__(
        self,
        address: str,
        *,
        view: View = "both",
        api_key: str | None = None,
        settings: WebSettings | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings = settings or WebSettings()
        if api_key:
            headers = {**settings.headers, "Authorization": f"Bearer {api_key}"}
            settings = replace(settings, headers=headers)
        self._address = address
        self._view = view
        self._settings = settings
        self._clock = clock or partial(datetime.now, UTC)

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError where that cannot be had."""
        taken_at = self._clock()
        with closing(WebClient(self._address, self._settings)) as client:
            reading = _Reading(client)
            try:
                if self._view != "graph":
                    reading.read_events()
                if self._view != "events":
                    reading.read_catalogue()
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise LineageError(
                    f"{self._address}: an answer is not of Marquez's shape: {error!r}",
                    hint="Check the address; Marquez 0.50 and 0.51 are known to work.",
                ) from error
        return reading.builder.snapshot(
            source="marquez", taken_at=taken_at, warnings=reading.warnings
        )


class _Reading:
    """One read: what is known so far, and what is still to ask."""

    def __init__(self, client: WebClient) -> None:
        self.builder = LineageBuilder()
        self.warnings: list[str] = []
        self._client = client
        self._parents: dict[Name, set[Name]] = {}  # of every job with events, as sent
        self._datasets_asked: set[Name] = set()

    # The event history

    def read_events(self) -> None:
        """Fold in the whole history, and remember which job was sent under which parents."""
        for event in self._events():
            job, when = event["job"], event["eventTime"]
            name = (job["namespace"], job["name"])
            if not all(name):
                # Refused by the server and stored all the same; no page shows such a job.
                self.warnings.append(f"an event of {when} names no job; left out")
                continue
            try:
                self.builder.add(event)
            except LineageError as error:
                raise LineageError(f"the event of {when} of {':'.join(name)}: {error}") from error
            parents = self._parents.setdefault(name, set())
            parent = ((event.get("run") or {}).get("facets") or {}).get("parent")
            if parent:
                parents.add((parent["job"]["namespace"], parent["job"]["name"]))

    def _events(self) -> Iterator[Any]:
        """Yield every event at least once: page by time, which no insertion or deletion shifts."""
        after, limit = _FIRST, _PAGE
        while True:
            page = self._get(
                "events/lineage",
                after=after,
                before=_LAST,
                sortDirection="asc",
                limit=str(limit),
                offset="0",
            )
            events = _rows(page, "events")
            yield from events
            newest = _just_before(events[-1]) if events else after
            if newest > after:
                after = newest
            elif len(events) < limit:
                return
            elif limit < _MAX_PAGE:
                limit *= 2  # more events at one time than fit on a page
            else:
                raise LineageError(f"more than {_MAX_PAGE} events at {after}")

    # The catalogue

    def read_catalogue(self) -> None:
        """Ask for jobs without events, and find out where event jobs have gone."""
        hidden = self._hidden_namespaces()
        listed = self._listed("job")
        covered: set[Name] = set()
        for name in sorted(self._parents):
            stored = self._stored_names(name)
            covered |= stored
            for parent in self._parents[name]:
                # Its row stands in the child's namespace, whatever the event said.
                covered |= {_cleaned(parent), _cleaned((name[0], parent[1]))}
            if not stored & listed:
                self._find_missing(name, hidden)
            elif self.builder.is_silent(JobRef(*name)):
                self._read_silent(name, min(stored & listed))
        self._walk(sorted(listed - covered))
        self._compare_datasets(self._listed("dataset"))

    def _hidden_namespaces(self) -> set[str]:
        try:
            rows = self._pages("namespaces", "namespaces")
            return {row["name"] for row in rows if row.get("isHidden")}
        except HTTPStatusError as error:
            self.warnings.append(f"deleted namespaces cannot be told: {error}")
            return set()

    def _listed(self, kind: str) -> set[Name]:
        """Return all names of jobs or datasets; those of deleted ones are not among them."""
        try:
            rows = _rows(self._get("search", q="%", filter=kind, limit="1000000"), "results")
        except HTTPStatusError as error:
            if error.status != 500:
                raise
            if kind == "dataset":
                self.warnings.append(f"datasets that no job names cannot be listed: {error}")
                return set()
            rows = self._readable_rows("jobs", "jobs")
        return {(row["namespace"], row["name"]) for row in rows}

    def _readable_rows(self, path: str, member: str) -> list[Any]:
        """Return a list page by page, without the single rows that the server cannot show."""
        rows: list[Any] = []
        offset, size = 0, _LIST_PAGE
        while True:
            try:
                found = _rows(self._get(path, limit=str(size), offset=str(offset)), member)
            except HTTPStatusError as error:
                if error.status != 500:
                    raise
                if size > 1:
                    size //= 2
                    continue
                self.warnings.append(f"row {offset} of {path} cannot be read: {error}")
                offset, size = offset + 1, _LIST_PAGE
                continue
            rows += found
            if not found:
                return rows
            offset, size = offset + len(found), _LIST_PAGE

    def _stored_names(self, name: Name) -> set[Name]:
        """Return the names under which Marquez may have stored a job: with its parents before."""
        names = {name[1]}
        todo = [(parent, name[1]) for parent in self._parents[name]]
        seen = set(todo)
        while todo:
            parent, below = todo.pop()
            full = _prefixed(parent[1], below)
            names.add(full)
            above = {(one, full) for one in self._parents.get(parent, ())} - seen
            if len(seen) < _LIST_PAGE:
                seen |= above
                todo += above
        return {_cleaned((name[0], full)) for full in names}

    def _find_missing(self, name: Name, hidden: set[str]) -> None:
        """Drop a job that was deleted, rename one that was renamed."""
        ref = JobRef(*name)
        try:
            page = None if name[0] in hidden else self._get(_job_path(_cleaned(name)))
        except HTTPStatusError as error:
            if error.status == 500:  # there, and unreadable
                return
            if error.status != 404:
                raise
            page = None
        if page is None:
            self.builder.drop_job(ref)
            self.warnings.append(f"{ref} was deleted in Marquez; its events are left out")
        elif page["name"] != name[1] and not page["name"].endswith(f".{name[1]}"):
            new = JobRef(name[0], page["name"])
            self.builder.rename_job(ref, new)
            self.warnings.append(f"{ref} was renamed {new} in Marquez; their events are one job's")

    def _read_silent(self, name: Name, stored: Name) -> None:
        """Ask for the edges of a job whose history holds only starts or failures (any more)."""
        try:
            page = self._get(_job_path(stored))
        except HTTPStatusError as error:
            raise LineageError(
                f"{JobRef(*name)}: no event names a dataset, its page cannot be read: {error}",
                hint="Repair it in Marquez, or delete the job there.",
            ) from error
        # As old as the job itself, so that the runs of the history come after it.
        self.builder.add(
            {
                "eventTime": page["createdAt"],
                "job": {"namespace": name[0], "name": name[1]},
                "inputs": page.get("inputs"),
                "outputs": page.get("outputs"),
            }
        )

    def _compare_datasets(self, listed: set[Name]) -> None:
        """Add the datasets that no job names, report those that jobs name and Marquez deleted."""
        if not listed:
            return
        for namespace, name in sorted(self.builder.dataset_names() - listed):
            self.warnings.append(
                f"{namespace}:{name} was deleted in Marquez; the edges of its jobs are kept"
            )
        for namespace, name in sorted(listed):
            self.builder.add_dataset(namespace, name)

    def _walk(self, names: list[Name]) -> None:
        """Read jobs without events, and all that their surroundings name, until nothing is new."""
        seen = set(names)
        todo = deque(names)
        while todo:
            name = todo.popleft()
            for found in self._read_job(name):
                if found not in seen and found not in self._parents:
                    seen.add(found)
                    todo.append(found)

    def _read_job(self, name: Name) -> list[Name]:
        """Fold in one job from its own pages; return the jobs around it that were shown."""
        try:
            page = self._get(_job_path(name))
        except HTTPStatusError as error:
            raise LineageError(
                f"{JobRef(*name)} has no events, and its page cannot be read: {error}",
                hint="Repair it in Marquez, or delete the job there.",
            ) from error
        item = {"namespace": name[0], "name": page["name"], "facets": _tagged(page)}
        around: list[Name] = []
        event: dict[str, Any] = {"eventTime": page["updatedAt"], "job": item}
        if not self._fold_runs(name, item):
            reads, writes, around = self._surroundings(name)
            event["inputs"] = self._known([*(page.get("inputs") or ()), *reads])
            event["outputs"] = self._known([*(page.get("outputs") or ()), *writes])
        self.builder.add(event)
        return around

    def _fold_runs(self, name: Name, item: dict[str, Any]) -> bool:
        """Fold in a job's runs as events; return whether a completed one names its datasets."""
        told = False
        for run in self._pages(f"{_job_path(name)}/runs", "runs"):
            state = _STATES.get(run["state"], "RUNNING")
            event = {
                "run": {"runId": run["id"], "facets": _run_facets(run)},
                "job": item,
                "inputs": self._known(map(_version, run.get("inputDatasetVersions") or ())),
                "outputs": self._known(map(_version, run.get("outputDatasetVersions") or ())),
            }
            told |= state == "COMPLETE" and bool(event["inputs"] or event["outputs"])
            started = run.get("startedAt") or run["createdAt"]
            self.builder.add(event | {"eventType": "START", "eventTime": started})
            if state != "RUNNING":
                ended = run.get("endedAt") or run["updatedAt"]
                self.builder.add(event | {"eventType": state, "eventTime": ended})
        return told

    def _surroundings(self, name: Name) -> tuple[list[Any], list[Any], list[Name]]:
        """Return the inputs and outputs that `/lineage` shows for the job, and other jobs in it."""
        try:
            answer = self._get("lineage", nodeId=f"job:{name[0]}:{name[1]}", depth="1")
        except HTTPStatusError as error:
            if error.status not in (404, 500):  # names that a node id cannot tell apart
                raise
            self.warnings.append(f"{JobRef(*name)}: its lineage cannot be shown: {error}")
            return [], [], []
        nodes = {node["id"]: node for node in _rows(answer, "graph")}
        jobs = {_id(node): node for node in nodes.values() if node["type"] == "JOB"}
        own = jobs.get(name, {})
        reads = [nodes[edge["origin"]]["data"]["id"] for edge in own.get("inEdges") or ()]
        writes = [nodes[edge["destination"]]["data"]["id"] for edge in own.get("outEdges") or ()]
        return reads, writes, sorted(jobs)

    def _known(self, items: Iterable[Any]) -> list[Any]:
        """Return datasets as a list, each once, after their own pages have been read."""
        datasets = {(item["namespace"], item["name"]): item for item in items}
        for name in datasets.keys() - self._datasets_asked:
            self._datasets_asked.add(name)
            self._read_dataset(name)
        return list(datasets.values())

    def _read_dataset(self, name: Name) -> None:
        try:
            page = self._get(f"namespaces/{_segment(name[0])}/datasets/{_segment(name[1])}")
        except HTTPStatusError as error:
            if error.status not in (404, 500):
                raise
            self.warnings.append(f"{name[0]}:{name[1]}: its page cannot be read: {error}")
            return
        facets = {"schema": {"fields": page.get("fields")}, **_tagged(page)}
        # An alias has the page of the dataset that it is another name of.
        item = {"namespace": page["namespace"], "name": page["name"], "facets": facets}
        self.builder.add({"eventTime": page["updatedAt"], "dataset": item})

    # Asking

    def _get(self, path: str, **query: str) -> Any:
        return self._client.get(_API + path, query)

    def _pages(self, path: str, member: str) -> Iterator[Any]:
        for offset in count(0, _LIST_PAGE):
            rows = _rows(self._get(path, limit=str(_LIST_PAGE), offset=str(offset)), member)
            yield from rows
            if len(rows) < _LIST_PAGE:
                return


def _rows(answer: Any, member: str) -> list[Any]:
    rows = answer[member]
    if not isinstance(rows, list):
        raise TypeError(f"`{member}` is not a list")
    return rows


def _segment(text: str) -> str:
    if text in (".", ".."):
        raise LineageError(f"{text!r} cannot be part of an address", hint="Delete it in Marquez.")
    return quote(text, safe="")


def _job_path(name: Name) -> str:
    return f"namespaces/{_segment(name[0])}/jobs/{_segment(name[1])}"


def _cleaned(name: Name) -> Name:
    """Return the name of a job as Marquez stores it."""
    return _REPLACED.sub("_", name[0]), name[1]


def _prefixed(parent: str, name: str) -> str:
    """Return the name that Marquez gives a job below `parent`."""
    return name if name.startswith(f"{parent}.") else f"{parent}.{name}"


def _id(node: Any) -> Name:
    return node["data"]["id"]["namespace"], node["data"]["id"]["name"]


def _version(item: Any) -> dict[str, Any]:
    """Return a dataset version of a run as an event names a dataset."""
    ref = item["datasetVersionId"]
    return {"namespace": ref["namespace"], "name": ref["name"], "facets": item.get("facets")}


def _run_facets(run: Any) -> dict[str, Any]:
    """Return the facets of a run; a nominal time that is kept elsewhere only is put among them."""
    facets = dict(run.get("facets") or {})
    arguments = run.get("args") or {}
    start = run.get("nominalStartTime") or arguments.get("nominal_start_time")
    end = run.get("nominalEndTime") or arguments.get("nominal_end_time")
    if start and not facets.get("nominalTime"):
        facets["nominalTime"] = {"nominalStartTime": start, "nominalEndTime": end}
    return facets


def _tagged(page: Any) -> dict[str, Any]:
    """Return the facets of a page, with the tags that people set in Marquez."""
    facets = dict(page.get("facets") or {})
    if page.get("tags"):
        facets["tags"] = {"tags": [{"key": tag} for tag in page["tags"]]}
    return facets


def _just_before(event: Any) -> str:
    """Return a time before the event's, as a later page has to begin: rounding loses none."""
    when = parse_time(event["eventTime"]).replace(tzinfo=UTC) - timedelta(milliseconds=1)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
