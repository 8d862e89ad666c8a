"""Checks that a job gives along: they see the rows before anybody else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_runtime.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The rows that a run is about to publish, with their number per partition key.

    `rows_before` holds what stands there now; None means unknown.
    """

    frame: DataFrame
    rows: Mapping[str, int]
    rows_before: Mapping[str, int | None]


#: Returns what is wrong, in words; None if nothing is.
Check = Callable[[Audit], str | None]


def expect_rows(*, at_least: int = 1) -> Check:
    """Every partition has at least so many rows."""

    def check(audit: Audit) -> str | None:
        short = [key for key, rows in audit.rows.items() if rows < at_least]
        return f"fewer than {at_least} rows in {_some(short)}" if short else None

    return check


def within(percent: float) -> Check:
    """Every partition has as many rows as before, more or less `percent`; new ones pass."""

    def check(audit: Audit) -> str | None:
        off = [
            f"{key} ({before} -> {audit.rows[key]})"
            for key, before in audit.rows_before.items()
            if before and abs(audit.rows[key] - before) * 100 > percent * before
        ]
        return f"rows changed by more than {percent} % in {_some(off)}" if off else None

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


def _some(items: list[str]) -> str:
    shown = ", ".join(items[:5])
    return shown if len(items) <= 5 else f"{shown} and {len(items) - 5} more"
