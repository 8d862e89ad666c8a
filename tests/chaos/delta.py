"""The tables of the small world in Delta, written by real Spark workers that can be killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage_backfill.engines.local import LocalEngine
from spark_runtime.deltalog import DeltaLog
from tests.chaos.world import INPUTS, OUTSIDE, Contents, expected

JOBS = '''
import os
import signal
import threading
from pathlib import Path

from pyspark.sql import functions as F

from spark_runtime import RunContext, attempt, job


def reach(step, spark=None):
    """Kill this worker, or its JVM, where WORKER_KILLS says so."""
    kills = os.environ.get("WORKER_KILLS", "").split(",")
    for who in ("", "JVM "):
        name = who + step
        numbers = {int(kill.rpartition(" ")[2]) for kill in kills if kill.startswith(f"{name} ")}
        if not numbers:
            continue
        with Path(f"reached {name}").open("ab", buffering=0) as file:
            file.write(b".")
            if file.tell() in numbers:
                gateway = None if spark is None else spark.sparkContext._gateway
                os.kill(gateway.proc.pid if who else os.getpid(), signal.SIGKILL)


write_partitions, write_result_file = attempt.write_partitions, attempt.write_result


def write(frame, *arguments):
    spark = frame.sparkSession
    reach("before commit", spark)
    threading.Timer(0.2, reach, ["in commit", spark]).start()
    result = write_partitions(frame, *arguments)
    reach("before result", spark)
    return result


def write_result(*arguments):
    write_result_file(*arguments)
    reach("before reply")


attempt.write_partitions, attempt.write_result = write, write_result


def table(context):
    reach("before start", context.spark)
    frames = [context.read(str(one.dataset)) for one in context.spec.inputs]
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return rows.groupBy("day").agg((F.sum("n") + 1).cast("long").alias("n"))


def define(name):
    def run(context: RunContext):
        return table(context)

    return job(output=name, batch="range")(run)


for name in "abcde":
    globals()[name] = define(name)


def make(spark, tables):
    for location, rows in tables.items():
        frame = spark.createDataFrame(list(rows.items()), "day string, n long")
        frame.write.format("delta").partitionBy("day").save(location)


def contents(spark, locations):
    return {
        location: {row.day: row.n for row in spark.read.format("delta").load(location).collect()}
        for location in locations
    }
'''
NAMES = tuple(INPUTS)


@dataclass(frozen=True)
class DeltaTables:
    """Each table is a Delta table; one warm Spark worker writes them."""

    folder: Path
    days: Sequence[str]
    entrypoint: str = "chaos_jobs:{job}"
    worker_steps: Sequence[str] = (
        "before start",
        "before commit",
        "in commit",
        "before result",
        "before reply",
        "JVM before start",
        "JVM before commit",
        "JVM in commit",
        "JVM before result",
    )

    def make(self) -> None:
        """Write `raw`, and the partition of each table that is outside the plan."""
        (self.folder / "chaos_jobs.py").write_text(JOBS)
        held = expected(self.days)
        tables = {name: held[name] if name == "raw" else {OUTSIDE: -1} for name in NAMES}
        self._call("make", tables={self._location(name): rows for name, rows in tables.items()})

    def settings(self) -> dict[str, Any]:
        """One worker, on two threads."""
        return {"conf": {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "1"}}

    def read(self) -> Contents:
        """Read all tables with Spark."""
        found = self._call("contents", locations=[self._location(name) for name in NAMES])
        return {name: found[self._location(name)] for name in NAMES}

    def stamps(self) -> Mapping[str, object]:
        """Return the data files of the partitions."""
        stamps = {}
        for name in NAMES:
            held = DeltaLog(self._location(name)).state().partitions
            for values, contents in held.items():
                if name == "raw" or values == (OUTSIDE,):
                    stamps[f"{name} {values}"] = sorted(path for path, _ in contents.files or ())
        return stamps

    def journal(self) -> list[tuple[str, str]]:
        """Return what the logs say of our commits."""
        written = []
        for name in NAMES:
            log = DeltaLog(self._location(name))
            commits = log.commits(-1, log.latest_version() or 0)
            ours = (commit.metadata for commit in commits if commit.metadata)
            written += [(one["run_id"], one["token"]) for one in ours]
        return written

    def _location(self, name: str) -> str:
        return str(self.folder / "tables" / name)

    def _call(self, function: str, **arguments: Any) -> Any:
        engine = LocalEngine(
            project=self.folder, state_dir=self.folder / "calls", **self.settings()
        )
        try:
            return engine.call(f"chaos_jobs:{function}", arguments)
        finally:
            engine.close()
