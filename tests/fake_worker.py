"""A worker without Spark that speaks the protocol of the local engine.

The entrypoint of a run says what it does: `fake:succeed`, `fake:fail`, `fake:flaky` (fails the
first attempt for a passing reason), `fake:crash`, `fake:lose` (fails for a passing reason, and
dies before it replies), `fake:sleep`, `fake:no_result`, `fake:stubborn` (does not stop),
`fake:hoard` (takes 2 GiB), `fake:meet` (waits for another one). A run that gets as far as to write
replaces the partitions of its outputs, files in the folder of the table, and appends its token to
`journal` in the project folder.
WORKER_KILLS holds steps and numbers, as in `before commit 2,before reply 1`: the worker that is the
second to get to the first of these dies there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any


def result_of(spec: dict[str, Any], error: dict[str, Any] | None) -> dict[str, Any]:
    outputs = [
        {
            "dataset": output["dataset"],
            "version_before": 1,
            "version": 2,
            "partitions": [
                {"key": one["key"], "rows_before": 1, "rows": 2, "emptied": False}
                for one in output["scope"]
            ],
        }
        for output in spec.get("outputs", [])
    ]
    return {
        "schema_version": 1,
        "run_id": spec["run_id"],
        "attempt": spec["attempt"],
        "token": spec["token"],
        "state": "failed" if error else "succeeded",
        "outputs": [] if error else outputs,
        "inputs": [],
        "error": error,
        "started_at": "2024-01-01T00:00:00Z",
        "ended_at": "2024-01-01T00:00:01Z",
    }


def write(spec: dict[str, Any], error: dict[str, Any] | None) -> str:
    path = Path(spec["result_path"])
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result_of(spec, error)))
    temporary.replace(path)
    return "failed" if error else "succeeded"


def run(spec: dict[str, Any], journal: Path) -> str:
    reach("before start", journal)
    action = spec["job"]["entrypoint"].partition(":")[2]
    parameters = spec.get("parameters", {})
    print(f"running {spec['run_id']} attempt {spec['attempt']}", flush=True)  # noqa: T201
    if action == "crash":
        time.sleep(parameters.get("seconds", 0))
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "fail":
        error = {"class": "ValueError", "message": "no such column", "transient": False}
        return write(spec, error)
    if action == "flaky" and spec["attempt"] == 1:
        return write(spec, {"class": "IOError", "message": "gone for now", "transient": True})
    if action == "lose":
        write(spec, {"class": "Py4JNetworkError", "message": "no answer", "transient": True})
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "hoard":
        try:
            bytearray(2 << 30)
        except MemoryError:
            return write(spec, {"class": "MemoryError", "message": "", "transient": False})
    while action == "stubborn":
        with suppress(BaseException):
            time.sleep(60)
    if action == "meet":
        journal.with_name(f"met-{spec['token']}").touch()
        while len(list(journal.parent.glob("met-*"))) < 2:
            time.sleep(0.01)
    time.sleep(parameters.get("seconds", 30 if action == "sleep" else 0))
    reach("before commit", journal)
    commit(spec, journal)
    reach("before result", journal)
    state = "succeeded" if action == "no_result" else write(spec, None)
    reach("before reply", journal)
    return state


def run_all(path: Path, journal: Path) -> bool:
    """Do the run spec in a file, or all runs of a list; return whether one failed."""
    spec = json.loads(path.read_text())
    return {run(one, journal) for one in spec.get("runs", [spec])} != {"succeeded"}


def commit(spec: dict[str, Any], journal: Path) -> None:
    """Replace the partitions in scope, each of them one more than the sum of its inputs."""
    for output in spec.get("outputs", ()):
        if "location" not in output:
            continue
        for part in output["scope"]:
            inputs = [Path(one["location"], part["key"]) for one in spec["inputs"]]
            temporary = Path(output["location"], f".{part['key']}.{spec['token']}")
            temporary.write_text(str(1 + sum(int(one.read_text()) for one in inputs)))
            reach("in commit", journal)
            temporary.replace(Path(output["location"], part["key"]))
    with journal.open("a") as file:
        file.write(f"{spec['run_id']} {spec['token']}\n")


def reach(step: str, journal: Path) -> None:
    kills = os.environ.get("WORKER_KILLS", "").split(",")
    numbers = {int(kill.rpartition(" ")[2]) for kill in kills if kill.startswith(f"{step} ")}
    if not numbers:
        return
    with journal.with_name(f"reached {step}").open("ab", buffering=0) as file:
        file.write(b".")
        if file.tell() in numbers:
            with journal.with_name("workers-killed").open("ab") as killed:
                killed.write(b".")
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reply-fd", type=int)
    parser.add_argument("--project", type=Path)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--conf", action="append")
    options = parser.parse_args()
    if options.memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (options.memory, options.memory))
    if message := os.environ.get("FAKE_WORKER_MISSING"):
        sys.exit(message)
    with os.fdopen(options.reply_fd, "w", buffering=1) as replies:
        replies.write('{"op": "ready"}\n')
        for line in sys.stdin:
            request = json.loads(line)
            if request["op"] == "call":
                reply = {"op": "returned", "value": request["arguments"]}
                if request["entrypoint"] == "fake:raise":
                    error = {"class": "KeyError", "message": "'x'"}
                    reply = {"op": "raised", "error": error}
                if request["entrypoint"] == "fake:crash":
                    os.kill(os.getpid(), signal.SIGKILL)
            else:
                spec = json.loads(Path(request["spec"]).read_text())
                state = run(spec, options.project / "journal")
                reply = {"op": "finished", "state": state, "result_path": spec["result_path"]}
            replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
