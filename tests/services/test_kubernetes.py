"""Applications on a stand-in for Kubernetes (see kubernetes.py), by a real spark-submit.

They are found by the names of their pods, stopped, and never made twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.spark import clusters
from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.ports import AttemptState, EngineRun, Origin, Outcome
from tests.fakes import log_of
from tests.services.kubernetes import Kubernetes
from tests.services.test_yarn import begun, tokens

INSTALL = Path(__file__).parents[2] / "scripts" / "install-kubectl"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Kubernetes]:
    subprocess.run([INSTALL], check=True)
    cluster = Kubernetes(tmp_path / "pods")
    cluster.start()
    yield cluster
    cluster.close()


def pod_of(name: str) -> str:
    return f"lineage-backfill-{name}-driver"


def phase(cluster: Kubernetes, name: str) -> str | None:
    pod = cluster.pod(pod_of(name))
    return str(pod["status"]["phase"]) if pod else None


def drivers(cluster: Kubernetes) -> set[str]:
    """Return the names of all driver pods that were created; the server refuses a second one."""
    found = [name for name in cluster.created if name.endswith("-driver")]
    assert len(found) == len(set(found))
    return set(found)


def test_an_application_of_its_own_is_known_by_its_pod(
    cluster: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cluster.bench(tmp_path / "one")
    good = one.submit("days", "days", "2024-03-01", name="good")
    dead = one.submit("dies", "days", "2024-03-03", name="dead")
    waiting = one.submit("waits", "days", "2024-03-02", name="cancelled")
    begun(one, waiting, "2024-03-02")
    one.engine.cancel(waiting)
    one.wait(good, waiting, dead)
    assert one.engine.poll(waiting).state is AttemptState.CANCELLED
    assert phase(cluster, "t-cancelled") is None
    assert was_killed(one.engine.poll(dead))
    assert phase(cluster, "t-dead") == "Failed"
    outcome = one.engine.poll(good)
    assert outcome.state is AttemptState.SUCCEEDED, log_of(good)
    assert outcome.result is not None
    assert [key["rows"] for key in outcome.result["outputs"][0]["partitions"]] == [1]
    assert one.engine.identify(good) == EngineRun(origin=Origin.CREATED, id=pod_of("t-good"))
    assert phase(cluster, "t-good") == "Succeeded"
    assert tokens(one.folder) == {"t-good"}
    assert not list((one.folder / "state" / "spark-submit" / "uploads").iterdir())
    assert log_of(good).count("(phase: Running)") < 3
    assert pod_of("t-dead") in (one.engine.poll(dead).error or "")

    # Another machine asks, by spark-submit, before there is a pod; one more asks later.
    refusing = tmp_path / "refusing"
    refusing.mkdir()
    (refusing / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    (refusing / "kubectl").chmod(0o755)
    answers: list[None] = []
    look = clusters.Kubernetes.look
    monkeypatch.setattr(
        clusters.Kubernetes, "look", lambda *asked: answers.pop() if answers else look(*asked)
    )
    for name, asks_early in (("two", True), ("three", False)):
        other = cluster.bench(tmp_path / name)
        if asks_early:
            other.settings["env"]["PATH"] = f"{refusing}:{os.environ['PATH']}"
            other.engine = other.new_engine()
        spec = other.spec("dies", "days", "2024-03-03", name="dead")
        answers += [None, None] * asks_early  # asked twice before a submission
        handle = other.engine.submit(spec, "t-dead")
        other.wait(handle)
        assert was_killed(other.engine.poll(handle))
        assert ("already exists" in AttemptFiles(spec).log()) == asks_early
    assert drivers(cluster) == {pod_of(f"t-{name}") for name in ("good", "dead", "cancelled")}


def was_killed(outcome: Outcome) -> bool:
    is_failed = outcome.state is AttemptState.FAILED and "exit code: 137" in (outcome.error or "")
    return is_failed and outcome.transient


def test_while_the_server_does_not_answer_a_run_is_in_doubt_and_not_made_again(
    cluster: Kubernetes, tmp_path: Path
) -> None:
    one = cluster.bench(tmp_path / "one")
    handle = one.submit("waits", "days", "2024-03-03", name="doubt")
    begun(one, handle, "2024-03-03")
    pid = json.loads(Path(handle).with_name("claim.json").read_text())["pid"]
    os.killpg(pid, signal.SIGKILL)  # spark-submit; the driver is elsewhere
    cluster.stop()
    later = one.new_engine()
    for ask in (later.find, later.submit):
        with pytest.raises(ServiceUnreachableError, match="Connection refused"):
            ask(Path(handle), "t-doubt")
    assert one.engine.poll(handle).state is AttemptState.RUNNING
    cluster.start()
    assert later.find(Path(handle), "t-doubt") == handle
    assert later.poll(handle).state is AttemptState.RUNNING
    (one.folder / "go").touch()
    for _each_engine in range(2):
        one.wait(handle)
    for engine in (one.engine, later):
        assert engine.poll(handle).state is AttemptState.SUCCEEDED, log_of(handle)
    assert len(drivers(cluster)) == 1
    assert tokens(one.folder) == {"t-doubt"}
    later.close()
