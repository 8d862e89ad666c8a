"""Applications on a real YARN: submitted, found again by their tags, stopped, never made twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Origin
from spark_runtime.tables.delta.log import DeltaLog
from tests.e2e.test_spark_submit import Bench
from tests.fakes import log_of
from tests.services.machine import Machine
from tests.services.test_two_machines import LEASE_OVER
from tests.services.yarn import JOBS, SCRIPT, Yarn, bench, wait_for


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    yarn = Yarn(tmp_path_factory.mktemp("yarn"))
    yarn.call("up")
    yield yarn
    yarn.call("down")


@pytest.fixture
def project(yarn: Yarn, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(mode: str, **more: Any) -> Bench:
        made.append(bench(yarn, tmp_path / mode, mode, **more))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def tokens(folder: Path) -> set[str]:
    return set(DeltaLog(str(folder / "days")).state().tokens)


def test_both_modes_write_leave_a_result_and_are_known_by_their_tags(
    yarn: Yarn, project: Callable[[str], Bench]
) -> None:
    modes = [project("client"), project("cluster")]
    handles = [
        one.submit("days", "days", "2024-03-01", name=f"Days-{n}") for n, one in enumerate(modes)
    ]
    for one, handle in zip(modes, handles, strict=True):
        one.wait(handle)
        outcome = one.engine.poll(handle)
        assert outcome.state is AttemptState.SUCCEEDED, log_of(handle)
        assert outcome.result is not None
        (written,) = outcome.result["outputs"]
        assert [(key["key"], key["rows"]) for key in written["partitions"]] == [("2024-03-01", 1)]
    for n, (one, handle) in enumerate(zip(modes, handles, strict=True)):
        assert tokens(one.folder) == {f"t-Days-{n}"}
        (application,) = yarn.applications(f"t-days-{n}")
        assert application["finalStatus"] == "SUCCEEDED"
        assert one.engine.identify(handle) == EngineRun(origin=Origin.CREATED, id=application["id"])
    # One that has ended is found by another engine, too, and is not submitted again.
    later = modes[1].new_engine()
    assert later.submit(Path(handles[1]), "t-Days-1") == handles[1]
    assert len(yarn.applications("t-days-1")) == 1
    later.close()


def begun(one: Bench, handle: str, day: str) -> None:
    """Wait until the job of an attempt has begun."""

    def has_begun() -> bool:
        assert not one.engine.poll(handle).state.is_final, log_of(handle)
        return (one.folder / f"begun-{day}").exists()

    wait_for(has_begun)


def test_a_cancelled_application_is_killed(yarn: Yarn, project: Callable[[str], Bench]) -> None:
    one = project("cluster")
    handle = one.submit("waits", "days", "2024-03-02", name="cancelled")
    begun(one, handle, "2024-03-02")
    one.engine.cancel(handle)
    one.wait(handle)
    assert one.engine.poll(handle).state is AttemptState.CANCELLED
    (application,) = yarn.applications("t-cancelled")
    assert application["state"] == "KILLED"
    assert not (one.folder / "days").exists()


def test_a_driver_that_is_killed_there_may_be_tried_again(
    yarn: Yarn, project: Callable[..., Bench]
) -> None:
    one = project("cluster", program=True)
    killed = one.submit("dies", "days", "2024-03-02", name="killed")
    left = one.submit("deadly", "days", "2024-03-02", name="left")
    one.wait(killed, left)
    for handle, transient in ((killed, True), (left, False)):
        outcome = one.engine.poll(handle)
        assert (outcome.state, outcome.transient) == (AttemptState.FAILED, transient), outcome
        assert "days of 2024-03-02" in log_of(handle)


def test_while_yarn_does_not_answer_a_run_is_in_doubt_and_not_made_again(
    yarn: Yarn, project: Callable[[str], Bench]
) -> None:
    one = project("cluster")
    handle = one.submit("waits", "days", "2024-03-03", name="doubt")
    begun(one, handle, "2024-03-03")
    pid = json.loads(Path(handle).with_name("claim.json").read_text())["pid"]
    os.killpg(pid, signal.SIGKILL)  # spark-submit; the driver is elsewhere
    yarn.call("stop", "resourcemanager")
    later = one.new_engine()
    with pytest.raises(ServiceUnreachableError):
        later.find(Path(handle), "t-doubt")
    with pytest.raises(ServiceUnreachableError):
        later.submit(Path(handle), "t-doubt")
    assert one.engine.poll(handle).state is AttemptState.RUNNING
    yarn.call("start", "resourcemanager")
    # Until it has recovered its applications it lists none, and is not believed.
    wait_for(lambda: ("t-doubt", "RUNNING") in states(later, handle, yarn))
    assert later.find(Path(handle), "t-doubt") == handle
    assert later.poll(handle).state is AttemptState.RUNNING
    (one.folder / "go").touch()
    for _each_engine in range(2):
        one.wait(handle)
    for engine in (one.engine, later):
        assert engine.poll(handle).state is AttemptState.SUCCEEDED, log_of(handle)
    assert len(yarn.applications("t-doubt")) == 1
    assert tokens(one.folder) == {"t-doubt"}
    later.close()


def states(engine: Engine, handle: str, yarn: Yarn) -> set[tuple[str, str]]:
    """Return tags and states of applications; none is unknown to the engine meanwhile."""
    with suppress(ServiceUnreachableError):
        assert engine.find(Path(handle), "t-doubt") == handle
    return {(one["applicationTags"], one["state"]) for one in yarn.applications()}


PROJECT = """
[project]
name = "days"
namespace = "n"

[[dataset]]
name = "days"
grain = "day"
start = "2024-03-01"
column = "day"
location = "LAKE/days"

[[job]]
name = "waits"
engine = "cluster"
entrypoint = "pipeline.jobs:waits"
[[job.writes]]
dataset = "days"

[engines.cluster]
kind = "spark-submit"
"""


def machine(yarn: Yarn, lake: Path, name: str) -> Machine:
    """Return a machine with a checkout of its own; tables and run store are those of all."""
    folder = lake / name
    (folder / "pipeline").mkdir(parents=True)
    (folder / "pipeline" / "__init__.py").touch()
    (folder / "pipeline" / "jobs.py").write_text(JOBS.replace("FOLDER", str(lake)))
    (folder / "pipeline" / "helper.py").write_text("def twice(n):\n    return 2 * n\n")
    settings = "".join(
        f"{key} = {toml(value)}\n" for key, value in yarn.settings("cluster").items()
    )
    (folder / "lineage-backfill.toml").write_text(PROJECT.replace("LAKE", str(lake)) + settings)
    return Machine(name, folder, f"sqlite:///{lake}/runs.db")


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {json.dumps(one)}' for key, one in value.items()) + " }"
    return json.dumps(value)


def test_another_machine_asks_yarn_first_and_goes_on_with_what_runs(
    yarn: Yarn, tmp_path: Path
) -> None:
    one, two = machine(yarn, tmp_path, "etl-1"), machine(yarn, tmp_path, "etl-2")
    before = len(yarn.applications())
    tool = one.start("run", "--job", "waits", "--partitions", "2024-03-04", "--yes")
    try:
        wait_for(lambda: claims(one) and "pid" in claims(one)[0])
        submit = claims(one)[0]["pid"]
        os.killpg(submit, signal.SIGSTOP)  # on its way: YARN does not know it yet
        tool.send_signal(signal.SIGKILL)
        assert len(yarn.applications()) == before
        time.sleep(LEASE_OVER)
        _, said = two.run("resume", code=6)
        assert "may still be running on etl-1" in said
        os.killpg(submit, signal.SIGCONT)
        wait_for((tmp_path / "begun-2024-03-04").exists)
        os.killpg(submit, signal.SIGKILL)
        resumed = two.start("resume")
        (tmp_path / "go").touch()
        resumed.communicate(timeout=400)
        assert resumed.returncode == 0, two.log(1).read_text()
        (run,) = json.loads(two.run("status", "--json")[0])["runs"]
        assert run["state"] == "succeeded"
        (token,) = tokens(tmp_path)
        (application,) = yarn.applications(token)
        assert application["finalStatus"] == "SUCCEEDED"
        assert application["id"] == run["engine_run"]
        assert len(yarn.applications()) == before + 1
    finally:
        one.end()
        two.end()


def claims(one: Machine) -> list[dict[str, int]]:
    found = one.folder.glob(".lineage-backfill/backfills/*/runs/*claim.json")
    return [json.loads(path.read_text()) for path in found]


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_runs_share_an_application(yarn: Yarn, tmp_path: Path, mode: str) -> None:
    one = bench(yarn, tmp_path, mode, reuse=True)
    name = share_an_application(one)
    (application,) = yarn.applications(name)
    assert application["state"] == "RUNNING"
    one.engine.close()
    wait_for(lambda: yarn.applications(name)[0]["finalStatus"] == "SUCCEEDED")


def share_an_application(one: Bench) -> str:
    """Let runs share an application, one of them cancelled; return its name."""
    handles = [one.submit("days", "days", f"2024-03-0{n}", name=f"shares-{n}") for n in (1, 2)]
    one.wait(*handles)
    for n, handle in enumerate(handles, 1):
        assert one.engine.poll(handle).state is AttemptState.SUCCEEDED, log_of(handle)
        assert log_of(handle).count("days of") == 1
        assert f"days of 2024-03-0{n}" in log_of(handle)
    (name,) = applications(one)
    waiting = one.submit("waits", "days", "2024-03-03", name="waits")
    begun(one, waiting, "2024-03-03")
    one.engine.cancel(waiting)
    one.wait(waiting)
    assert one.engine.poll(waiting).state is AttemptState.CANCELLED
    after = one.submit("days", "days", "2024-03-03", name="after")
    one.wait(after)
    assert one.engine.poll(after).state is AttemptState.SUCCEEDED, log_of(after)
    assert applications(one) == {name}
    assert tokens(one.folder) == {f"t-{what}" for what in ("shares-1", "shares-2", "after")}
    return name


def applications(one: Bench) -> set[str]:
    return {folder.name for folder in (one.folder / "state" / "applications").iterdir()}


def test_an_application_on_yarn_outlives_its_tool_and_what_submitted_it(
    yarn: Yarn, tmp_path: Path
) -> None:
    one = bench(yarn, tmp_path, "cluster", reuse=True, orphan_seconds=60)
    with tool_of(one, "waits", "2024-03-10", name="adopted") as spec:
        wait_for((tmp_path / "begun-2024-03-10").exists)
    adopt(one, spec)
    end_a_driver(one)
    after = one.submit("days", "days", "2024-03-11", name="after")
    one.wait(after)
    assert one.engine.poll(after).state is AttemptState.SUCCEEDED, log_of(after)
    assert len(applications(one)) == 2
    assert tokens(tmp_path) == {"t-adopted", "t-after"}
    one.engine.close()


@contextmanager
def tool_of(one: Bench, job: str, day: str, *, name: str) -> Iterator[Path]:
    """Submit an attempt with a tool of its own, which is killed at the end."""
    spec = one.spec(job, "days", day, name=name)
    settings = json.dumps(one.settings)
    module = "tests.services.test_warm_applications"
    command = [sys.executable, "-m", module, str(one.folder), str(spec), f"t-{name}", settings]
    tool = subprocess.Popen(command, cwd=SCRIPT.parents[1])
    try:
        yield spec
        assert not listening(tool.pid)  # a cluster needs no way to the tool
    finally:
        tool.kill()
        tool.wait()


def listening(process: int) -> list[str]:
    """Return the addresses at which a process accepts connections."""
    sockets = set()
    for one in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            sockets.add(str(one.readlink()))
    tables = (Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6"))
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def adopt(one: Bench, spec: Path) -> None:
    """Go on with a run whose tool is dead, and what submitted its application too."""
    (name,) = applications(one)
    folder = one.folder / "state" / "applications" / name
    os.killpg(json.loads((folder / "process.json").read_text())["pid"], signal.SIGKILL)
    handle = one.engine.find(spec, "t-adopted")
    assert handle is not None
    assert one.engine.poll(handle).state is AttemptState.RUNNING
    (one.folder / "go").touch()
    one.wait(handle)
    assert one.engine.poll(handle).state is AttemptState.SUCCEEDED, log_of(handle)
    assert applications(one) == {name}


def end_a_driver(one: Bench) -> None:
    """Let a run end the driver of the application; it fails alone, and can be tried again."""
    before = applications(one)
    dead = one.submit("deadly", "days", "2024-03-11", name="deadly")
    one.wait(dead)
    outcome = one.engine.poll(dead)
    assert (outcome.state, outcome.transient) == (AttemptState.FAILED, True), outcome
    assert applications(one) == before
