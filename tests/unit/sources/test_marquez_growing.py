"""A list that grows while it is read is read as it was when its read began."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import LineageError
from lineage_backfill.sources.marquez import api as marquez
from lineage_backfill.sources.marquez.api import LIST_PAGE, Api
from lineage_backfill.sources.marquez.growing import runs_of
from lineage_backfill.sources.web import Answer

BEGAN = datetime(2024, 1, 2, tzinfo=UTC)
LATER = BEGAN + timedelta(hours=1)
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True, scope="module")
def no_pauses() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marquez, "_PAUSES", (0.0,) * 4)
        yield


class Client:
    """Answers with a page of rows, which `before` may add to; `lie` changes what is answered."""

    def __init__(self, rows: Rows, sent_at: datetime | None = BEGAN) -> None:
        self.rows = rows
        self.asked = 0
        self.before: Callable[[int], None] = lambda _: None
        self.lie: Callable[[int, Rows], Rows] = lambda _, rows: rows
        #: How many more rows it counts.
        self.counted = 0
        self._sent_at = sent_at
        self._lock = Lock()

    def ask(self, path: str, query: dict[str, str]) -> Answer:
        with self._lock:
            return self._answer(path, query)

    def _answer(self, path: str, query: dict[str, str]) -> Answer:
        self.asked += 1
        self.before(self.asked)
        rows, first = self.lie(self.asked, list(self.rows)), int(query["offset"])
        page = rows[first : first + int(query["limit"])]
        answer = {"runs": page, "totalCount": len(rows) + self.counted}
        later = self._sent_at and (self._sent_at if self.asked == 1 else LATER)
        return Answer(path, json.dumps(answer).encode(), later)

    def add(self, number: int = 1, *, when: datetime = LATER) -> None:
        self.rows[:0] = aged(len(self.rows), number, when)


def aged(first: int, number: int, when: datetime) -> Rows:
    numbers = reversed(range(first, first + number))
    made = when.isoformat()
    return [{"id": one, "createdAt": made, "startedAt": made} for one in numbers]


def old(number: int) -> Rows:
    return aged(0, number, BEGAN - timedelta(days=1))


def read(client: Client) -> Rows:
    """Read the list; of the rows that were added meanwhile, some may be among them."""
    rows = list(runs_of(Api(client), "runs"))  # type: ignore[arg-type]
    assert len({row["id"] for row in rows}) == len(rows)
    return rows


def older(rows: Rows) -> Rows:
    return [row for row in rows if row["createdAt"] < LATER.isoformat()]


SIZES = st.integers(0, 3 * LIST_PAGE + 5)


@given(SIZES, st.lists(st.sampled_from((0, 0, 1, 2, 7, 60)), max_size=20))
def test_each_row_of_the_beginning_is_given_once(size: int, growth: list[int]) -> None:
    client = Client(old(size))
    client.before = lambda number: client.add(growth[number - 1] if number <= len(growth) else 0)
    with suppress(LineageError):  # a page may move out of sight
        assert older(read(client)) == old(size)
        return
    assert growth.count(60) > 1


@given(SIZES, st.integers(1, 40))
def test_rows_without_a_start_are_listed_last_and_may_be_added_there(size: int, at: int) -> None:
    client = Client(old(size))

    def add(number: int) -> None:
        row = {"id": 10_000 + number, "createdAt": LATER.isoformat(), "startedAt": None}
        client.rows.insert(min(at, len(client.rows)), row)

    client.before = add
    assert older(read(client)) == old(size)


@given(st.integers(101, 250), st.integers(0, 9999))
def test_runs_without_a_start_come_in_another_order_in_each_answer(size: int, seed: int) -> None:
    client, draw = Client([row | {"startedAt": None} for row in old(size)]), random.Random(seed)
    client.before = lambda _: draw.shuffle(client.rows)
    assert sorted(row["id"] for row in read(client)) == list(range(size))


@given(st.integers(101, 250), st.integers(90, 110), st.integers(0, 9999))
def test_runs_with_one_start_may_change_their_order(size: int, at: int, seed: int) -> None:
    client, draw = Client(old(size)), random.Random(seed)

    def swap(_: int) -> None:
        tied = client.rows[at : at + 3]
        draw.shuffle(tied)
        client.rows[at : at + 3] = tied

    client.before = swap
    with suppress(LineageError):  # where the page ends within them, answers may differ each time
        assert sorted(row["id"] for row in read(client)) == list(range(size))


def test_more_rows_than_a_page_holds_may_be_added_before_the_first_answer() -> None:
    client = Client(old(20))
    client.add(250)
    client.before = lambda _: client.add()
    assert older(read(client)) == old(20)


def test_a_list_that_is_counted_a_moment_later_is_read() -> None:
    client = Client(old(150))
    client.before = lambda _: client.add(3)
    client.counted = 2
    assert older(read(client)) == old(150)


@pytest.mark.parametrize("size", [1, 3, 40])
def test_rows_that_are_counted_and_not_shown_are_missed(size: int) -> None:
    client = Client(old(size))
    client.counted = 1
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


@pytest.mark.parametrize(
    ("kept", "size"), [(slice(3, None), 10), (slice(50, None), 100), (slice(0), 30)]
)
def test_rows_that_one_answer_lacks_are_not_taken_for_new_ones(kept: slice, size: int) -> None:
    client = Client(old(size))
    client.lie = lambda number, rows: rows[kept] if number % 2 else rows
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


@pytest.mark.parametrize("ahead", [timedelta(minutes=30), timedelta(hours=1), timedelta(days=1)])
@pytest.mark.parametrize("size", [1, 120])
def test_runs_of_a_sender_whose_clock_is_wrong_are_read(ahead: timedelta, size: int) -> None:
    rows = aged(0, size, BEGAN + ahead)
    assert read(Client(rows)) == rows


def test_runs_dated_ahead_are_not_taken_for_new_ones_if_an_answer_lacks_them() -> None:
    client = Client(aged(0, 5, BEGAN + timedelta(days=1)))
    client.lie = lambda number, rows: [] if number % 2 else rows
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


def test_a_row_that_comes_twice_is_no_answer() -> None:
    client = Client(old(5))
    client.lie = lambda _, rows: [*rows, rows[-1]]
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


def test_a_later_page_that_one_answer_cuts_short_is_refused() -> None:
    client = Client(old(250))
    client.lie = lambda number, rows: rows[: LIST_PAGE + 20] if number > 2 and number % 2 else rows
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


@pytest.mark.parametrize("when", [BEGAN - timedelta(days=1), BEGAN + timedelta(milliseconds=999)])
def test_rows_added_that_may_be_older_than_the_read_are_not_skipped(when: datetime) -> None:
    client = Client(old(5))
    client.before = lambda number: client.add(when=when) if number > 1 else None
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


def test_a_server_that_tells_no_time_may_not_grow_meanwhile() -> None:
    assert read(Client(old(5), None)) == old(5)
    client = Client(old(5), None)
    client.before = lambda _: client.add()
    with pytest.raises(LineageError, match="differs each time"):
        read(client)


def test_a_run_that_ends_between_two_answers_is_asked_for_again() -> None:
    client = Client(old(5))

    def end(number: int) -> None:
        if number == 2:
            client.rows[0] = client.rows[0] | {"state": "COMPLETED"}

    client.before = end
    assert read(client)[0]["state"] == "COMPLETED"
