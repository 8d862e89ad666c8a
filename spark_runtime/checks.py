"""Checks that a job gives along: they see the rows before anyone else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lineage_backfill.runspec.values import InputResult
from spark_runtime.errors import EntrypointError
from spark_runtime.state import Since
from spark_runtime.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The rows that a run is about to publish, with their number per partition key.

    Of a merge these are all rows of its partitions as they will be. `rows_before` holds what
    stands there now; None means unknown.
    """

    frame: DataFrame
    rows: Mapping[str, int]
    rows_before: Mapping[str, int | None]


#: Returns what is wrong, in words, or None if nothing is; or whether all is well.
Check = Callable[[Audit], str | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a job declares about its writes, and what its run has seen so far.

    `since` is the table when the run started (None: as it is now): a partition of the scope that
    others changed after that is a conflict, and so is a table that was created again. `started_at`
    is when that was; the commit records it, so that the run can be reconciled. `reads` is how many
    rows there are for the job to read, None if that is not known.
    """

    checks: Sequence[Check] = ()
    ignore: Sequence[str] = ()
    merge_on: Sequence[str] = ()
    newest_by: str | Sequence[str] | None = None
    inputs: Sequence[InputResult] = ()
    reads: int | None = None
    since: Since | None = None
    started_at: datetime | None = None


def problem(check: Check, audit: Audit) -> str | None:
    """Return what a check complains of; raises EntrypointError for an answer that says nothing."""
    answer = check(audit)
    if isinstance(answer, bool):
        name = getattr(check, "__name__", type(check).__name__)
        return None if answer else f"{name} does not hold"
    if answer is None or isinstance(answer, str):
        return answer or None
    raise EntrypointError(
        f"a check answered {answer!r:.80}",
        hint="Return what is wrong as a text, None if nothing is, or True or False.",
    )


def expect_rows(*, at_least: int = 1, at_most: int | None = None) -> Check:
    """Every partition has at least, and at most, so many rows."""

    def check(audit: Audit) -> str | None:
        short = [key for key, rows in audit.rows.items() if rows < at_least]
        long = [k for k, rows in audit.rows.items() if at_most is not None and rows > at_most]
        problems = []
        if short:
            problems.append(f"fewer than {at_least} rows in {some(short)}")
        if long:
            problems.append(f"more than {at_most} rows in {some(long)}")
        return "; ".join(problems) or None

    return check


def within(percent: float) -> Check:
    """Every partition has as many rows as before, more or less `percent`; new ones pass."""

    def check(audit: Audit) -> str | None:
        off = [
            f"{key} ({before} -> {audit.rows[key]})"
            for key, before in audit.rows_before.items()
            if before and abs(audit.rows[key] - before) * 100 > percent * before
        ]
        return f"rows changed by more than {percent} % in {some(off)}" if off else None

    return check


def unique(*columns: str) -> Check:
    """No two rows have the same values in these columns (NULL counts as a value)."""

    def check(audit: Audit) -> str | None:
        names = [quoted(name) for name in columns]
        twice = audit.frame.groupBy(*names).count().where("count > 1").limit(1).count()
        return f"several rows with the same {', '.join(columns)}" if twice else None

    return check


def not_null(*columns: str) -> Check:
    """None of these columns is NULL in any row."""

    def check(audit: Audit) -> str | None:
        condition = " OR ".join(f"{quoted(name)} IS NULL" for name in columns)
        return f"NULL in {' or '.join(columns)}" if audit.frame.where(condition).take(1) else None

    return check


def some(items: Sequence[str]) -> str:
    """Return the first of many for a message."""
    shown = ", ".join(items[:5])
    return shown if len(items) <= 5 else f"{shown} and {len(items) - 5} more"
