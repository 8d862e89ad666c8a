"""Which failed attempts are tried again, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lineage_backfill.runs.retry import RetryPolicy

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("sentence", "attempt", "transient", "chance", "delay"),
    [
        ("the first wait is the policy's", 1, True, 0.0, 2 * SECOND),
        ("the wait grows by the factor", 2, True, 0.0, 6 * SECOND),
        ("it does not grow past the longest", 3, True, 0.0, 10 * SECOND),
        ("chance takes away up to the share of jitter", 1, True, 0.5, 1.5 * SECOND),
        ("the last attempt is the last", 5, True, 0.0, None),
        ("what will not pass is not tried again", 1, False, 0.0, None),
    ],
)
def test_delay(
    sentence: str, attempt: int, transient: bool, chance: float, delay: timedelta | None
) -> None:
    policy = RetryPolicy(
        max_attempts=5, wait=2 * SECOND, factor=3, max_wait=10 * SECOND, jitter=0.5
    )
    assert policy.delay(attempt, transient=transient, chance=chance) == delay, sentence


def test_a_very_late_attempt_waits_the_longest() -> None:
    policy = RetryPolicy(max_attempts=10**6, max_wait=10 * SECOND)
    assert policy.delay(10**5, transient=True, chance=0) == 10 * SECOND


def test_no_wait_is_no_wait() -> None:
    policy = RetryPolicy(wait=timedelta(0))
    assert policy.delay(1, transient=True, chance=0) == timedelta(0)


def test_a_policy_without_an_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="not a retry policy"):
        RetryPolicy(max_attempts=0)
