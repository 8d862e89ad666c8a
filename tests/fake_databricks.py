"""A small Databricks workspace: jobs, runs and a volume, in the vendor's wire format.

Every answer is made of the vendor's own classes, and every request is read by them: a member that
they do not know fails it. A run of a job does what `does` says of the job; a submitted task does
its run spec with `fake_command.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from databricks.sdk.service import jobs
from databricks.sdk.service.jobs import TerminationCodeCode as Code
from databricks.sdk.service.jobs import TerminationTypeType as Type

VOLUME = "/Volumes/main/ops/lb"
State = jobs.RunLifecycleStateV2State
_ERRORS = {429: "REQUEST_LIMIT_EXCEEDED", 503: "TEMPORARILY_UNAVAILABLE", 500: "INTERNAL_ERROR"}


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.document = status, {"error_code": code, "message": message}


@dataclass(eq=False)
class FakeRun:
    """A run; `end` is how it ended, `polls` how often it is still seen running.

    `tries` are its tasks, then those of each repair; `repairs` are the ids of the repairs.
    """

    id: int
    token: str | None
    job: int | None
    parameters: Mapping[str, str]
    only: list[str]
    is_queued: bool = False
    process: subprocess.Popen[bytes] | None = None
    end: tuple[Code, Type, str] | None = None
    polls: int = 0
    log: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    began: int = field(default_factory=lambda: int(time.time() * 1000))
    tries: list[list[str]] = field(default_factory=list)
    repairs: list[int] = field(default_factory=list)


Ends = tuple[Code, Type, str]
GOOD: Ends = (Code.SUCCESS, Type.SUCCESS, "")


class FakeWorkspace:
    """The state of one workspace, and what requests do to it.

    `faults` are answers in place of the true ones: a status, or "lost" once it was done; each is
    for the next request whose path matches. `meanwhile` is done once, before such a request. Of a
    run that fails, `bad` tasks do, by default all. From the request with number `fuse` on every
    connection is cut, as for a driver that was killed; with `fuse_after` that one is still done.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.volume = folder / "volume"
        self.lock = threading.RLock()
        self.user = "ana.maria@example.com"
        self.jobs: dict[int, jobs.JobSettings] = {}
        self.runs: dict[int, FakeRun] = {}
        self.deleted: set[str] = set()  # tokens
        self.does: dict[str, Callable[[FakeRun], Ends | None]] = {}
        self.outputs: dict[str, jobs.RunOutput] = {}  # by task
        self.task: Callable[[Mapping[str, Any]], Ends] | None = None  # does submitted run specs
        self.faults: list[tuple[str, int | str]] = []
        self.meanwhile: list[tuple[str, Callable[[], object]]] = []
        self.bad: list[str] = []
        self.tokens = {"dapi-1"}  # that are valid
        self.is_stale = False
        self.fuse: int | None = None
        self.fuse_after = False
        self.requests: list[str] = []

    # Set up by tests

    def job(self, name: str, *parameters: str, **settings: Any) -> int:
        """Deploy a job with tasks `load` and `check`."""
        tasks = [
            jobs.Task(
                task_key=task,
                existing_cluster_id="c-1",
                python_wheel_task=jobs.PythonWheelTask("main", "shop"),
            )
            for task in ("load", "check")
        ]
        given = {"tasks": tasks, "max_concurrent_runs": 10, **settings}
        number = 100 + len(self.jobs)
        self.jobs[number] = jobs.JobSettings(
            name=name,
            parameters=[jobs.JobParameterDefinition(default="", name=one) for one in parameters],
            **given,
        )
        return number

    def started(self, name: str) -> list[FakeRun]:
        """Return the runs of a job."""
        return [one for one in self.runs.values() if one.job and self.jobs[one.job].name == name]

    # Requests

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Any:
        """Return the document of an answer, or bytes; raises Refused."""
        if path.startswith("/api/2.0/fs/"):
            return self._file(method, path, body)
        name = re.sub(r"^/api/2\.\d/", "", path)
        given = json.loads(body) if body else dict(query)
        with self.lock:
            for one in [one for one in self.meanwhile if re.search(one[0], path)]:
                self.meanwhile.remove(one)
                one[1]()
            done: Callable[[Any], Any] = getattr(self, "_" + re.sub(r"\W", "_", name))
            return done(given)

    def _preview_scim_v2_Me(self, given: Any) -> Any:  # noqa: N802
        return {"userName": self.user}

    def _file(self, method: str, path: str, body: bytes) -> Any:
        place = unquote(path).partition(VOLUME)
        assert place[1], path
        file = self.volume / place[2].lstrip("/")
        if "/fs/directories" in path:
            return file.mkdir(parents=True, exist_ok=True)
        if method == "PUT":
            assert file.parent.is_dir()
            return file.write_bytes(body) and None
        if not file.exists():
            raise Refused(404, "NOT_FOUND", f"The file {path} does not exist.")
        return file.read_bytes()

    def _jobs_list(self, given: Any) -> Any:
        wanted = given.get("name", "").lower()
        found = [
            jobs.BaseJob(job_id=number, settings=one).as_dict()
            for number, one in self.jobs.items()
            if (one.name or "").lower() == wanted or not wanted
        ]
        return {"jobs": found, "has_more": False}

    def _jobs_get(self, given: Any) -> Any:
        number = int(given["job_id"])
        if number not in self.jobs:
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"Job {number} does not exist.")
        return jobs.Job(job_id=number, settings=self.jobs[number]).as_dict()

    def _jobs_run_now(self, given: Any) -> Any:
        known = {"job_id", "idempotency_token", "job_parameters", "only", "queue"}
        assert given.keys() <= known, given
        settings = self.jobs[given["job_id"]]
        declared = {one.name: one.default for one in settings.parameters or ()}
        parameters = given.get("job_parameters", {})
        assert parameters.keys() <= declared.keys()
        assert all(isinstance(text, str) for text in parameters.values())
        return self._started(
            given,
            lambda number, token: FakeRun(
                number, token, given["job_id"], declared | parameters, given.get("only", [])
            ),
        )

    def _jobs_runs_submit(self, given: Any) -> Any:
        assert given.keys() <= {"run_name", "tasks", "idempotency_token", "queue"}, given
        (task,) = given["tasks"]
        assert jobs.SubmitTask.from_dict(task).as_dict() == task
        main, *parameters = (
            task["spark_python_task"][one] for one in ("python_file", "parameters")
        )
        for path in (main, *parameters[0][:2]):
            assert (self.volume / path.removeprefix(VOLUME + "/")).is_file()

        def start(number: int, token: str | None) -> FakeRun:
            run = FakeRun(number, token, None, {}, ["run"])
            there = self.volume / parameters[0][-1].removeprefix(VOLUME + "/")
            text = there.read_text().replace(VOLUME, str(self.volume))
            if self.task is not None:
                run.end = self.task(json.loads(text))
                return run
            mounted = self.folder / f"mounted-{number}.json"
            mounted.write_text(text)
            with (self.folder / f"log-{number}").open("wb") as log:
                run.process = subprocess.Popen(
                    [sys.executable, Path(__file__).with_name("fake_command.py"), mounted],
                    cwd=self.folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            return run

        return self._started(given, start)

    def _started(self, given: Any, start: Callable[[int, str | None], FakeRun]) -> Any:
        token = given.get("idempotency_token")
        assert token is None or len(token) <= 64
        if token in self.deleted:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "The run with this token was deleted.")
        found = [one.id for one in self.runs.values() if token and one.token == token]
        if not found:
            number = 1000 + len(self.runs) + len(self.deleted)
            run = start(number, token)
            if run.job is not None:
                active = [one for one in self.started_by(run.job) if not self._is_over(one)]
                if len(active) >= (self.jobs[run.job].max_concurrent_runs or 1):
                    run.is_queued = jobs.QueueSettings.from_dict(given.get("queue", {})).enabled
                    if not run.is_queued:
                        run.end = (Code.MAX_CONCURRENT_RUNS_EXCEEDED, Type.CLIENT_ERROR, "")
            self.runs[number] = run
            found = [number]
        return {"run_id": found[0]}

    def _jobs_runs_repair(self, given: Any) -> Any:
        known = {"run_id", "latest_repair_id", "job_parameters"}
        known |= {"rerun_all_failed_tasks", "rerun_dependent_tasks"}
        assert given.keys() <= known, given
        run = self._found(given)
        settings = self.jobs[run.job or 0]
        if not self._is_over(run):
            raise Refused(400, "INVALID_STATE", "A run that is active cannot be repaired.")
        if given.get("latest_repair_id") != (run.repairs[-1] if run.repairs else None):
            why = "The latest repair ID needs to be provided in order to create a new repair"
            raise Refused(400, "INVALID_PARAMETER_VALUE", why)
        if run.end is None or run.end[0] is Code.SUCCESS:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "The run has no failed tasks.")
        assert given["rerun_all_failed_tasks"] is True
        again = set(self.bad or self._names(run))
        for task in settings.tasks or () if given.get("rerun_dependent_tasks") else ():
            if again & {one.task_key for one in task.depends_on or ()}:
                again.add(task.task_key)
        declared = {one.name: one.default for one in settings.parameters or ()}
        run.parameters = declared | given.get("job_parameters", {})  # it does not keep its own
        run.tries.append(sorted(again))
        run.repairs.append(7000 + 10 * run.id + len(run.repairs))
        run.end = None
        return jobs.RepairRunResponse(repair_id=run.repairs[-1]).as_dict()

    def started_by(self, job: int) -> list[FakeRun]:
        return [one for one in self.runs.values() if one.job == job]

    def _is_over(self, run: FakeRun) -> bool:
        """Let time go by for a run."""
        if run.end is None and run.process is not None and (code := run.process.poll()) is not None:
            run.end = GOOD
            if code:
                run.end = (Code.RUN_EXECUTION_ERROR, Type.CLIENT_ERROR, f"exit code {code}")
            if code < 0:
                run.end = (Code.DRIVER_ERROR, Type.CLOUD_FAILURE, f"driver ended by signal {-code}")
        if run.is_queued and run.job is not None:
            others = [one for one in self.started_by(run.job) if one.id < run.id and not one.end]
            run.is_queued = len(others) >= (self.jobs[run.job].max_concurrent_runs or 1)
        if run.end is None and run.process is None and not run.is_queued and run.job is not None:
            does = self.does.get(self.jobs[run.job].name or "")
            run.end = does(run) if does else GOOD
        return run.end is not None

    def _run(self, run: FakeRun, kind: Any = jobs.Run) -> Any:
        is_over = self._is_over(run)
        state = State.QUEUED if run.is_queued else State.RUNNING
        status = jobs.RunStatus(state=state)
        if is_over and run.end is not None:
            code, type_, message = run.end
            details = jobs.TerminationDetails(code=code, type=type_, message=message)
            status = jobs.RunStatus(state=State.TERMINATED, termination_details=details)
        made = kind(
            run_id=run.id,
            job_id=run.job,
            status=status,
            start_time=run.began + 1000 * len(run.repairs),
            run_page_url=f"http://workspace/run/{run.id}",
            job_parameters=[
                jobs.JobParameter(default="", name=name, value=value)
                for name, value in run.parameters.items()
            ],
            tasks=[
                jobs.RunTask(
                    task_key=name,
                    run_id=run.id * 1000 + index,
                    start_time=run.began + 1000 * number,
                    status=status if is_last else self._ended(run, name, number),
                )
                for index, (name, number, is_last) in enumerate(self._tries(run))
            ],
        )
        document: dict[str, Any] = made.as_dict()
        return document

    def _names(self, run: FakeRun) -> list[str]:
        return run.only or [one.task_key for one in self.jobs[run.job or 0].tasks or ()]

    def _tries(self, run: FakeRun) -> list[tuple[str, int, bool]]:
        """Return the tasks that a run tried, the last first: name, number, whether it is the last.

        A task that ended well while others failed is one of an earlier try.
        """
        run.tries = run.tries or [self._names(run)]
        last = len(run.tries) - 1
        is_bad = run.end is not None and run.end[0] is not Code.SUCCESS and self.bad
        return [
            (name, number, number == last and not (is_bad and name not in self.bad))
            for number in range(last, -1, -1)
            for name in run.tries[number]
        ]

    def _ended(self, run: FakeRun, task: str, number: int) -> jobs.RunStatus:
        """Return the status of an ended try of a task: it failed if a repair did it again."""
        is_bad = number + 1 < len(run.tries) and task in run.tries[number + 1]
        code = Code.RUN_EXECUTION_ERROR if is_bad else Code.SUCCESS
        details = jobs.TerminationDetails(code=code, type=Type.CLIENT_ERROR, message="")
        return jobs.RunStatus(state=State.TERMINATED, termination_details=details)

    def _found(self, given: Any) -> FakeRun:
        number = int(given["run_id"])
        if number not in self.runs:
            raise Refused(400, "INVALID_PARAMETER_VALUE", f"Run {number} does not exist.")
        return self.runs[number]

    def _jobs_runs_get(self, given: Any) -> Any:
        run = self._found(given)
        found: dict[str, Any] = self._run(run)
        if given.get("include_history") == "true":
            kind = jobs.RepairHistoryItemType
            past = [jobs.RepairHistoryItem(type=kind.ORIGINAL, start_time=run.began)]
            past += [
                jobs.RepairHistoryItem(id=one, type=kind.REPAIR, start_time=run.began + 1000 * n)
                for n, one in enumerate(run.repairs, start=1)
            ]
            found["repair_history"] = [one.as_dict() for one in past]
        return found

    def _jobs_runs_list(self, given: Any) -> Any:
        found = [one for one in self.started_by(int(given["job_id"])) if not self._is_over(one)]
        shown = [] if self.is_stale else found
        return {"runs": [self._run(one, jobs.BaseRun) for one in shown], "has_more": False}

    def _jobs_runs_cancel(self, given: Any) -> Any:
        run = self._found(given)
        if not self._is_over(run):
            if run.process is not None:
                run.process.kill()
                run.process.wait()
            run.is_queued = False
            run.end = (Code.USER_CANCELED, Type.SUCCESS, "Run cancelled.")
        return {}

    def _jobs_runs_get_output(self, given: Any) -> Any:
        run = self.runs[int(given["run_id"]) // 1000]
        log = self.folder / f"log-{run.id}"
        if run.process is not None:
            return jobs.RunOutput(logs=log.read_text()).as_dict()
        task = self._tries(run)[int(given["run_id"]) % 1000][0]
        return self.outputs.get(task, jobs.RunOutput(logs=f"did {task}")).as_dict()

    def delete(self, run: FakeRun) -> None:
        """Delete a run, as somebody may in the workspace."""
        del self.runs[run.id]
        self.deleted.add(run.token or "")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeWorkspace

    def log_message(self, *_: Any) -> None: ...

    def _do(self) -> None:
        fake, parts = self.fake, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if parts.path.startswith("/.well-known"):
            return self._send(404, b"{}")
        with fake.lock:
            fake.requests.append(f"{self.command} {parts.path}")
            number = len(fake.requests)
            fault = next((one for one in fake.faults if re.search(one[0], parts.path)), None)
            if fault is not None:
                fake.faults.remove(fault)
        is_cut = fake.fuse is not None and number >= fake.fuse
        is_last = fake.fuse_after and number == fake.fuse
        if is_cut and not is_last:
            return self._cut()
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in fake.tokens:
            return self._send(403, _error(403, "Invalid access token."))
        if fault is not None and isinstance(fault[1], int):
            return self._send(fault[1], _error(fault[1], "out of order"))
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        try:
            answer = fake.answer(self.command, parts.path, query, body)
        except Refused as refused:
            return self._send(refused.status, json.dumps(refused.document).encode())
        except Exception as error:  # noqa: BLE001 - a request that the workspace does not know
            return self._send(400, _error(400, repr(error)))
        if fault is not None or is_last:  # it was done, and the answer is lost
            return self._cut()
        data = answer if isinstance(answer, bytes) else json.dumps(answer or {}).encode()
        return self._send(200, data)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _do  # noqa: N815

    def _cut(self) -> None:
        self.close_connection = True

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in (429, 503):
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)


def _error(status: int, message: str) -> bytes:
    code = _ERRORS.get(status, str(status))
    return json.dumps({"error_code": code, "message": message}).encode()


@contextmanager
def serve(fake: FakeWorkspace) -> Iterator[str]:
    """Serve a workspace on the loopback address; yield its address."""
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for run in fake.runs.values():
            if run.process is not None and run.process.poll() is None:
                run.process.kill()
                run.process.wait()
