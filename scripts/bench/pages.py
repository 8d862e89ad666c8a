#!/usr/bin/env python3
"""Times the pages over a backfill of 10,000 runs of 1,000 jobs, as `serve` answers.

Usage: python scripts/bench/pages.py [RUNS_OF_A_JOB]     (default: 10)

"first" is the first answer of a server, "live" one after some runs have moved on, "same" one after
nothing has, each in CPU time of the thread that answers. "watchers" is the CPU time of a minute in
which 200 browsers ask every two seconds while a run moves on each second. "preview" is the plan of
1,000 jobs while one types: the 95th of 100.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the project that is shown lives with the tests

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from lineage_backfill.model import RunState
from lineage_backfill.web.pages import make_pages
from tests.unit.web.shop import Shop

JOBS = 1_000
WATCHERS = 200


def main() -> None:
    """Build the store, measure, print."""
    hours = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(f"copy_{n}", "feed", f"clean_{n}") for n in range(JOBS)]
        shop = Shop.of(Path(folder), jobs)
        runs = shop.backfill(first=f"2024-01-02T{24 - hours:02}")
        shop.drive(runs[: len(runs) // 2], RunState.SUCCEEDED)
        moved = iter(runs[len(runs) // 2 :])
        print(f"{len(runs):,} runs of {JOBS:,} jobs")

        def move(number: int = 1) -> None:
            shop.drive([next(moved) for _ in range(number)], RunState.RUNNING)

        for page in ("/backfills/b-1", "/"):
            client = make_pages(shop.project).test_client()
            first, answer = asked(client, page)
            live, same = [], []
            for _ in range(5):
                move(20)
                time.sleep(1.1)
                took, answer = asked(client, page, answer)
                live.append(took)
                assert answer.status_code == 200
                took, again = asked(client, page, answer)
                same.append(took)
                assert again.status_code == 304
            print(f"{page:>16}  first {first:5.0f} ms  live {max(live):5.0f} ms", end="  ")
            print(f"same {max(same):5.1f} ms  {len(answer.data):,} bytes")
            print(f"{'':16}  {WATCHERS} watchers: {watched(client, page, move):.1f} s CPU a minute")
        preview(client)


def asked(
    client: FlaskClient, page: str, known: TestResponse | None = None
) -> tuple[float, TestResponse]:
    """Return the milliseconds of CPU time that an answer takes, and the answer.

    It is asked as by a browser that has a `known` one.
    """
    headers = {"If-None-Match": known.headers["ETag"]} if known is not None else {}
    began = time.thread_time()
    answer = client.get(page, headers=headers)
    return 1000 * (time.thread_time() - began), answer


def watched(client: FlaskClient, page: str, move: Callable[[], None]) -> float:
    """Return the CPU seconds of a minute of watchers; ten seconds are measured."""
    known = [client.get(page) for _ in range(WATCHERS)]
    spent = 0.0
    began = time.monotonic()
    for second in range(10):
        move()
        time.sleep(max(0.0, began + second - time.monotonic()))
        for watcher in range(second % 2, WATCHERS, 2):
            took, answer = asked(client, page, known[watcher])
            if answer.status_code == 200:
                known[watcher] = answer
            spent += took
    return 6 * spent / 1000


def preview(client: FlaskClient) -> None:
    """Print how long a preview takes."""
    took = []
    for number in range(101):
        query = {"changed": "feed", "keys": f"2024-01-02T{number % 24:02}", "bare": ""}
        began = time.perf_counter()
        answer = client.get("/new", query_string=query)
        took.append(1000 * (time.perf_counter() - began))
        assert "1,000 runs" in answer.text
    took = sorted(took[1:])
    print(f"preview of {JOBS:,} jobs: {took[50]:.0f} ms, 95th {took[94]:.0f} ms", end="  ")
    print(f"{len(answer.data):,} bytes")


if __name__ == "__main__":
    main()
