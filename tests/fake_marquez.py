"""A Marquez in memory, by the measured rules: for faults, and for scale.

`tests/contract` holds it to the recorded answers of real servers. It knows what our source asks
for; of parents it knows the runs, not the names; symlinks and column lineage it does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from lineage_backfill.lineage.events.event_facets import parse_time

Name = tuple[str, str]
#: Status and body.
Answer = tuple[int, Any]

_API = "/api/v1/"
_NAMESPACE = re.compile(r"[^a-zA-Z0-9:/_.@+-]")
_STATES = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}
#: The facets that Marquez gives back as null where they were not sent.
_OF_RUNS = ("nominalTime", "parent")
_OF_JOBS = ("documentation", "sourceCodeLocation", "sql", "jobType")
_OF_DATASETS = (
    *("documentation", "schema", "dataSource", "description", "lifecycleStateChange"),
    *("columnLineage", "symlinks"),
)
_NOT_FOUND = (404, {"code": 404, "message": "not found"})
_BROKEN = (500, {"code": 500, "message": "There was an error processing your request."})


@dataclass(slots=True)
class _Run:
    id: str
    job: Name
    created: str
    updated: str
    state: str = "RUNNING"
    started: str | None = None
    ended: str | None = None
    reads: dict[Name, Any] = field(default_factory=dict)  # with the facets of the input
    writes: dict[Name, Any] = field(default_factory=dict)
    facets: dict[str, Any] = field(default_factory=dict)
    version: _Edges | None = None  # of its job, once it has ended


@dataclass(frozen=True, slots=True)
class _Edges:
    reads: frozenset[Name] = frozenset()
    writes: frozenset[Name] = frozenset()

    def where(self, named: _Edges) -> _Edges:
        """Return the sides of which something is named; the other one is lost."""
        nothing = frozenset[Name]()
        return _Edges(
            self.reads if named.reads else nothing, self.writes if named.writes else nothing
        )

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes)


@dataclass(slots=True)
class _Job:
    created: str
    updated: str
    version: _Edges | None = None  # what its own page says
    graph: _Edges = field(default_factory=_Edges)  # what `/lineage` shows
    is_stream: bool = False
    is_hidden: bool = False
    parent: str | None = None
    facets: dict[str, Any] = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)
    #: Its versions: when each was made, and the last run that had it, if any.
    versions: dict[_Edges, tuple[str, str | None]] = field(default_factory=dict)


class FakeMarquez:
    """Answers as Marquez does; `post` and `delete` write to it, `events` holds what it keeps."""

    def __init__(self, events: Iterable[Any] = ()) -> None:
        #: Requests come at the same time, and events between them.
        self._lock = RLock()
        self.events: list[Any] = []
        self.jobs: dict[Name, _Job] = {}
        self.datasets: dict[Name, dict[str, Any]] = {}
        #: Versions of datasets that no run made: when, and with which facets.
        self.told: dict[Name, list[tuple[str, Any]]] = {}
        self.namespaces: dict[str, dict[str, Any]] = {}
        self._namespace("default", "2023-01-01T00:00:00Z")
        self.runs: dict[str, _Run] = {}
        #: Every request, without the address of the interface.
        self.asked: list[tuple[str, dict[str, str]]] = []
        #: Called before each answer, which it may give itself.
        self.before_answer: Callable[[str, dict[str, str]], Answer | None] = lambda *_: None
        #: Called between the moment that events are found and that in which they are counted.
        self.before_count: Callable[[], object] = lambda: None
        for event in events:
            assert self.post(event) == 201

    # Writing

    def post(self, event: Any) -> int:
        """Take an event in; return the status."""
        with self._lock:
            return self._post(event)

    def _post(self, event: Any) -> int:
        self.events.append(event)
        item = event.get("job") or {}
        named = [*(event.get("inputs") or ()), *(event.get("outputs") or ())]
        if item.get("name") == "" or any("|" in dataset["namespace"] for dataset in named):
            return 400  # refused, and kept
        when = _instant(event["eventTime"])
        if "job" not in event:
            self._see(event["dataset"], when, has_run=False)
            return 201
        name = (_NAMESPACE.sub("_", item["namespace"]), item["name"])
        self._namespace(name[0], when)
        job = self.jobs.setdefault(name, _Job(when, when))
        job.updated, job.is_hidden = when, False
        facets = item.get("facets") or {}
        job.facets |= facets
        job.is_stream = (facets.get("jobType") or {}).get("processingType") == "STREAMING"
        edges = _Edges(
            *(
                frozenset(
                    self._see(one, when, has_run="run" in event, is_output=side == "outputs")
                    for one in event.get(side) or ()
                )
                for side in ("inputs", "outputs")
            )
        )
        if "run" not in event:
            job.version = job.graph = edges
            job.versions.setdefault(edges, (job.created, None))
            return 201
        run = self._run(name, job, event, when)
        self._make_parent(event, name[0], when)
        self._move(job, run, edges, ended=event.get("eventType") in _STATES)
        return 201

    def delete(self, path: str) -> None:
        """Delete a job, a dataset or a namespace, by its path."""
        _, namespace, *rest = [unquote(part) for part in path.split("/")]
        if not rest:
            self.namespaces[namespace]["isHidden"] = True
            for name, job in self.jobs.items():
                job.is_hidden |= name[0] == namespace
            self.datasets = {n: d for n, d in self.datasets.items() if n[0] != namespace}
        elif rest[0] == "jobs":
            self.jobs[namespace, rest[1]].is_hidden = True
        else:
            del self.datasets[namespace, rest[1]]

    def purge(self, before: str) -> None:
        """Take away the events of all runs that have one before that time, as retention does."""
        old = {
            (event.get("run") or {}).get("runId")
            for event in self.events
            if _instant(event["eventTime"]) < _instant(before)
        }
        self.events = [e for e in self.events if (e.get("run") or {}).get("runId") not in old]

    def remove(self, *run_ids: str, events: bool = True, rows: bool = True) -> None:
        """Remove the events or the rows of runs, as someone with SQL may; versions stay."""
        if events:
            self.events = [e for e in self.events if e["run"]["runId"] not in run_ids]
        for run_id in run_ids if rows else ():
            run = self.runs.pop(run_id)
            self.jobs[run.job].runs.remove(run)

    def _run(self, name: Name, job: _Job, event: Any, when: str) -> _Run:
        run_id, kind = event["run"]["runId"], event.get("eventType")
        run = self.runs.get(run_id)
        if run is None:
            run = self.runs[run_id] = _Run(run_id, name, when, when)
            job.runs.append(run)
        run.updated = when
        run.state = _STATES.get(kind, "RUNNING")
        if kind in _STATES:
            run.ended = when
        else:
            run.started = when
        run.facets |= event["run"].get("facets") or {}
        for side, kept in (("inputs", run.reads), ("outputs", run.writes)):
            for one in event.get(side) or ():
                kept.setdefault((one["namespace"], one["name"]), {}).update(
                    one.get(f"{side[:-1]}Facets") or {}
                )
        return run

    def _make_parent(self, event: Any, namespace: str, when: str) -> None:
        """Make the parent run that a run names, if it is not known yet."""
        told = (event["run"].get("facets") or {}).get("parent") or {}
        run_id = (told.get("run") or {}).get("runId")
        above = told and self.jobs.get((namespace, told["job"]["name"]))
        if above:
            above.updated = _by_clock(when)
        if told:
            self.jobs[self.runs[event["run"]["runId"]].job].parent = told["job"]["name"]
        if run_id and run_id not in self.runs:
            name = (namespace, told["job"]["name"])
            made = {"run": {"runId": run_id}, "eventType": event.get("eventType")}
            self._run(name, self.jobs.setdefault(name, _Job(when, when)), made, when)

    def _move(self, job: _Job, run: _Run, edges: _Edges, *, ended: bool) -> None:
        """Give the job the edges that it has after an event that named `edges`."""
        named = _Edges(frozenset(run.reads), frozenset(run.writes))
        if job.is_stream:
            if edges and edges != job.version:
                job.version = job.graph = edges
            elif not ended:
                job.graph = job.graph.where(edges)
        elif ended:
            job.version = job.graph = named
            run.version = named
            made, _ = job.versions.get(named, (run.updated, None))
            job.versions[named] = (made, run.id)
        else:
            job.graph = job.graph.where(edges)
            job.updated = _by_clock(run.updated)

    def _see(self, item: Any, when: str, *, has_run: bool, is_output: bool = False) -> Name:
        name = (item["namespace"], item["name"])
        self._namespace(name[0], when)
        row = self.datasets.setdefault(name, {"createdAt": when, "facets": {}, "isOnlyRead": True})
        row["isOnlyRead"] &= not is_output
        row["updatedAt"] = when
        row["facets"] |= item.get("facets") or {}
        facets = {**(item.get("facets") or {}), **(item.get("inputFacets") or {})}
        if not has_run or (facets and row["isOnlyRead"] and name not in self.told):
            self.told.setdefault(name, []).insert(0, (when, facets))
        return name

    def _namespace(self, name: str, when: str) -> None:
        row = {"name": name, "createdAt": when, "updatedAt": when, "isHidden": False}
        self.namespaces.setdefault(name, row)["isHidden"] = False

    # Answering

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        """Return status and body of a GET request; `path` is below the interface's address."""
        self.asked.append((path, query))
        given = self.before_answer(path, query)
        if given is not None:
            return given
        with self._lock:
            return self._answer(path, query)

    def _answer(self, path: str, query: dict[str, str]) -> Answer:
        parts = [unquote(part) for part in path.split("/")]
        match parts:
            case ["events", "lineage"]:
                return 200, self._events(query)
            case ["search"]:
                return self._search(query["filter"])
            case ["namespaces"]:
                return 200, {"namespaces": _page(sorted(self.namespaces.items()), query)}
            case ["namespaces", name]:
                row = self.namespaces.get(name)
                return (200, row) if row else _NOT_FOUND
            case ["jobs"]:
                return self._list(query)
            case ["jobs", "runs", run_id]:
                run = self.runs.get(run_id)
                return (200, _run_row(run)) if run else _NOT_FOUND
            case ["lineage"]:
                return self._lineage(query["nodeId"], int(query["depth"]))
            case ["namespaces", namespace, "datasets"]:
                named = [(n, _names([n])[0]) for n in self.datasets if n[0] == namespace]
                return 200, {"datasets": _page(named, query), "totalCount": len(named)}
            case ["namespaces", namespace, "datasets", name, "versions"]:
                told = self.told.get((namespace, name), [])
                rows = [
                    (
                        when,
                        {
                            "version": str(number),
                            "createdAt": when,
                            "createdByRun": None,
                            "facets": facets,
                        },
                    )
                    for number, (when, facets) in enumerate(told)
                ]
                return 200, {"versions": _page(rows, query), "totalCount": len(rows)}
            case ["namespaces", namespace, "datasets", name]:
                row = self.datasets.get((namespace, name))
                return (200, _dataset_row((namespace, name), row)) if row else _NOT_FOUND
            case ["namespaces", namespace, "jobs", name, *rest]:
                job = self.jobs.get((namespace, name))
                if job is None or job.is_hidden:
                    return _NOT_FOUND
                if rest == ["runs"]:
                    return 200, self._runs(job, query)
                if rest == ["versions"]:
                    versions = [(None, self._version_row(job, one)) for one in job.versions]
                    return 200, {"versions": _page(versions, query), "totalCount": len(versions)}
                return 200, _job_row((namespace, name), job)
        return _NOT_FOUND

    def _events(self, query: dict[str, str]) -> Any:
        shown = [one for one in self._window(query) if "run" in one[1]]
        shown.sort(key=lambda one: one[0], reverse=query["sortDirection"] == "desc")
        first = int(query["offset"])
        page = shown[first : first + int(query["limit"])]
        self.before_count()
        return {
            "events": [as_shown(event) for _, event in page],
            "totalCount": len(self._window(query)),
        }

    def _window(self, query: dict[str, str]) -> list[tuple[str, Any]]:
        after, before = _instant(query["after"]), _instant(query["before"])
        return [(w, e) for e in self.events if after <= (w := _instant(e["eventTime"])) < before]

    def _is_poisoned(self) -> bool:
        return any((event.get("job") or {}).get("name") == "" for event in self.events)

    def _search(self, kind: str) -> Answer:
        if kind == "job" and self._is_poisoned():
            return _BROKEN
        names = [(name, self.jobs[name].updated) for name in self._listed()]
        if kind == "dataset":
            names = [(name, row["updatedAt"]) for name, row in self.datasets.items()]
        rows = [
            {"type": kind.upper(), "namespace": name[0], "name": name[1], "updatedAt": updated}
            for name, updated in sorted(names)
        ]
        return 200, {"results": rows, "totalCount": len(rows)}

    def _listed(self) -> list[Name]:
        return [name for name, job in self.jobs.items() if not job.is_hidden]

    def _list(self, query: dict[str, str]) -> Answer:
        names = sorted(self._listed(), key=lambda name: self.jobs[name].updated, reverse=True)
        rows: list[Any] = [(name, _job_row(name, self.jobs[name])) for name in names]
        if self._is_poisoned():
            rows.insert(0, (None, None))
        page = _page(rows, query)
        return _BROKEN if None in page else (200, {"jobs": page, "totalCount": len(rows)})

    def _runs(self, job: _Job, query: dict[str, str]) -> Any:
        runs = sorted(job.runs, key=lambda run: (run.started or "", run.created), reverse=True)
        rows = [(run.id, _run_row(run)) for run in runs]
        return {"runs": _page(rows, query), "totalCount": len(rows)}

    def _version_row(self, job: _Job, edges: _Edges) -> dict[str, Any]:
        made, run_id = job.versions[edges]
        run = self.runs.get(run_id or "")
        ends = {"inputs": _names(edges.reads), "outputs": _names(edges.writes)}
        row = {"version": _id(edges), "createdAt": made, "latestRun": run and _run_row(run)}
        return row | ends

    def _lineage(self, node: str, depth: int) -> Answer:
        start = next((n for n in self._listed() if node == f"job:{n[0]}:{n[1]}"), None)
        if start is None:
            return _NOT_FOUND
        jobs, reached = {start}, {start}
        while reached and depth:
            # What was deleted is not shown, and conducts all the same.
            near = {name for job in reached for name in self._named(job)}
            reached = {job for job in self.jobs if near & self._named(job)} - jobs
            jobs |= reached
            depth -= 1
        return 200, {"graph": list(self._nodes(jobs & set(self._listed())))}

    def _named(self, job: Name) -> frozenset[Name]:
        return self.jobs[job].graph.reads | self.jobs[job].graph.writes

    def _shown(self, job: Name) -> frozenset[Name]:
        return self._named(job) & self.datasets.keys()

    def _nodes(self, jobs: set[Name]) -> Iterator[Any]:
        datasets = {name for job in jobs for name in self._shown(job)}
        into: dict[str, list[Any]] = {}
        out_of: dict[str, list[Any]] = {}
        for name in sorted(jobs):
            graph, node = self.jobs[name].graph, f"job:{name[0]}:{name[1]}"
            ends = [(_dataset_id(one), node) for one in graph.reads & datasets]
            ends += [(node, _dataset_id(one)) for one in graph.writes & datasets]
            for origin, destination in ends:
                edge = {"origin": origin, "destination": destination}
                out_of.setdefault(origin, []).append(edge)
                into.setdefault(destination, []).append(edge)
        named = [(f"job:{n[0]}:{n[1]}", "JOB", n) for n in jobs]
        named += [(_dataset_id(n), "DATASET", n) for n in datasets]
        for node, kind, name in sorted(named):
            data = {"id": {"namespace": name[0], "name": name[1]}}
            edges = {"inEdges": into.get(node, []), "outEdges": out_of.get(node, [])}
            yield {"id": node, "type": kind, "data": data, **edges}

    # Over HTTP

    def __call__(self, request: Any) -> tuple[int, dict[str, str], str]:
        """Answer a request that `responses` caught."""
        status, body = self.answer(*_asked(request.url))
        return status, {}, body if isinstance(body, str) else json.dumps(body)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve on a free port of this machine; the address is given."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._respond(*fake.answer(*_asked(self.path)))

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._respond(fake.post(event), {})

            def _respond(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        fake = self
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def as_shown(event: Any) -> Any:
    """Return an event as Marquez gives it back: what it knows and was not told is null."""

    def dataset(item: Any) -> Any:
        nothing = {"facets": None, "inputFacets": None, "outputFacets": None}
        facets = item.get("facets")
        return nothing | item | {"facets": facets and dict.fromkeys(_OF_DATASETS) | facets}

    run, job = dict(event["run"]), dict(event["job"])
    for item, known in ((run, _OF_RUNS), (job, _OF_JOBS)):
        if item.get("facets") is not None:
            item["facets"] = dict.fromkeys(known) | item["facets"]
    return event | {
        "run": run,
        "job": job,
        "inputs": [dataset(item) for item in event.get("inputs") or ()],
        "outputs": [dataset(item) for item in event.get("outputs") or ()],
    }


def _asked(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    return parts.path.partition(_API)[2], dict(parse_qsl(parts.query))


def _page(rows: list[tuple[Any, Any]], query: dict[str, str]) -> list[Any]:
    first = int(query.get("offset", "0"))
    return [row for _, row in rows[first : first + int(query["limit"])]]


@cache
def _instant(text: str) -> str:
    """Return a time as Marquez writes it, which sorts as text."""
    when = parse_time(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _by_clock(when: str) -> str:
    """Return the time of the server's own clock when it takes in an event of that time."""
    return _instant((parse_time(when) + timedelta(seconds=1)).isoformat())


def _dataset_id(name: Name) -> str:
    return f"dataset:{name[0]}:{name[1]}"


def _names(names: Iterable[Name]) -> list[dict[str, str]]:
    return [{"namespace": namespace, "name": name} for namespace, name in sorted(names)]


def _job_row(name: Name, job: _Job) -> dict[str, Any]:
    shown = job.version
    if shown is None and job.runs:  # its first run goes on
        shown = _Edges(frozenset(job.runs[-1].reads), frozenset(job.runs[-1].writes))
    shown = shown or _Edges()
    return {
        "namespace": name[0],
        "name": name[1],
        "createdAt": job.created,
        "updatedAt": job.updated,
        "inputs": _names(shown.reads),
        "outputs": _names(shown.writes),
        "facets": job.facets,
        "tags": [],
        "parentJobName": job.parent,
    }


def _id(edges: _Edges) -> str:
    return str((sorted(edges.reads), sorted(edges.writes)))


def _dataset_row(name: Name, row: dict[str, Any]) -> dict[str, Any]:
    return {"namespace": name[0], "name": name[1], "fields": [], "tags": []} | row


def _run_row(run: _Run) -> dict[str, Any]:
    def versions(named: dict[Name, Any]) -> list[Any]:
        return [
            {"datasetVersionId": {"namespace": namespace, "name": name}, "facets": facets}
            for (namespace, name), facets in sorted(named.items())
        ]

    return {
        "id": run.id,
        "createdAt": run.created,
        "updatedAt": run.updated,
        "state": run.state,
        "startedAt": run.started,
        "endedAt": run.ended,
        "inputDatasetVersions": versions(run.reads),
        "outputDatasetVersions": versions(run.writes),
        "facets": run.facets,
        "args": {},
        "jobVersion": {"version": _id(run.version)} if run.version else None,
    }
