"""A worker without Spark that speaks the protocol of the local engine.

The entrypoint of a run says what it does: `fake:succeed`, `fake:fail`, `fake:flaky` (fails the
first attempt for a passing reason), `fake:crash`, `fake:sleep`, `fake:no_result`. Each run that
gets as far as to write appends its token to `journal` in the project folder: that is its table.
FAKE_WORKER_KILL names a step at which the worker dies, once for each project folder.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
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
    action = spec["job"]["entrypoint"].partition(":")[2]
    parameters = spec.get("parameters", {})
    print(f"running {spec['run_id']} attempt {spec['attempt']}", flush=True)  # noqa: T201
    if action == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "fail":
        error = {"class": "ValueError", "message": "no such column", "transient": False}
        return write(spec, error)
    if action == "flaky" and spec["attempt"] == 1:
        return write(spec, {"class": "IOError", "message": "gone for now", "transient": True})
    time.sleep(parameters.get("seconds", 30 if action == "sleep" else 0))
    reach("before commit", journal)
    with journal.open("a") as file:
        file.write(f"{spec['run_id']} {spec['token']}\n")
    reach("before result", journal)
    state = "succeeded" if action == "no_result" else write(spec, None)
    reach("before reply", journal)
    return state


def reach(step: str, journal: Path) -> None:
    killed = journal.with_name("killed")
    if os.environ.get("FAKE_WORKER_KILL") == step and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reply-fd", type=int)
    parser.add_argument("--project", type=Path)
    options = parser.parse_args()
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
            replies.write(json.dumps({**reply, "id": request["id"]}) + "\n")


if __name__ == "__main__":
    main()
