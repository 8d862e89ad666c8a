"""Which failed attempts are tried again, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lineage_backfill.project.run_rules import Failure, RunRules
from lineage_backfill.runs.drive.retry import RetryPolicy

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("sentence", "attempt", "failure", "chance", "delay"),
    [
        ("the first wait is the policy's", 1, "transient", 0.0, 2 * SECOND),
        ("the wait grows by the factor", 2, "transient", 0.0, 6 * SECOND),
        ("it does not grow past the longest", 3, "transient", 0.0, 10 * SECOND),
        ("chance takes away up to the share of jitter", 1, "transient", 0.5, 1.5 * SECOND),
        ("the last attempt is the last", 5, "transient", 0.0, None),
        ("what will not pass is not tried again", 1, "failure", 0.0, None),
    ],
)
def test_delay(
    sentence: str, attempt: int, failure: Failure, chance: float, delay: timedelta | None
) -> None:
    policy = RetryPolicy(
        max_attempts=5, wait=2 * SECOND, factor=3, max_wait=10 * SECOND, jitter=0.5
    )
    assert policy.delay(attempt, failure=failure, chance=chance) == delay, sentence


def test_a_very_late_attempt_waits_the_longest() -> None:
    policy = RetryPolicy(max_attempts=10**6, max_wait=10 * SECOND)
    assert policy.delay(10**5, failure="transient", chance=0) == 10 * SECOND


def test_no_wait_is_no_wait() -> None:
    policy = RetryPolicy(wait=timedelta(0))
    assert policy.delay(1, failure="transient", chance=0) == timedelta(0)


def test_a_policy_without_an_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="not a retry policy"):
        RetryPolicy(max_attempts=0)


@pytest.mark.parametrize(
    ("on", "tried"),
    [
        (("transient",), {"transient"}),
        (("timeout",), {"timeout"}),
        (("transient", "timeout"), {"transient", "timeout"}),
        (("failure",), {"transient", "timeout", "failure"}),
        ((), set()),
    ],
)
def test_only_the_failures_that_are_meant_are_tried_again(
    on: tuple[Failure, ...], tried: set[str]
) -> None:
    policy = RetryPolicy(on=on)
    every: tuple[Failure, ...] = ("transient", "timeout", "failure")
    assert {one for one in every if policy.delay(1, failure=one, chance=0) is not None} == tried


def test_the_rules_of_a_job_are_its_policy_and_a_long_wait_is_not_cut_short() -> None:
    rules = RunRules(retries=1, retry_wait=timedelta(minutes=10), retry_on=("timeout",))
    policy = RetryPolicy.of(rules)
    assert policy.delay(1, failure="timeout", chance=0) == timedelta(minutes=10)
    assert policy.delay(2, failure="timeout", chance=0) is None
    assert RetryPolicy.of(RunRules()) == RetryPolicy()
    assert RetryPolicy.of(RunRules(retries=0)).delay(1, failure="transient", chance=0) is None
