"""The event history of Marquez: read in full once, then incrementally with a cache on disk.

The server counts the events of any time span cheaply. The cache therefore holds time windows with
their counts: a window whose count has changed is read again. Events of jobs and of datasets are
counted, but not shown.
"""

from __future__ import annotations

import logging
import random
import re
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from itertools import chain, islice
from operator import or_
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from lineage_backfill.errors import LineageError
from lineage_backfill.files import reason
from lineage_backfill.lineage.events import builder_state as state
from lineage_backfill.lineage.events.build import LISTENER, LineageBuilder
from lineage_backfill.lineage.events.event_facets import parse_time
from lineage_backfill.lineage.events.folded import canonical
from lineage_backfill.sources.marquez.api import Api, Name, as_stored
from lineage_backfill.sources.parsing import outline, parse_events, run_id
from lineage_backfill.sources.records import NOT_WHOLE, read_records, write_records
from lineage_backfill.sources.web import AGAIN, Answer

_log = logging.getLogger(__name__)
#: Before and after all events; by default the server hides those after 2030.
_FIRST, _LAST = "1970-01-01T00:00:00.000Z", "9999-12-31T00:00:00.000Z"
#: The smallest and the largest page, in events; pages of this many bytes do not grow.
_PAGE = 1_000
_LARGE_PAGE = 8_000
_LARGE = 8 * 1024 * 1024
_MAX_PAGE = 1_000_000
#: How many pages are requested ahead.
_AHEAD = 2
#: With more events than this, two halves are read at once; how many guesses may find the middle.
_WORTH_SPLITTING = 2 * _PAGE
_GUESSES = 8
#: Seconds after which Python switches to another thread.
_SWITCH_INTERVAL = 0.0005
_MAX_WINDOWS = 512
_TRIES = 3
#: How many runs are prepared between two checks for a new page.
_AT_ONCE = 50
_WITHOUT_EVENTS = "Or read Marquez without its events: --lineage-view graph."
_FORMAT = "lineage-backfill event history"
#: Version of the cache: increase it when its contents, or the folding of events, change.
_VERSION = 16
#: At most this many events are read again to check that they are unchanged.
_COMPARED = 8_000
#: The number of parts in which windows are counted.
_COUNTED = 16

#: The namespaces of datasets that Marquez takes.
_ALLOWED = re.compile(r"[a-zA-Z0-9:;=/_.@+-]{1,1024}")

#: The resolution of times in requests.
_MOMENT = timedelta(milliseconds=1)

_encode = msgspec.json.Encoder(order="sorted").encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Window:
    """A half-open span of event times, as texts in UTC, with its number of events when read.

    Of the `count` events, those with `hashes` were shown; the others were of jobs and datasets.
    """

    start: str
    end: str
    count: int
    hashes: array[int] = field(default_factory=partial(array, "I"))

    @property
    def shown(self) -> int:
        """The number of events that were shown."""
        return len(self.hashes)

    def __or__(self, later: _Window) -> _Window:
        """Return the union of two adjacent windows."""
        both = self.hashes + later.hashes
        return _Window(self.start, later.end, self.count + later.count, both)

    def has_all_of(self, before: _Window) -> bool:
        """Return whether it still has all events that it had before."""
        return self.count >= before.count and Counter(self.hashes) >= Counter(before.hashes)


class EventHistory:
    """The folded events, and the time windows that were read."""

    def __init__(self, ignore: frozenset[str] = frozenset()) -> None:
        self.builder = LineageBuilder(prepares=True)
        #: Runs whose events are left out.
        self.ignore = ignore
        #: The parents under which each job was sent, by the names in the events.
        self.parents: dict[Name, set[Name]] = {}
        #: Datasets as Spark's own listener names those that runs have reported.
        self.heard: set[Name] = set()
        #: After a survey: runs that sent events, and jobs with events that Marquez has refused.
        self.reporting: set[str | None] = set()
        self.refused: set[Name] = set()
        self._nameless: set[str] = set()
        self._windows: list[_Window] = []
        self._tail = (
            _FIRST,
            0,
        )  # the end of the last window, and the number of events after it that are not shown
        #: When the server's database was created: it identifies the server.
        self.born = ""
        self._oldest = ""  # the time of the oldest event
        self._last: list[int] = []  # the hashes of those after the last window
        #: Identifies what was read from the beginning: a continued history keeps it.
        self.origin = 0
        self._total = 0  # the number of all events when reading began
        self._end = _FIRST  # up to where events were read
        self._unsaved = 0

    @classmethod
    def read(
        cls, api: Api, cache: Path | None, ignore: frozenset[str] = frozenset(), born: str = ""
    ) -> EventHistory:
        """Return the current history of the server `born` then; `cache` has what was read before.

        A cache that is damaged, of another version or of another history is not used. Raises
        LineageError if the history cannot be read in full.
        """
        history = cls.load(cache) if cache else None
        if history is not None and history.ignore != ignore:
            history = None
        with _switching_often():
            if history is not None and history.born == born and history._is_continued(api):
                _log.info("the event history is read on from the cache %s", cache)
            else:
                _log.info("the event history is read from its beginning")
                history = cls(ignore)
                history.born = born
                history._read_on(api)
                history._repair(api)  # events removed during the read were valid a moment ago
                hashes = (*(window.hashes for window in history._windows), history._last)
                history.origin = crc32(array("I", sorted(chain.from_iterable(hashes))).tobytes())
            history._check_total(api)
        for when in sorted(history._nameless):
            api.warnings.append(f"an event of {when} names no job; left out")
        if cache and history._unsaved >= _PAGE:
            try:
                history._save(cache)
            except OSError as error:
                why = reason(error)
                api.warnings.append(f"{cache}: the events cannot be kept for next time: {why}")
        return history

    @classmethod
    def survey(cls, api: Api, ignore: frozenset[str]) -> EventHistory:
        """Return a history without events, with what only the events show of the catalogue."""
        history = cls(ignore)
        try:
            for _, events, _ in _pages(api, _FIRST, _LAST):
                history.reporting.update(map(run_id, events))
                bad = [one for one in events if _is_refused(one) and run_id(one) not in ignore]
                history.refused.update((e["job"]["namespace"], e["job"]["name"]) for e in bad)
        except LineageError as error:
            api.warnings.append(f"events that Marquez has refused cannot be found: {error}")
        return history

    @property
    def unshown(self) -> tuple[int, str]:
        """The number of events that are counted but not shown, and a time before all of them."""
        hidden = [(window.start, window.count - window.shown) for window in self._windows]
        found = [(start, number) for start, number in (*hidden, self._tail) if number > 0]
        return sum(number for _, number in found), found[0][0] if found else _LAST

    @property
    def oldest(self) -> str:
        """The time of the oldest event; empty if there is none."""
        return self._oldest

    # Reading

    def _is_continued(self, api: Api) -> bool:
        """Read new events; return whether the events read before appear unchanged."""
        return (
            self._is_begun(api)
            and self._read_on(api)
            and self._is_unchanged(api)
            and self._repair(api)
        )

    def _is_unchanged(self, api: Api) -> bool:
        """Return whether a sample of windows (all if they are few) still has all their events.

        Windows with more events are left to `_repair`.
        """
        left = _COMPARED
        windows = list(self._windows)
        random.shuffle(windows)
        for window in windows:
            if window.shown > left:
                continue
            left -= window.shown
            span = _Span(api, window.start, window.end, window.count, lambda: False)
            for _ in span.pages():
                pass
            if not reduce(or_, span.windows).has_all_of(window):
                return False
        return True

    def _is_begun(self, api: Api) -> bool:
        """Return whether the server's history still begins at the same time.

        Retention removes the oldest runs with all their events, also in later windows: after that,
        an equal count would not prove that no event was added.
        """
        events = api.rows(_ask(api, _FIRST, _LAST, limit=1), "events")
        return bool(events) and events[0]["eventTime"] == self._oldest

    def _read_on(self, api: Api) -> bool:
        """Fold in new events; return whether they continue the events read before.

        It reads up to the event that is the newest at the beginning.
        """
        newest, self._total = _newest(api)
        if newest is None:
            self._tail = (_FIRST, self._total)
            return not self._last
        after = self._windows[-1].end if self._windows else _FIRST
        # Events that arrive meanwhile lie after the last window and change no count.
        until = max(after, _just_before(newest))
        known = set(self._last)
        spans = _spans(api, after, until, self._prepare)
        for events in _in_turns([span.pages() for span in spans]):
            if known:
                known.difference_update(map(_hash, events))
            self._fold(events)
        for window in chain.from_iterable(span.joined() for span in spans):
            self._close(_proven(api, window) or self._reread(api, window))
        # Its instant is in no window: more events may arrive then, and are read next time.
        tail = self._reread(api, _Window(until, _just_after(newest), 0))
        self._end = tail.end
        self._tail = (until, tail.count - tail.shown + _unshown_from(api, tail.end))
        self._last = list(tail.hashes)
        return known.issubset(self._last)

    def _check_total(self, api: Api) -> None:
        """Raise LineageError if the server counts more events in all than in the parts read."""
        known = sum(window.count for window in self._windows) + len(self._last) + self._tail[1]
        if known < self._total:  # events may have arrived between its newest one and its count
            known += len(api.rows(_ask(api, self._end, _LAST, limit=self._total - known), "events"))
        if known < self._total and known < (total := _newest(api)[1]):
            raise LineageError(
                f"the server counts {total} events, but only {known} in the times read", hint=AGAIN
            )

    def arriving(self, api: Api) -> set[str]:
        """Return the runs of the events that follow those read: the next read reads them."""
        answer = _ask(api, self._end, _LAST, limit=_PAGE, order="desc")
        return {event["run"]["runId"] for event in api.rows(answer, "events") if "run" in event}

    def _prepare(self) -> bool:
        return self.builder.prepare(_AT_ONCE)

    def _close(self, window: _Window) -> None:
        """Add a time window that was read."""
        if window.start < window.end or window.count:
            self._windows.append(window)
            self._unsaved += window.count
        if len(self._windows) > _MAX_WINDOWS and len(self._windows) % 2 == 0:
            pairs = zip(self._windows[::2], self._windows[1::2], strict=True)
            self._windows = [before | after for before, after in pairs]

    def _fold(self, events: list[Any]) -> None:
        """Fold in events, and record the parents of each job."""
        if events and not self._oldest:
            self._oldest = events[0]["eventTime"]
        for event in events:
            if self.ignore and run_id(event) in self.ignore:
                continue
            job, when = event["job"], event["eventTime"]
            name = (job["namespace"], job["name"])
            if not all(name):
                # Refused by the server but stored; no page shows such a job.
                self._nameless.add(when)
                continue
            if name[0] == LISTENER:
                items = (*(event.get("inputs") or ()), *(event.get("outputs") or ()))
                self.heard.update((item["namespace"], item["name"]) for item in items)
                continue
            try:
                self.builder.add(event)
            except LineageError as error:
                raise LineageError(
                    f"the event of {when} of {':'.join(name)}: {error}",
                    hint=f'Leave its run out: `ignore_runs = ["{run_id(event)}"]` in [lineage]. Or'
                    f" delete it from Marquez's database. {_WITHOUT_EVENTS}",
                ) from error
            parents = self.parents.get(name)
            if parents is None:
                parents = self.parents[name] = set()
            parent = ((event.get("run") or {}).get("facets") or {}).get("parent")
            if parent:
                parents.add((parent["job"]["namespace"], parent["job"]["name"]))

    def _repair(self, api: Api) -> bool:
        """Read windows again that have more events now; return whether none has lost any.

        The effect of a removed event cannot be undone. Some windows are counted together.
        """
        size = max(1, -(-len(self._windows) // _COUNTED))
        starts = range(0, len(self._windows), size)
        ends = (min(low + size, len(self._windows)) for low in starts)
        spans = zip(starts, ends, strict=True)
        return all([self._repair_among(api, *span) for span in spans])  # noqa: C419 - each is read

    def _repair_among(self, api: Api, low: int, high: int) -> bool:
        start, end = self._windows[low].start, self._windows[high - 1].end
        known = sum(window.count for window in self._windows[low:high])
        count = _count(api, start, end)
        if count == known:
            return True
        if high - low > 1:
            middle = (low + high) // 2
            earlier = self._repair_among(api, low, middle)
            return self._repair_among(api, middle, high) and earlier
        if count < known:
            return False
        before = self._windows[
            low : low + 2
        ]  # the next window may lack an event that arrived between two counts
        self._windows[low : low + 2] = after = [self._reread(api, window) for window in before]
        return all(new.has_all_of(old) for old, new in zip(before, after, strict=True))

    def _reread(self, api: Api, window: _Window) -> _Window:
        """Fold in a window again, until its number of events is stable or only grows.

        Raises LineageError if the server shows fewer events than it counts, and different ones each
        time.
        """
        found, before, count = window, 0, _count(api, window.start, window.end)
        for _ in range(_TRIES):
            span = _Span(api, window.start, window.end, count, self._prepare)
            for events in span.pages():
                self._fold(events)
            found = reduce(or_, span.windows)
            before, count = count, _count(api, window.start, window.end)
            proven = _proven(api, found) if before == count else None
            if proven:
                self._unsaved += count
                return replace(proven, start=window.start, end=window.end)
        if max(found.count, before) <= found.shown < count:
            # All events from before the last pass; new ones are read next time.
            return replace(found, start=window.start, end=window.end, count=found.shown)
        raise LineageError(
            f"the events from {window.start} to {window.end} cannot be read in full: the server"
            f" shows {found.shown} of {count}, and different ones each time",
            hint="Try again when no old events are being loaded into Marquez.",
        )

    # Keeping

    def _save(self, file: Path) -> None:
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "born": self.born,
            "origin": self.origin,
            "ignore": sorted(self.ignore),
            "oldest": self._oldest,
            "last": self._last,
            "windows": [
                (one.start, one.end, one.count, one.hashes.tobytes().hex()) for one in self._windows
            ],
            "nameless": sorted(self._nameless),
            "heard": sorted(self.heard),
            "parents": [[*name, sorted(parents)] for name, parents in self.parents.items()],
        }
        # Rebuilt in seconds: speed matters more than size.
        write_records(file, chain([header], state.dump(self.builder)), level=1)

    @classmethod
    def load(cls, file: Path) -> EventHistory | None:
        """Return the history in the cache file; None if there is no usable one."""
        history = cls()
        try:
            records = read_records(file)
            header = next(records)
            if (header["format"], header["version"]) != (_FORMAT, _VERSION):
                return None
            history.builder = state.load(records)
            for _ in records:  # to the end, which proves that the file is complete
                return None
            history.born, history.origin = header["born"], header["origin"]
            history.ignore = frozenset(header["ignore"])
            history._oldest, history._last = header["oldest"], header["last"]
            history._windows = [
                _Window(start, end, count, array("I", bytes.fromhex(hashes)))
                for start, end, count, hashes in header["windows"]
            ]
            history._nameless = set(header["nameless"])
            history.heard = {(namespace, name) for namespace, name in header["heard"]}
            history.parents = {
                (namespace, name): {(parent[0], parent[1]) for parent in parents}
                for namespace, name, parents in header["parents"]
            }
        except (*NOT_WHOLE, TypeError, LookupError, AttributeError):
            return None
        return history


class _Span:
    """A half-open span of event times to read; its first request is sent at once.

    `total` is the server's earlier count of events, None if it does not matter; `idle` is called
    while waiting for a page, and returns whether there is more to do.
    """

    def __init__(
        self, api: Api, start: str, end: str, total: int | None, idle: Callable[[], bool]
    ) -> None:
        #: The windows read so far; they reach the end of the span once all pages were taken.
        self.windows: list[_Window] = []
        self._start, self._end, self._total = start, end, total
        self._pages = _pages(api, start, end, idle)

    def pages(self) -> Iterator[list[Any]]:
        """Yield all events at least once, by time.

        The server counts after it has found the events of a page. An event that arrives in between
        is counted but not shown; the count of the previous window, which lacks it, reveals that.
        """
        start, total, last = self._start, self._total, list[Any]()
        for begin, events, left in self._pages:
            if total is not None:
                self._read(start, begin, total - left, last)
            start, total, last = begin, left, events
            yield events
        self._read(start, self._end, total or 0, last)

    def joined(self) -> Iterator[_Window]:
        """Yield the windows, with those of no length merged into the next one."""
        empty: _Window | None = None
        for window in self.windows:
            whole = empty | window if empty else window
            empty = whole if whole.start >= whole.end else None
            if empty is None:
                yield whole
        if empty and empty.count:
            yield empty

    def _read(self, start: str, end: str, count: int, events: list[Any]) -> None:
        hashes = array("I", map(_hash, events[: _before(events, end)]))
        self.windows.append(_Window(start, end, count, hashes))


def _spans(api: Api, after: str, until: str, idle: Callable[[], bool]) -> list[_Span]:
    """Return the one or two consecutive spans in which the time is read."""
    answer = _ask(api, after, until, limit=1)
    events, total = api.rows(answer, "events"), int(answer["totalCount"])
    first = events[0]["eventTime"] if events else after
    middle = _middle(api, after, first, until, total) if total > _WORTH_SPLITTING else None
    if middle is None:
        return [_Span(api, after, until, total, idle)]
    time, number = middle
    earlier = _Span(api, after, time, number, idle)
    return [earlier, _Span(api, time, until, _count(api, time, until), idle)]


def _middle(api: Api, after: str, first: str, until: str, total: int) -> tuple[str, int] | None:
    """Return a time with about half of the events before it, and their number."""
    low, high = _time(first), _time(until)
    for _ in range(_GUESSES):
        middle = low + (high - low) / 2
        number = _count(api, after, _text(middle))
        if total < 3 * number < 2 * total:
            return _text(middle), number
        low, high = (middle, high) if 2 * number < total else (low, middle)
    return None


def _in_turns(all_pages: list[Iterator[T]]) -> Iterator[T]:
    """Yield from each in turn until all are exhausted."""
    waiting = deque(all_pages)
    while waiting:
        pages = waiting.popleft()
        for page in islice(pages, 1):
            yield page
            waiting.append(pages)


@contextmanager
def _switching_often() -> Iterator[None]:
    """Switch often between threads, so that none waits for long.

    A body arrives in hundreds of small parts, and its reader may wait for each.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def events_at(api: Api, when: str) -> Iterator[Any]:
    """Yield the events within a millisecond of a time, and perhaps a few more."""
    time = _time(when)
    for _, events, _ in _pages(api, _text(time - _MOMENT), _text(time + 2 * _MOMENT)):
        yield from events


def newest_events(api: Api, most: int) -> list[Any]:
    """Return at most this many of the newest events."""
    return api.rows(_ask(api, _FIRST, _LAST, limit=most, order="desc"), "events")


def _is_refused(event: Any) -> bool:
    job, named = event["job"], [*(event.get("inputs") or ()), *(event.get("outputs") or ())]
    if not (job["namespace"] and job["name"]):
        return True
    return not all(item["name"] and _ALLOWED.fullmatch(item["namespace"]) for item in named)


def namespaces_of(event: Any) -> set[str]:
    """Return the namespaces that Marquez takes from an event."""
    items = [event["job"], *(event.get("inputs") or ()), *(event.get("outputs") or ())]
    return {as_stored((item["namespace"], ""))[0] for item in items}


def _ask(api: Api, after: str, before: str, **how: Any) -> Any:
    return _send(api, after, before, **how).value()


def _send(
    api: Api, after: str, before: str, *, limit: int, order: str = "asc", offset: int = 0
) -> Answer:
    return api.ask(
        "events/lineage",
        after=after,
        before=before,
        sortDirection=order,
        limit=str(limit),
        offset=str(offset),
    )


def _newest(api: Api) -> tuple[Any, int]:
    """Return the newest event (None if none is shown) and the number counted.

    It is read twice: an answer without it would look as if all events were gone.
    """
    answers = [_ask(api, _FIRST, _LAST, limit=1, order="desc") for _ in range(2)]
    events = [event for answer in answers for event in api.rows(answer, "events")]
    total = max(int(answer["totalCount"]) for answer in answers)
    return max(events, key=lambda event: _time(event["eventTime"]), default=None), total


def _unshown_from(api: Api, after: str) -> int:
    """Return how many events after the newest one are counted but not shown.

    Any that are shown there have arrived meanwhile.
    """
    answers = [_ask(api, after, _LAST, limit=1) for _ in range(2)]
    if any(api.rows(answer, "events") for answer in answers):
        answers = [_ask(api, after, _LAST, limit=_PAGE)]
    return max(int(answer["totalCount"]) - len(api.rows(answer, "events")) for answer in answers)


def _proven(api: Api, window: _Window) -> _Window | None:
    """Return the window once it is read in full; None while the server has more events in it.

    If it counts more than it showed (events of jobs and datasets), no shown event may follow. It is
    read twice: one short page alone would prove nothing. An event that came twice may hide another.
    """
    if len(set(window.hashes)) < window.shown:
        again = _Span(api, window.start, window.end, window.count, lambda: False)
        for _ in again.pages():
            pass
        if Counter(reduce(or_, again.windows).hashes) != Counter(window.hashes):
            return None
    if window.shown == window.count:
        return window
    # It was miscounted, or rounded into the next window, or not all of its events are shown.
    count = _count(api, window.start, window.end)
    if count <= window.shown:
        return replace(window, count=count)
    if count != window.count:
        return None
    for _ in range(2):
        answer = _ask(api, window.start, window.end, limit=1, offset=window.shown)
        if api.rows(answer, "events"):
            return None
    return window


def _count(api: Api, after: str, before: str) -> int:
    """Return the number of events, including those of jobs and datasets, which no page shows."""
    return int(_ask(api, after, before, limit=0)["totalCount"])


@dataclass(frozen=True, slots=True)
class _Page:
    """One page of the history: its start time, and where the next page begins."""

    begin: str
    answer: Answer
    following: tuple[str, int] | None  # the time and the limit of the next page


def _pages(
    api: Api, after: str, before: str, idle: Callable[[], bool] = lambda: False
) -> Iterator[tuple[str, list[Any], int]]:
    """Yield all events at least once, by time, which insertions and deletions do not shift.

    Each page has its start time and the number of events from there on. While one is processed, the
    next ones are requested, one after the other; while waiting for it, `idle` is called as long as
    it returns that there is more to do.
    """
    if after >= before:
        return iter(())
    pool = ThreadPoolExecutor(1)
    return _taken(api, pool, pool.submit(_page, api, after, before, _PAGE), before, idle)


def _taken(
    api: Api,
    pool: ThreadPoolExecutor,
    first: Future[_Page | None],
    before: str,
    idle: Callable[[], bool],
) -> Iterator[tuple[str, list[Any], int]]:
    try:
        ahead = deque([first])
        while True:
            while len(ahead) <= _AHEAD:
                ahead.append(pool.submit(_next_page, api, ahead[-1], before))
            awaited = ahead.popleft()
            while not awaited.done() and idle():
                pass
            page = awaited.result()
            if page is None:
                return
            value = page.answer.value(parse_events)
            events = api.rows(value, "events")
            if events:
                _check_times(events, page.begin, before)
            yield page.begin, events, int(value["totalCount"])
    finally:
        pool.shutdown(cancel_futures=True)


def _check_times(events: list[Any], after: str, before: str) -> None:
    """Raise LineageError if events are outside the requested times."""
    first, last = (_time(event["eventTime"]) for event in (events[0], events[-1]))
    # The server rounds to microseconds.
    if first < _time(after) - _MOMENT or last > _time(before) + _MOMENT or first > last:
        raise LineageError(
            f"asked for the events from {after} to {before}, the server shows some from"
            f" {_text(first)} to {_text(last)}",
            hint=AGAIN,
        )


def _next_page(api: Api, last: Future[_Page | None], before: str) -> _Page | None:
    """Return the page after the last one, which the same thread requested."""
    page = last.result()
    if page is None or page.following is None:
        return None
    after, limit = page.following
    return _page(api, after, before, limit)


def _page(api: Api, after: str, before: str, limit: int) -> _Page | None:
    answer = _send(api, after, before, limit=limit)
    number, last, total = outline(answer.body) or _count_rows(api, answer)
    if number < limit:
        return _Page(after, answer, None)
    newest = _just_before(last)
    if newest > after:
        # The server counts all later events for each page, so few large pages are better; but the
        # last ones, which it counts quickly, are small, as nothing else is left to wait for.
        if limit < _LARGE_PAGE and len(answer.body) < _LARGE:
            limit = min(4 * limit, _LARGE_PAGE)
        left = total - number
        limit = min(limit, max(_PAGE, left // 2))
        if 2 * left <= 3 * limit:
            limit = max(_PAGE, left + _PAGE // 10)  # some events of this page come again
    elif limit < _MAX_PAGE:
        limit *= 2  # more events at one instant than fit on a page
    else:
        raise LineageError(
            f"more than {_MAX_PAGE} events at {after}",
            hint=f"Delete some from Marquez's database. {_WITHOUT_EVENTS}",
        )
    return _Page(after, answer, (max(after, newest), limit))


def _count_rows(api: Api, answer: Answer) -> tuple[int, Any, int]:
    value = answer.value()
    events = api.rows(value, "events")
    return len(events), events[-1] if events else None, int(value["totalCount"])


def _before(events: list[Any], end: str) -> int:
    """Return how many of the events, sorted by time, are before `end`."""
    number, when = len(events), _time(end)
    while number and _time(events[number - 1]["eventTime"]) >= when:
        number -= 1
    return number


def _hash(event: Any) -> int:
    """Return a hash of the members of an event that are read, the same in every process."""
    try:
        text = _encode(event)
    except UnicodeEncodeError:  # half of a surrogate pair
        text = canonical(event).encode()
    return crc32(text)


def _just_before(event: Any) -> str:
    """Return a time just before the event, at which the next page begins: rounding loses none."""
    return _text(_time(event["eventTime"]) - _MOMENT)


def _just_after(event: Any) -> str:
    """Return a time just after the event, by less than a millisecond."""
    return _text(_time(event["eventTime"]) + _MOMENT)


def _time(text: str) -> datetime:
    return parse_time(text).replace(tzinfo=UTC)


def _text(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
