"""A warm process: one Spark session, many runs, with requests as lines of JSON.

Requests arrive on stdin, replies go to a separate file descriptor, so a job's input and output
cannot interfere. The end of stdin ends the worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from lineage_backfill.errors import BackfillError
from lineage_backfill.runspec.values import RunResult, RunSpec
from spark_runtime import classic
from spark_runtime.connect import is_connect
from spark_runtime.errors import RuntimeFailure
from spark_runtime.job.attempt import describe_error
from spark_runtime.job.decorator import load_function
from spark_runtime.job.runner import run
from spark_runtime.session import get_session, is_alive, session_of_its_own
from spark_runtime.spec import load_spec
from spark_runtime.tables.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: After so many runs of a worker its JVM collects all garbage, which takes a tenth of a second.
#: Otherwise the old objects of hundreds of small runs fill the heap before it does.
_COLLECTED = 50


def serve(reply_fd: int, conf: Mapping[str, str]) -> int:
    """Answer requests until stdin ends; return the exit code of the process."""
    requests = _take_stdin()
    os.set_inheritable(reply_fd, False)
    with os.fdopen(reply_fd, "w", encoding="utf-8") as replies:
        return _work(requests, partial(_reply, replies), conf)


class Worker:
    """Answers requests one by one; an error of a job is a normal reply."""

    def __init__(self, spark: SparkSession, conf: Mapping[str, str] = MappingProxyType({})) -> None:
        self.spark = spark
        self._conf = conf
        self.tables = Tables(spark)
        self._runs = 0

    def answer(self, line: str) -> dict[str, Any]:
        """Handle a request, and return the reply."""
        try:
            request = json.loads(line)
            if request["op"] == "run":
                spec = load_spec(request["spec"])
                state = self.run(spec).state
                self._collect_garbage()
                return {"op": "finished", "state": state, "result_path": spec.result_path}
            if request["op"] == "call":
                value = load_function(request["entrypoint"])(
                    self.spark, **request.get("arguments", {})
                )
                json.dumps(value)
                return {"op": "returned", "value": value}
            raise RuntimeFailure(f"unknown request {request['op']!r}")
        except Exception as error:  # noqa: BLE001 (whatever a job raises is an answer)
            traceback.print_exc(file=sys.stderr)
            return {"op": "raised", "error": describe(error)}

    def run(self, spec: RunSpec) -> RunResult:
        """Run a run spec in a session of its own."""
        with session_of_its_own(self.spark, self._conf, spec.token) as session:
            return run(session, spec, self.tables.within(session))

    def _collect_garbage(self) -> None:
        self._runs += 1
        if is_connect(self.spark):
            return
        if self._runs % _COLLECTED == 0 and is_alive(self.spark):
            classic.collect_garbage(self.spark)


def _work(requests: Iterable[str], reply: Callable[..., None], conf: Mapping[str, str]) -> int:
    """Start Spark, then answer requests until stdin ends; return the exit code."""
    try:
        spark = get_session(conf)
    except Exception as error:  # noqa: BLE001 (reported to the process that started the worker)
        reply(op="raised", error=describe(error))
        return 1
    worker = Worker(spark, conf)
    reply(op="ready", application=spark.conf.get("spark.app.id", None))
    for line in requests:
        if line.strip():
            answer = worker.answer(line)
            sys.stdout.flush()
            if not is_alive(spark):
                reply(**answer, ends=True)
                return 1
            reply(**answer)
    spark.stop()
    return 0


def _take_stdin() -> IO[str]:
    """Return the stream of requests, and give jobs an empty stdin."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)
    return requests


def _reply(replies: IO[str], **message: Any) -> None:
    # No reader is left: stdin ends then, too.
    with contextlib.suppress(BrokenPipeError):
        replies.write(json.dumps(message, ensure_ascii=False) + "\n")
        replies.flush()


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error for a reply."""
    described = describe_error(error)
    message, hint = described.message, ""
    if isinstance(error, BackfillError):
        message, hint = error.message, error.hint  # its text contains both
    return {"class": described.class_name, "message": message, "hint": hint}
