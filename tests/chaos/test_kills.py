"""Executor and worker are killed wherever it could hurt; `resume` ends as if nothing had been.

These are more than 100 kills. What a dead executor leaves is never run a second time; a run whose
worker died may be, and replaces the same partitions.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.hooks import Hooks
from lineage_backfill.project.notify import NotifyDeclaration
from lineage_backfill.runs.drive.clock import SystemClock
from lineage_backfill.store.sql import SqlRunStore
from tests.chaos.driver import STEPS, SUCCEEDED
from tests.chaos.scenario import Scenario, disturb_at_random
from tests.chaos.world import FileTables

KILLED = -signal.SIGKILL
WORKER_STEPS = FileTables.worker_steps


def test_undisturbed_it_does_what_the_plan_says(scenario: Scenario) -> None:
    assert scenario.run() == SUCCEEDED
    scenario.check()


@pytest.mark.parametrize("step", STEPS)
def test_the_executor_is_killed_at_a_step_again_and_again(step: str, scenario: Scenario) -> None:
    """And then again each time that it resumes, as long as it gets there."""
    for number in (1, 3, 1, 2, 1, 2):
        if scenario.run((step, number)) == SUCCEEDED:
            break
    assert scenario.kills >= 3
    assert scenario.run() == SUCCEEDED
    scenario.check()


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("step", WORKER_STEPS)
def test_a_worker_is_killed_at_a_step(step: str, number: int, scenario: Scenario) -> None:
    assert scenario.run(worker_kills=[(step, number)]) == SUCCEEDED
    scenario.check(rewritten=1 if step == "before result" else 0)


@pytest.mark.parametrize("step", WORKER_STEPS)
@pytest.mark.parametrize("other", ["after submit", "before outcome"])
def test_a_worker_and_the_executor_are_killed(step: str, other: str, scenario: Scenario) -> None:
    assert scenario.run((other, 3), worker_kills=[(step, 2)]) == KILLED
    assert scenario.run() == SUCCEEDED
    scenario.check(rewritten=1 if step == "before result" else 0)


@pytest.mark.core
@pytest.mark.parametrize("seed", range(8))
def test_they_are_killed_at_random(seed: int, scenario: Scenario) -> None:
    disturb_at_random(scenario, random.Random(seed), kills=6)
    assert scenario.run() == SUCCEEDED
    scenario.check(rewritten=scenario.workers_killed)


def test_a_kill_beside_a_change_of_state_loses_no_notice(scenario: Scenario) -> None:
    """Each drive enters two states, and a kill comes right before or after one is written."""
    hook = NotifyDeclaration(on=("started", "finished"), command=("tell",))
    scenario.hooks = [hook]
    assert scenario.run(("before state", 1)) == KILLED
    assert pending(scenario, hook) == []
    assert scenario.run(("after state", 1)) == KILLED
    assert pending(scenario, hook) == ["started"]
    assert scenario.run(("before state", 2)) == KILLED
    assert pending(scenario, hook) == ["started"]
    assert scenario.run(("after state", 2)) == KILLED
    assert pending(scenario, hook) == ["finished", "started"]
    assert scenario.run() == SUCCEEDED
    assert pending(scenario, hook) == []  # it had ended
    scenario.check()


def pending(scenario: Scenario, hook: NotifyDeclaration) -> list[str]:
    """Take the notices that wait to be delivered."""

    class Sent(Hooks):
        def _send(self, _hook: NotifyDeclaration, _id: str, body: Mapping[str, Any]) -> None:
            found.append(body["event"])

    found: list[str] = []
    with closing(SqlRunStore(scenario.store)) as store:
        hooks = Sent(
            store, [hook], clock=SystemClock(), reveal=str, hosts=(), folder=scenario.folder
        )
        while hooks.deliver_one(hook):
            pass
    return sorted(found)


def test_they_are_killed_with_a_store_in_postgresql(postgres_url: str, tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, postgres_url)
    for step in ("after intent", "before handle", "before outcome"):
        assert scenario.run((step, 1)) == KILLED
    disturb_at_random(scenario, random.Random(0), kills=8)
    assert scenario.run() == SUCCEEDED
    scenario.check(rewritten=scenario.workers_killed)
