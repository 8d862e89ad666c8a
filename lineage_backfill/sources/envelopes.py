"""Unwraps events from the records of Kafka's tools and catalogues, and from lines of logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from lineage_backfill.sources.parsing import DECODER, parse

#: A record without a value: Kafka's tombstone.
TOMBSTONE = None
#: Members of a record by kcat, the REST proxy, rpk and consoles, and the one with the event.
_RECORD, _VALUES = {"topic", "partition"}, ("payload", "value")
_MARKS = re.compile(r'["{\[]')
_DEEPEST = 4  # an array of wrapped texts
#: What every event has, and no other line of a log: Spark's streaming reports have an object there.
_OF_EVENT = re.compile(rb'\\*"eventTime\\*"\s*:\s*\\*"|\\*"schemaURL\\*"\s*:')
#: How a file of events begins, whole or cut off.
_BEGINNING = re.compile(rb"\s*(\{|\[\s*(\{|$))")


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


def is_log(line: bytes) -> bool:
    """Return whether a file begins as a program's log does, not as a file of events."""
    try:
        value = parse(line)
    except (ValueError, RecursionError):
        return after_prefix(line) is None and not _BEGINNING.match(line)
    return isinstance(value, dict) and not any(map(_is_event, events_of(value, parse)))


def logged_events(line: bytes) -> list[Any]:
    """Return the events in a line of a log, which follow what the logger puts before them.

    Raises ValueError if it mentions an event that cannot be read.
    """
    if not _OF_EVENT.search(line):
        return []
    found, at = list[Any](), 0
    text = line.decode("utf-8", "surrogateescape")
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = DECODER.raw_decode(text, at)
        except ValueError:
            at += 1  # perhaps part of the prefix, as `{console.py:29}` in Airflow's
            continue
        if _is_event(value):
            found.append(value)
        elif isinstance(value, dict):
            for inner in value.values():
                if isinstance(inner, dict | str):
                    text_of = inner if isinstance(inner, str) else json.dumps(inner)
                    found += logged_events(text_of.encode("utf-8", "surrogateescape"))
        at = end
    if not found:
        raise ValueError("the line names an event, but holds no complete one")
    return found
