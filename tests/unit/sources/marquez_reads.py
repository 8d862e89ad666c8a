"""Events as tests post them to a fake Marquez, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import responses

from lineage_backfill.http import HttpSettings
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.marquez import MarquezSource
from tests.fake_marquez import FakeMarquez

ADDRESS = "http://marquez.example:5000/base"
API = f"{ADDRESS}/api/v1"


def dataset(name: str) -> dict[str, str]:
    return {"namespace": "n", "name": name}


def event(number: int, second: int | None = None, **more: Any) -> dict[str, Any]:
    """The end of run `r{number}` of job `j{number}`, which writes `d{number}`, at that second."""
    return {
        "eventType": "COMPLETE",
        "eventTime": f"2024-01-01T00:00:{number if second is None else second:02d}Z",
        "run": {"runId": f"r{number}"},
        "job": {"namespace": "n", "name": f"j{number}"},
        "inputs": [],
        "outputs": [dataset(f"d{number}")],
    } | more


def read(
    server: FakeMarquez,
    *,
    cache: Path | None = None,
    ignore: Collection[str] = (),
    **web: Any,
) -> LineageSnapshot:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.add_callback(responses.GET, re.compile(re.escape(API)), callback=server)
        settings = HttpSettings(**web)
        source = MarquezSource(ADDRESS, settings=settings, cache=cache, ignore=ignore)
        return source.read()


def names(snapshot: LineageSnapshot) -> list[str]:
    return [ref.name for ref in snapshot.jobs]
