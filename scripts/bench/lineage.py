#!/usr/bin/env python3
"""Times how lineage is read, and prints a table, or JSON with --json.

    scripts/bench/lineage.py [--json] [--repeat N] [--only WORD] [--events N] [--marquez URL]

`file`: reading a file of N events (1,000,000, of about 1.1 kB) as a plan does, against
`json.loads` of the same lines; CPU time of a process of its own, and the memory that it took.

`marquez-*`: reading a server as a plan does, against the same requests, each of them once, sent by
a plain client that looks at none of the answers: the server's own time. What is asked twice to be
believed is a cost of ours. `again` is a read that has a cache, against the
same. With --marquez it is the server there, as it is; else a fake one in a process of its own,
which answers at the pace that was measured of real ones. Both need a core to themselves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import requests

sys.path.insert(0, str(Path(__file__).parents[2]))  # the fake lives with the tests

from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.marquez import MarquezSource
from tests.fake_marquez import FakeMarquez

#: Seconds that a real server, 0.50 or 0.51, was measured to take for one row of a list.
PACE = 60e-6
START = datetime(2024, 1, 1, tzinfo=UTC)
LIMIT_RATIO = 1.2
#: Events that are read a second on one core, at least, and the most megabytes for 1,000,000.
LEAST_A_SECOND, MOST_MEGABYTES = 40_000, 1024
PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.40.0/integration/spark"
FACETS = "https://openlineage.io/spec/facets"

Run = tuple[str, list[str], list[str]]


def hub() -> Iterator[Run]:
    """A table with 2,000 readers."""
    yield "writer", [], ["hub"]
    for number in range(2_000):
        yield f"reader_{number}", ["hub"], [f"out_{number}"]


def chain() -> Iterator[Run]:
    """A chain of 2,000 jobs."""
    for number in range(2_000):
        yield f"job_{number}", [f"t_{number}"], [f"t_{number + 1}"]


def many_jobs(jobs: int = 10_000) -> Iterator[Run]:
    """10,000 jobs, each of which reads what one before it wrote."""
    for number in range(jobs):
        yield f"job_{number}", [f"t_{number // 3}"], [f"t_{number + 1}"]


def many_events() -> Iterator[Run]:
    """200,000 events: 1,000 jobs that ran a hundred times."""
    for _ in range(100):
        yield from many_jobs(1_000)


SHAPES: dict[str, Callable[[], Iterator[Run]]] = {
    "hub": hub,
    "chain": chain,
    "jobs-3000": partial(many_jobs, 3_000),
    "jobs-10000": many_jobs,
    "events": many_events,
}


def events_of(runs: Iterator[Run]) -> Iterator[dict[str, Any]]:
    """Yield START and COMPLETE of each run, a second apart, as a Spark job would send them."""
    schema = {
        "_producer": PRODUCER,
        "_schemaURL": f"{FACETS}/1-1-1/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
        "fields": [{"name": name, "type": "string"} for name in ("id", "amount", "ds")],
    }
    for number, (job, reads, writes) in enumerate(runs):
        day = START + timedelta(days=number // 10_000)
        nominal = {
            "_producer": PRODUCER,
            "_schemaURL": f"{FACETS}/1-0-1/NominalTimeRunFacet.json#/$defs/NominalTimeRunFacet",
            "nominalStartTime": day.isoformat(),
            "nominalEndTime": (day + timedelta(days=1)).isoformat(),
        }
        for offset, kind in ((0, "START"), (1, "COMPLETE")):
            when = START + timedelta(seconds=2 * number + offset)
            yield {
                "eventType": kind,
                "eventTime": when.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "producer": PRODUCER,
                "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
                "run": {
                    "runId": f"00000000-0000-4000-8000-{number:012}",
                    "facets": {"nominalTime": nominal},
                },
                "job": {"namespace": "b", "name": job, "facets": {}},
                "inputs": [{"namespace": "b", "name": name} for name in reads],
                "outputs": [
                    {"namespace": "b", "name": name, "facets": {"schema": schema}}
                    for name in writes
                ],
            }


def loads(file: Path) -> None:
    """Parse every line, and do nothing with it."""
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            json.loads(line)


def fold(file: Path) -> None:
    """Read the file as a plan does."""
    EventSource([file]).read()


def cpu(work: Callable[[Path], None], file: Path) -> tuple[float, float]:
    """Return the CPU seconds and the most megabytes of a process that does no more than this."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_timed, (work, file))


def _timed(work: Callable[[Path], None], file: Path) -> tuple[float, float]:
    begin = time.process_time()
    work(file)
    seconds = time.process_time() - begin
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def event_file(number: int, repeat: int) -> dict[str, Any]:
    """Return the row of a file of events."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.ndjson"
        runs = (run for _ in count() for run in many_jobs())
        with file.open("w", encoding="utf-8") as stream:
            for event in islice(events_of(runs), number):
                stream.write(json.dumps(event, separators=(",", ":")) + "\n")
        size = file.stat().st_size
        ours = [cpu(fold, file) for _ in range(repeat)]
        plain, _ = min(cpu(loads, file) for _ in range(repeat))
    seconds = min(seconds for seconds, _ in ours)
    return {
        "case": "file",
        "events": number,
        "bytes_each": size // number,
        "cpu_seconds": round(seconds, 2),
        "a_second": round(number / seconds),
        "ratio_to_json_loads": round(seconds / plain, 2),
        "megabytes": round(max(megabytes for _, megabytes in ours)),
        "least_a_second": LEAST_A_SECOND,
        "most_megabytes": MOST_MEGABYTES,
    }


class PacedMarquez(FakeMarquez):
    """A fake that takes its time for an answer, as a real server does."""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Return status and body of a GET request, after as long as its rows would take."""
        begin = time.perf_counter()
        status, body = super().answer(path, query)
        rows = sum(len(rows) for rows in body.values() if isinstance(rows, list))
        time.sleep(max(0.0, PACE * rows - (time.perf_counter() - begin)))
        return status, body


def serve(shape: str, tell: Any) -> None:
    """Serve a fake of that shape for ever."""
    with PacedMarquez(events_of(SHAPES[shape]())).serve() as address:
        tell.send(address)
        time.sleep(3600)


@contextmanager
def server(shape: str) -> Iterator[str]:
    """Start a fake of that shape in a process of its own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(shape, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


@dataclass(frozen=True)
class Times:
    """Seconds of one read: ours, and the server's for the same requests."""

    ours: float
    theirs: float
    requests: int
    jobs: int


def once(address: str, cache: Path | None) -> Times:
    """Read once, then send each of its requests once, without looking at the answers."""
    sent: list[requests.PreparedRequest] = []
    send = requests.Session.send

    def noted(
        self: requests.Session, request: requests.PreparedRequest, **how: Any
    ) -> requests.Response:
        sent.append(request)
        return send(self, request, **how)

    begin = time.perf_counter()
    with patch.object(requests.Session, "send", noted):
        snapshot = MarquezSource(address, cache=cache).read()
    ours = time.perf_counter() - begin
    once_each = {request.url: request for request in sent}.values()
    with requests.Session() as session:
        begin = time.perf_counter()
        for request in once_each:
            _ = session.send(request, timeout=600).content
        theirs = time.perf_counter() - begin
    return Times(ours, theirs, len(sent), len(snapshot.jobs))


def marquez(name: str, address: str, repeat: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one server: read whole, and read again with what was kept."""
    with tempfile.TemporaryDirectory() as folder:
        whole = [once(address, None) for _ in range(repeat)]
        once(address, Path(folder))
        again = [once(address, Path(folder)) for _ in range(repeat)]
        for what, times in (("", whole), (" again", again)):
            ratios = [mine.ours / same.theirs for mine, same in zip(times, whole, strict=True)]
            best = min(times, key=lambda one: one.ours)
            yield {
                "case": f"marquez-{name}{what}",
                "seconds": round(best.ours, 2),
                "server_seconds": round(min(one.theirs for one in whole), 2),
                "ratio": round(median(ratios), 2),  # of each read to its own requests
                "requests": best.requests,
                "jobs": best.jobs,
                "limit_ratio": LIMIT_RATIO,
            }


def main() -> None:
    """Run the cases and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--marquez", default="")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.only in "file" and not options.marquez:
        rows.append(event_file(options.events, options.repeat))
    if options.marquez:
        rows += marquez("live", options.marquez.rstrip("/"), options.repeat)
    else:
        for shape in SHAPES:
            if options.only in f"marquez-{shape}":
                with server(shape) as address:
                    rows += marquez(shape, address, options.repeat)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
