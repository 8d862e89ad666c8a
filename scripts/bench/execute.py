"""What running the demo's backfill costs, beside the same transformations written by hand.

    python scripts/bench/execute.py [--rounds N] [--submits N] [--folder DIR]
        [--cluster MASTER]

In one warm session and in turns: the backfill through the local engine, without fingerprints and
with, and its runs by hand, as range jobs that read, compute and write and do nothing else. The rows
must be the same each time. The least of the rounds counts, by the clock and by the CPU time of this
process, the worker and its JVM, which a busy machine disturbs less; the start of the session is
reported apart. Then where our own time goes, and what one spark-submit for each (job, key) would
take: a few are timed, the rest is multiplied. Prints one JSON line for each.

With --cluster, only the backfill is measured, in turns: through the local engine and through a
worker whose tasks run on that cluster, with the settings of docs/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyspark
from rich.console import Console

from examples.demo.folder import prepare
from examples.demo.period import MARCH
from examples.demo.story import FAULT, Demo
from lineage_backfill.engines import create_engine
from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.model import BackfillState, DatasetRef
from lineage_backfill.partitions.text import KeySet, expand, parse
from lineage_backfill.plans.plan import DatasetPartitions, Plan, PlannedRun
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import Engine, Settings
from lineage_backfill.project import Project
from lineage_backfill.project.settings import FILE_NAME
from lineage_backfill.runs.cutoff import Cutoff
from lineage_backfill.runs.drive.scheduler import Scheduler
from lineage_backfill.store.sql import SqlRunStore
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner, Submission
from lineage_backfill.workspace.workspace import Workspace
from spark_runtime.session import LOCAL_CONF, SAFE_CONF, find_jars
from spark_runtime.tables.fingerprint import SETTING

HERE = Path(__file__).parent
OURS = ("plain", "fingerprints")


class Taken(NamedTuple):
    """What a round took, or the least of several, in seconds."""

    wall: float
    cpu: float

    def least(self, other: Taken) -> Taken:
        """Return the lesser of each."""
        return Taken(min(self.wall, other.wall), min(self.cpu, other.cpu))


class Bench:
    """The demo's folder with its history built, and a warm worker."""

    def __init__(self, project: Project, engine: SparkEngine) -> None:
        self.project = project
        self.engine = engine
        self.workspace: Workspace
        self.plan: Plan
        self.runs: list[dict[str, Any]]

    def build(self) -> None:
        """Land the feed and build the history; then plan the fix of its fault."""
        assert Demo(self.project, self.engine, MARCH, Console(stderr=True)).build()
        self.call("pipeline.feed:repair", root=str(self.project.root), hours=FAULT)
        shutil.copy(HERE / "by_hand.py", self.project.root)
        self.workspace = Workspace(self.project)
        ref = DatasetRef(self.project.declarations.namespace or "", "flights_hourly")
        fixed = ChangedDataset(dataset=ref, keys=(f"{FAULT[0]}..{FAULT[-1]}",))
        request = Request(changed=(fixed,))
        self.plan = Planning(self.workspace).plan(request)
        self.runs = self._described()

    def call(self, function: str, **arguments: Any) -> Any:
        """Call a function in the worker."""
        return self.engine.call(function, arguments)

    def ours(self, *, fingerprints: bool, engine: Engine | None = None) -> None:
        """Run the backfill, through the local engine if through no other."""
        self.call("by_hand:set_conf", name=SETTING, value=str(fingerprints).lower())
        engines: dict[str, Engine] = {"local": engine or self.engine}
        runner = Runner(self.workspace, options=DriveOptions(engines=engines))
        # Each round does the same work.
        outcome = runner.start(self.plan, Submission(settings=Settings(cutoff=False, tail=False)))
        assert outcome.state is BackfillState.SUCCEEDED, outcome

    def by_hand(self) -> None:
        """Do the runs by hand in the same session."""
        self.call("by_hand:run", root=str(self.project.root), runs=self.runs)

    def rows(self) -> dict[str, list[str]]:
        """Return the rows that the runs have written, by table."""
        held: dict[str, list[str]] = self.call(
            "by_hand:contents", root=str(self.project.root), runs=self.runs
        )
        return held

    def taken(self, way: Callable[[], None]) -> Taken:
        """Go one way, and return what that took."""
        began, cpu = time.perf_counter(), self._cpu()
        way()
        return Taken(time.perf_counter() - began, self._cpu() - cpu)

    def _cpu(self) -> float:
        worker: float = self.call("by_hand:cpu")
        return worker + time.process_time()

    def _described(self) -> list[dict[str, Any]]:
        """Return the runs of the plan as `by_hand` takes them."""
        resolver = self.workspace.resolver
        tables = {table.name: table for table in self.project.declarations.datasets}

        def keys(dataset: DatasetRef, partitions: KeySet | None) -> list[str]:
            calendar = resolver.calendar(dataset)
            assert calendar is not None, "every table of the example is declared"
            return [str(key.label) for key in expand(calendar, parse(calendar, partitions))]

        def table(part: DatasetPartitions) -> dict[str, Any]:
            declared = tables[part.dataset.name]
            column = next(iter(declared.columns), None)
            is_whole = part.keys is None or column is None
            return {
                "location": declared.location,
                "column": column,
                "values": None if is_whole else keys(part.dataset, part.keys),
            }

        def run(one: PlannedRun) -> dict[str, Any]:
            (written,) = one.writes
            own = resolver.job(one.job).calendar
            assert own is not None
            return {
                "job": one.job.name,
                "keys": [str(key.label) for key in expand(own, parse(own, one.partitions))],
                "reads": {part.dataset.name: table(part) for part in one.reads},
                "writes": table(written),
            }

        return [run(one) for one in self.plan.runs or ()]

    def inside(self) -> dict[str, float]:
        """Run the backfill once more, and return where its seconds went, part by part."""
        self.call("by_hand:watch")
        with timed() as seconds:
            total = self.taken(lambda: self.ours(fingerprints=True)).wall
        within = self.call("by_hand:parts")
        with self.workspace.open_store() as store:
            newest = store.backfills()[0]
            results = [one.result for one in store.attempts(newest.id) if one.result]
        at_work = sum(_span(one["started_at"], one["ended_at"]) for one in results)
        outside = sum(seconds.values()) + at_work
        return {
            "total": total,
            "attempts in the worker": at_work,
            **{f"  of that {part}": taken for part, taken in within.items()},
            **seconds,
            "the rest: specs, hand-over, opening": total - outside,
        }


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Add up what the store, the scheduler and the cutoff take in this process."""
    seconds: dict[str, float] = defaultdict(float)

    def watched(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                seconds[part] += time.perf_counter() - began

        return call

    watched_ones = (
        (
            SqlRunStore,
            "run store",
            ("record", "create", "enter", "lock", "acquire", "release", "runs"),
        ),
        (Scheduler, "scheduler", ("__init__", "ready", "succeeded")),
        (Cutoff, "cutoff's records", ("__init__", "opened", "closed")),
    )
    with ExitStack() as patched:
        for owner, part, names in watched_ones:
            for name in names:
                changed = watched(getattr(owner, name), part)
                patched.enter_context(mock.patch.object(owner, name, changed))
        yield seconds


def _span(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def submits(bench: Bench, count: int) -> dict[str, Any]:
    """Time a few of the runs that spark-submit would do one by one for each key."""
    single = [run for run in bench.runs if len(run["keys"]) == 1]
    conf = {**LOCAL_CONF, **SAFE_CONF, **bench.project.spark}
    conf["spark.jars"] = ",".join(map(str, find_jars()))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    script = [str(bench.project.root / "by_hand.py"), str(bench.project.root)]
    taken = []
    for run in single[:: max(1, len(single) // count)][:count]:
        began = time.perf_counter()
        subprocess.run(
            [str(submit), *options, *script, json.dumps(run)],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=bench.project.root,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(HERE.parents[1]),
            },
        )
        taken.append(time.perf_counter() - began)
    number = sum(len(run["keys"]) for run in bench.runs)
    return {
        "submits": number,
        "timed": len(taken),
        "least_s": round(min(taken), 2),
        "all_s": round(min(taken) * number, 1),
    }


def on_cluster(bench: Bench, settings: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Run the backfill in turns here and on a cluster, with these settings of an engine."""
    state = bench.project.root / ".lineage-backfill"
    given = {**settings, "conf": {**bench.project.spark, **settings["conf"]}}
    given["conf"].pop("spark.master", None)
    far = create_engine("spark", given, project=bench.project.code, state_dir=state / "far")
    engines = {"local": bench.engine, "cluster": far}
    bench.ours(fingerprints=True)
    rows = bench.rows()
    took: dict[str, list[float]] = {name: [] for name in engines}
    began = time.perf_counter()
    bench.ours(fingerprints=True, engine=far)
    first = time.perf_counter() - began
    try:
        for _ in range(rounds):
            for name, one in engines.items():
                way = partial(bench.ours, fingerprints=True, engine=one)
                took[name].append(round(bench.taken(way).wall, 2))
                assert bench.rows() == rows, f"{name} has written other rows"
    finally:
        far.close()
    least = {name: min(seconds) for name, seconds in took.items()}
    return {
        "runs": len(bench.runs),
        "cluster_with_start_s": round(first, 2),
        **{f"{name}_s": seconds for name, seconds in took.items()},
        "cluster_to_local": round(least["cluster"] / least["local"], 2),
    }


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Build the demo in the folder, and print what each way takes."""
    rounds, count = options.rounds, options.submits
    project = open_project(prepare(folder, MARCH) / FILE_NAME)
    with Workspace(project).open_engines() as engines:
        engine = engines["local"]
        assert isinstance(engine, SparkEngine)
        began = time.perf_counter()
        engine.open()
        print_line({"session_start_s": round(time.perf_counter() - began, 2)})
        bench = Bench(project, engine)
        bench.build()
        if options.cluster:
            conf = {"spark.executor.memory": "1g"}  # as in docs/cluster.md
            print_line(on_cluster(bench, {"master": options.cluster, "conf": conf}, rounds))
            return
        least = in_turns(bench, rounds)
        by_hand = least["by_hand"]
        print_line(
            {
                "runs": len(bench.runs),
                "partitions": sum(run.count for run in bench.plan.runs or ()),
                **{f"{way}_s": round(taken.wall, 2) for way, taken in least.items()},
                **{f"{way}_cpu_s": round(taken.cpu, 2) for way, taken in least.items()},
                **{f"{way}_to_by_hand": _ratio(least[way], by_hand) for way in OURS},
            }
        )
        print_line({part: round(seconds, 3) for part, seconds in bench.inside().items()})
        if count:
            found = submits(bench, count)
            ratio = found["all_s"] / least["fingerprints"].wall
            print_line({**found, "to_fingerprints": round(ratio, 1)})


def in_turns(bench: Bench, rounds: int) -> dict[str, Taken]:
    """Go each way in turns, and return the least that each has taken."""
    ways: dict[str, Callable[[], None]] = {
        "by_hand": bench.by_hand,
        **{way: partial(bench.ours, fingerprints=way == "fingerprints") for way in OURS},
    }
    bench.ours(fingerprints=True)
    rows = bench.rows()
    least: dict[str, Taken] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            taken = bench.taken(way)
            least[name] = taken.least(least.get(name, taken))
            assert bench.rows() == rows, f"{name} has written other rows"
    return least


def _ratio(one: Taken, other: Taken) -> dict[str, float]:
    return {"wall": round(one.wall / other.wall, 3), "cpu": round(one.cpu / other.cpu, 3)}


def print_line(found: dict[str, Any]) -> None:
    """Print what was measured."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure in a folder that is made for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--submits", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="default: a temporary one")
    parser.add_argument("--cluster", metavar="MASTER", help="measure the backfill here and there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.folder or Path(temporary) / "demo", options)


if __name__ == "__main__":
    main()
