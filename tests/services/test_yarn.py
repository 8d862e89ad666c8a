"""Applications on a real YARN: submitted, found again by their tags, stopped, never made twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Origin
from spark_runtime.tables.delta.log import DeltaLog
from tests.e2e.test_spark_cluster import Bench
from tests.fakes import log_of
from tests.services.machine import Machine
from tests.services.test_two_machines import LEASE_OVER
from tests.services.yarn import JOBS, Yarn, bench, wait_for


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


def test_a_worker_runs_several_attempts_in_one_application(
    yarn: Yarn, project: Callable[[str], Bench]
) -> None:
    before = len(yarn.applications())
    one = project("client")  # starts the first worker, and its application
    handles = [one.submit("days", "days", f"2024-03-0{n}", name=f"warm-{n}") for n in (1, 2)]
    one.wait(*handles)
    for handle in handles:
        assert one.engine.poll(handle).state is AttemptState.SUCCEEDED, log_of(handle)
    (application,) = yarn.applications("lineage-backfill")
    assert application["name"] == f"lineage-backfill {one.folder.name}"
    found = {getattr(one.engine.identify(handle), "id", None) for handle in handles}
    assert found == {application["id"]}
    waiting = one.submit("waits", "days", "2024-03-03", name="waits")
    begun(one, waiting, "2024-03-03")
    one.engine.cancel(waiting)
    one.wait(waiting)
    assert one.engine.poll(waiting).state is AttemptState.CANCELLED
    after = one.submit("days", "days", "2024-03-03", name="after")
    one.wait(after)
    assert one.engine.poll(after).state is AttemptState.SUCCEEDED, log_of(after)
    assert len(yarn.applications()) == before + 2
    assert tokens(one.folder) == {"t-warm-1", "t-warm-2", "t-after"}


def test_an_attempt_on_the_cluster_leaves_a_result_and_is_known_by_its_tag(
    yarn: Yarn, project: Callable[[str], Bench]
) -> None:
    one = project("cluster")
    handle = one.submit("days", "days", "2024-03-01", name="Days")
    one.wait(handle)
    outcome = one.engine.poll(handle)
    assert outcome.state is AttemptState.SUCCEEDED, log_of(handle)
    assert outcome.result is not None
    (written,) = outcome.result["outputs"]
    assert [(key["key"], key["rows"]) for key in written["partitions"]] == [("2024-03-01", 1)]
    assert tokens(one.folder) == {"t-Days"}
    (application,) = yarn.applications("t-days")
    assert application["finalStatus"] == "SUCCEEDED"
    assert one.engine.identify(handle) == EngineRun(origin=Origin.CREATED, id=application["id"])
    # One that has ended is found by another engine, too, and is not submitted again.
    later = one.new_engine()
    assert later.submit(Path(handle), "t-Days") == handle
    assert len(yarn.applications("t-days")) == 1
    later.close()


def test_a_list_is_one_application_and_each_run_has_its_result(
    yarn: Yarn, project: Callable[..., Bench]
) -> None:
    one = project("cluster", lists=True)
    jobs = {"t-list.1": "days", "t-list.2": "odd", "t-list.3": "days"}
    specs = {
        token: one.spec(job, "days", f"2024-03-0{n}", name=token.removeprefix("t-"))
        for n, (token, job) in enumerate(jobs.items(), start=1)
    }
    handles = one.engine.submit_list(specs)
    wait_for(lambda: all(one.engine.poll(handle).state.is_final for handle in handles))
    first, second, third = (one.engine.poll(handle) for handle in handles)
    assert first.state is third.state is AttemptState.SUCCEEDED, log_of(handles[0])
    assert (second.state, second.transient) == (AttemptState.FAILED, False), "it has no such job"
    assert tokens(one.folder) == {"t-list.1", "t-list.3"}
    (application,) = yarn.applications("t-list")
    assert one.engine.identify(handles[2]) == EngineRun(origin=Origin.CREATED, id=application["id"])


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
        assert "container" in (outcome.error or ""), "where its log is"


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
kind = "spark"
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
