"""The demo's runs as one would write them by hand: read, compute, write, and nothing more.

`execute.py` copies this beside the example's `pipeline` and lets a warm worker run it; by itself it
does one run in a session of its own, as a job of spark-submit would: by_hand.py ROOT RUN
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pipeline import jobs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_runtime.job.attempt
from lineage_backfill.runspec.values import RunKey
from spark_runtime import RunContext
from spark_runtime.session import get_session
from spark_runtime.tables.delta.log import DeltaLog

_SECONDS: defaultdict[str, float] = defaultdict(float)
_ENTERED: list[str] = []


class _Asked:
    """As much of a RunContext as the jobs look at."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(RunKey(key=key) for key in keys)


def run(spark: SparkSession, *, root: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Do the runs one after the other."""
    for one in runs:
        _run(spark, Path(root), one)


def _run(spark: SparkSession, root: Path, one: Mapping[str, Any]) -> None:
    function = getattr(jobs, one["job"])
    definition = function.__lineage_backfill_job__
    arguments: dict[str, Any] = {
        name: _read(spark, root, one["reads"][str(read.dataset)])
        for name, read in definition.inputs.items()
    }
    if definition.context_parameter is not None:
        arguments[definition.context_parameter] = cast(RunContext, _Asked(one["keys"]))
    table = one["writes"]
    writer = function(**arguments).write.format("delta").mode("overwrite")
    if table["column"] is not None:
        writer = writer.option("replaceWhere", _where(table))
    writer.save(str(root / table["location"]))


def _read(spark: SparkSession, root: Path, table: Mapping[str, Any]) -> DataFrame | None:
    if table["values"] == []:
        return None
    frame = spark.read.format("delta").load(str(root / table["location"]))
    return frame if table["values"] is None else frame.where(_where(table))


def _where(table: Mapping[str, Any]) -> str:
    return f"{table['column']} IN ({', '.join(repr(value) for value in table['values'])})"


def contents(
    spark: SparkSession, *, root: str, runs: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return the rows that the runs have written, as text in an order of their own, by table."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    for table in (run["writes"] for run in runs):
        frame = _read(spark, Path(root), table)
        assert frame is not None
        rows = frame.select(F.to_json(F.struct("*")).alias("row")).collect()
        held[table["location"]] += [row["row"] for row in rows]
    return {location: sorted(rows) for location, rows in held.items()}


def set_conf(spark: SparkSession, *, name: str, value: str) -> None:
    """Change a setting of the worker's session."""
    spark.conf.set(name, value)


def cpu(spark: SparkSession) -> float:
    """Return the seconds of CPU that the worker and its JVM have taken so far; Linux tells them."""
    gateway: Any = spark.sparkContext._gateway
    said = Path(f"/proc/{gateway.proc.pid}/stat").read_text(encoding="utf-8")
    ticks = said.rpartition(")")[2].split()[11:13]  # in the user's code and in the system's
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") + time.process_time()


def watch(_spark: SparkSession) -> None:
    """Measure from here on what parts of an attempt take in this worker."""
    attempt = spark_runtime.job.attempt
    for owner, name, part in (
        (attempt.Emitter, "start", "lineage"),
        (attempt.Emitter, "complete", "lineage"),
        (DeltaLog, "latest_version", "log reads"),
        (DeltaLog, "state", "log reads"),
        (DeltaLog, "commits", "log reads"),
        (attempt, "write_result", "result file"),
    ):
        setattr(owner, name, _timed(getattr(owner, name), part))


def parts(_spark: SparkSession) -> dict[str, float]:
    """Return what the parts have taken since this was last asked."""
    found = dict(_SECONDS)
    _SECONDS.clear()
    return found


def _timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*given: Any, **named: Any) -> Any:
        if _ENTERED:  # what a part calls belongs to it
            return function(*given, **named)
        _ENTERED.append(part)
        began = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            _ENTERED.clear()
            _SECONDS[part] += time.perf_counter() - began

    return timed


if __name__ == "__main__":
    run(get_session(), root=sys.argv[1], runs=[json.loads(sys.argv[2])])
