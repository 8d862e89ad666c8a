"""Unwraps events from arrays and exports, and from lines of logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lineage_backfill.sources.parsing import DECODER, parse

#: What every event has, and no other line of a log: Spark's streaming reports have an object there.
_OF_EVENT = re.compile(rb'\\*"eventTime\\*"\s*:\s*\\*"|\\*"schemaURL\\*"\s*:')
#: How a file of events begins, whole or cut off.
_BEGINNING = re.compile(rb"\s*(\{|\[\s*(\{|$))")


def events_of(value: Any) -> Iterator[Any]:
    """Yield the events in a JSON value: an event, an array, or an export of `/events/lineage`."""
    if type(value) is dict and type(value.get("events")) is list:
        value = value["events"]
    if type(value) is list:
        for one in value:
            yield from events_of(one)
    else:
        yield value


def _is_event(value: Any) -> bool:
    return type(value) is dict and "eventTime" in value


def is_log(line: bytes) -> bool:
    """Return whether a file begins as a program's log does, not as a file of events."""
    try:
        value = parse(line)
    except (ValueError, RecursionError):
        return not _BEGINNING.match(line)
    return isinstance(value, dict) and not any(map(_is_event, events_of(value)))


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
