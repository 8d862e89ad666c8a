"""Marquez's HTTP interface, version 1: its names, and lists page by page.

An incomplete list looks like any other. The catalogue is therefore read twice, and used if both
answers agree and each list has as many rows as its count says. The longest lists are read only
once, if another answer has the same count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import count
from time import sleep
from typing import Any, TypeVar
from urllib.parse import quote

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.sources.web import AGAIN, Answer, WebClient

T = TypeVar("T")
#: Namespace and name of a job or a dataset.
Name = tuple[str, str]
#: The inputs and the outputs of a job.
Edges = tuple[set[Name], set[Name]]

_BASE = "api/v1/"
#: The size of the pages of lists.
LIST_PAGE = 100
#: With more unreadable rows than this, the server itself is broken.
_MAX_UNREADABLE = 20
_SHOWN = 8
#: Seconds before answers with a contradiction are requested again: Marquez stores an event in
#: several steps, between which it shows a part of it.
_PAUSES = (0.0, 0.1, 0.3, 1.0, 0.1, 0.3)
#: What changes in any row with each event: each of two answers had that of its moment.
_MOVING = frozenset({"updatedAt", "latestRuns"})
#: How many more answers have to agree with two, after as many contradictions.
_MOST_DOUBTS = 2
#: Characters that Marquez replaces by "_" in the namespace of a job.
_REPLACED = re.compile(r"[^a-zA-Z0-9:/_.@+-]")


class UnsettledError(Exception):
    """Answers contradict each other, or one contradicts itself, perhaps for a moment."""


class Api:
    """Client of Marquez; collects warnings about its answers."""

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._unfamiliar: set[str] = set()
        self._is_closed = False
        self._doubts = 0
        #: When the server sent its first and its last answer, by its own clock, in full seconds.
        self.began: datetime | None = None
        self.now: datetime | None = None
        self.warnings: list[str] = []

    def close(self) -> None:
        """Send no more requests: threads that still try raise LineageError."""
        self._is_closed = True

    def get(self, path: str, **query: str) -> Any:
        """Return the answer that two requests agree on; the segments of `path` are percent-encoded.

        More have to agree once answers of this server have differed. Raises LineageError if they
        keep differing.
        """
        return settled(lambda: self._agreed(path, query))

    def _agreed(self, path: str, query: dict[str, str]) -> Any:
        one, *others = self.answers(path, query)
        if not all(is_same(one, other) for other in others):
            raise self.differing(path)
        return one

    def answers(self, path: str, query: dict[str, str]) -> list[Any]:
        """Return the answers that have to agree; raises HTTPStatusError if each has its status."""
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(self._said, path, query)
            one = self._said(path, query)
            more = [self._said(path, query) for _ in range(self._doubts)]
            said = [one, other.result(), *more]
        failed = [answer for answer in said if isinstance(answer, HTTPStatusError)]
        if failed and len({answer.status for answer in failed}) == 1 and len(failed) == len(said):
            raise failed[0]
        if failed:
            raise self.differing(path)
        return said

    def differing(self, path: str) -> UnsettledError:
        """Return the error that answers do not agree; more have to agree from now on."""
        self._doubts = min(self._doubts + 1, _MOST_DOUBTS)
        return UnsettledError(f"{path}: the server's answer differs each time")

    def born(self) -> str:
        """Return when the server's database was created, which identifies it; empty if unknown."""
        try:
            return str(self.get("namespaces/default")["createdAt"])
        except HTTPStatusError as error:
            if error.status not in (404, 500):  # deleted, or unreadable
                raise
            return ""

    def get_list(
        self, path: str, member: str, number: Callable[[], int | None], **query: str
    ) -> list[Any]:
        """Return a whole list: of `number` rows, else one that two requests agree on."""

        def read() -> list[Any]:
            one = self._said(path, query)
            if isinstance(one, HTTPStatusError) or len(self.rows(one, member)) != number():
                one = self._agreed(path, query)
            return counted(path, one, self.rows(one, member), 0, int(query["limit"]))

        return settled(read)

    def number(self, path: str) -> int | None:
        """Return the number of rows of a list by the count in one answer; None without a count."""
        answer = self._said(path, {"limit": "0"})
        return None if isinstance(answer, HTTPStatusError) else int(answer["totalCount"])

    def ask(self, path: str, **query: str) -> Answer:
        """Return one unparsed answer, to be compared with others by its counts."""
        if self._is_closed:
            raise LineageError(f"{path}: not read, as reading has ended")
        answer = self._client.ask(_BASE + path, query)
        self.now = answer.sent_at
        self.began = self.began or self.now
        return answer

    def _said(self, path: str, query: dict[str, str]) -> Any:
        """Return the value of an answer, or raise the error of its status."""
        try:
            return self.ask(path, **query).value()
        except HTTPStatusError as error:
            return error

    def rows(self, answer: Any, member: str) -> list[Any]:
        """Return the list in an answer; raises TypeError if there is none."""
        rows = listed(answer, member)
        self._unfamiliar |= answer.keys() - {member, "totalCount"}
        return rows

    def pages(self, path: str, member: str) -> Iterator[Any]:
        """Yield the rows of a list."""
        for offset in count(0, LIST_PAGE):
            rows = self._page(path, member, offset, LIST_PAGE)
            yield from rows
            if len(rows) < LIST_PAGE:
                return

    def readable_rows(self, path: str, member: str) -> Iterator[Any]:
        """Yield the rows of a list, without rows that the server cannot show."""
        offset, size, unreadable = 0, LIST_PAGE, 0
        while True:
            try:
                rows = self._page(path, member, offset, size)
            except HTTPStatusError as error:
                if error.status != 500:
                    raise
                if size > 1:
                    size //= 2
                    continue
                unreadable += 1
                if unreadable > _MAX_UNREADABLE:
                    raise
                self.warnings.append(f"row {offset} of {path} cannot be read: {error}")
                offset, size = offset + 1, LIST_PAGE
                continue
            if not rows:
                return
            yield from rows
            offset, size = offset + len(rows), LIST_PAGE

    def _page(self, path: str, member: str, offset: int, limit: int) -> list[Any]:
        def read() -> list[Any]:
            answer = self._agreed(path, {"limit": str(limit), "offset": str(offset)})
            rows = self.rows(answer, member)
            # It counts some jobs that it does not show.
            return rows if member == "jobs" else counted(path, answer, rows, offset, limit)

        return settled(read)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """All warnings, each once, including one about answers in an unknown form."""
        warnings = tuple(dict.fromkeys(self.warnings))
        if not self._unfamiliar:
            return warnings
        members = ", ".join(sorted(self._unfamiliar)[:_SHOWN])
        newer = (
            f"answers hold what Marquez 0.50 and 0.51 do not send ({members:.200});"
            " a newer one is read as if it were 0.51"
        )
        return (*warnings, newer)


def listed(answer: Any, member: str) -> list[Any]:
    """Return a list that every answer must have; raises TypeError or KeyError."""
    rows = answer[member]
    if not isinstance(rows, list):
        raise TypeError(f"`{member}` is not a list")
    return rows


def counted(path: str, answer: Any, rows: list[Any], offset: int, limit: int) -> list[Any]:
    """Return the rows; raises UnsettledError if their number is not as counted, or one is twice."""
    if len({json.dumps(row, sort_keys=True) for row in rows}) < len(rows):
        raise UnsettledError(f"{path}: a list that has a row twice")
    total = answer.get("totalCount")
    if total is not None and len(rows) != min(limit, max(0, int(total) - offset)):
        raise UnsettledError(
            f"{path}: a list of {len(rows)} rows from {offset} on, where it counts {total} in all"
        )
    return rows


def settled(read: Callable[[], T]) -> T:
    """Return what `read` returns, which is repeated while it raises UnsettledError.

    Raises LineageError if it still does after the last pause.
    """
    for pause in _PAUSES:
        try:
            return read()
        except UnsettledError:
            sleep(pause)
    try:
        return read()
    except UnsettledError as error:
        raise LineageError(str(error), hint=AGAIN) from error


def is_same(one: Any, other: Any) -> bool:
    """Return whether two answers, or parts of them, say the same."""
    return bool(one == other or _in_order(one) == _in_order(other))


def _in_order(value: Any) -> Any:
    """Return a value without `_MOVING`, its lists sorted, as the server guarantees no order.

    Of the last run it says only whether there is one.
    """
    if isinstance(value, dict):
        kept = {name: _in_order(value[name]) for name in value.keys() - _MOVING}
        return kept | {"latestRun": value["latestRun"] is not None} if "latestRun" in kept else kept
    if isinstance(value, list):
        return sorted(map(_in_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def listing(names: Iterable[str]) -> str:
    """Return the first names as text, with how many more there are."""
    shown = list(names)
    more = len(shown) - _SHOWN
    return ", ".join(shown[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def segment(text: str) -> str:
    """Return the text as one segment of a path; raises LineageError if it cannot be one."""
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError as error:
        said = f"{text!r} cannot be part of an address"
        raise LineageError(said, hint="Delete it in Marquez.") from error
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def job_path(name: Name) -> str:
    """Return the path of a job's own page."""
    return f"namespaces/{segment(name[0])}/jobs/{segment(name[1])}"


def as_items(names: Iterable[Name]) -> list[dict[str, str]]:
    """Return datasets as events name them, sorted by name."""
    return [{"namespace": namespace, "name": name} for namespace, name in sorted(names)]


def dataset_path(name: Name) -> str:
    """Return the path of a dataset's own page."""
    return f"namespaces/{segment(name[0])}/datasets/{segment(name[1])}"


def as_stored(name: Name) -> Name:
    """Return the name of a job as Marquez stores it."""
    return _REPLACED.sub("_", name[0]), name[1]


def below(parent: str, name: str) -> str:
    """Return the name that Marquez gives a job below `parent`."""
    return name if name.startswith(f"{parent}.") else f"{parent}.{name}"


def edges_of(graph: list[Any]) -> Iterator[tuple[Name, Edges]]:
    """Yield the edges of each job in an answer of `/lineage`; they are complete at any depth."""
    ids = {node["id"]: node["data"]["id"] for node in graph}
    names = {node: (ref["namespace"], ref["name"]) for node, ref in ids.items()}
    for node in graph:
        if node["type"] == "JOB":
            ends = (
                {edge.get("origin") for edge in node.get("inEdges") or ()},
                {edge.get("destination") for edge in node.get("outEdges") or ()},
            )
            reads, writes = ({names[end] for end in side & names.keys()} for side in ends)
            yield names[node["id"]], (reads, writes)
