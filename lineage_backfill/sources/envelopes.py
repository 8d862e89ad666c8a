"""What Kafka's tools and catalogues put around events, and what they write where there is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lineage_backfill.sources.parsing import parse

#: What stands for a record without a value: Kafka's tombstone.
TOMBSTONE = None
#: What a record is known by as kcat, the REST proxy, rpk and consoles write it, and has events in.
_RECORD, _VALUES = {"topic", "partition"}, ("payload", "value")
_MARKS = re.compile(r'["{\[]')
_DEEPEST = 4  # an array of envelopes of texts


def events_of(value: Any, read: Callable[[bytes], Any], depth: int = 0) -> Iterator[Any]:
    """Yield the events of a JSON value, and TOMBSTONE for each record without one.

    It is an event, an array, an export of `/events/lineage`, a text that holds one of them, or a
    record of Kafka as a tool prints it. `read` parses texts; raises ValueError for what is no JSON.
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
    """Return the value in a line of `kafka-console-consumer`, which prints times and keys before.

    They are divided by tabs. None if nothing stands before it, or what does may be a part of an
    event: nothing of a damaged file is passed over.
    """
    *before, value = line.split(b"\t")
    return value if before and value.strip() and all(map(_is_told_of, before)) else None


def _is_told_of(field: bytes) -> bool:
    """Whether a field says something of a record: plain words, or a key that is JSON."""
    try:
        text = field.decode()
        key = parse(field) if _MARKS.search(text) else None
    except (ValueError, RecursionError):
        return False
    return text.isprintable() and not isinstance(key, list) and not _is_event(key)


def _is_event(value: Any) -> bool:
    return type(value) is dict and "eventTime" in value


def _inner(value: dict[str, Any]) -> Any:
    """Return what an envelope holds, the value itself if it is none."""
    if type(value.get("events")) is list:
        return value["events"]
    if "schema" in value and "payload" in value:  # Kafka Connect's, with a schema
        return value["payload"]
    if "offset" in value and not _RECORD.isdisjoint(value):
        return next((value[name] for name in _VALUES if name in value), value)
    return value
