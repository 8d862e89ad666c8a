"""The keys of a recorded run: those that it may have touched, and those that it covered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from lineage_backfill.lineage.inference.recorded import touched_keys, whole_keys
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.partitions.text import render
from tests.unit.partitions.support import calendar
from tests.unit.planning.world import job

DAY: dict[str, Any] = {"grain": "day", "start": "2024-06-01"}
HOUR: dict[str, Any] = {"grain": "hour", "start": "2024-06-01T00"}


@pytest.mark.parametrize(
    ("declared", "start", "end", "whole", "touched"),
    [
        (DAY, "2024-06-15T00:00", "2024-06-16T00:00", ["2024-06-15"], ["2024-06-15"]),
        (DAY, "2024-06-15T00:00", "2024-06-15T23:59", [], ["2024-06-15"]),
        (DAY, "2024-06-15T00:01", "2024-06-16T00:00", [], ["2024-06-15"]),
        (DAY, "2024-06-15T03:00", "2024-06-15T04:00", [], ["2024-06-15"]),
        (DAY, "2024-06-15T12:00", "2024-06-17T12:00", ["2024-06-16"], ["2024-06-15..2024-06-17"]),
        (
            HOUR,
            "2024-06-15T03:00",
            "2024-06-15T05:00",
            ["2024-06-15T03..2024-06-15T04"],
            ["2024-06-15T03..2024-06-15T04"],
        ),
    ],
)
def test_a_run_covers_the_keys_whose_first_and_last_moments_lie_in_its_nominal_time(
    declared: dict[str, Any], start: str, end: str, whole: list[str], touched: list[str]
) -> None:
    keys = calendar(**declared)
    record = ObservedRun(
        job=job("j"),
        run_id="r",
        state="COMPLETE",
        nominal_start=datetime.fromisoformat(f"{start}+00:00"),
        nominal_end=datetime.fromisoformat(f"{end}+00:00"),
    )
    assert list(render(keys, whole_keys(record, keys))) == whole
    assert list(render(keys, touched_keys(record, keys))) == touched
