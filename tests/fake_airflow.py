"""A small Airflow: answers as the real 3.3.2 does, and runs tasks as time goes by.

The suite of the engine runs against both, and fails where they differ.
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
from zoneinfo import ZoneInfo

START = datetime(2024, 1, 1, tzinfo=UTC)
LASTS = timedelta(seconds=0.2)
BERLIN = ZoneInfo("Europe/Berlin")
#: The tasks of each DAG, each above the next.
DAGS: dict[str, list[str]] = {
    "three": ["a", "b", "c"],
    "follower": ["read"],  # started by the asset of b in three
    "both": ["read"],  # started by that asset and another one
    "taskflow": ["extract", "load", "notify"],  # hands over rows from task to task
    "durable": ["build"],  # stores its job, which its later tries take as their own
    **{
        name: ["build"]
        for name in ("one", "slow", "retrying", "plain", "paused", "mapped", "only_scheduled")
    },
    **{name: ["build"] for name in ("berlin", "two_am", "two_plain", "param", "reader")},
    **{name: ["build"] for name in ("hourly", "rollup", "monthly", "slow_key", "by_hand")},
    "day_taskflow": ["extract", "load", "notify"],
    "day_three": ["a", "b"],
    "day_reader": ["read"],  # started by the asset of b in day_three
    **{
        name: ["build"]
        for name in ("day_mapped", "day_chained", "day_failing", "day_param", "day_later")
    },
    **{name: ["build"] for name in ("slow_day", "day_keys", "month_keys")},
    # and `check`, where the file `newer` is there; `built`, if `renamed`
    "day_versioned": ["build"],
}
#: How partitioned DAGs write the dates of their keys.
KEYS = {
    "hourly": "%Y-%m-%dT%H:%M:%S",
    "rollup": "%Y-%m-%d",
    "monthly": "%Y-%m",
    "slow_key": "%Y-%m-%dT%H",
    "reader": "%Y-%m-%dT%H:%M:%S",
    "day_keys": "%Y-%m-%d",
    "month_keys": "%Y-%m",
}
#: Timetables other than of hourly intervals in UTC: the hour of a day in Berlin when it fires.
CRONS = {
    "two_am": "0 2 * * *",
    "two_plain": "0 2 * * *",
    **{name: "0 0 * * *" for name in DAGS if "day" in name or name == "berlin"},
}
#: The DAGs without data intervals.
PLAIN = ("berlin", "plain", "two_plain", "follower", "both", "day_reader")
#: Task, asset and consumers; the asset 9 is never updated.
ASSETS = {
    ("three", "b"): (1, ("follower", "both")),
    ("hourly", "build"): (2, ("rollup", "reader")),
    ("day_three", "b"): (3, ("day_reader",)),
    ("day_keys", "build"): (4, ("month_keys",)),
}
#: How much of a key makes that of a rollup, which waits for all of them.
ROLLUPS = {"rollup": 10, "month_keys": 7}
CONDITIONS = {
    "follower": {"all": [{"asset": {"id": 1, "uri": "file:///lake/b"}}]},
    "both": {"all": [{"asset": {"id": n, "uri": f"file:///lake/{n}"}} for n in (1, 9)]},
    **{name: {"asset": {"id": 2, "uri": "file:///lake/hourly"}} for name in ("rollup", "reader")},
    "day_reader": {"asset": {"id": 3, "uri": "file:///lake/day_b"}},
    "month_keys": {"asset": {"id": 4, "uri": "file:///lake/day_keys"}},
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
        self.queued: list[tuple[str, int, str | None]] = []  # DAG, asset and key that waits
        self.rows: dict[str, int] = {}  # what `extract` has handed over in a run

    def tick(self) -> None:
        """Let time go by: start what may start, and end what has lasted long enough."""
        if not (self.folder / "late").exists():
            self._start_consumers()
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
        if run["dag_id"].endswith("taskflow"):
            line["rows"] = self.rows.get(run["dag_run_id"], 0)
            self.rows |= {run["dag_run_id"]: 3} if task["task_id"] == "extract" else {}
        with (self.folder / "journal").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")

    def _end(self, run: dict[str, Any], task: dict[str, Any]) -> None:
        waits = run["dag_id"].startswith("slow") and not (self.folder / "go").exists()
        began = _instant(task["start_date"])
        assert began is not None
        if waits or _now() - began < LASTS:
            return
        fails = (self.folder / "fails").exists()
        is_first = run["dag_id"] == "day_failing" and task["try_number"] == 1
        if is_first or (fails and run["dag_id"] == "retrying" and task["try_number"] < 9):
            task |= {"state": None, "id": uuid4().hex}
        else:
            task |= {"state": "failed" if fails else "success", "end_date": _now().isoformat()}
            if not fails:
                asset, consumers = ASSETS.get((run["dag_id"], task["task_id"]), (0, ()))
                self.queued += [(name, asset, run["partition_key"]) for name in consumers]

    def _start_consumers(self) -> None:
        """Start what waits for an asset; `both` and rollups wait for more."""
        for waiting in [one for one in self.queued if one[0] not in ("both", *ROLLUPS)]:
            self.queued.remove(waiting)
            name = f"asset_triggered__{_now().isoformat()}_{uuid4().hex[:8]}"
            key = {"partition_key": waiting[2]} if waiting[2] else {}
            self._add(waiting[0], {"dag_run_id": name, "logical_date": None, **key})

    # What requests do

    def details(self, dag: str) -> Answer:
        """Describe a DAG."""
        if dag not in DAGS:
            return 404, {"detail": f"The Dag with ID: `{dag}` was not found"}
        is_daily = CRONS.get(dag) == "0 0 * * *"
        start = START + timedelta(hours=23 if is_daily else dag.startswith("two_"))
        since = datetime(2026, 1, 1, tzinfo=BERLIN) if dag == "day_later" else START
        end = start + timedelta(hours=0 if dag in PLAIN else 1)
        return 200, {
            "dag_id": dag,
            "is_paused": dag == "paused",
            "is_stale": False,
            "has_import_errors": False,
            "timetable_summary": "PartitionedAtRuntime" if dag == "by_hand" else self.cron(dag),
            "timezone": "UTC",  # also of DAGs in another zone
            "asset_expression": CONDITIONS.get(dag),
            "timetable_partitioned": dag in KEYS,
            "next_dagrun_data_interval_start": start.isoformat(),
            "next_dagrun_data_interval_end": end.isoformat(),
            "allowed_run_types": ["scheduled"] if dag == "only_scheduled" else None,
            "start_date": since.isoformat(),
            "end_date": None,
        }

    def tasks_of(self, dag: str) -> Answer:
        """Describe the tasks of a DAG."""
        known = {
            "is_mapped": dag.endswith("mapped"),
            "start_date": START.isoformat(),
            "end_date": None,
        }
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
        if dag == "day_versioned" and (self.folder / "renamed").exists():
            return ["built"]
        is_newer = dag == "day_versioned" and (self.folder / "newer").exists()
        return [*DAGS[dag], "check"] if is_newer else DAGS[dag]

    @staticmethod
    def cron(dag: str) -> str:
        """Return the timetable of a DAG."""
        return "Asset" if dag in CONDITIONS else CRONS.get(dag, "0 * * * *")

    def queued_events(self, dag: str) -> Answer:
        """Return the events that a DAG waits with."""
        found = [{"asset_id": asset} for name, asset, _ in self.queued if name == dag]
        return 200, {"queued_events": found, "total_entries": len(found)}

    def pending_keys(self, query: dict[str, str]) -> Answer:
        """Return the keys that a partitioned DAG waits with."""
        dag = query["dag_id"]
        made = [
            {"partition_key": key, "total_received": 1, "total_required": 1}
            for name, _, key in self.queued
            if name == dag
        ]
        if length := ROLLUPS.get(dag):
            made = [
                {**one, "partition_key": str(one["partition_key"])[:length], "total_required": 24}
                for one in made
            ]
        return 200, {"partitioned_dag_runs": made}

    def find(self, dag: str, query: dict[str, str]) -> Answer:
        """Return the runs of a span of logical dates or of a key, in order."""
        after, before = (_instant(query.get(f"logical_date_{end}")) for end in ("gte", "lte"))
        key = query.get("partition_key_prefix_pattern", "")
        found = [
            run
            for (owner, _), run in reversed(self.runs.items())
            if owner == dag
            and _is_within(_instant(run["logical_date"]), after, before)
            and (run["partition_key"] or "").startswith(key)
        ]
        begin = int(query.get("offset", 0))
        page = found[begin : begin + int(query.get("limit", 50))]
        return 200, {"dag_runs": page, "total_entries": len(found)}

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
        if dag.endswith("param") and "day" not in body.get("conf", {}):
            return 400, {"detail": "Invalid input for param day: None is not of type 'string'"}
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
            for name in (["build[0]", "build[1]"] if dag.endswith("mapped") else self.names(dag))
        }
        return run

    def patch(self, dag: str, run: str, body: dict[str, Any]) -> Answer:
        """Set the state of a run: what runs fails, what has not started is skipped."""
        for task in self.tasks[dag, run].values():
            if task["state"] not in _ENDED:
                task["state"] = "failed" if task["state"] == "running" else "skipped"
        self.runs[dag, run]["state"] = body["state"]
        return 200, self.runs[dag, run]

    def patch_task(self, dag: str, run: str, task: str, body: dict[str, Any]) -> Answer:
        """Set the state of a task."""
        found = [one for one in self.tasks[dag, run].values() if one["task_id"] == task]
        for one in found:
            one["state"] = body["new_state"]
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
        wanted = body.get("task_ids", [])
        tasks = [task for task in self.tasks[place].values() if task["task_id"] in wanted]
        if body.get("dry_run", True) or body.get("only_failed", True):
            return 200, {"task_instances": tasks}
        if any(task["state"] == "running" for task in tasks) and body["prevent_running_task"]:
            return 409, {"detail": "AirflowClearRunningTaskException"}
        for task in tasks:
            task |= {"state": None, "id": uuid4().hex, "note": body.get("note")}
        if self.runs[place]["state"] in _OVER:
            self.runs[place]["state"] = "queued"
        return 200, {"task_instances": tasks}

    def assets(self) -> Answer:
        """Return all assets."""
        assets = [
            {
                "id": asset,
                "uri": f"file:///lake/{asset}",
                "producing_tasks": [{"dag_id": name, "task_id": task}],
                "consuming_tasks": [],
                "scheduled_dags": [{"dag_id": reader} for reader in readers],
            }
            for (name, task), (asset, readers) in ASSETS.items()
        ]
        return 200, {"assets": assets, "total_entries": len(assets)}

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
            "GET /assets": self.assets,
            f"GET {one}/assets/queuedEvents": self.queued_events,
            "GET /ui/partitioned_dag_runs": lambda: self.pending_keys(query),
            f"GET {run}": self.get,
            f"PATCH {run}": lambda dag, name: self.patch(dag, name, body),
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
            if (fake.folder / "expired").exists() or not account.startswith("jwt-"):
                return 403, {"detail": "Invalid JWT token"}
            path = address.path.removeprefix("/api/v2")
            if account == "jwt-viewer" and self.command != "GET":
                return 403, {"detail": "Forbidden"}
            query = {name: ",".join(values) for name, values in parse_qs(address.query).items()}
            with fake.lock:
                fake.tick()
                return fake.answer(self.command, path, query, body)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

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
