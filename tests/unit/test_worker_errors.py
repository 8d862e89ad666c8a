"""What a Spark worker complains of reaches the user once: what happened, and what to do next."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.engines.spark.settings import SparkSettings
from lineage_backfill.errors import BackfillError, EngineError, EnvironmentMissingError
from lineage_backfill.ports import AttemptState
from spark_runtime import worker
from spark_runtime.errors import EntrypointError, JarsMissingError

HINT = "Run scripts/fetch-jars once."
#: A worker that answers with what the real one makes of an error; the first one may be at once.
WORKER = """
import json, os, sys
fd = int(sys.argv[sys.argv.index("--reply-fd") + 1])
error = json.loads(os.environ["ERROR"])
with os.fdopen(fd, "w", buffering=1) as replies:
    raised = {"op": "raised", "error": error}
    start = raised if "AT_ONCE" in os.environ else {"op": "ready"}
    replies.write(json.dumps(start) + "\\n")
    for line in sys.stdin:
        reply = {"op": "raised", "error": error}
        replies.write(json.dumps(reply) + "\\n")
"""


def said_by_worker(error: Exception, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the worker replies where its session cannot be had."""

    def fail(_conf: object) -> None:
        raise error

    monkeypatch.setattr(worker, "get_session", fail)
    monkeypatch.setattr(worker, "_take_stdin", lambda: iter(()))
    read, write = os.pipe()
    assert worker.serve(write, {}) == 1
    with os.fdopen(read) as replies:
        (line,) = replies
    reply: dict[str, Any] = json.loads(line)
    assert reply["op"] == "raised"
    said: dict[str, Any] = reply["error"]
    return said


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Any]:
    made: list[SparkEngine] = []
    (tmp_path / "worker.py").write_text(WORKER)

    def make(error: dict[str, Any], **more: str) -> SparkEngine:
        given = SparkSettings(
            command=(sys.executable, str(tmp_path / "worker.py")),
            env={"ERROR": json.dumps(error), **more},
        )
        engine = SparkEngine(given, project=tmp_path, state_dir=tmp_path / "state")
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def test_a_session_that_cannot_be_had_is_told_once(
    engines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = said_by_worker(JarsMissingError("no jars", hint=HINT), monkeypatch)
    assert said == {"class": "JarsMissingError", "message": "no jars", "hint": HINT}
    with pytest.raises(EnvironmentMissingError) as raised:
        engines(said, AT_ONCE="1").open()
    assert told(raised.value) == ("no jars", HINT)


def test_an_error_of_anybody_else_has_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by_worker(ValueError("bad\n\tat org.apache.Spark(x)"), monkeypatch)
    assert said == {"class": "ValueError", "message": "bad", "hint": ""}


def test_a_call_that_raises_is_told_once(engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by_worker(EntrypointError("no such job", hint=HINT), monkeypatch)
    with pytest.raises(EngineError) as raised:
        engines(said).call("a:b")
    assert told(raised.value) == ("a:b: EntrypointError: no such job", HINT)


@pytest.mark.parametrize("more", [{}, {"AT_ONCE": "1"}])
def test_a_run_that_raises_is_told_once(
    engines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    said = said_by_worker(EntrypointError("no such job", hint=HINT), monkeypatch)
    engine = engines(said, **more)
    spec = {"token": "t", "result_path": str(tmp_path / "result.json")}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.json").write_text(json.dumps(spec))
    handle = engine.submit(tmp_path / "run" / "spec.json", "t")
    while not (outcome := engine.poll(handle)).state.is_final:
        time.sleep(0.01)
    assert outcome.state is AttemptState.FAILED
    assert outcome.error.endswith(f"no such job. {HINT}")
    assert outcome.error.count(HINT) == 1


def told(error: BackfillError) -> tuple[str, str]:
    return str(error), error.hint
