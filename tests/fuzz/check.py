"""Each damaged thing is understood or refused, nothing else happens, and nothing gets lost unsaid.

Each check raises AssertionError naming what it found, and returns how many it understood.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lineage_backfill.errors import LineageError
from lineage_backfill.http import Answer
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.marquez import MarquezSource, source
from tests.fake_marquez import FakeMarquez
from tests.fuzz.damage import damaged, mutated, written

_DATA = Path(__file__).parents[1] / "data" / "lineage"
_TOGETHER = 3_000  # events that are folded into one graph


def recorded_events() -> list[str]:
    """Return events of real producers, as JSON; the longest only say more of the same."""
    found: list[str] = []
    for file in sorted(_DATA.glob("*.ndjson.gz")):
        found += gzip.decompress(file.read_bytes()).decode().splitlines()
    return sorted(found, key=len)[:20]


def fuzz_events(number: int, seed: int) -> int:
    """Fold mutated events, many to a graph."""
    dice, events, understood = random.Random(seed), recorded_events(), 0
    for start in range(0, number, _TOGETHER):
        builder = LineageBuilder()
        for _ in range(start, min(start + _TOGETHER, number)):
            try:
                builder.add(mutated(dice.choice(events), dice))
            except LineageError:
                continue
            understood += 1
        _walk(builder.snapshot())
    return understood


def fuzz_files(number: int, seed: int, folder: Path) -> int:
    """Read damaged files, and hold what is read to what their whole text says."""
    dice, events, understood = random.Random(seed), recorded_events()[:10], 0
    for turn in range(number):
        file = folder / f"{turn}.json"  # a new one: to write over one may wait for the disk
        data = damaged(written(dice.sample(events, dice.randrange(1, 4)), dice), dice)
        file.write_bytes(data)
        place = f"seed {seed}, turn {turn}: {data[:80]!r}"
        try:
            with patch("lineage_backfill.sources.events._TIMEOUT", 0):
                snapshot = EventSource([file], allow_torn=True).read()
        except LineageError:
            continue
        finally:
            file.unlink()
        torn = any("last line is left out" in warning for warning in snapshot.warnings)
        assert _said(data, torn=torn) == _walk(snapshot), place
        understood += 1
    return understood


def _said(data: bytes, *, torn: bool) -> tuple[list[Any], list[Any]]:
    """Return jobs and datasets by the obvious definition: all events that the bytes hold."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    if torn:
        text, last = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
        assert last.lstrip().startswith("{"), "an event that was not written to its end"
    builder = LineageBuilder()
    todo = _values(text)
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict) and "events" in value and "eventTime" not in value:
            todo += value["events"]
        else:
            builder.add(value)
    return _walk(builder.snapshot())


def _values(text: str) -> list[Any]:
    """Return the JSON values of a text; arrays, which have to end, are taken apart."""
    decoder, found, at, depth = json.JSONDecoder(), [], 0, 0
    while at < len(text):
        if text[at] in " \t\r\n,[]":
            depth += {"[": 1, "]": -1}.get(text[at], 0)
            at += 1
        else:
            value, at = decoder.raw_decode(text, at)
            found.append(value)
    assert not depth, "an array without an end"
    return found


def _walk(snapshot: LineageSnapshot) -> tuple[list[Any], list[Any]]:
    """Return the jobs with their edges and the datasets, having looked at all of the snapshot."""
    graph = snapshot.graph()
    assert graph.number_of_nodes() >= len(snapshot.jobs)
    assert snapshot.content_hash.startswith("sha256:")
    return (
        [(node.ref, node.reads, node.writes) for node in snapshot.jobs.values()],
        list(snapshot.datasets),
    )


def fuzz_answers(number: int, seed: int) -> int:
    """Read a server so many times; about a tenth of its answers are mutated."""
    runs = [_run(minute) for minute in range(4)]
    server = FakeMarquez(runs)
    server.purge("2024-01-01T00:02:00Z")
    understood = 0
    for turn in range(number):
        server.asked.clear()
        client = _Client(server, f"{seed} {turn}")
        with patch.object(source, "HttpClient", return_value=client):
            try:
                snapshot = MarquezSource("http://marquez.test").read()
            except LineageError:
                continue
            understood += 1
            _walk(snapshot)
    return understood


def _run(minute: int) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": f"2024-01-01T00:{minute:02}:00Z",
        "run": {"runId": f"00000000-0000-4000-8000-{minute:012}"},
        "job": {"namespace": "n", "name": f"job_{minute}"},
        "inputs": [{"namespace": "n", "name": "a"}],
        "outputs": [],
    }


class _Client:
    """Takes the place of the HTTP client, and mutates some of what the server answers.

    The seed and the request alone decide, not the order of requests: several threads ask.
    """

    def __init__(self, server: FakeMarquez, seed: str) -> None:
        self._server = server
        self._seed = seed

    def get(self, path: str, query: dict[str, str]) -> Answer:
        status, body = self._server.answer(path.removeprefix("/api/v1/"), query)
        dice = random.Random(f"{self._seed} {path} {json.dumps(query, sort_keys=True)}")
        if dice.random() < 0.1:
            body = mutated(json.dumps(body), dice)
        return Answer(path, status, {}, json.dumps(body).encode())

    def close(self) -> None:
        """Nothing is open."""
