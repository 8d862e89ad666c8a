"""What every engine promises, as tests; needs the extra `testing`."""

from __future__ import annotations

import json
import queue
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.errors import EngineError
from lineage_backfill.ports import AttemptState, Engine, Origin

#: A command that does the run spec whose path is its last argument.
PROGRAM = (sys.executable, str(Path(__file__).with_name("__main__.py")))
_LONGEST = 20  # seconds until an attempt of the suite has ended


class Bench:
    """An engine at work in a folder, and the ends that it has reported."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.engine.listen(self.ended.put)
        self.engine.open()

    def spec(
        self, action: str, *, token: str = "t-1", attempt: int = 1, **parameters: object
    ) -> Path:
        """Write the run spec of an attempt and return its path."""
        folder = self.folder / "runs" / token
        folder.mkdir(parents=True, exist_ok=True)
        spec = {
            "run_id": "r-1",
            "attempt": attempt,
            "token": token,
            "job": {"namespace": "n", "name": "j", "entrypoint": f"fake:{action}"},
            "parameters": {"journal": str(self.folder / "journal"), **parameters},
            "result_path": str(folder / "result.json"),
        }
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        return folder / "spec.json"

    def submit(self, action: str, *, token: str = "t-1", **parameters: Any) -> str:
        """Submit an attempt and return its handle."""
        return self.engine.submit(self.spec(action, token=token, **parameters), token)

    def running(self, action: str, **parameters: Any) -> str:
        """Submit an attempt, wait until it runs, and return its handle."""
        handle = self.submit(action, **parameters)
        while self.engine.poll(handle).state is AttemptState.QUEUED:
            time.sleep(0.01)
        return handle

    def wait(self, handle: str) -> AttemptState:
        """Return the state of an attempt once its end is reported."""
        while True:
            assert self.ended.get(timeout=_LONGEST) == handle
            if (outcome := self.engine.poll(handle)).state.is_final:
                return outcome.state

    def journal(self) -> list[str]:
        """Return run and token of each attempt that did its work, in order."""
        path = self.folder / "journal"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


class EngineSuite:
    """The contract of `lineage_backfill.ports.Engine`; a subclass gives the engine to test."""

    def make(self, folder: Path) -> Engine:
        """Return a new engine for a project in a folder; each does run specs with PROGRAM."""
        raise NotImplementedError

    def another(self, bench: Bench) -> Bench:
        """Return the engine of the next executor at work in the same folder."""
        return Bench(self.make(bench.folder), bench.folder)

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        """Return an engine of `make` at work in a new folder."""
        made = Bench(self.make(tmp_path), tmp_path)
        yield made
        made.engine.close()

    def test_a_good_run_succeeds_with_its_result(self, bench: Bench) -> None:
        handle = bench.submit("succeed")
        assert bench.wait(handle) is AttemptState.SUCCEEDED
        result = bench.engine.poll(handle).result
        assert result is not None
        assert result["token"] == "t-1"

    def test_a_job_that_raises_fails_with_its_error(self, bench: Bench) -> None:
        handle = bench.submit("fail")
        assert bench.wait(handle) is AttemptState.FAILED
        outcome = bench.engine.poll(handle)
        assert outcome.error == "ValueError: no such column"
        assert not outcome.transient

    def test_a_crash_is_a_passing_failure_and_the_next_run_works(self, bench: Bench) -> None:
        crashed = bench.submit("crash", token="t-1")
        assert bench.wait(crashed) is AttemptState.FAILED
        outcome = bench.engine.poll(crashed)
        assert outcome.transient
        assert "signal 9" in (outcome.error or "")
        assert bench.wait(bench.submit("succeed", token="t-2")) is AttemptState.SUCCEEDED

    def test_a_crash_after_the_result_is_a_success(self, bench: Bench) -> None:
        path = bench.spec("crash")
        result = {"token": "t-1", "state": "succeeded", "outputs": []}
        (path.parent / "result.json").write_text(json.dumps(result), encoding="utf-8")
        assert bench.wait(bench.engine.submit(path, "t-1")) is AttemptState.SUCCEEDED

    def test_a_result_with_another_token_does_not_count(self, bench: Bench) -> None:
        path = bench.spec("crash")
        result = '{"token": "t-0", "state": "succeeded"}'
        (path.parent / "result.json").write_text(result, encoding="utf-8")
        assert bench.wait(bench.engine.submit(path, "t-1")) is AttemptState.FAILED

    def test_the_same_token_starts_one_attempt(self, bench: Bench) -> None:
        path = bench.spec("succeed")
        handle = bench.engine.submit(path, "t-1")
        assert bench.engine.submit(path, "t-1") == handle
        assert bench.wait(handle) is AttemptState.SUCCEEDED
        assert bench.engine.submit(path, "t-1") == handle
        assert bench.journal() == ["r-1 t-1"]

    def test_the_log_is_that_of_the_attempt(self, bench: Bench) -> None:
        bench.wait(bench.submit("succeed", token="t-1"))
        handle = bench.submit("succeed", token="t-2")
        bench.wait(handle)
        assert AttemptFiles(Path(handle)).log().count("running r-1") == 1

    def test_cancel_stops_a_running_attempt(self, bench: Bench) -> None:
        handle = bench.running("sleep", seconds=60)
        bench.engine.cancel(handle)
        assert bench.wait(handle) is AttemptState.CANCELLED
        bench.engine.cancel(handle)
        assert bench.journal() == []

    def test_the_next_executor_may_stop_what_the_first_one_has_begun(self, bench: Bench) -> None:
        handle = bench.running("sleep", seconds=60)
        found = bench.engine.identify(handle)
        assert found is not None
        assert found.origin is Origin.CREATED
        bench.engine.close()
        other = self.another(bench)
        again = other.engine.find(Path(handle), "t-1")
        assert again is not None
        assert other.engine.identify(again) == found
        other.engine.cancel(again)
        assert other.wait(again) is not AttemptState.SUCCEEDED
        assert other.engine.identify(again) == found
        other.engine.close()
        assert bench.journal() == []

    def test_what_runs_continues_after_close_and_is_not_waited_for(self, bench: Bench) -> None:
        handle = bench.running("sleep", seconds=3)
        begun = time.monotonic()
        bench.engine.close()
        assert time.monotonic() - begun < 2
        other = self.another(bench)
        found = other.engine.find(Path(handle), "t-1")
        assert found is not None
        assert other.wait(found) is AttemptState.SUCCEEDED
        other.engine.close()
        assert bench.journal() == ["r-1 t-1"]

    def test_a_spec_with_another_token_is_refused(self, bench: Bench) -> None:
        with pytest.raises(EngineError, match="another token"):
            bench.engine.submit(bench.spec("succeed"), "t-0")
        assert bench.journal() == []
        handle = bench.submit("succeed")
        bench.wait(handle)
        assert bench.engine.find(Path(handle), "t-0") is None

    def test_an_attempt_without_a_whole_run_spec_is_not_found(self, bench: Bench) -> None:
        assert bench.engine.find(bench.folder / "runs" / "t-9" / "spec.json", "t-9") is None
        path = bench.spec("succeed")
        path.write_text(path.read_text(encoding="utf-8")[:20], encoding="utf-8")  # a full disk
        assert bench.engine.find(path, "t-1") is None

    def test_an_executor_that_was_replaced_starts_nothing(self, bench: Bench) -> None:
        """It sleeps right before a submission, and another one has asked for the attempt."""
        path = bench.spec("succeed")
        successor = self.another(bench)
        found = successor.engine.find(path, "t-1")
        if found is not None:  # the engine starts it then, by its token
            assert successor.wait(found) is AttemptState.SUCCEEDED
        try:
            state = bench.wait(bench.engine.submit(path, "t-1"))
        except EngineError:
            state = AttemptState.FAILED
        assert (state is AttemptState.SUCCEEDED) == (found is not None)
        assert bench.journal() == ["r-1 t-1"] * (found is not None)
        successor.engine.close()
