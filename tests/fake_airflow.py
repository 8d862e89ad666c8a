"""A small Airflow: answers as the real 3.3.2 does, and runs tasks as time goes by.

The suite that the engine is held to runs against both; what one of them does otherwise fails it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

START = datetime(2026, 1, 1, tzinfo=UTC)
LASTS = timedelta(seconds=0.2)
#: The tasks of each DAG, each above the next.
DAGS: dict[str, list[str]] = {
    "three": ["a", "b", "c"],
    "follower": ["read"],  # started by the asset of b in three
    "framed": ["before", "begin", "build", "end"],  # the last three go together
    "durable": ["build"],  # stores its job, which its later tries take as their own
    "versioned": ["build"],  # and `check`, where the file `newer` is there
    **{
        name: ["build"]
        for name in ("one", "slow", "retrying", "plain", "paused", "mapped", "only_scheduled")
    },
    **{name: ["build"] for name in ("hourly", "rollup", "monthly", "slow_key", "by_hand")},
}
#: How partitioned DAGs write the dates of their keys.
KEYS = {
    "hourly": "%Y-%m-%dT%H:%M:%S",
    "rollup": "%Y-%m-%d",
    "monthly": "%Y-%m",
    "slow_key": "%Y-%m-%dT%H",
}
_OVER = ("success", "failed")
_ENDED = (*_OVER, "skipped")
Answer = tuple[int, Any]


def _now() -> datetime:
    return datetime.now(UTC)


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _is_within(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    """Whether a moment lies between two, both included; without them any does, also none."""
    if at is None:
        return after is None and before is None
    return (after is None or at >= after) and (before is None or at <= before)


class FakeAirflow:
    """The state of one Airflow, and what requests do to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.runs: dict[tuple[str, str], dict[str, Any]] = {}
        self.tasks: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self.stored: set[tuple[str, str]] = set()  # runs of `durable` whose task has stored its job
        self.events: list[dict[str, Any]] = []
        self.backfills: list[dict[str, Any]] = []

    def tick(self) -> None:
        """Let time go by: start what may start, and end what has lasted long enough."""
        for place, run in list(self.runs.items()):
            if run["state"] == "queued" and _instant(run["run_after"]) <= _now():  # type: ignore[operator]
                run["state"] = "running"
            if run["state"] == "running":
                self._advance(run, self.tasks[place])

    def _advance(self, run: dict[str, Any], tasks: dict[str, dict[str, Any]]) -> None:
        above = "success"
        for task in tasks.values():
            if task["state"] is None and (above == "success" or task["map_index"] > 0):
                self._begin(run, task)
            elif task["state"] == "running":
                self._end(run, task)
            above = task["state"] or "none"
        states = [task["state"] for task in tasks.values()]
        if all(state in _ENDED for state in states):
            run["state"] = "failed" if "failed" in states else "success"

    def _begin(self, run: dict[str, Any], task: dict[str, Any]) -> None:
        task |= {"state": "running", "try_number": task["try_number"] + 1}
        task |= {"start_date": _now().isoformat(), "end_date": None}
        place = run["dag_id"], run["dag_run_id"]
        if place in self.stored:
            return
        if run["dag_id"] == "durable":
            self.stored.add(place)
        line = {
            "task": f"{run['dag_id']}.{task['task_id']}",
            "run": run["dag_run_id"],
            "try": task["try_number"],
            "start": str(_instant(run["data_interval_start"])),
            "end": str(_instant(run["data_interval_end"])),
            "key": run["partition_key"],
            "conf": run["conf"],
        }
        with (self.folder / "journal").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")

    def _end(self, run: dict[str, Any], task: dict[str, Any]) -> None:
        waits = run["dag_id"].startswith("slow") and not (self.folder / "go").exists()
        began = _instant(task["start_date"])
        assert began is not None
        if waits or _now() - began < LASTS:
            return
        fails = (self.folder / "fails").exists()
        if fails and run["dag_id"] == "retrying" and task["try_number"] < 9:
            task |= {"state": None, "id": uuid4().hex}
        else:
            task |= {"state": "failed" if fails else "success", "end_date": _now().isoformat()}
            if (run["dag_id"], task["task_id"], fails) == ("three", "b", False):
                self._tell(run)
            elif run["dag_id"] == "hourly" and not fails:
                self._record(run, [])  # a rollup waits for more hours

    def _tell(self, run: dict[str, Any]) -> None:
        """Start what waits for the asset of a task."""
        name = f"asset_triggered__{_now().isoformat()}_{uuid4().hex[:8]}"
        began = self._add("follower", {"dag_run_id": name, "logical_date": None})
        self._record(run, [{"dag_id": "follower", "run_id": name, "state": began["state"]}])

    def _record(self, run: dict[str, Any], started: list[dict[str, Any]]) -> None:
        event = {"source_dag_id": run["dag_id"], "source_run_id": run["dag_run_id"]}
        at = {"timestamp": _now().isoformat()}
        self.events.append({**event, **at, "created_dagruns": started})

    # What requests do

    def details(self, dag: str) -> Answer:
        """Describe a DAG."""
        if dag not in DAGS:
            return 404, {"detail": f"The Dag with ID: `{dag}` was not found"}
        end = START + timedelta(hours=0 if dag == "plain" else 1)
        return 200, {
            "dag_id": dag,
            "is_paused": dag == "paused",
            "is_stale": False,
            "has_import_errors": False,
            "timetable_summary": "PartitionedAtRuntime" if dag == "by_hand" else "0 * * * *",
            "timetable_partitioned": dag in KEYS,
            "next_dagrun_data_interval_start": START.isoformat(),
            "next_dagrun_data_interval_end": end.isoformat(),
            "latest_dag_version": {"version_number": len(self.names(dag))},
            "allowed_run_types": ["scheduled"] if dag == "only_scheduled" else None,
            "start_date": START.isoformat(),
            "end_date": None,
        }

    def tasks_of(self, dag: str) -> Answer:
        """Describe the tasks of a DAG."""
        known = {"is_mapped": dag == "mapped", "start_date": START.isoformat(), "end_date": None}
        names = self.names(dag)
        below = [*names[1:], ""]
        return 200, {
            "tasks": [
                {**known, "task_id": name, "downstream_task_ids": [other] if other else []}
                for name, other in zip(names, below, strict=True)
            ]
        }

    def names(self, dag: str) -> list[str]:
        """Return the tasks of the newest version of a DAG."""
        is_newer = dag == "versioned" and (self.folder / "newer").exists()
        return [*DAGS[dag], "check"] if is_newer else DAGS[dag]

    def find(self, dag: str, query: dict[str, str]) -> Answer:
        """Return the runs of a span of logical dates, of a key and of some states, in order."""
        after, before = (_instant(query.get(f"logical_date_{end}")) for end in ("gte", "lte"))
        states = query.get("state", "").split(",")
        key = query.get("partition_key_prefix_pattern", "")
        found = [
            run
            for (owner, _), run in reversed(self.runs.items())
            if owner == dag
            and _is_within(_instant(run["logical_date"]), after, before)
            and (states == [""] or run["state"] in states)
            and (run["partition_key"] or "").startswith(key)
        ]
        if query.get("order_by") == "logical_date":
            found.sort(key=lambda run: run["logical_date"])
        begin = int(query.get("offset", 0))
        page = found[begin : begin + int(query.get("limit", 50))]
        return 200, {"dag_runs": page, "total_entries": len(found)}

    def backfill(self, body: dict[str, Any]) -> Answer:
        """Begin a backfill, which starts nothing here."""
        made = {**body, "id": len(self.backfills), "is_paused": False, "completed_at": None}
        self.backfills.append(made)
        return 200, made

    def find_backfills(self, query: dict[str, str]) -> Answer:
        """Return the newest backfill of a DAG; that it is `active` counts for nothing."""
        assert (query["order_by"], query["limit"]) == ("-id", "1")
        found = [one for one in self.backfills if one["dag_id"] == query["dag_id"]]
        return 200, {"backfills": found[-1:], "total_entries": len(found)}

    def change_backfill(self, number: str, change: str) -> Answer:
        """Pause, go on with or cancel a backfill."""
        found = self.backfills[int(number)]
        found["is_paused"] = change != "unpause"
        found["completed_at"] = _now().isoformat() if change == "cancel" else None
        return 200, found

    def get(self, dag: str, run: str) -> Answer:
        """Return a run."""
        found = self.runs.get((dag, run))
        return (200, found) if found else (404, {"detail": "The DagRun was not found"})

    def create(self, dag: str, body: dict[str, Any]) -> Answer:
        """Create a run; its id and its logical date are unique, and its partition key is not."""
        if "logical_date" not in body:
            return 422, {"detail": [{"msg": "Field required"}]}
        at, key = _instant(body["logical_date"]), body.get("partition_key")
        dates = [_instant(run["logical_date"]) for (one, _), run in self.runs.items() if one == dag]
        if (dag, body["dag_run_id"]) in self.runs or (at and at in dates):
            return 409, {"detail": {"reason": "Unique constraint violation"}}
        try:
            if key is not None and dag != "by_hand":
                at_key = datetime.strptime(f"{key} +0000", f"{KEYS[dag]} %z")
                body = {**body, "partition_date": at_key.isoformat()}
        except (KeyError, ValueError):
            return 400, {"detail": f"Partition key {key!r} does not match"}
        if at is None:
            return 200, self._add(dag, body)
        before = (at - timedelta(hours=1)).isoformat()  # as the real one infers it
        return 200, self._add(
            dag, {"data_interval_start": before, "data_interval_end": at.isoformat(), **body}
        )

    def _add(self, dag: str, body: dict[str, Any]) -> dict[str, Any]:
        run = {
            "dag_id": dag,
            "dag_run_id": body["dag_run_id"],
            "logical_date": body["logical_date"],
            "data_interval_start": body.get("data_interval_start"),
            "data_interval_end": body.get("data_interval_end"),
            "run_after": body.get("run_after", _now().isoformat()),
            "state": "queued",
            "bundle_version": None,
            "dag_versions": [{"version_number": len(self.names(dag))}],
            "conf": body.get("conf", {}),
            "note": body.get("note"),
            "partition_key": body.get("partition_key"),
            "partition_date": body.get("partition_date"),
        }
        self.runs[dag, body["dag_run_id"]] = run
        self.tasks[dag, body["dag_run_id"]] = {
            name: {
                "id": uuid4().hex,
                "task_id": name.partition("[")[0],
                "map_index": int(name.partition("[")[2].rstrip("]") or -1),
                "dag_id": dag,
                "dag_run_id": body["dag_run_id"],
                **dict.fromkeys(("state", "note", "start_date", "end_date")),
                "try_number": 0,
            }
            for name in (["build[0]", "build[1]"] if dag == "mapped" else self.names(dag))
        }
        return run

    def patch(self, dag: str, run: str, body: dict[str, Any]) -> Answer:
        """Set the state of a run: what runs fails, what has not started is skipped."""
        for task in self.tasks[dag, run].values():
            if task["state"] not in _ENDED:
                task["state"] = "failed" if task["state"] == "running" else "skipped"
        self.runs[dag, run]["state"] = body["state"]
        return 200, self.runs[dag, run]

    def mark(self, dag: str, run: str, body: dict[str, Any]) -> Answer:
        """Set the states of several tasks."""
        for one in body["actions"][0]["entities"]:
            self.tasks[dag, run][one["task_id"]]["state"] = one["new_state"]
        return 200, {"update": {"success": [], "errors": []}}

    def patch_task(self, dag: str, run: str, task: str, body: dict[str, Any]) -> Answer:
        """Set the state or the note of a task."""
        found = [one for one in self.tasks[dag, run].values() if one["task_id"] == task]
        for one in found:
            one.update({"note": body["note"]} if "note" in body else {"state": body["new_state"]})
        return 200, {"task_instances": found}

    def forget(self, dag: str, run: str) -> Answer:
        """Delete what the tries of a task have stored."""
        self.stored.discard((dag, run))
        return 204, None

    def list_tasks(self, body: dict[str, Any]) -> Answer:
        """Return the task instances of some runs."""
        found = [
            task
            for (dag, run), tasks in self.tasks.items()
            if dag in body["dag_ids"] and run in body["dag_run_ids"]
            for task in tasks.values()
            if task["task_id"] in body.get("task_ids", [task["task_id"]])
        ]
        begin = body.get("page_offset", 0)
        page = found[begin : begin + body.get("page_limit", 100)]
        return 200, {"task_instances": page, "total_entries": len(found)}

    def list_runs(self, body: dict[str, Any]) -> Answer:
        """Return the runs of some DAGs in some states."""
        found = [
            run
            for (dag, _), run in self.runs.items()
            if dag in body["dag_ids"] and run["state"] in body["states"]
        ]
        begin = body["page_offset"]
        page = found[begin : begin + body["page_limit"]]
        return 200, {"dag_runs": page, "total_entries": len(found)}

    def clear(self, dag: str, body: dict[str, Any]) -> Answer:
        """Let tasks run again; by default nothing happens, and the answer is 200 all the same."""
        place = dag, body["dag_run_id"]
        if place not in self.runs:
            return 404, {"detail": f"Dag Run id {place[1]} not found in dag {dag}"}
        wanted = DAGS["framed"][1:] if dag == "framed" else body.get("task_ids", [])
        tasks = [task for task in self.tasks[place].values() if task["task_id"] in wanted]
        if body.get("dry_run", True) or body.get("only_failed", True):
            return 200, {"task_instances": tasks}
        if any(task["state"] == "running" for task in tasks) and body["prevent_running_task"]:
            return 409, {"detail": "AirflowClearRunningTaskException"}
        for task in tasks:
            task |= {"state": None, "id": uuid4().hex, "note": body["note"]}
        if self.runs[place]["state"] in _OVER:
            self.runs[place]["state"] = "queued"
        return 200, {"task_instances": tasks}

    def assets(self, dag: str) -> Answer:
        """Return the assets of a DAG."""
        edges = {"three": ("b", "follower"), "hourly": ("build", "rollup")}
        assets = [
            {
                "producing_tasks": [{"dag_id": name, "task_id": task}],
                "scheduled_dags": [{"dag_id": reader}],
            }
            for name, (task, reader) in edges.items()
            if name == dag
        ]
        return 200, {"assets": assets}

    def asset_events(self, query: dict[str, str]) -> Answer:
        """Return the events of the assets of a DAG since an instant, the newest first."""
        since = _instant(query["timestamp_gte"])
        found = [
            event
            for event in reversed(self.events)
            if event["source_dag_id"] == query["source_dag_id"]
            and _instant(event["timestamp"]) >= since  # type: ignore[operator]
        ]
        return 200, {"asset_events": found}

    def log(self, task: dict[str, Any]) -> Answer:
        """Return the log of a task."""
        error = {"exc_type": "ValueError", "exc_value": "no such column", "frames": []}
        failed = task["state"] == "failed"
        return 200, {"content": [{"event": "a line", "error_detail": [error] if failed else None}]}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """Answer a request below /api/v2."""
        if path in _CONSTANT:
            return 200, _CONSTANT[path]
        one, run = r"/dags/([^/]+)", r"/dags/([^/]+)/dagRuns/([^/]+)"
        routes: dict[str, Callable[..., Answer]] = {
            f"GET {one}/details": self.details,
            f"GET {one}/tasks": self.tasks_of,
            f"GET {one}/dagRuns": lambda dag: self.find(dag, query),
            f"POST {one}/dagRuns": lambda dag: self.create(dag, body),
            f"POST {one}/clearTaskInstances": lambda dag: self.clear(dag, body),
            "POST /dags/~/dagRuns/~/taskInstances/list": lambda: self.list_tasks(body),
            "POST /dags/~/dagRuns/list": lambda: self.list_runs(body),
            "GET /assets": lambda: self.assets(query["dag_ids"]),
            "GET /assets/events": lambda: self.asset_events(query),
            "POST /backfills": lambda: self.backfill(body),
            "GET /backfills": lambda: self.find_backfills(query),
            r"PUT /backfills/(\d+)/(pause|unpause|cancel)": self.change_backfill,
            f"GET {run}": self.get,
            f"PATCH {run}": lambda dag, name: self.patch(dag, name, body),
            f"PATCH {run}/taskInstances": lambda dag, name: self.mark(dag, name, body),
            f"PATCH {run}/taskInstances/([^/]+)": lambda dag, name, task: self.patch_task(
                dag, name, task, body
            ),
            f"DELETE {run}/taskInstances/[^/]+/state-store": self.forget,
            f"GET {run}/taskInstances/([^/]+)/logs/\\d+": lambda dag, name, task: self.log(
                next(t for t in self.tasks[dag, name].values() if t["task_id"] == task)
            ),
        }
        for pattern, does in routes.items():
            if found := re.fullmatch(pattern, f"{method} {path}"):
                return does(*map(unquote, found.groups()))
        return 404, {"detail": f"Not Found: {method} {path}"}


_CONSTANT: dict[str, Any] = {
    "/version": {"version": "3.3.2"},
    "/dags": {"dags": []},
}


def _handler(fake: FakeAirflow) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            status, answer = self._decided(body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _decided(self, body: Any) -> Answer:
            address = urlsplit(self.path)
            if address.path == "/auth/token":
                if body["username"] not in ("admin", "op", "viewer"):
                    return 401, {"detail": "Invalid credentials"}
                return 201, {"access_token": f"jwt-{body['username']}"}
            account = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if not account.startswith("jwt-"):
                return 403, {"detail": "Invalid JWT token"}
            path = address.path.removeprefix("/api/v2")
            if account == "jwt-viewer" and self.command != "GET":
                return 403, {"detail": "Forbidden"}
            query = {name: ",".join(values) for name, values in parse_qs(address.query).items()}
            with fake.lock:
                fake.tick()
                return fake.answer(self.command, path, query, body)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a fake whose journal is in a folder; gives its address."""
    fake = FakeAirflow(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    server.daemon_threads = True
    over = threading.Event()

    def go_by() -> None:
        while not over.wait(0.05):
            with fake.lock:
                fake.tick()

    threads = [threading.Thread(target=go) for go in (go_by, server.serve_forever)]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        for thread in threads:
            thread.join()
        server.server_close()
