"""JSON from bytes: a fast parser for plain texts, the standard library for all others."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import msgspec

from lineage_backfill.lineage.events.event import Event
from lineage_backfill.runspec.strict_json import refuse_constant

#: Decides what is valid JSON; NaN and Infinity are not.
DECODER = json.JSONDecoder(parse_constant=refuse_constant)
_decode = msgspec.json.Decoder().decode


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; raises ValueError or RecursionError.

    Bytes that are not UTF-8 become surrogates, which are refused in names.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return DECODER.decode(data.decode("utf-8", "surrogateescape"))


_decode_event = msgspec.json.Decoder(Event).decode


def parse_event(data: bytes) -> Any:
    """Return the value of a JSON text; of an event, only the members that are used.

    Far faster, as most of a Spark event is skipped. Raises the errors of `parse`, except for those
    in skipped members.
    """
    try:
        event = _decode_event(data)
        if "eventTime" in event:
            return event
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    return parse(data)


def run_id(event: Any) -> Any:
    """Return the run id of an event; None if it has none."""
    run = event.get("run") if isinstance(event, dict) else None
    return run.get("runId") if isinstance(run, dict) else None


class _Listing(TypedDict):
    events: list[Event]
    totalCount: Any


_decode_listing = msgspec.json.Decoder(_Listing).decode


def parse_events(data: bytes) -> Any:
    """Return the value of a JSON text; of the events in `events`, only the members that are used.

    Raises what `parse_event` raises. Each event has the same value whatever stands beside it.
    """
    try:
        return _decode_listing(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        answer = _decode_events(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return parse(data)
    events = [parse_event(bytes(event)) for event in answer.events]
    return {"events": events, "totalCount": answer.total_count}


class _Events(msgspec.Struct, rename="camel"):
    events: list[msgspec.Raw]
    total_count: int


_decode_events = msgspec.json.Decoder(_Events).decode


def outline(data: bytes) -> tuple[int, Any] | None:
    """Return the number of `events` in an answer, and the last of them.

    Far faster than `parse`. None if only `parse` can read it: no events, or an unusual answer.
    """
    try:
        events = _decode_events(data).events
        return (len(events), parse(bytes(events[-1]))) if events else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


# The interpreter freezes some objects of its own (375 in CPython 3.12); an application that freezes
# has many more.
_FROZEN = 1_000


@contextmanager
def collector_paused() -> Iterator[None]:
    """Switch off the cycle collector: JSON creates millions of values, but no cycles.

    The values count as old afterwards, so that they are not searched for cycles at once.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() < _FROZEN:  # objects frozen by others would be unfrozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
