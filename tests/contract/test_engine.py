"""What every engine promises, tried on each of them without Spark."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines import create_engine
from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.spark import spark_submit
from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.engines.spark.yarn import Found, ResourceManager
from lineage_backfill.errors import ConfigError, EngineError, EnvironmentMissingError
from lineage_backfill.model import JobRef
from lineage_backfill.ports import AttemptState, Engine
from lineage_backfill.testing import PROGRAM, Bench, EngineSuite
from tests import fake_databricks
from tests.airflow_suite import planned

OUTPUT: dict[str, Any] = {"dataset": {"namespace": "n", "name": "d"}, "partitions": []}
FAKE_WORKER = Path(__file__).parents[1] / "fake_worker.py"


def settings(kind: str, folder: Path) -> dict[str, object]:
    here = FAKE_WORKER.parent
    fake_command = [sys.executable, str(here / "fake_command.py")]
    if kind in ("local", "client"):
        command: dict[str, object] = {"command": (sys.executable, str(FAKE_WORKER))}
        return command if kind == "local" else {**command, "master": "spark://127.0.0.1:7077"}
    if kind == "cluster":
        program = folder / "spark" / "bin" / "spark-submit"
        if not program.exists():  # one that runs cannot be written
            program.parent.mkdir(parents=True)
            program.write_text(f"#!{sys.executable}\n{(here / 'fake_spark_submit.py').read_text()}")
            program.chmod(0o755)
        given = {"spark_home": str(folder / "spark"), "jars": []}
        return {**given, "master": "yarn", "deploy_mode": "cluster"}
    if kind == "acme":
        return {"program": PROGRAM}
    return {"argv": [*fake_command, "{spec}"]}


def make(kind: str, folder: Path, **more: object) -> Engine:
    """Make an engine of a kind, with more settings than it needs."""
    given = {**settings(kind, folder), **more}
    kind = "spark" if kind in ("client", "cluster") else kind
    return create_engine(kind, given, project=folder, state_dir=folder / "state")


class NoApplications(ResourceManager):
    """A YARN that knows no application."""

    def find(self, token: str) -> list[Found]:
        return []


MUCH = 50_000_000  # bytes


@pytest.fixture(params=["local", "command", "client", "cluster", "acme"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # "acme" is a third party's, found by its entry point.
    monkeypatch.syspath_prepend(FAKE_WORKER.with_name("third_party"))
    monkeypatch.setattr(spark_submit, "resource_manager", lambda *_: NoApplications(()))
    return str(request.param)


@pytest.fixture
def bench(kind: str, tmp_path: Path) -> Iterator[Bench]:
    engine = make(kind, tmp_path)
    yield Bench(engine, tmp_path)
    engine.close()


class TestEngines(EngineSuite):
    """The suite for engines whose attempts are processes of this machine."""

    @pytest.fixture(autouse=True)
    def _kind(self, kind: str) -> None:
        self.kind = kind

    def make(self, folder: Path) -> Engine:
        return make(self.kind, folder)


class TestDatabricks(EngineSuite):
    """The suite for the Databricks engine, on a workspace that runs attempts as its tasks."""

    @pytest.fixture(autouse=True)
    def _workspace(self, tmp_path: Path) -> Iterator[None]:
        with fake_databricks.serve(fake_databricks.FakeWorkspace(tmp_path)) as self.url:
            yield

    def make(self, folder: Path) -> Engine:
        given = {"host": self.url, "token": "dapi-1", "poll": 0.05}
        given |= {"volume": fake_databricks.VOLUME, "cluster": {"existing_cluster_id": "c-1"}}
        return create_engine("databricks", given, project=folder, state_dir=folder / "state")


def test_an_engine_says_whether_it_can_undo_and_what_others_run(bench: Bench, kind: str) -> None:
    assert bench.engine.can_undo is (kind in ("local", "client", "cluster"))
    assert bench.engine.live(JobRef("n", "j")) is None


def test_an_engine_that_lacks_a_member_of_the_port_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineage_backfill.engines.ENGINES", {"half": f"{__name__}:HalfEngine"})
    with pytest.raises(ConfigError, match="HalfEngine of engine kind 'half' does not have all"):
        create_engine("half", {}, project=tmp_path, state_dir=tmp_path)


class HalfEngine:
    """An engine without `live` and most else."""

    can_undo = False

    def __init__(self, **settings: Any) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"outputs": "no"}, "outputs"),
        ({"outputs": [{"dataset": {"namespace": "n", "name": "d"}}]}, "partitions"),
        ({"outputs": [{"dataset": "d", "partitions": []}]}, "dataset"),
        ({"inputs": [3]}, "inputs[0]"),
        ({"outputs": None}, "outputs"),
        ({"inputs": None}, "inputs"),
        ({"outputs": [{**OUTPUT, "drift": None}]}, "drift"),
        ({"inputs": [{**OUTPUT, "missing": None}]}, "missing"),
        ({"outputs": [{**OUTPUT, "merged": "no"}]}, "merged"),
        ({"outputs": [{**OUTPUT, "merged": {"inserted": "no"}}]}, "merged.inserted"),
        ({"inputs": [{**OUTPUT, "missing": 3}]}, "missing"),
        ({"inputs": [{**OUTPUT, "unknown": [3]}]}, "unknown[0]"),
        ({"outputs": [{**OUTPUT, "partitions": [{"key": "k", "within": [3]}]}]}, "within[0]"),
        ({"error": "no"}, "error"),
        ({"state": "done"}, "state"),
        ({"schema_version": 2}, "schema_version"),
        ({"schema_version": "1"}, "schema_version"),
        ({"run_id": "r-2"}, "run_id"),
        ({"attempt": 2}, "attempt"),
        ({"attempt": "1"}, "attempt"),
        ({"state": None}, "state"),
    ],
)
def test_a_result_of_another_shape_fails_its_run_alone(
    bench: Bench, wrong: dict[str, Any], place: str
) -> None:
    path = bench.spec("no_result")
    result = {"token": "t-1", "state": "succeeded", "outputs": []} | wrong
    (path.parent / "result.json").write_text(json.dumps(result))
    handle = bench.engine.submit(path, "t-1")
    assert bench.wait(handle) is AttemptState.FAILED
    assert place in (bench.engine.poll(handle).error or "")


def _as_folder(path: Path) -> None:
    path.mkdir()


def _as_pipe(path: Path) -> None:
    os.mkfifo(path)


def _as_loop(path: Path) -> None:
    path.symlink_to(path)


def _as_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _holding(text: str | bytes) -> Callable[[Path], None]:
    data = text.encode() if isinstance(text, str) else text
    return lambda path: _write(path, data)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


GOOD = '{"token": "t-1", "state": "succeeded", "outputs": [], "more": %s}'


@pytest.mark.parametrize(
    "leave",
    [
        *(_as_folder, _as_pipe, _as_loop, _as_endless),
        *map(_holding, ("", "null", "[]", "7", "{", "[" * 100_000)),
        *map(_holding, (bytes(range(256)), '{"t\xf6ken": 1}'.encode("latin-1"))),
        *(_holding(GOOD % more) for more in ("NaN", "-Infinity", "1e999", "9" * 5_000)),
        _holding(GOOD % ("[" * 5_000 + "]" * 5_000)),
    ],
)
def test_a_result_that_cannot_be_read_ends_its_run_now_and_for_the_next_executor(
    bench: Bench, kind: str, leave: Callable[[Path], None]
) -> None:
    path = bench.spec("no_result")
    leave(path.parent / "result.json")
    handle = bench.engine.submit(path, "t-1")
    assert bench.wait(handle) is AttemptState.FAILED
    next_one = make(kind, bench.folder)
    try:
        found = next_one.find(path, "t-1")
        assert found is not None
        assert next_one.poll(found).state is AttemptState.FAILED
    finally:
        next_one.close()


@pytest.mark.parametrize("left", [b"", b"{", b"[]"])
def test_a_claim_that_a_crash_of_the_machine_has_emptied_is_that_of_a_dead_process(
    bench: Bench, kind: str, left: bytes
) -> None:
    path = bench.spec("succeed")
    AttemptFiles(path).claim_path.write_bytes(left)
    found = bench.engine.find(path, "t-1")
    if kind in ("local", "client") or found is not None:
        assert found is not None
        assert bench.engine.poll(found).state in (AttemptState.LOST, AttemptState.FAILED)


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_ends_while_nobody_waits_is_known_by_its_exit_code(
    tmp_path: Path, code: int
) -> None:
    argv = ["sh", "-c", f"sleep 1; echo done >> journal; exit {code}"]

    def engine() -> Engine:
        return create_engine(
            "command", {"argv": argv}, project=tmp_path, state_dir=tmp_path / "state"
        )

    first = Bench(engine(), tmp_path)
    path = first.spec("succeed")
    first.engine.submit(path, "t-1")
    first.engine.close()
    while not first.journal():
        time.sleep(0.05)
    second = engine()
    while (handle := second.find(path, "t-1")) is None or not second.poll(handle).state.is_final:
        time.sleep(0.05)
    outcome = second.poll(handle)
    assert outcome.state is (AttemptState.FAILED if code else AttemptState.SUCCEEDED)
    assert first.journal() == ["done"]


def test_a_command_has_ended_also_where_it_leaves_a_process_behind(tmp_path: Path) -> None:
    script = (
        "sleep 30 & echo $! > left; while [ ! -e go ]; do sleep 0.1; done; echo done >> journal"
    )
    settings = {"argv": ["sh", "-c", script]}

    def engine() -> Engine:
        return create_engine("command", settings, project=tmp_path, state_dir=tmp_path / "state")

    first = Bench(engine(), tmp_path)
    path = first.spec("succeed")
    first.engine.submit(path, "t-1")
    while not (tmp_path / "left").exists():
        time.sleep(0.05)
    second = Bench(engine(), tmp_path)
    handle = second.engine.find(path, "t-1")
    assert handle is not None
    assert second.engine.poll(handle).state is AttemptState.RUNNING
    (tmp_path / "go").touch()
    assert second.wait(handle) is AttemptState.SUCCEEDED
    third = engine()
    found = third.find(path, "t-1")
    assert found is not None
    assert third.poll(found).state is AttemptState.SUCCEEDED
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_command_whose_shell_alone_is_killed_has_not_ended(
    tmp_path: Path, number: signal.Signals, is_stopped: bool
) -> None:
    """Or it would be submitted again while it works."""
    script = "echo begun > begun; while [ ! -e go ]; do sleep 0.1; done; echo done >> journal"
    settings = {"argv": ["sh", "-c", script]}
    engine = create_engine("command", settings, project=tmp_path, state_dir=tmp_path / "state")
    bench = Bench(engine, tmp_path)
    path = bench.spec("succeed")
    handle = engine.submit(path, "t-1")
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    claim = AttemptFiles(path).claimed_by() or {}
    os.kill(claim["pid"], number)
    time.sleep(1)
    assert engine.poll(handle).state is AttemptState.RUNNING
    if is_stopped:
        engine.cancel(handle)
        assert bench.wait(handle) is AttemptState.CANCELLED
        assert bench.journal() == []
        return
    (tmp_path / "go").touch()
    is_known = number != signal.SIGKILL  # which leaves no shell to record the exit code
    ends = AttemptState.SUCCEEDED if is_known else AttemptState.FAILED
    assert bench.wait(handle) is ends
    assert bench.journal() == ["done"]


@pytest.mark.parametrize(
    ("code", "said", "passes"),
    [
        (255, "ended with exit code 255", False),
        (200, "ended with exit code 200", False),
        (143, "ended by signal 15", True),
        (3, "ended with exit code 3", False),
    ],
)
def test_an_exit_code_that_no_signal_has_is_a_failure_that_stays(
    tmp_path: Path, code: int, said: str, passes: bool
) -> None:
    argv = ["sh", "-c", f"exit {code}"]
    engine = create_engine("command", {"argv": argv}, project=tmp_path, state_dir=tmp_path / "x")
    bench = Bench(engine, tmp_path)
    handle = bench.submit("succeed")
    assert bench.wait(handle) is AttemptState.FAILED
    outcome = engine.poll(handle)
    assert (outcome.error, outcome.transient) == (said, passes)
    engine.close()


def test_a_command_that_prints_much_and_fails_takes_no_memory(tmp_path: Path) -> None:
    script = f"head -c {MUCH} /dev/zero; echo; echo 'ValueError: no such column'; exit 3"
    argv = ["sh", "-c", script]
    engine = create_engine("command", {"argv": argv}, project=tmp_path, state_dir=tmp_path / "x")
    bench = Bench(engine, tmp_path)
    tracemalloc.start()
    try:
        handle = bench.submit("succeed")
        assert bench.wait(handle) is AttemptState.FAILED
        assert tracemalloc.get_traced_memory()[1] < MUCH / 2
    finally:
        tracemalloc.stop()
    assert engine.poll(handle).error == "ended with exit code 3: ValueError: no such column"
    engine.close()


def test_local_reports_what_is_missing_when_it_is_opened(tmp_path: Path) -> None:
    engine = create_engine(
        "local",
        settings("local", tmp_path) | {"env": {"FAKE_WORKER_MISSING": "no Java was found"}},
        project=tmp_path,
        state_dir=tmp_path,
    )
    with pytest.raises(EnvironmentMissingError, match="no Java was found"):
        engine.open()
    engine.close()


def test_local_refuses_runs_without_java_before_it_starts_a_worker(tmp_path: Path) -> None:
    for env in ({"JAVA_HOME": str(tmp_path)}, {"JAVA_HOME": "", "PATH": str(tmp_path)}):
        engine = create_engine("local", {"env": env}, project=tmp_path, state_dir=tmp_path)
        with pytest.raises(EnvironmentMissingError, match="no Java found in"):
            engine.check([planned("job")], lambda _run: {})
        engine.check([], lambda _run: {})
        engine.close()


@pytest.fixture
def local(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The local engine with settings of the test's own."""
    engine = create_engine(
        "local",
        {**settings("local", tmp_path), **request.param},
        project=tmp_path,
        state_dir=tmp_path / "state",
    )
    yield Bench(engine, tmp_path)
    engine.close()


@pytest.mark.parametrize("local", [{"idle_seconds": 0.1}], indirect=True)
def test_local_ends_idle_workers_and_starts_new_ones(local: Bench) -> None:
    for token in ("t-1", "t-2"):
        assert local.wait(local.submit("succeed", token=token)) is AttemptState.SUCCEEDED
        while list(local.folder.glob("state/workers/*.alive")):
            time.sleep(0.01)
    assert len(local.journal()) == 2


@pytest.mark.parametrize("local", [{"max_age": 0.001}, {}], indirect=True)
def test_local_ends_old_workers_and_those_of_other_code(local: Bench) -> None:
    for token in ("t-1", "t-2"):
        (local.folder / "job.py").write_text(token)
        assert local.wait(local.submit("succeed", token=token)) is AttemptState.SUCCEEDED
    assert len(list(local.folder.glob("state/workers/*.log"))) >= 2
    assert len(list(local.folder.glob("state/workers/*.alive"))) <= 1


@pytest.mark.parametrize("local", [{}], indirect=True)
def test_local_replaces_a_worker_in_which_two_runs_fail_alike_once(local: Bench) -> None:
    def after(*actions: str) -> int:
        """Return how many workers there have been after these runs."""
        for action in actions:
            local.wait(local.submit(action, token=f"t-{next(numbers)}"))
        return len(list(local.folder.glob("state/workers/*.log")))

    numbers = itertools.count()
    assert after("fail", "succeed", "fail") == 1
    assert after("fail") == 1
    assert after("succeed") == 2  # the two before it failed alike
    assert after("fail", "fail", "fail", "succeed") == 2  # it was not the worker


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count mapped memory")
@pytest.mark.parametrize("local", [{"memory": "1g"}], indirect=True)
def test_local_caps_the_memory_of_its_workers(local: Bench) -> None:
    greedy = local.submit("hoard", token="t-1")
    assert local.wait(greedy) is AttemptState.FAILED
    assert "MemoryError" in (local.engine.poll(greedy).error or "")
    assert local.wait(local.submit("succeed", token="t-2")) is AttemptState.SUCCEEDED


@pytest.mark.parametrize("local", [{"workers": 2}], indirect=True)
def test_local_works_on_as_many_attempts_as_it_has_workers(local: Bench) -> None:
    handles = {local.submit("meet", token=f"t-{number}") for number in range(2)}
    assert {local.ended.get(timeout=20) for _ in handles} == handles
    assert len(local.journal()) == 2


def test_local_calls_functions_in_its_worker(tmp_path: Path) -> None:
    engine = make("local", tmp_path)
    assert isinstance(engine, SparkEngine)
    try:
        assert engine.call("fake:echo", {"a": 1}) == {"a": 1}
        with pytest.raises(EngineError, match="KeyError"):
            engine.call("fake:raise")
        with pytest.raises(EngineError, match="signal 9"):
            engine.call("fake:crash")
        assert engine.call("fake:echo", {"a": 2}) == {"a": 2}
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("spork", {}, "no engine of kind 'spork'"),
        ("local", {"workers": 0}, "workers"),
        ("local", {"slots": 2}, "slots"),
        ("local", {"max_age": 0}, "max_age"),
        ("local", {"colour": "red"}, "colour"),
        ("local", {"memory": "512m"}, "at least 1g"),
        ("local", {"memory": "lots"}, "at least 1g"),
        ("local", {"idle_seconds": 0}, "idle_seconds"),
        ("command", {}, "argv"),
        ("command", {"argv": ["run", "{spek}"]}, "spek"),
        ("command", {"argv": ["run", "{}"]}, "is not a placeholder"),
        ("command", {"argv": ["run", "{spec.name}"]}, "is not a placeholder"),
        ("command", {"argv": ["run", "{attempt:d}"]}, "format code"),
        ("spark", {"deploy_mode": "custer"}, "custer"),
        ("spark", {"master": "spark://h:1", "deploy_mode": "cluster"}, "YARN"),
        ("spark", {"master": "yarn", "deploy_mode": "cluster", "workers": 2}, "workers"),
        ("spark", {"queue": "x"}, "queue"),
        ("spark-submit", {"master": "yarn"}, "no engine of kind 'spark-submit' any more"),
    ],
)
def test_wrong_settings_are_refused(
    kind: str, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        create_engine(kind, settings, project=tmp_path, state_dir=tmp_path)
