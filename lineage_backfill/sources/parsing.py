"""JSON from bytes: fast where it is plain, and judged by the standard library where it is not."""

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
    """Return the value of a JSON text; raises ValueError or RecursionError where it is none.

    Bytes that are no UTF-8 become surrogates, which no name may hold: found where they matter.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return DECODER.decode(data.decode("utf-8", "surrogateescape"))


_decode_event = msgspec.json.Decoder(Event).decode


def parse_event(data: bytes) -> Any:
    """Return the value of a JSON text; of an event, what is read of it.

    It is far sooner had: most of what Spark says of a run is not. Raises what `parse` raises, but
    for what is odd in the rest.
    """
    try:
        event = _decode_event(data)
        if "eventTime" in event:
            return event
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    return parse(data)


class _Listing(TypedDict):
    events: list[Event]
    totalCount: Any


_decode_listing = msgspec.json.Decoder(_Listing).decode


def parse_events(data: bytes) -> Any:
    """Return the value of a JSON text; of an answer that lists `events`, what is read of each.

    Raises what `parse` raises, but for what is odd in the rest.
    """
    try:
        return _decode_listing(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return parse(data)


class _Events(msgspec.Struct, rename="camel"):
    events: list[msgspec.Raw]
    total_count: int


_decode_events = msgspec.json.Decoder(_Events).decode


def glance(data: bytes) -> tuple[int, Any, int] | None:
    """Return how many `events` an answer lists, the last one, and its `totalCount`.

    It has them far sooner than `parse` has all events. None where only `parse` can tell: there are
    none, or something about the answer is strange.
    """
    try:
        answer = _decode_events(data)
        events = answer.events
        return (len(events), parse(bytes(events[-1])), answer.total_count) if events else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let Python look for no cycles meanwhile: JSON makes none, and millions of values.

    What was read then counts as old; Python would look at all of it at once, in vain.
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
