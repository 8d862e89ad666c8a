"""The tables of the small world in Delta, written by Spark workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_runtime.session import get_session
from spark_runtime.tables.delta.log import DeltaLog
from tests.chaos.world import INPUTS, OUTSIDE, Contents, expected
from tests.sessions import INTERPRETED

JOBS = '''
import os
import signal
import threading
from pathlib import Path

from pyspark.sql import functions as F

from spark_runtime import RunContext, job
from spark_runtime.job import attempt
from spark_runtime.write import writer


FOLDER = Path("IN_FOLDER")  # the driver may run elsewhere


def reach(step, spark=None):
    """Kill this worker, or its JVM, where WORKER_KILLS says so."""
    kills = os.environ.get("WORKER_KILLS", "").split(",")
    for who in ("", "JVM "):
        name = who + step
        numbers = {int(kill.rpartition(" ")[2]) for kill in kills if kill.startswith(f"{name} ")}
        if not numbers:
            continue
        with Path(FOLDER, f"reached {name}").open("ab", buffering=0) as file:
            file.write(b".")
            if file.tell() in numbers:
                with Path(FOLDER, "workers-killed").open("ab") as killed:
                    killed.write(b".")
                started = spark and getattr(spark.sparkContext._gateway, "proc", None)
                jvm = started.pid if started else os.getppid()  # spark-submit starts Python
                os.kill(jvm if who else os.getpid(), signal.SIGKILL)


write_partitions, write_result_file = writer.write_partitions, attempt.write_result


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


writer.write_partitions, attempt.write_result = write, write_result


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

'''


@dataclass(frozen=True)
class SparkTables:
    """Each table is one of Delta; one warm Spark worker writes them.

    They are made and read by the session of this process. With `cluster`, the settings of an
    engine, its runs write them there.
    """

    folder: Path
    days: Sequence[str]
    entrypoint: str = "chaos_jobs:{job}"
    cluster: Mapping[str, Any] = field(default_factory=dict)
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
        (self.folder / "chaos_jobs.py").write_text(JOBS.replace("IN_FOLDER", str(self.folder)))
        for name, held in expected(self.days).items():
            rows = [(day, n) for day, n in held.items() if name == "raw" or day == OUTSIDE]
            frame = get_session().createDataFrame(rows, "day string, n long")
            writer = frame.write.format("delta").partitionBy("day")
            writer.save(self._location(name))

    def settings(self) -> dict[str, Any]:
        """One worker on two threads, or an engine on a cluster."""
        if self.cluster:
            return {**self.cluster, "conf": {**self.cluster["conf"], **INTERPRETED}}
        conf = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "1", **INTERPRETED}
        return {"conf": conf}

    def read(self) -> Contents:
        """Read all tables with Spark."""
        found = {}
        for name in INPUTS:
            frame = get_session().read.format("delta").load(self._location(name))
            found[name] = {row["day"]: row["n"] for row in frame.collect()}
        return found

    def stamps(self) -> Mapping[str, object]:
        """Return the data files of the partitions that no run writes."""
        stamps: dict[str, object] = {}
        for name, log in self._logs():
            for values, contents in log.state().partitions.items():
                if name == "raw" or values == (OUTSIDE,):
                    stamps[f"{name} {values}"] = sorted(path for path, _ in contents.files or ())
        return stamps

    def journal(self) -> list[tuple[str, str]]:
        """Return what the logs say of our commits; fences write nothing."""
        written = []
        for _, log in self._logs():
            commits = log.commits(-1, log.latest_version() or 0)
            ours = (commit.metadata for commit in commits if "token" in commit.metadata)
            written += [(one["run_id"], one["token"]) for one in ours]
        return written

    def _logs(self) -> Iterator[tuple[str, DeltaLog]]:
        for name in INPUTS:
            yield name, DeltaLog(self._location(name))

    def _location(self, name: str) -> str:
        return str(self.folder / "tables" / name)
