"""The event history of Marquez: read in full once, then incrementally with a cache on disk.

The history is read by time, in windows. The server counts the events of any time span cheaply: a
window is complete once it holds as many as the server counts, and it is read again when that count
changes. Events of jobs and of datasets, which have no run, are counted but not shown.
"""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from lineage_backfill.errors import LineageError
from lineage_backfill.files import reason
from lineage_backfill.http import Answer
from lineage_backfill.lineage.events import builder_state as state
from lineage_backfill.lineage.events.build import LISTENER, LineageBuilder
from lineage_backfill.lineage.events.event_facets import parse_time
from lineage_backfill.lineage.events.folded import canonical
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.marquez.api import Api, Name, as_stored, listed
from lineage_backfill.sources.parsing import outline, parse_events, run_id
from lineage_backfill.sources.records import NOT_WHOLE, read_records, write_records

_log = logging.getLogger(__name__)
#: Before and after all events; by default the server hides those after 2030.
_FIRST, _LAST = "1970-01-01T00:00:00.000Z", "9999-12-31T00:00:00.000Z"
#: The smallest, the largest and an impossible page, in events; large answers do not grow further.
_PAGE, _LARGE_PAGE, _MAX_PAGE = 1_000, 8_000, 1_000_000
_LARGE = 8 * 1024 * 1024
_MAX_WINDOWS = 128
_AT_ONCE = 4
_TRIES = 3
_FORMAT = "lineage-backfill event history"
#: Version of the cache: increase it when its contents, or the folding of events, change.
_VERSION = 17
#: The resolution of times in requests.
_MOMENT = timedelta(milliseconds=1)

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class _Window:
    """A half-open span of event times, as texts in UTC, with its number of events when read.

    Of the `count` events, those with `hashes` were shown; the others were of jobs and datasets.
    """

    start: str
    end: str
    count: int
    hashes: array[int] = field(default_factory=partial(array, "I"))

    def __or__(self, later: _Window) -> _Window:
        """Return the union of two adjacent windows."""
        both = self.hashes + later.hashes
        return _Window(self.start, later.end, self.count + later.count, both)


@dataclass(frozen=True, slots=True)
class _Page:
    """The events of an answer, from `start` on; the next page begins at `end`."""

    start: str
    end: str
    limit: int
    answer: Answer


class EventHistory:
    """The folded events of a server, and the time windows that were read.

    `born` identifies the server's database; the runs `ignore` are left out.
    """

    def __init__(self, born: str = "", ignore: frozenset[str] = frozenset()) -> None:
        self.builder = LineageBuilder()
        self.born, self.ignore = born, ignore
        #: The parents under which each job was sent, by the names in the events.
        self.parents: dict[Name, set[Name]] = {}
        #: Datasets as Spark's own listener names those that runs have reported.
        self.heard: set[Name] = set()
        #: The number of events without a run, and what the server keeps of them, as events.
        self.without_run: tuple[int, list[Any]] = (0, [])
        self._nameless: set[str] = set()
        self._windows: list[_Window] = []
        self._saved = 0

    @classmethod
    def read(
        cls, api: Api, cache: Path | None, born: str, ignore: frozenset[str] = frozenset()
    ) -> EventHistory:
        """Return the current history; `cache` has what was read before.

        A cache that is damaged, or of another history, is not used. Raises LineageError if the
        history cannot be read in full.
        """
        history = cls._load(cache) if cache else None
        if history and (history.born, history.ignore) == (born, ignore) and history._continue(api):
            _log.info("the event history is continued from the cache %s", cache)
        else:
            _log.info("the event history is read from its beginning")
            history = cls._from_beginning(api, born, ignore)
        for when in sorted(history._nameless):
            api.notices.append(Notice(" names no job; left out", when, "an event of ", True))
        return history

    @classmethod
    def _from_beginning(cls, api: Api, born: str, ignore: frozenset[str]) -> EventHistory:
        for _ in range(_TRIES):
            history = cls(born, ignore)
            if history._read(api, _FIRST):
                return history
        raise LineageError(
            "the event history cannot be read in full: events disappear, or others are shown, while"
            " it is read",
            hint="Try again when no old events are being loaded into Marquez or removed from it.",
        )

    @property
    def hidden_events(self) -> int:
        """The number of events without a run: they are counted, but not shown."""
        return sum(window.count - len(window.hashes) for window in self._windows)

    @property
    def _total(self) -> int:
        return sum(window.count for window in self._windows)

    # Reading

    def _continue(self, api: Api) -> bool:
        """Read new and late events; return whether the others are still those read before.

        A window with more events is read again; a removed event cannot be unfolded. The last window
        is always compared: a restored database has other events there.
        """
        if not self._windows:
            return False
        *earlier, last = self._windows
        self._windows = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            counts = list(pool.map(lambda one: _count(api, one.start, one.end), earlier))
        for window, count in zip(earlier, counts, strict=True):
            if count == window.count:
                self._windows.append(window)
            elif count < window.count or not self._read(api, window.start, window.end, window):
                return False
        return self._read(api, last.start, _LAST, last)

    def _read(self, api: Api, start: str, end: str = _LAST, before: _Window | None = None) -> bool:
        """Read a span of time; return whether it is complete and holds all events of `before`."""
        found = []
        for page in _pages(api, start, end):
            window = self._proven(api, page)
            if window is None:
                return False
            found.append(window)
        self._windows += found
        while len(self._windows) > _MAX_WINDOWS:  # the last one stays: it is read each time
            *pairs, last = self._windows
            odd = pairs[len(pairs) // 2 * 2 :]
            joined = [one | other for one, other in zip(pairs[::2], pairs[1::2], strict=False)]
            self._windows = [*joined, *odd, last]
        hashes = Counter(chain.from_iterable(window.hashes for window in found))
        return before is None or hashes >= Counter(before.hashes)

    def _proven(self, api: Api, page: _Page) -> _Window | None:
        """Fold in a page; return its window once the server has no more events to show in it.

        None if events were removed meanwhile. What still arrives then is read next time, as the
        window has another count, or is the last one.
        """
        start, end, answer, before = page.start, page.end, page.answer, -1
        for _ in range(_TRIES):
            events = listed(answer.json(parse_events), "events")
            self._fold(events)
            hashes = array("I", map(_hash, events[: _before(events, end)]))
            shown = len(hashes)
            more = _send(api, start, end, limit=1, offset=shown).json(parse_events)
            count, has_more = int(more["totalCount"]), bool(listed(more, "events"))
            if not has_more and count >= shown:
                return _Window(start, end, count, hashes)
            if shown <= before or count < shown:
                return None
            before = shown
            answer = _send(api, start, end, limit=count + _PAGE)
        return _Window(start, end, shown, hashes)

    def _fold(self, events: list[Any]) -> None:
        """Fold in events, and record the parents of each job."""
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
                    " delete it from Marquez's database.",
                ) from error
            parents = self.parents.setdefault(name, set())
            parent = ((event.get("run") or {}).get("facets") or {}).get("parent")
            if parent:
                parents.add((parent["job"]["namespace"], parent["job"]["name"]))

    # Keeping

    def save(self, api: Api, file: Path, *, anyway: bool = False) -> None:
        """Write the cache if much is new, or `anyway`; a warning says that it cannot be written."""
        if not (anyway or self._total - self._saved >= _PAGE):
            return
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "born": self.born,
            "ignore": sorted(self.ignore),
            "windows": [
                (one.start, one.end, one.count, one.hashes.tobytes().hex()) for one in self._windows
            ],
            "nameless": sorted(self._nameless),
            "heard": sorted(self.heard),
            "parents": [[*name, sorted(parents)] for name, parents in self.parents.items()],
            "without_run": self.without_run,
        }
        try:
            # Rebuilt in seconds: speed matters more than size.
            write_records(file, chain([header], state.dump(self.builder)), level=1)
        except OSError as error:
            why = reason(error)
            api.notices.append(Notice(f"{file}: the events cannot be kept for next time: {why}"))

    @classmethod
    def _load(cls, file: Path) -> EventHistory | None:
        """Return the history in the cache file; None if there is no usable one."""
        try:
            records = read_records(file)
            header = next(records)
            if (header["format"], header["version"]) != (_FORMAT, _VERSION):
                return None
            history = cls(header["born"], frozenset(header["ignore"]))
            history.builder = state.load(records)
            for _ in records:  # to the end, which proves that the file is complete
                return None
            history._windows = [
                _Window(start, end, count, array("I", bytes.fromhex(hashes)))
                for start, end, count, hashes in header["windows"]
            ]
            history._saved = history._total
            history._nameless = set(header["nameless"])
            history.heard = {(namespace, name) for namespace, name in header["heard"]}
            history.parents = {
                (namespace, name): {(parent[0], parent[1]) for parent in parents}
                for namespace, name, parents in header["parents"]
            }
            number, events = header["without_run"]
            history.without_run = (number, events)
        except (*NOT_WHOLE, TypeError, LookupError, AttributeError):
            return None
        return history


def is_whole(api: Api, namespace: str, created: str) -> bool:
    """Return whether the first event of a namespace still exists: then all of its events do.

    A namespace is as old as the first event that named it.
    """
    time = _time(created)
    answer = _send(api, _text(time - _MOMENT), _text(time + 2 * _MOMENT), limit=_PAGE)
    for event in listed(answer.json(parse_events), "events"):
        items = [event["job"], *(event.get("inputs") or ()), *(event.get("outputs") or ())]
        if any(as_stored((item["namespace"], ""))[0] == namespace for item in items):
            return True
    return False


def _send(
    api: Api, after: str, before: str, *, limit: int, offset: int = 0, order: str = "asc"
) -> Answer:
    times = {"after": after, "before": before, "sortDirection": order}
    return api.ask("events/lineage", **times, limit=str(limit), offset=str(offset))


def _count(api: Api, after: str, before: str) -> int:
    """Return the number of events, including those of jobs and datasets, which no page shows."""
    return int(_send(api, after, before, limit=0).json()["totalCount"])


def _pages(api: Api, start: str, end: str) -> Iterator[_Page]:
    """Yield pages with all events, by time, which insertions and deletions do not shift.

    While one is processed, the next one is requested.
    """
    with ThreadPoolExecutor(1) as pool:
        requested = pool.submit(_page, api, start, end, _PAGE)
        while True:
            page = requested.result()
            if page.end < end:
                requested = pool.submit(_page, api, page.end, end, page.limit)
            yield page
            if page.end >= end:
                return


def _page(api: Api, start: str, end: str, limit: int) -> _Page:
    """Return the page from `start` on; it grows where one instant has more events than a page."""
    while limit <= _MAX_PAGE:
        answer = _send(api, start, end, limit=limit)
        number, last = outline(answer.body) or _outline(answer)
        if number < limit:
            return _Page(start, end, limit, answer)
        following = _text(_time(last["eventTime"]) - _MOMENT)  # rounding loses no event
        if following > start:
            # The server counts all later events for each page: few large pages are better.
            is_large = limit >= _LARGE_PAGE or len(answer.body) >= _LARGE
            return _Page(start, following, limit if is_large else 4 * limit, answer)
        limit *= 2
    raise LineageError(
        f"more than {_MAX_PAGE} events at {start}", hint="Delete some from Marquez's database."
    )


def _outline(answer: Answer) -> tuple[int, Any]:
    events = listed(answer.json(parse_events), "events")
    return len(events), events[-1] if events else None


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


def _time(text: str) -> datetime:
    return parse_time(text).replace(tzinfo=UTC)


def _text(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
