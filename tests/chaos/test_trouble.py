"""Disks fill up, stores become read-only, clocks jump: it stops with a reason and goes on later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.driver import REFUSED, SUCCEEDED, UNFINISHED
from tests.chaos.scenario import Scenario

KILLED = -signal.SIGKILL
#: A drive that stops by itself stops its workers; each may have been about to write its result.
WORKERS = 2
#: Makes a small file system that only the process sees, and all that it starts.
NAMESPACE = ("unshare", "--map-root-user", "--mount")


@pytest.mark.parametrize(
    "step", [("before intent", 2), ("before spec", 3), ("after submit", 2), ("before outcome", 2)]
)
def test_a_full_disk_stops_it_with_a_reason(step: tuple[str, int], scenario: Scenario) -> None:
    assert scenario.run(step, action="full disk") == REFUSED
    assert "StoreError" in scenario.log()
    assert scenario.run() == SUCCEEDED
    scenario.check(rewritten=WORKERS)


def can_mount() -> bool:
    try:
        tried = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a file system of its own")
@pytest.mark.parametrize("kilobytes", [0, 16, 64])
def test_a_file_system_without_room_stops_it_with_a_reason(kilobytes: int, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.chaos.full_disk", str(tmp_path), str(kilobytes)]
    done = subprocess.run(
        [*NAMESPACE, *program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "step", [("before intent", 1), ("before handle", 1), ("before outcome", 2)]
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_read_only_store_stops_it_with_a_reason(
    kind: str, step: tuple[str, int], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    scenario = Scenario(tmp_path, url)
    assert scenario.run(step, action="read-only") == REFUSED
    assert "StoreError" in scenario.log()
    assert scenario.run() == SUCCEEDED
    scenario.check(rewritten=WORKERS)


#: Hours by which the clock jumps, at steps that every drive reaches.
JUMPS = {
    ("after intent", 1): "48",
    ("after submit", 2): "-96",
    ("before handle", 3): "24",
    ("ended", 2): "-1",
    ("after outcome", 3): "9000",
}


def test_jumping_clocks_change_nothing(scenario: Scenario) -> None:
    assert scenario.end(scenario.start(JUMPS)) == SUCCEEDED
    scenario.check()


@pytest.mark.parametrize("hours", ["-8760", "-1", "1", "8760"])
def test_an_executor_whose_clock_was_wrong_is_taken_over(hours: str, scenario: Scenario) -> None:
    disturb = {("before intent", 1): hours, ("after submit", 3): "kill"}
    assert scenario.end(scenario.start(disturb)) == KILLED
    assert scenario.run() == SUCCEEDED
    scenario.check()


def test_ctrl_c_leaves_running_workers_alone(scenario: Scenario) -> None:
    assert scenario.run(("after handle", 2), action="interrupt") == UNFINISHED
    assert scenario.run() == SUCCEEDED
    scenario.check()
