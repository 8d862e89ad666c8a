"""Whether and when a failed attempt is retried; pure: randomness is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lineage_backfill.project.run_rules import Failure, RunRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff for the failures in `on`, by default transient ones.

    If these include "failure", every failure is retried. `max_attempts` includes the first one. The
    wait before attempt n+1 is `wait * factor ** (n-1)`, at most `max_wait`, reduced by up to the
    share `jitter` so that many retries do not start together.

    >>> RetryPolicy(wait=timedelta(seconds=2)).delay(2, failure="transient", chance=0)
    datetime.timedelta(seconds=4)
    """

    max_attempts: int = 3
    wait: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_wait: timedelta = timedelta(minutes=5)
    jitter: float = 0.5
    on: tuple[Failure, ...] = ("transient",)

    @classmethod
    def of(cls, rules: RunRules) -> RetryPolicy:
        """Return the policy of a job; missing rules are taken from the default."""
        plain = cls()
        wait = plain.wait if rules.retry_wait is None else rules.retry_wait
        return cls(
            max_attempts=plain.max_attempts if rules.retries is None else 1 + rules.retries,
            wait=wait,
            max_wait=max(wait, plain.max_wait),
            on=plain.on if rules.retry_on is None else rules.retry_on,
        )

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"not a retry policy: {self}")

    def delay(self, attempt: int, *, failure: Failure, chance: float) -> timedelta | None:
        """Return the wait after the failed `attempt` (1, 2, …), None to give up.

        `chance` is a random number in [0, 1).
        """
        is_meant = failure in self.on or "failure" in self.on
        if not is_meant or attempt >= self.max_attempts:
            return None
        ceiling = self.max_wait / self.wait if self.wait else 0.0
        try:
            wait = self.wait * min(self.factor ** (attempt - 1), ceiling)
        except OverflowError:
            wait = self.max_wait
        return wait * (1 - self.jitter * chance)
