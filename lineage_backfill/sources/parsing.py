"""JSON from bytes: fast for plain texts, with the standard library as the judge of all others."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import msgspec

from lineage_backfill.lineage.event import Event


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


#: The judge of what is JSON; NaN and Infinity are not.
DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_decode = msgspec.json.Decoder().decode


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; raises ValueError or RecursionError.

    Bytes that are not UTF-8 become surrogates, which names are checked for.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return DECODER.decode(data.decode("utf-8", "surrogateescape"))


_decode_event = msgspec.json.Decoder(Event).decode


def parse_event(data: bytes) -> Any:
    """Return the value of a JSON text; of an event, only the members that are read.

    Far faster: most of a Spark event is not read. Raises what `parse` raises, except for faults in
    members that are not read.
    """
    try:
        event = _decode_event(data)
        if "eventTime" in event:
            return event
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    return parse(data)


def run_id(event: Any) -> Any:
    """Return the id of the run that an event is of; None where it names none."""
    run = event.get("run") if isinstance(event, dict) else None
    return run.get("runId") if isinstance(run, dict) else None


class _Listing(TypedDict):
    events: list[Event]
    totalCount: Any


_decode_listing = msgspec.json.Decoder(_Listing).decode


def parse_events(data: bytes) -> Any:
    """Return the value of a JSON text; of listed `events`, only the members that are read.

    Raises what `parse_event` raises.
    """
    try:
        return _decode_listing(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return parse(data)


class _Events(msgspec.Struct, rename="camel"):
    events: list[msgspec.Raw]
    total_count: int


_decode_events = msgspec.json.Decoder(_Events).decode


def outline(data: bytes) -> tuple[int, Any, int] | None:
    """Return the number of `events` in an answer, the last one, and its `totalCount`.

    Far faster than `parse`. None where only `parse` can tell: no events, or an unusual answer.
    """
    try:
        answer = _decode_events(data)
        events = answer.events
        return (len(events), parse(bytes(events[-1])), answer.total_count) if events else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@contextmanager
def collector_paused() -> Iterator[None]:
    """Switch the cycle collector off: JSON makes no cycles, and millions of values.

    What was read counts as old afterwards, so that it is not searched for cycles at once.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # what others have frozen would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()
