"""Executor and worker are killed wherever it could hurt; `resume` ends as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.ports import AttemptState
from lineage_backfill.store.sql import SqlRunStore
from tests.kill_driver import PLAN, STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DRIVER = Path(__file__).parents[1] / "kill_driver.py"
RUNS = sorted(run.id for run in PLAN.runs or ())


def drive(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder), *arguments],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> int:
    _, talk = process.communicate(timeout=60)
    assert process.returncode in (0, 3, -signal.SIGKILL), talk
    return process.returncode


def writes(folder: Path) -> Counter[str]:
    """How often each run has written its table."""
    journal = folder / "journal"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return Counter(line.split()[0] for line in lines)


def resume(folder: Path) -> None:
    assert end(drive(folder, (folder / "id").read_text())) == 0


def check_store(folder: Path) -> None:
    """Every run has succeeded by its last attempt, and the store has no loose ends."""
    store = SqlRunStore(f"sqlite:///{folder}/runs.db")
    backfill_id = (folder / "id").read_text()
    assert store.backfill(backfill_id).state is BackfillState.SUCCEEDED
    attempts = {(one.run_id, one.attempt): one for one in store.attempts(backfill_id)}
    for run in store.runs(backfill_id):
        assert run.state is RunState.SUCCEEDED
        assert attempts[run.run_id, run.attempt].state is AttemptState.SUCCEEDED
    assert all(one.state.is_final for one in attempts.values())
    store.close()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_the_executor_is_killed_at_a_step(step: str, number: int, tmp_path: Path) -> None:
    assert end(drive(tmp_path, "-", step, str(number))) == -signal.SIGKILL
    resume(tmp_path)
    check_store(tmp_path)
    assert writes(tmp_path) == Counter(RUNS)


@pytest.mark.parametrize(
    ("step", "rewritten"), [("before commit", 0), ("before result", 1), ("before reply", 0)]
)
def test_the_worker_is_killed_at_a_step(step: str, rewritten: int, tmp_path: Path) -> None:
    """Only a write whose result was lost is made again: it replaces the same partitions."""
    assert end(drive(tmp_path, "-", FAKE_WORKER_KILL=step)) == 0
    check_store(tmp_path)
    assert writes(tmp_path).total() == len(RUNS) + rewritten


@pytest.mark.parametrize("seed", range(6))
def test_the_executor_is_killed_again_and_again(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    process = drive(tmp_path, "-")
    while not (tmp_path / "id").exists():
        time.sleep(0.01)
    for _ in range(4):
        time.sleep(chance.uniform(0, 1.2))
        process.kill()
        end(process)
        process = drive(tmp_path, (tmp_path / "id").read_text())
    assert end(process) == 0
    check_store(tmp_path)
    assert writes(tmp_path) == Counter(RUNS)


def test_ctrl_c_leaves_running_workers_alone_and_resume_goes_on(tmp_path: Path) -> None:
    process = drive(tmp_path, "-")
    while not writes(tmp_path):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    code = end(process)
    if code:  # else it was through already
        resume(tmp_path)
    check_store(tmp_path)
    assert writes(tmp_path) == Counter(RUNS)
