#!/usr/bin/env python3
"""Times what a user waits for when a plan is made, and prints a table, or JSON with --json.

    scripts/bench/plan.py [--json] [--repeat N] [--only WORD] [--beside PATH]

"ms" is a planner made again, a request that it has not seen, and the whole document written to a
sink, with every reason, run and hash; "warm_ms" is a plan alone, by a planner that has planned the
request before. Memory is the peak of what "ms" times, by tracemalloc, in a run of its own.
With --beside the same cases run in turn on the code at PATH, each in a process of its own, and
"ratio" is how long this code takes of what that one does.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lineage_backfill import (
    CalendarDeclaration,
    ChangedDataset,
    DatasetDeclaration,
    DatasetRef,
    Declarations,
    JobDeclaration,
    JobNode,
    JobRef,
    LineageSnapshot,
    Plan,
    Planner,
    ReadDeclaration,
    Request,
    plan_from_dict,
    plan_to_dict,
)

try:
    from lineage_backfill.plans.document import plan_members
    from lineage_backfill.show import documents
except ImportError:  # code beside this one, which makes documents whole and writes them elsewhere
    documents = importlib.import_module("lineage_backfill.telling.documents")
    plan_members = plan_to_dict  # type: ignore[assignment]

# Not public, and elsewhere in the code that is run beside this one.
_declared = sys.modules[Declarations.__module__]
DimensionDeclaration, Limits = _declared.DimensionDeclaration, _declared.Limits
KeySet = tuple[Any, ...]
NOW = datetime(2025, 1, 1, tzinfo=UTC)
GRAINS = ("hour", "day", "week", "month")
#: Root keys: the 30 days, the year and the ten years before NOW.
MONTH, YEAR, DECADE = "2024-12-02T00..", "2024-01-01T00..", "2015-01-01T00.."


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the table: how to build what is planned, and the bounds it is held to."""

    name: str
    build: Callable[[], tuple[Request, LineageSnapshot, Declarations]]
    limit_ms: float | None = None
    limit_mb: float | None = None


def _ref(name: str) -> DatasetRef:
    return DatasetRef("b", name)


def _calendars(starts: tuple[str, str, str, str]) -> tuple[DatasetDeclaration, ...]:
    globs = zip(GRAINS, starts, strict=True)
    return tuple(
        DatasetDeclaration(
            name=f"{grain}_*", calendar=CalendarDeclaration(grain=grain, start=start)
        )
        for grain, start in globs
    )


SINCE_2015 = ("2015-01-01T00", "2015-01-01", "2015-W01", "2015-01-01")


def layered(
    jobs: int, keys: KeySet, *, edges: int = 4, seed: int = 1, ranges: bool = False
) -> tuple[Request, LineageSnapshot, Declarations]:
    """Return a layered random graph: every job reads some of the datasets made before it.

    With `ranges` a run takes a whole range of keys, so that the runs are few enough to be listed.
    """
    rng = random.Random(seed)
    names = ["hour_root"]
    nodes = []
    for number in range(jobs):
        # A quarter of each grain; finer ones first in every layer, as pipelines have it.
        grain = GRAINS[min(int(rng.random() * 4), 3)]
        output = f"{grain}_{number}"
        window = names[-max(jobs // 20, 5) :]
        reads = {rng.choice(window) for _ in range(edges)} | (
            {"hour_root"} if number < 5 else set()
        )
        nodes.append(
            JobNode(
                ref=JobRef("b", f"job_{number}"),
                reads=tuple(sorted(_ref(name) for name in reads)),
                writes=(_ref(output),),
            )
        )
        names.append(output)
    snapshot = LineageSnapshot.of(nodes)
    declarations = Declarations(
        namespace="b",
        datasets=_calendars(SINCE_2015),
        jobs=(JobDeclaration(name="*", batch="range" if ranges else None, engine="local"),),
    )
    return _request(keys), snapshot, declarations


def _request(keys: KeySet) -> Request:
    return Request(changed=(ChangedDataset(dataset=_ref("hour_root"), keys=keys),))


def chain(jobs: int) -> tuple[Request, LineageSnapshot, Declarations]:
    """Return a chain: every job reads what the one before it wrote."""
    names = ["hour_root", *(f"{GRAINS[n * 4 // jobs]}_{n}" for n in range(jobs))]
    nodes = [
        JobNode(
            ref=JobRef("b", f"job_{n:06}"), reads=(_ref(names[n]),), writes=(_ref(names[n + 1]),)
        )
        for n in range(jobs)
    ]
    declarations = Declarations(
        namespace="b",
        datasets=_calendars(SINCE_2015),
        jobs=(JobDeclaration(name="*", batch="range", engine="local"),),
        limits=Limits(max_runs=100_000),
    )
    return _request((MONTH,)), LineageSnapshot.of(nodes), declarations


def self_dependent(jobs: int) -> tuple[Request, LineageSnapshot, Declarations]:
    """Return daily jobs that each read their own day before, over ten years."""
    nodes = [
        JobNode(
            ref=JobRef("b", f"job_{n}"),
            reads=(_ref("day_root"), _ref(f"day_{n}")),
            writes=(_ref(f"day_{n}"),),
        )
        for n in range(jobs)
    ]
    declarations = Declarations(
        namespace="b",
        datasets=_calendars(SINCE_2015),
        jobs=(
            JobDeclaration(
                name="*",
                engine="local",
                reads=tuple(
                    ReadDeclaration(dataset=f"day_{n}", mapping="offset", by=-1)
                    for n in range(jobs)
                )
                if jobs == 1
                else (ReadDeclaration(dataset="day_[0-9]*", mapping="offset", by=-1),),
            ),
        ),
    )
    changed = ChangedDataset(dataset=_ref("day_root"), keys=("2015-01-02",))
    return Request(changed=(changed,)), LineageSnapshot.of(nodes), declarations


def products(jobs: int) -> tuple[Request, LineageSnapshot, Declarations]:
    """Return a chain of layers whose datasets are day by 500 static keys."""
    rng = random.Random(2)
    regions = tuple(f"r{n:03}" for n in range(500))
    names, nodes = ["p_root"], []
    for number in range(jobs):
        reads = {rng.choice(names[-100:]) for _ in range(4)}
        nodes.append(
            JobNode(
                ref=JobRef("b", f"job_{number}"),
                reads=tuple(sorted(_ref(name) for name in reads)),
                writes=(_ref(f"p_{number}"),),
            )
        )
        names.append(f"p_{number}")
    day = CalendarDeclaration(grain="day", start="2024-01-01")
    dimensions = (
        DimensionDeclaration(name="day", calendar=day),
        DimensionDeclaration(name="region", calendar=CalendarDeclaration(keys=regions)),
    )
    windows = tuple(
        ReadDeclaration(dataset=f"p_{number}", mapping="window", before=6)
        for number in range(0, jobs, 10)
    )
    declarations = Declarations(
        namespace="b",
        datasets=(DatasetDeclaration(name="p_*", dimensions=dimensions),),
        jobs=(JobDeclaration(name="*", batch="range", engine="local", reads=windows),),
    )
    boxes: list[dict[str, Any]] = [
        {"day": ["2024-01-01..2024-06-30"], "region": list(regions[:250])},
        {"day": ["2024-03-01..2024-12-31"], "region": list(regions[200:])},
    ]
    changed = ChangedDataset(dataset=_ref("p_root"), keys=tuple(boxes))
    return Request(changed=(changed,)), LineageSnapshot.of(nodes), declarations


def scattered(count: int) -> KeySet:
    """Return so many hours of 2024, every other one on average."""
    rng = random.Random(3)
    hours = sorted(rng.sample(range(8_760), count))
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    return tuple(
        datetime.fromtimestamp(start + hour * 3_600, UTC).strftime("%Y-%m-%dT%H") for hour in hours
    )


def hourly(jobs: int, hours: int) -> tuple[Request, LineageSnapshot, Declarations]:
    """Return a chain of hourly jobs that each run once for every hour."""
    nodes = [
        JobNode(
            ref=JobRef("b", f"job_{n}"), reads=(_ref(f"hour_{n}"),), writes=(_ref(f"hour_{n + 1}"),)
        )
        for n in range(jobs)
    ]
    declarations = Declarations(
        namespace="b",
        datasets=_calendars(SINCE_2015),
        jobs=(JobDeclaration(name="*", engine="local"),),
        limits=Limits(max_runs=jobs * hours),
    )
    first = (NOW - timedelta(hours=hours)).strftime("%Y-%m-%dT%H")
    changed = ChangedDataset(dataset=_ref("hour_0"), keys=(f"{first}..",))
    return Request(changed=(changed,)), LineageSnapshot.of(nodes), declarations


SINGLE_HOURS = "228,655 runs of single hours, streamed"
CASES = (
    Case(name="10 jobs, 30 days of hours", build=lambda: layered(10, (MONTH,), ranges=True)),
    Case(name="400 jobs, 30 days of hours", build=lambda: layered(400, (MONTH,), ranges=True)),
    Case(name="5,000 jobs, 30 days of hours", build=lambda: layered(5_000, (MONTH,), ranges=True)),
    Case(name="2,000 runs of single hours", build=lambda: hourly(5, 400)),
    Case(name="1,000 jobs, 30 days of hours", build=lambda: layered(1_000, (MONTH,)), limit_ms=20),
    Case(
        name="the same as ranges, each run listed",
        build=lambda: layered(1_000, (MONTH,), ranges=True),
    ),
    Case(
        name="5,000 jobs, 1 year of hours",
        build=lambda: layered(5_000, (YEAR,)),
        limit_ms=150,
        limit_mb=200,
    ),
    Case(
        name="20,000 jobs, 42,000 edges, 24 hours",
        build=lambda: layered(20_000, ("2024-06-15T00..2024-06-15T23",), edges=2),
        limit_ms=150,
    ),
    Case(
        name="1,000 jobs, 4,380 scattered hours",
        build=lambda: layered(1_000, scattered(4_380)),
        limit_ms=60,
        limit_mb=100,
    ),
    Case(name="chain of 5,000", build=lambda: chain(5_000)),
    Case(name="chain of 10,000", build=lambda: chain(10_000)),
    Case(name="1,000 self-dependent daily jobs, 10 years", build=lambda: self_dependent(1_000)),
    Case(name="2,000 self-dependent daily jobs, 10 years", build=lambda: self_dependent(2_000)),
    Case(name="100,000 jobs, 10 years of hours", build=lambda: layered(100_000, (DECADE,))),
    Case(name="day x 500 keys, 2,000 jobs, 1 year", build=lambda: products(2_000), limit_ms=1_000),
)


def timed(work: Callable[[], object], repeat: int) -> list[float]:
    """Return the seconds that each call took."""
    times = []
    for _ in range(repeat):
        gc.collect()
        begin = time.process_time()
        made = work()
        times.append(time.process_time() - begin)
        del made
    return times


def write(plan: Plan) -> None:
    """Write the plan's whole document, as `impact --out` does, where nothing keeps it."""
    documents.save(plan_members(plan), Path(os.devnull))


def measure(case: Case, repeat: int, *, traced: bool = True) -> dict[str, Any]:
    """Return the times of one case, and its memory where it is traced."""
    request, snapshot, declarations = case.build()

    def fresh() -> Plan:
        plan = Planner(snapshot, declarations, now=NOW).plan(request)
        write(plan)
        return plan

    plan = fresh()
    times = timed(fresh, repeat)
    planner = Planner(snapshot, declarations, now=NOW)
    planner.plan(request)
    warm = timed(lambda: planner.plan(request), repeat)
    peak = 0
    if traced:
        tracemalloc.start()
        fresh()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return {
        "case": case.name,
        "ms": round(statistics.median(times) * 1e3, 1),
        "best_ms": round(min(times) * 1e3, 2),
        "warm_ms": round(statistics.median(warm) * 1e3, 1),
        "mb": round(peak / 1e6, 1),
        **plan.totals,
        "limit_ms": case.limit_ms,
        "limit_mb": case.limit_mb,
    }


def in_process(case: str, path: str, repeat: int) -> dict[str, Any]:
    """Return what another process measures, on the code at a path."""
    command = [sys.executable, __file__, "--json", "--case", case, "--repeat", str(repeat)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found["rows"][0], "peak_mb": found["process_peak_mb"]}


def beside(case: Case, path: str, repeat: int) -> dict[str, Any]:
    """Return one case on this code and on that at a path, measured in turn."""
    here = str(Path(__file__).resolve().parents[2])
    turns = [[in_process(case.name, one, 1) for one in (here, path)] for _ in range(max(repeat, 1))]
    row: dict[str, Any] = {"case": case.name}
    for name in ("best_ms", "warm_ms", "peak_mb"):
        mine, other = (min(turn[side][name] for turn in turns) for side in (0, 1))
        row |= {name: mine, f"{name}_beside": other}
        row[f"{name}_ratio"] = round(mine / other, 2) if other else None
    return row


def single_hours() -> dict[str, Any]:
    """Return what one plan of very many runs takes: written to a file, and read again."""
    request, snapshot, declarations = hourly(5, 45_731)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        begin = time.perf_counter()
        plan = Planner(snapshot, declarations, now=NOW).plan(request)
        documents.save(plan_members(plan), file)
        wrote, peak = time.perf_counter() - begin, _peak()
        begin = time.perf_counter()
        read = plan_from_dict(documents.load(file))
        return {
            "case": SINGLE_HOURS,
            "ms": round(wrote * 1e3),
            "peak_mb": peak,
            "read_ms": round((time.perf_counter() - begin) * 1e3),
            "read_peak_mb": _peak(),
            "runs": len(read.runs or ()),
            "document_mb": round(file.stat().st_size / 1e6),
            "limit_peak_mb": 200,
        }


def many_requests(count: int) -> dict[str, Any]:
    """Return how a planner grows that serves many different requests."""
    _, snapshot, declarations = layered(40, (MONTH,), ranges=True)
    tracemalloc.start()
    planner = Planner(snapshot, declarations, now=NOW)
    held = []
    for number in range(count):
        begin = NOW - timedelta(hours=3 * number + 40)
        keys = f"{begin:%Y-%m-%dT%H}..{begin + timedelta(hours=number % 30 + 1):%Y-%m-%dT%H}"
        write(planner.plan(_request((keys,))))
        if number + 1 in (10, count):
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return {
        "case": f"a planner after {count:,} requests / after 10",
        "ratio": round(held[-1] / held[0], 2),
        "limit_ratio": 2.0,
    }


def _peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def chains(repeat: int) -> dict[str, Any]:
    """Return what twice as long a chain costs: in turns, so that both see the same machine."""
    planners = []
    for jobs in (5_000, 10_000):
        request, snapshot, declarations = chain(jobs)
        planners.append((Planner(snapshot, declarations, now=NOW), request))
        planners[-1][0].plan(request)
    turns = [[timed(lambda p=p, r=r: p.plan(r), 1)[0] for p, r in planners] for _ in range(repeat)]
    return {
        "case": "chain, 10,000 / 5,000",
        "ratio": round(statistics.median(longer / shorter for shorter, longer in turns), 2),
        "limit_ratio": 2.2,
    }


def as_events(snapshot: LineageSnapshot) -> list[str]:
    """Return the graph as one COMPLETE event a job, as a lineage client would write it."""
    lines = []
    for number, node in enumerate(snapshot.jobs.values()):
        lines.append(
            json.dumps(
                {
                    "eventType": "COMPLETE",
                    "eventTime": "2024-12-31T00:00:00.000000Z",
                    "producer": "https://example.org/pipeline",
                    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
                    "run": {"runId": f"00000000-0000-4000-8000-{number:012}", "facets": {}},
                    "job": {"namespace": node.ref.namespace, "name": node.ref.name, "facets": {}},
                    "inputs": [
                        {"namespace": r.namespace, "name": r.name, "facets": {}} for r in node.reads
                    ],
                    "outputs": [
                        {"namespace": w.namespace, "name": w.name, "facets": {}}
                        for w in node.writes
                    ],
                }
            )
        )
    return lines


def against_json(jobs: int) -> dict[str, Any]:
    """Return how planning compares with parsing the same graph from its events, in one run."""
    request, snapshot, declarations = layered(jobs, (DECADE,))
    lines = as_events(snapshot)
    planner = Planner(snapshot, declarations, now=NOW)
    planner.plan(request)
    parsing = min(timed(lambda: [json.loads(line) for line in lines], 3))
    planning = min(timed(lambda: planner.plan(request), 3))
    first = min(timed(lambda: Planner(snapshot, declarations, now=NOW).plan(request), 3))
    tracemalloc.start()
    graph = layered(jobs, (DECADE,))[1]
    _ = graph.readers, graph.writers
    held, _ = tracemalloc.get_traced_memory()
    del graph
    gc.collect()
    base, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    Planner(snapshot, declarations, now=NOW).plan(request)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "case": f"{jobs:,} jobs: planning / json.loads of its events",
        "ratio": round(planning / parsing, 2),
        "with_graph_ratio": round(first / parsing, 2),
        "json_ms": round(parsing * 1e3, 1),
        "memory_ratio": round((peak - base) / held, 2),
        "limit_ratio": 1.0,
        "limit_memory_ratio": 4.0,
    }


def whole_process(jobs: int) -> dict[str, Any]:
    """Return how long `impact --json` takes as a process, from an event file."""
    _, snapshot, _ = layered(jobs, (MONTH,))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "events.ndjson").write_text("\n".join(as_events(snapshot)) + "\n")
        tables = "".join(
            f'[[dataset]]\nname = "{grain}_*"\ngrain = "{grain}"\nstart = "{start}"\n'
            for grain, start in zip(GRAINS, SINCE_2015, strict=True)
        )
        (root / "lineage-backfill.toml").write_text(
            '[project]\nnamespace = "b"\n[lineage]\nevents = ["events.ndjson"]\n'
            f'[[job]]\nname = "*"\nbatch = "range"\n{tables}'
        )
        command = [sys.executable, "-m", "lineage_backfill", "impact", "hour_root", "--json"]
        command += ["--from", "2024-12-02T00", "--to", "2024-12-31T23"]
        command += ["--now", "2025-01-01T00:00:00Z"]
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            done = subprocess.run(command, cwd=root, capture_output=True, check=True)
            times.append(time.perf_counter() - begin)
        document = json.loads(done.stdout)
    return {
        "case": f"`impact --json`, whole process, {jobs:,} jobs from an event file",
        "ms": round(statistics.median(times) * 1e3, 1),
        "best_ms": round(min(times) * 1e3, 2),
        "jobs": document["totals"]["jobs"],
        "limit_ms": 1_000,
    }


def main() -> None:
    """Run the cases and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--case", help="one case, by its whole name")
    parser.add_argument("--beside", help="where other code to run the cases on stands")
    options = parser.parse_args()
    cases = [
        case
        for case in CASES
        if (options.case == case.name if options.case else options.only in case.name)
    ]
    if options.beside:
        rows = [beside(case, options.beside, options.repeat) for case in cases]
    else:
        rows = [measure(case, options.repeat, traced=not options.case) for case in cases]
    others: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
        (SINGLE_HOURS, single_hours),
        ("a planner after 10,000 requests / after 10", lambda: many_requests(10_000)),
        ("chain, 10,000 / 5,000", lambda: chains(options.repeat)),
        ("json.loads", lambda: against_json(100_000)),
        ("whole process", lambda: whole_process(1_000)),
        ("whole process, 5,000", lambda: whole_process(5_000)),
    )
    if not (options.beside or options.case):
        rows += [measured() for name, measured in others if options.only in name]
    peak = _peak()
    if options.json:
        print(json.dumps({"rows": rows, "process_peak_mb": peak}, indent=1))
        return
    for row in rows:
        parts = [f"{key}={value}" for key, value in row.items() if key != "case" and value]
        print(f"{row['case']:<62} {'  '.join(parts)}")
    print(f"peak of this process: {peak} MB")


if __name__ == "__main__":
    main()
