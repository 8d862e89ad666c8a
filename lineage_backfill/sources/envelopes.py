"""Unwraps events from the records that Kafka's tools and catalogues write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lineage_backfill.sources.parsing import parse

#: A record without a value: Kafka's tombstone.
TOMBSTONE = None
#: Members of a record by kcat, the REST proxy, rpk and consoles, and the one with the event.
_RECORD, _VALUES = {"topic", "partition"}, ("payload", "value")
_MARKS = re.compile(r'["{\[]')
_DEEPEST = 4  # an array of wrapped texts


def events_of(value: Any, read: Callable[[bytes], Any], depth: int = 0) -> Iterator[Any]:
    """Yield the events in a JSON value, and TOMBSTONE for each record without one.

    The value is an event, an array, an export of `/events/lineage`, a text that contains one of
    them, or a Kafka record as a tool prints it. `read` parses texts; it raises ValueError for
    invalid JSON.
    """
    if depth == _DEEPEST or _is_event(value):
        yield value
    elif type(value) is str:
        yield from events_of(read(value.encode("utf-8", "surrogateescape")), read, depth + 1)
    elif type(value) is list:
        for one in value:
            yield from events_of(one, read, depth + 1)
    elif type(value) is dict and (inner := _inner(value)) is not value:
        yield from events_of(inner, read, depth + 1)
    else:
        yield value


def after_prefix(line: bytes) -> bytes | None:
    """Return the value in a line of `kafka-console-consumer`, which prints times and keys first.

    They are separated by tabs. None if nothing precedes it, or if that may be part of an event: no
    part of a damaged file is skipped.
    """
    *before, value = line.split(b"\t")
    return value if before and value.strip() and all(map(_is_told_of, before)) else None


def _is_told_of(field: bytes) -> bool:
    """Whether a field describes a record: plain words, or a key that is JSON."""
    try:
        text = field.decode()
        key = parse(field) if _MARKS.search(text) else None
    except (ValueError, RecursionError):
        return False
    return text.isprintable() and not isinstance(key, list) and not _is_event(key)


def _is_event(value: Any) -> bool:
    return type(value) is dict and "eventTime" in value


def _inner(value: dict[str, Any]) -> Any:
    """Return the content of an envelope, or the value itself if it is not one."""
    if type(value.get("events")) is list:
        return value["events"]
    if "schema" in value and "payload" in value:  # Kafka Connect's, with a schema
        return value["payload"]
    if "offset" in value and not _RECORD.isdisjoint(value):
        return next((value[name] for name in _VALUES if name in value), value)
    return value
