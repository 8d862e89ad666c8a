"""Pages of lists, bars and maps are cut and coloured as a reader expects."""

from __future__ import annotations

from collections import Counter

import pytest

from lineage_backfill.model import RunState
from lineage_backfill.web.cache import LruCache
from lineage_backfill.web.view_models import Page, bar, fill, job_rows, worst

HOUR = 3_600


@pytest.mark.parametrize(
    ("asked", "number", "items"), [(1, 1, "abc"), (3, 3, "g"), (9, 3, "g"), (-4, 1, "abc")]
)
def test_a_page_of_a_list(asked: int, number: int, items: str) -> None:
    page = Page.of("abcdefg", asked, size=3)
    assert (page.number, page.pages, page.total, page.items) == (number, 3, 7, items)
    assert Page.of("", asked, size=3).pages == 1


def test_a_bar_is_full_and_begins_with_what_is_right() -> None:
    parts = bar({"pending": 1, "failed": 1, "running": 2, "succeeded": 4})
    assert [one.state for one in parts] == ["succeeded", "failed", "running", "pending"]
    assert [(one.x, one.width) for one in parts] == [(0, 50), (50, 12.5), (62.5, 25), (87.5, 12.5)]
    assert bar({}) == []


def test_what_a_reader_must_see_comes_first() -> None:
    assert worst(Counter({RunState.SUCCEEDED: 90, RunState.FAILED: 1})) is RunState.FAILED
    assert worst(Counter({RunState.SUCCEEDED: 90, RunState.RUNNING: 1})) is RunState.RUNNING
    assert worst(Counter()) is None


def run(number: int, job: str, state: str, wave: int = 1) -> dict[str, object]:
    named = {"namespace": "n", "name": job}
    return {"id": str(number), "job": named, "state": state, "wave": wave}


def test_a_run_fills_every_period_that_it_meets() -> None:
    runs = [run(0, "a", "failed"), run(1, "a", "succeeded"), run(2, "b", "pending", wave=2)]
    rows = job_rows(reversed(runs))
    spans = {"0": [(0, HOUR)], "1": [(HOUR, 2 * HOUR)], "2": [(0, 3 * HOUR)]}
    periods = fill(rows[:1], spans, "UTC")
    assert periods is not None
    assert (periods.unit, len(periods), periods.label(-1)) == ("hour", 3, "1970-01-01T02")
    assert [row.job.name for row in rows] == ["a", "b"]
    assert [worst(cell) for cell in rows[0].cells] == ["failed", "succeeded", None]
    assert rows[1].cells == []
    assert fill(rows, {}, "UTC") is None


def test_a_value_is_made_once_and_kept_for_a_while() -> None:
    made: list[str] = []
    kept = LruCache[str](most=2)

    def get(key: str) -> str:
        def make() -> str:
            made.append(key)
            return key

        return kept.get(key, make)

    assert [get(key) for key in "aabca"] == list("aabca")
    assert made == ["a", "b", "c", "a"]
