"""What is JSON is JSON to both parsers, and means the same."""

from __future__ import annotations

import gc
import json
import random
from typing import Any

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.sources.parsing import (
    DECODER,
    collector_paused,
    outline,
    parse,
    parse_event,
    parse_events,
)
from tests.fuzz.check import recorded_events
from tests.fuzz.damage import damaged


def outcome(work: Any) -> str:
    try:
        return repr(work())
    except (ValueError, RecursionError):
        return "refused"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"18446744073709551616", 2**64),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"9" * 5_000, ValueError),
        (b"1.0", 1.0),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'"\\ud800"', "\ud800"),
        (b'"\xff\xc3"', "\udcff\udcc3"),
        (b"NaN", ValueError),
        (b"[-Infinity]", ValueError),
        (b'"\x00"', ValueError),
        (b"{} {}", ValueError),
        (b"", ValueError),
        (b"\xef\xbb\xbf1", ValueError),
        (b"[" * 100_000 + b"]" * 100_000, RecursionError),
    ],
)
def test_the_odd_corners_of_json(text: bytes, value: Any) -> None:
    if isinstance(value, type):
        with pytest.raises(value):
            parse(text)
    else:
        assert parse(text) == value
        assert type(parse(text)) is type(value)


def test_damaged_events_are_what_the_standard_library_says() -> None:
    dice, events, understood = random.Random(8), recorded_events()[:5], 0
    for _ in range(5_000):
        data = damaged(dice.choice(events).encode(), dice)
        text = data.decode("utf-8", "surrogateescape")
        expected = outcome(lambda text=text: DECODER.decode(text))
        assert outcome(lambda data=data: parse(data)) == expected, data[:80]
        understood += expected != "refused"
    assert understood > 500


def test_what_is_read_of_damaged_events_is_what_the_whole_tells() -> None:
    def told(event: Any) -> str:
        builder = LineageBuilder()
        try:
            builder.add(event)
        except LineageError:
            return "refused"
        found = builder.snapshot()
        parts = found.jobs, found.datasets, found.column_edges, found.history, found.warnings
        return repr(parts)

    dice, events, understood = random.Random(7), recorded_events(), 0
    for _ in range(5_000):
        data = damaged(dice.choice(events).encode(), dice)
        whole = outcome(lambda data=data: told(parse(data)))
        assert outcome(lambda data=data: told(parse_event(data))) == whole, data[:80]
        listed = b'{"events": [' + data + b'], "totalCount": 1}'
        assert outcome(lambda listed=listed: told(parse_events(listed)["events"][0])) == outcome(
            lambda listed=listed: told(parse(listed)["events"][0])
        )
        understood += len(whole) > 100
    assert understood > 500


def test_of_an_event_no_more_is_had_than_is_read() -> None:
    plan = {"spark.logicalPlan": {"plan": [1] * 100}}
    event = {"eventTime": "t", "run": {"runId": "r", "facets": plan}, "more": 1}
    text = json.dumps(event).encode()
    assert parse_event(text) == {"eventTime": "t", "run": {"runId": "r", "facets": {}}}
    listed = b'{"events": [' + text + b'], "totalCount": 1}'
    assert parse_events(listed) == {"events": [parse_event(text)], "totalCount": 1}


@pytest.mark.parametrize("text", [b'{"events": []}', b"[]", b'{"job": {"facets": 1}}', b"3"])
def test_what_is_no_event_is_had_whole(text: bytes) -> None:
    assert parse_event(text) == parse(text)


def test_a_outline_tells_what_the_whole_would() -> None:
    dice, events, told = random.Random(9), list(map(json.loads, recorded_events()[:5])), 0
    for _ in range(2_000):
        page = {"events": dice.choices(events, k=dice.randrange(4)), "totalCount": 7}
        data = json.dumps(page).encode()
        if dice.random() < 0.7:
            data = damaged(data, dice)
        try:
            value = parse(data)
        except (ValueError, RecursionError):
            continue  # whatever a outline tells, the whole is refused
        found = outline(data)
        if found is not None:
            told += 1
            whole = (len(value["events"]), value["events"][-1])
            assert repr(found) == repr(whole), data[:80]
    assert told > 500


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"events": []}', b'{"events": 1}', b'{"events": [1]}', b"{"]
)
def test_a_outline_that_tells_nothing(text: bytes) -> None:
    assert outline(text) is None


@pytest.mark.parametrize("frozen", [False, True])
def test_what_was_read_while_the_collector_paused_counts_as_old(frozen: bool) -> None:
    def is_old(value: object) -> bool:
        return any(one is value for one in gc.get_objects(generation=2))

    held: list[object] = [[]]
    if frozen:  # by an application that counts on it
        gc.freeze()
    try:
        with collector_paused():
            assert not gc.isenabled()
            value = parse(b'{"a": [1]}')
            assert not is_old(value)
        assert gc.isenabled()
        assert is_old(value) != frozen
        # The collector lists nothing that is frozen.
        assert any(one is held for one in gc.get_objects()) != frozen
    finally:
        if frozen:
            gc.unfreeze()
