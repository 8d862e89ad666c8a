"""Checks declared with a job: they see the rows before they are published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lineage_backfill.model import listed
from lineage_backfill.runspec.values import InputResult
from spark_runtime.errors import EntrypointError
from spark_runtime.tables.state import Since
from spark_runtime.tables.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The rows that a run will publish, with their number per partition key.

    For a merge these are all rows of its partitions after the merge. `rows_before` has the current
    numbers; None means unknown.
    """

    frame: DataFrame
    rows: Mapping[str, int]
    rows_before: Mapping[str, int | None]


#: Returns what is wrong as a text, or None; or True or False.
Check = Callable[[Audit], str | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The declarations of a job about its writes, and what its run has seen so far.

    `since` is the table when the run started (None: now): if others changed a partition of the
    scope after that, or the table was recreated, it is a conflict. `started_at` is the time of the
    start; the commit records it, so that the run can be reconciled. What the run spec says of the
    output (`merge_on`, deletes) takes precedence. `gone` is the column of the rows that says which
    of them delete. `reads` is the number of input rows, None if unknown.
    """

    checks: Sequence[Check] = ()
    ignore: str | Sequence[str] = ()
    merge_on: str | Sequence[str] = ()
    newest_by: str | Sequence[str] | None = None
    delete_when: str | None = None
    delete_missing: bool = False
    gone: str | None = None
    inputs: Sequence[InputResult] = ()
    reads: int | None = None
    since: Since | None = None
    started_at: datetime | None = None


def problem(check: Check, audit: Audit) -> str | None:
    """Return the complaint of a check; raises EntrypointError for an invalid return value."""
    answer = check(audit)
    if isinstance(answer, bool):
        name = getattr(check, "__name__", type(check).__name__)
        return None if answer else f"the check {name} failed"
    if answer is None or isinstance(answer, str):
        return answer or None
    raise EntrypointError(
        f"a check returned {answer!r:.80}",
        hint="Return a text that says what is wrong, or None, True or False.",
    )


def expect_rows(*, at_least: int = 1, at_most: int | None = None) -> Check:
    """Every partition has between `at_least` and `at_most` rows."""

    def check(audit: Audit) -> str | None:
        short = [key for key, rows in audit.rows.items() if rows < at_least]
        long = [k for k, rows in audit.rows.items() if at_most is not None and rows > at_most]
        problems = []
        if short:
            problems.append(f"fewer than {at_least} rows in {listed(short)}")
        if long:
            problems.append(f"more than {at_most} rows in {listed(long)}")
        return "; ".join(problems) or None

    return check


def within(percent: float) -> Check:
    """Every partition has the same number of rows as before, ± `percent`; new ones pass."""

    def check(audit: Audit) -> str | None:
        off = [
            f"{key} ({before} -> {audit.rows[key]})"
            for key, before in audit.rows_before.items()
            if before and abs(audit.rows[key] - before) * 100 > percent * before
        ]
        return f"rows changed by more than {percent} % in {listed(off)}" if off else None

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
