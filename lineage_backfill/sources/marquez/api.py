"""Marquez's HTTP interface, version 1: its answers, names and paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from lineage_backfill.errors import HTTPStatusError, LineageError, ServiceUnreachableError
from lineage_backfill.http import AGAIN, BUSY, Answer, HttpClient
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.parsing import parse

#: Namespace and name of a job or a dataset.
Name = tuple[str, str]
#: The inputs and the outputs of a job.
Edges = tuple[set[Name], set[Name]]

#: More rows than any server has: lists have no maximum, and pages of them shift meanwhile.
ALL = 1_000_000
#: With more unreadable rows than this, the server itself is broken.
_MAX_UNREADABLE = 20
_SHOWN = 8
#: Characters that Marquez replaces by "_" in the namespace of a job.
_REPLACED = re.compile(r"[^a-zA-Z0-9:/_.@+-]")


class Api:
    """Client of Marquez; collects notices about its answers."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.notices: list[Notice] = []

    def ask(self, path: str, **query: object) -> Answer:
        """Return the answer at a path; raises HTTPStatusError unless it is one of success."""
        answer = self._client.get(f"/api/v1/{path}", query)
        if answer.ok:
            return answer
        if answer.status in BUSY:
            raise ServiceUnreachableError(f"{answer.url}: answers {answer.status}", hint=AGAIN)
        what, hint = f"answers {answer.status}", "Check the address, and the server's log."
        if answer.status in (401, 403):
            what = f"refuses ({answer.status})"
            hint = "Set LINEAGE_BACKFILL_LINEAGE_API_KEY, or `headers` in [lineage]."
        raise HTTPStatusError(f"{answer.url}: {what}", answer.status, hint=hint)

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON at a path, whose segments are percent-encoded."""
        return self.ask(path, **query).json(parse)

    def find(self, path: str) -> Any:
        """Return the JSON at a path; None if there is nothing."""
        try:
            return self.get(path)
        except HTTPStatusError as error:
            if error.status != 404:
                raise
            return None

    def rows(self, path: str, member: str, *, limit: int = ALL, **query: object) -> list[Any]:
        """Return a list in one answer; raises LineageError if it is shorter than its count."""
        answer = self.get(path, limit=str(limit), **query)
        rows = listed(answer, member)
        counted = int(answer.get("totalCount", 0)) - int(str(query.get("offset", 0)))
        # It counts some jobs that it does not show.
        if member != "jobs" and len(rows) < min(limit, counted):
            raise LineageError(
                f"{path}: a list of {len(rows)} rows, where it counts {counted}", hint=AGAIN
            )
        return rows

    def readable_rows(self, path: str, member: str) -> Iterator[Any]:
        """Yield the rows of a list, without those that the server cannot show."""
        offset, size, unreadable = 0, 100, 0
        while True:
            try:
                rows = self.rows(path, member, limit=size, offset=str(offset))
            except HTTPStatusError as error:
                if error.status != 500 or unreadable > _MAX_UNREADABLE:
                    raise
                if size > 1:
                    size //= 2
                    continue
                unreadable += 1
                text = f" of {path} cannot be read: {error}"
                self.notices.append(Notice(text, f"row {offset}", leaves_out=True))
                offset, size = offset + 1, 100
                continue
            if not rows:
                return
            yield from rows
            offset, size = offset + len(rows), 100

    def readable(self, what: str, read: Callable[[], Any]) -> Any:
        """Return what `read` returns; None, with a warning, for an error of the server itself."""
        try:
            return read()
        except HTTPStatusError as error:
            if error.status != 500:
                raise
            self.notices.append(Notice(f": {error}", what))
            return None


def listed(answer: Any, member: str) -> list[Any]:
    """Return a list that every answer must have; raises TypeError or KeyError."""
    rows = answer[member]
    if not isinstance(rows, list):
        raise TypeError(f"`{member}` is not a list")
    return rows


def ends_of(row: Any) -> Edges:
    """Return the inputs and outputs of a job by its own page, or by one of its versions."""
    reads, writes = (
        {(item["namespace"], item["name"]) for item in listed(row, side)}
        for side in ("inputs", "outputs")
    )
    return reads, writes


def as_items(names: Iterable[Name]) -> list[dict[str, str]]:
    """Return datasets as events name them, sorted by name."""
    return [{"namespace": namespace, "name": name} for namespace, name in sorted(names)]


def listing(names: Iterable[str]) -> str:
    """Return the first names as text, with how many more there are."""
    shown = list(names)
    more = len(shown) - _SHOWN
    return ", ".join(shown[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def segment(text: str) -> str:
    """Return the text as one segment of a path; raises LineageError if it cannot be one."""
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError:
        quoted = "."
    if quoted.strip(".") == "":  # clients and proxies resolve "." and ".."
        raise LineageError(f"{text!r} cannot be part of an address", hint="Delete it in Marquez.")
    return quoted


def job_path(name: Name) -> str:
    """Return the path of a job's own page."""
    return f"namespaces/{segment(name[0])}/jobs/{segment(name[1])}"


def dataset_path(name: Name) -> str:
    """Return the path of a dataset's own page."""
    return f"namespaces/{segment(name[0])}/datasets/{segment(name[1])}"


def as_stored(name: Name) -> Name:
    """Return the name of a job as Marquez stores it."""
    return _REPLACED.sub("_", name[0]), name[1]


def below(parent: str, name: str) -> str:
    """Return the name that Marquez gives a job below `parent`."""
    return name if name.startswith(f"{parent}.") else f"{parent}.{name}"
