"""100,000 mutated events and answers: each is understood or refused, and nothing else happens."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.graph.build import LineageBuilder
from lineage_backfill.sources.marquez import MarquezSource, source
from tests.fake_marquez import FakeMarquez
from tests.unit.sources.marquez_reads import ADDRESS, dataset, event

DATA = Path(__file__).parents[2] / "data"
#: Values that are not what was meant, in some place or other.
JUNK: list[Any] = [
    None, True, 0, -1, 1e308, "", " ", "x", "\x00", "\ud800", "2024-13-01", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59", [], [[]], [None], {}, {"": {}}, {"namespace": "n"}, ["x"] * 3,
]  # fmt: skip


def mutated(value: Any, dice: random.Random) -> Any:
    """A copy of a JSON value with something in it removed, repeated, exchanged or replaced."""
    result = json.loads(value)
    places: list[Any] = []
    todo: list[Any] = [result]
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list) and item:
            places.append(item)
            todo += item.values() if isinstance(item, dict) else item
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        place = dice.choice(places)
        if not place:
            continue
        key = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
        match dice.randrange(4):
            case 0:
                place[key] = dice.choice(JUNK)
            case 1:
                del place[key]
            case 2:
                place[key] = copy.copy(dice.choice(places))  # its like, from elsewhere
            case 3 if isinstance(place, list):
                place.insert(key, place[key])
            case _:
                place[key] = str(place[key])
    return result


def recorded_events() -> list[str]:
    """Events of real producers, as JSON."""
    found = []
    for file in sorted((DATA / "lineage").glob("*.ndjson.gz")):
        lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        found += lines
    return sorted(found, key=len)[:40]  # the long ones only say more of the same


def test_events() -> None:
    dice, events = random.Random(5), recorded_events()
    understood = 0
    for start in range(0, 90_000, 3_000):
        builder = LineageBuilder()
        for _ in range(start, start + 3_000):
            try:
                builder.add(mutated(dice.choice(events), dice))
            except LineageError:
                continue
            understood += 1
        snapshot = builder.snapshot()
        assert snapshot.graph().number_of_nodes() >= len(snapshot.jobs)
    assert 20_000 < understood < 89_000


class Client:
    """Takes the place of the HTTP client, and mutates some of what the server answers."""

    def __init__(self, server: FakeMarquez, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self.mutated = self.size = 0

    def get(self, path: str, query: dict[str, str]) -> Any:
        status, body = self._server.answer(path.removeprefix("api/v1/"), query)
        if status != 200:
            raise HTTPStatusError(path, status)
        if self._dice.random() < 0.3:
            return body
        self.mutated += 1
        return mutated(json.dumps(body), self._dice)

    def close(self) -> None:
        """Nothing is open."""


def test_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(6)
    server = FakeMarquez([event(n, inputs=[dataset("a")]) for n in range(4)])
    server.purge("2024-01-01T00:00:02Z")
    client = Client(server, dice)
    monkeypatch.setattr(source, "WebClient", lambda *_: client)
    read = 0
    while client.mutated < 10_000:
        server.asked.clear()
        try:
            snapshot = MarquezSource(ADDRESS, view=dice.choice(("both", "graph", "events"))).read()
        except LineageError:
            continue
        read += 1
        assert snapshot.graph().number_of_nodes() >= len(snapshot.jobs)
    assert read > 100
