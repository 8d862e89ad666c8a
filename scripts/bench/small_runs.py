"""Many small runs in warm applications and in the local engine, in turns: time, and memory left.

Each run writes one row to one partition of a Delta table of its own engine. `execute.py` starts it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.ports import AttemptState, Engine

JOBS = '''
from spark_runtime import RunContext, job


def resident(process):
    """Return how much memory of the machine a process holds, in bytes."""
    status = open(f"/proc/{process}/status").read().split()
    return int(status[status.index("VmRSS:") + 1]) << 10


@job(output="days", batch="range")
def small(context: RunContext):
    """Write a row; say how much memory is in use where that is asked for."""
    if context.parameters.get("measure"):
        jvm = context.spark._jvm
        found = [resident(pid) for pid in ("self", jvm.java.lang.ProcessHandle.current().pid())]
        for _ in range(3):
            jvm.java.lang.System.gc()
        heap = jvm.java.lang.Runtime.getRuntime()
        print("MEMORY", *found, heap.totalMemory() - heap.freeMemory(), flush=True)
    rows = [(str(key.key), 1) for key in context.keys]
    return context.spark.createDataFrame(rows, "day string, n long")
'''
#: The memory of an application: what its processes hold of the machine's, and what of the heap is
#: in use after a collection.
MEMORY = ("python", "jvm", "heap")
_BLOCK = 10  # runs of one engine before it is the other's turn
_DAYS = 28  # partitions that are written again and again


@dataclass
class Way:
    """One engine, its table, and what its runs took in seconds, beginning to end and inside."""

    name: str
    engine: Engine
    folder: Path
    took: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    memory: dict[int, dict[str, int]] = field(default_factory=dict)
    ended: SimpleQueue[str] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.engine.listen(self.ended.put)
        self.engine.open()

    def run(self, number: int, *, measure: bool = False) -> None:
        """Do one run; it must succeed."""
        began = time.perf_counter()
        spec = self._spec(number, measure=measure)
        handle = self.engine.submit(spec, f"{self.name}-{number}")
        assert self.ended.get(timeout=600) == handle
        outcome = self.engine.poll(handle)
        assert outcome.state is AttemptState.SUCCEEDED, AttemptFiles(Path(handle)).log()
        self.took.append(time.perf_counter() - began)
        result = outcome.result or {}
        times = (datetime.fromisoformat(result[name]) for name in ("started_at", "ended_at"))
        start, end = times
        self.inside.append((end - start).total_seconds())
        if measure:
            words = AttemptFiles(Path(handle)).log().partition("MEMORY ")[2].split()
            self.memory[number] = dict(zip(MEMORY, map(int, words[:3]), strict=True))

    def held(self, name: str) -> dict[int, int]:
        """Return one kind of memory in MB, by the number of runs done."""
        return {number: found[name] >> 20 for number, found in self.memory.items()}

    def _spec(self, number: int, *, measure: bool) -> Path:
        folder = self.folder / "runs" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        day = f"2024-02-{1 + number % _DAYS:02}"
        output = {
            "dataset": {"namespace": "n", "name": "days"},
            "format": "delta",
            "location": str(self.folder / f"days-{self.name}"),
            "columns": ["day"],
            "scope": [{"key": day, "values": {"day": day}}],
        }
        spec: dict[str, Any] = {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": f"r-{number}",
            "attempt": 1,
            "token": f"{self.name}-{number}",
            "job": {"namespace": "n", "name": "small", "entrypoint": "small_jobs:small"},
            "partitions": [day],
            "keys": [{"key": day}],
            "outputs": [output],
            "inputs": [],
            "parameters": {"measure": True} if measure else {},
            "lineage": {"outbox": None},
            "result_path": str(folder / f"r-{number}-1.result.json"),
        }
        path = folder / f"r-{number}-1.spec.json"
        path.write_text(json.dumps(spec))
        return path


def prepare(folder: Path) -> None:
    """Write the job."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small_jobs.py").write_text(JOBS)


def measure(folder: Path, engines: Mapping[str, Engine], number: int) -> Iterator[dict[str, Any]]:
    """Do so many runs in each engine, in turns; yield what was found after 10, 100 and all."""
    ways = [Way(name, engine, folder) for name, engine in engines.items()]
    looks = sorted({one for one in (10, 100, number) if one <= number})
    for block in range(0, number, _BLOCK):
        for way in ways:
            for one in range(block + 1, min(block + _BLOCK, number) + 1):
                way.run(one, measure=one in looks)
        if block + _BLOCK in looks or block + _BLOCK >= number:
            yield {"small_runs": min(block + _BLOCK, number), **_found(ways, looks[0])}


def _found(ways: list[Way], first: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way in ways:
        warm = way.took[1:]  # the first one waits for the start
        outside = statistics.fmean(way.took[1:]) - statistics.fmean(way.inside[1:])
        last = max(way.memory)
        found[way.name] = {
            "first_s": round(way.took[0], 2),
            "all_but_first_s": round(sum(warm), 2),
            "median_s": round(statistics.median(warm), 3),
            "in_the_attempt_s": round(statistics.fmean(way.inside[1:]), 3),
            "hand_over_s": round(outside, 3),
            **{f"{name}_mb": way.held(name) for name in MEMORY},
            **{
                f"{name}_growth": round(way.memory[last][name] / way.memory[first][name], 2)
                for name in MEMORY
            },
        }
    if {"local", "reused"} <= found.keys():
        ratio = found["reused"]["all_but_first_s"] / found["local"]["all_but_first_s"]
        found["reused_to_local"] = round(ratio, 2)
    return {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **found}
