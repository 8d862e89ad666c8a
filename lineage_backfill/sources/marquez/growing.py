"""Reads a job's runs while they become more, up to the beginning of the read.

Marquez lists them by their start, newest first; the order of others, and of those without a start,
which come last, may be another one in each answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import Any

from lineage_backfill.lineage.events.event_facets import parse_time
from lineage_backfill.sources.marquez.api import LIST_PAGE, Api, is_same, settled

#: The server's clock, in its answers, shows no part of a second.
_TICK = timedelta(seconds=1)
#: Rows of a page that the page before had as well.
_OVERLAP = 10
#: The size of the page that holds all runs without a start.
_LONG_PAGE = 100_000


def runs_of(api: Api, path: str) -> Iterator[Any]:
    """Yield the rows of a list of runs, without those that were added meanwhile.

    Raises HTTPStatusError if the server cannot show it, LineageError if its answers keep differing.
    """
    runs = _Runs(api, path)
    while not runs.is_over:
        yield from settled(runs.read)


@dataclass(slots=True)
class _Runs:
    """How far a list was read whose rows move to higher offsets meanwhile."""

    api: Api
    path: str
    is_over: bool = False
    given: dict[str, None] = field(default_factory=dict)  # the ids of the rows that were read
    offset: int = 0
    limit: int = LIST_PAGE
    moves: bool = False  # whether pages overlap, so that each begins with rows that are known
    total: int = 0  # how many rows there are at least, by the first answers
    later: set[str] = field(default_factory=set)  # the ids of rows that are left to the next read

    def read(self) -> list[Any]:
        """Return the next rows, on which all answers agree.

        There are none if only the offset or the size of the page changes. Raises UnsettledError.
        """
        query = {"limit": str(self.limit), "offset": str(self.offset)}
        answers = self.api.answers(self.path, query)
        self._find_later([self.api.rows(answer, "runs") for answer in answers])
        pages = [self._page(answer) for answer in answers]
        if self.limit == LIST_PAGE and not all(one.is_last or one.is_ordered for one in pages):
            self.limit = _LONG_PAGE
            return []
        if not (self.given or any(page.rows or page.is_last for page in pages)):
            self.offset += self.limit  # all of it is new
            return []
        if not self.moves and self._has_moved(pages):
            self.moves, self.offset = True, max(0, self.offset - _OVERLAP)
            return []
        rows = self._agreed(pages)
        self.is_over = _ends(pages, len(rows))
        if rows:
            self.given |= dict.fromkeys(row["id"] for row in rows)
            self.offset = min(page.places[len(rows) - 1] for page in pages) + 1
            if self.moves:
                self.offset = max(0, self.offset - _OVERLAP)
        return rows

    def _has_moved(self, pages: list[_Page]) -> bool:
        """Return whether rows may have been added or exchanged since the page before."""
        seen = any(page.has_given for page in pages)
        return (
            bool(self.later)
            or seen
            or any(page.total != pages[0].total for page in pages)
            or (bool(self.given) and pages[0].total != self.total)
        )

    def _agreed(self, pages: list[_Page]) -> list[Any]:
        """Return the rows of all pages; raises UnsettledError unless some, or all, are the same."""
        size = min(len(page.rows) for page in pages)
        rows, *others = (page.rows[:size] for page in pages)
        if size and not self.given:
            self.total = min(page.total - page.places[0] for page in pages)
        is_whole = len(self.given) + size + len(self.later) >= self.total
        is_enough = is_whole if _ends(pages, size) else size
        if not (is_enough and all(is_same(rows, other) for other in others)):
            raise self.api.differing(self.path)
        return rows

    def _page(self, answer: Any) -> _Page:
        rows, total = self.api.rows(answer, "runs"), int(answer["totalCount"])
        ids = [row["id"] for row in rows]
        is_last = len(rows) < self.limit
        added = len(self.later)
        if self.given and self.moves:
            last = next(reversed(self.given))
            if last not in ids:
                raise self.api.differing(self.path)
            added = max(added, self.offset + ids.index(last) + 1 - len(self.given))
        # The server counts the rows a moment after it has found them.
        more = total - self.offset - len(rows)
        is_counted = more >= -added and (not is_last or more <= added)
        if not is_counted or len(set(ids)) < len(ids):
            raise self.api.differing(self.path)
        known = self.later | self.given.keys()
        places = [n for n, one in enumerate(ids) if one not in known]
        return _Page(
            places=[self.offset + n for n in places],
            rows=[rows[n] for n in places],
            total=total,
            has_given=not self.given.keys().isdisjoint(ids),
            is_last=is_last,
            is_ordered=not rows or rows[-1].get("startedAt") is not None,
        )

    def _find_later(self, answers: list[list[Any]]) -> None:
        """Note the rows that not all answers have alike, as they were made meanwhile.

        Their times are those of the sender's clock: a time that is still to come says nothing.
        """
        if self.api.began is None or self.api.now is None:
            return
        first, last = self.api.began + _TICK, self.api.now + _TICK
        one, *others = ({row["id"]: row for row in rows} for rows in answers)
        for row in chain.from_iterable(answers):
            name = row["id"]
            if first <= parse_time(row["createdAt"]) <= last and not (
                name in one and all(is_same(one[name], other.get(name)) for other in others)
            ):
                self.later.add(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The rows of an answer that were not read yet, and are not later than the read."""

    places: list[int]
    rows: list[Any]
    total: int
    has_given: bool
    is_last: bool
    is_ordered: bool


def _ends(pages: list[_Page], size: int) -> bool:
    """Return whether the list has ended with that many rows of each page."""
    return all(page.is_last and len(page.rows) == size for page in pages)
