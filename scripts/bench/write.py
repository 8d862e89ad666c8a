"""Times what safe writing costs over Delta's bare `replaceWhere` and MERGE, and reading its log.

    python scripts/bench/write.py [--rows N] [--rounds N] [--partitions N …] [--commits N]
        [--layouts | --log-only] [--cpu]

Everything is timed in one warm session, in turns: the ratios mean something on a busy machine, the
seconds do not. On a very busy one --cpu counts the seconds that this process and its JVM compute.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.logs.changes import changes
from spark_runtime.session import get_session
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.fingerprint import SETTING
from spark_runtime.tables.scope import Scope, predicate
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions
from tests.delta_logs import PROTOCOL, Log, add, metadata, remove

PARTITIONS = (1, 24, 720)


def spec(path: Path, keys: list[str], number: int, mode: str = "overwrite") -> Any:
    """The spec of one run that writes these keys."""
    return parse_spec(
        {
            "schema_version": 1,
            "backfill_id": "bench",
            "run_id": f"run-{number}",
            "attempt": 1,
            "token": f"token-{number}",
            "job": {"namespace": "bench", "name": "job", "entrypoint": "jobs:job"},
            "partitions": keys,
            "keys": [],
            "inputs": [],
            "outputs": [
                {
                    "dataset": {"namespace": "bench", "name": "t"},
                    "location": str(path),
                    "columns": ["k"],
                    "mode": mode,
                    "scope": [{"key": key, "values": {"k": key}} for key in keys],
                }
            ],
            "result_path": f"{path}.json",
        }
    )


class Clock:
    """What is timed by: seconds of the clock, or those of CPU that we and this JVM have used."""

    jvm: int | None = None

    def now(self) -> float:
        """Return the seconds by now."""
        if self.jvm is None:
            return time.perf_counter()
        fields = Path(f"/proc/{self.jvm}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


CLOCK = Clock()


def timed(rounds: int, *ways: Callable[[], object]) -> list[list[float]]:
    """Return the seconds of each way by round, after one round to warm up.

    They take turns, so that all see the same machine, and in every order: each leaves something
    behind that the next one pays for (pages to be written to disk, garbage).
    """
    seconds: list[list[float]] = [[] for _ in ways]
    orders = itertools.cycle(itertools.permutations(range(len(ways))))
    for number, order in zip(range(rounds + 1), orders, strict=False):
        for which in order:
            start = CLOCK.now()
            ways[which]()
            if number:
                seconds[which].append(CLOCK.now() - start)
    return seconds


def over(ours: list[float], bare: list[float]) -> str:
    """Say the seconds of both, and the ratio of the least and of the middle ones."""
    least, middle = min(ours) / min(bare), median(ours) / median(bare)
    seconds = f"{min(ours):6.2f} s, bare {min(bare):6.2f} s"
    return f"{seconds}, ratio of least {least:.2f}, of medians {middle:.2f}"


def writing(spark: Any, folder: Path, count: int, rows: int, rounds: int) -> None:
    """Print what writing so many partitions costs over the bare way, and reading some of them."""
    keys = [f"{i:04}" for i in range(count)]
    source = folder / f"source-{count}"
    names = [f"rand({i}) AS x{i}" for i in range(5)]
    key = f"lpad(CAST(id % {count} AS STRING), 4, '0') AS k"
    spark.range(rows).selectExpr(key, "id AS n", *names).write.parquet(str(source))
    frame = spark.read.parquet(str(source))
    ways = ("bare", "plain", "with fingerprints")
    paths = {way: folder / f"{way}-{count}" for way in ways}
    for path in paths.values():
        frame.limit(0).write.format("delta").partitionBy("k").save(str(path))
    tables = Tables(spark)
    state = DeltaLog(str(paths["bare"])).state()
    output = spec(paths["bare"], keys, 0).outputs[0]
    scope = predicate(state.columns, Scope.of(state, output, output.scope))
    numbers = itertools.count()

    def safe(way: str) -> None:
        spark.conf.set(SETTING, str(way != "plain").lower())
        run = spec(paths[way], keys, next(numbers))
        write_partitions(frame, run.outputs[0], run, tables)

    def bare() -> None:
        writer = frame.repartition("k") if count > 1 else frame
        replacing = writer.write.format("delta").mode("overwrite")
        replacing.option("replaceWhere", scope).save(str(paths["bare"]))

    without, *ours = timed(rounds, bare, *[partial(safe, way) for way in ways[1:]])
    for way, took in zip(ways[1:], ours, strict=True):
        print(f"write {count:>4} partitions, {rows:,} rows, {way:>17}: {over(took, without)}")

    target = spec(paths["plain"], keys[: max(1, count // 24)], 0).outputs[0]
    wanted = Scope.of(state, target, target.scope)
    version = tables.latest_version(target) or 0

    def through_us() -> object:
        return tables.storage(target).held(version, wanted).agg({"n": "sum"}).collect()

    def direct() -> object:
        read = spark.read.format("delta").load(str(paths["plain"]))
        return read.where(predicate(state.columns, wanted)).agg({"n": "sum"}).collect()

    held, plain = timed(rounds, through_us, direct)
    print(f"read  {len(wanted):>4} of {count}: {over(held, plain)}")


def merging(spark: Any, folder: Path, count: int, rows: int, rounds: int) -> None:
    """Print what merging a tenth of new and changed rows costs over a bare MERGE."""
    from delta.tables import DeltaTable
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [f"{i:04}" for i in range(count)]
    names = [f"rand({i}) AS x{i}" for i in range(5)]
    key = f"lpad(CAST(id % {count} AS STRING), 4, '0') AS k"
    held = spark.range(rows).selectExpr(key, "id AS n", "0L AS at", *names)
    source = folder / f"changes-{count}"
    spark.range(0, rows * 2, 19).selectExpr(key, "id AS n", "1L AS at", *names).write.parquet(
        str(source)
    )
    new = spark.read.parquet(str(source))
    ways = ("bare", "plain", "with fingerprints")
    paths = {way: folder / f"merged-{way}-{count}" for way in ways}
    for path in paths.values():
        held.write.format("delta").partitionBy("k").save(str(path))
    tables = Tables(spark)
    state = DeltaLog(str(paths["bare"])).state()
    output = spec(paths["bare"], keys, 0).outputs[0]
    scope = predicate(state.columns, Scope.of(state, output, output.scope), "t")
    numbers = itertools.count()

    def safe(way: str) -> None:
        spark.conf.set(SETTING, str(way != "plain").lower())
        run = spec(paths[way], keys, next(numbers), "merge")
        options = WriteOptions(merge_on=["n"], newest_by="at")
        write_partitions(new, run.outputs[0], run, tables, options)

    def bare() -> None:
        window = Window.partitionBy("n").orderBy(F.col("at").desc())
        ranked = new.withColumn("rank", F.row_number().over(window))
        DeltaTable.forPath(spark, str(paths["bare"])).alias("t").merge(
            ranked.where("rank = 1").drop("rank").alias("s"),
            f"({scope}) AND t.n = s.n",
        ).whenMatchedUpdateAll("s.at >= t.at").whenNotMatchedInsertAll().execute()

    without, *ours = timed(rounds, bare, *[partial(safe, way) for way in ways[1:]])
    for way, took in zip(ways[1:], ours, strict=True):
        print(f"merge {count:>4} partitions, {rows:,} rows, {way:>17}: {over(took, without)}")


def by_layout(spark: Any, folder: Path, rows: int, rounds: int) -> None:
    """Print what a day of thirty costs by value over the day's own partition; deletion vectors."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    moment = f"timestamp_seconds({int(start.timestamp())} + id % (30 * 86400)) AS ts"
    names = [f"rand({i}) AS x{i}" for i in range(5)]
    columns = spark.range(rows).selectExpr(moment, "id AS n", "CAST(id % 4 AS INT) AS part", *names)
    source = folder / "source-layouts"
    dated = columns.selectExpr("date_format(ts, 'yyyy-MM-dd') AS day", "*")
    dated.repartition(30, "day").sortWithinPartitions("ts").write.parquet(str(source))
    held = spark.read.parquet(str(source))
    fields = ", ".join(f"{name} {kind}" for name, kind in held.dtypes)
    clauses = {"partitioned": "PARTITIONED BY (day)", "unpartitioned": ""}
    clauses |= {"clustered": "CLUSTER BY (ts)", "other-column": "PARTITIONED BY (part)"}
    tables, numbers = Tables(spark), itertools.count()
    for name, clause in clauses.items():
        spark.sql(
            f"CREATE TABLE delta.`{folder / name}` ({fields}) USING delta {clause} "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        held.write.format("delta").mode("append").save(str(folder / name))
    first, last = (start + timedelta(days=14 + n) for n in (0, 1))
    day = f"{first:%Y-%m-%d}"

    def write(name: str) -> None:
        run = spec(folder / name, [day], next(numbers))
        is_value = name != "partitioned"
        values = {"ts": f"{first.isoformat()}/{last.isoformat()}"} if is_value else {"day": day}
        output = replace(
            run.outputs[0],
            columns=tuple(values),
            scoped_by="time" if is_value else None,
            scope=(replace(run.outputs[0].scope[0], values=values),),
        )
        rows_of_day = spark.read.parquet(str(source)).where(f"day = '{day}'")
        write_partitions(rows_of_day, output, replace(run, outputs=(output,)), tables)

    whole, *others = timed(rounds, *[partial(write, name) for name in clauses])
    for name, took in zip([*clauses][1:], others, strict=True):
        print(f"a day of 30, {rows:,} rows, {name:>13} over partitioned: {over(took, whole)}")


def log_opening(folder: Path, commits: int, rounds: int) -> None:
    """Print the CPU of opening a log of so many commits, all of them still there."""
    log = Log(folder / "long")
    held: dict[str, str] = {}
    log.commit(metadata())
    saved: list[dict[str, Any]] = []
    for number in range(1, commits + 1):
        day = f"{number % 300:03}"
        old, held[day] = held.get(day), f"{number}.parquet"
        log.commit(add(held[day], day), *([remove(old, day)] if old else []))
        if number == commits - 700:
            log.path(number).with_name(f"{number:020}.checkpoint.parquet").touch()
            saved = [PROTOCOL, metadata(), *(add(path, one) for one, path in held.items())]
    start = time.process_time()
    for _ in range(rounds):
        DeltaLog(str(log.root), checkpoint_reader=lambda _: saved).state()
    spent = (time.process_time() - start) / rounds
    print(f"opening a log of {commits:,} commits: {spent * 1000:.0f} ms of CPU")


def log_reading(folder: Path, commits: int, rounds: int) -> None:
    """Print the cost of finding what changed, which grows with the commits looked at alone."""
    schema = {
        "type": "struct",
        "fields": [{"name": "k", "type": "string", "nullable": True, "metadata": {}}],
    }
    metadata = {
        "schemaString": json.dumps(schema),
        "partitionColumns": ["k"],
        "configuration": {},
    }
    log = folder / "log" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(commits * 2 + 1):
        info = {"commitInfo": {"operation": "WRITE", "timestamp": 0, "userMetadata": "x" * 500}}
        actions: list[Any] = [info]
        if version == 0:
            protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
            actions += [{"metaData": metadata}, {"protocol": protocol}]
        for i in range(4):
            values = {"k": f"{(version + i) % 720:04}"}
            body = {"path": f"k={i}/part-{version}", "partitionValues": values, "dataChange": True}
            actions += [{"add": {**body, "stats": '{"numRecords":10}'}}, {"remove": body}]
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
    (log / f"{commits * 2:020}.crc").write_text(json.dumps({"metadata": metadata}))
    for looked_at in (commits // 10, commits):
        start = time.process_time()
        after = commits * 2 - looked_at
        (took,) = timed(rounds, lambda after=after: changes(DeltaLog(str(log.parent)), after=after))
        spent = (time.process_time() - start) / (rounds + 1)
        print(
            f"changes over {looked_at:,} of {commits * 2:,} commits: {min(took) * 1000:.0f} ms"
            f" ({spent * 1000:.0f} ms of CPU)"
        )


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--layouts", action="store_true", help="only tables by value")
    parser.add_argument("--log-only", action="store_true", help="no Spark")
    parser.add_argument("--cpu", action="store_true", help="seconds of CPU, not of the clock")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-write-"))
    try:
        log_reading(folder, options.commits, options.rounds)
        log_opening(folder, options.commits * 10, options.rounds)
        if not options.log_only:
            spark = get_session({"spark.master": "local[2]"})
            if options.cpu:
                gateway: Any = spark.sparkContext._gateway
                CLOCK.jvm = gateway.proc.pid
            if options.layouts:
                by_layout(spark, folder, options.rows, options.rounds)
            for count in () if options.layouts else options.partitions:
                writing(spark, folder, count, options.rows, options.rounds)
                merging(spark, folder, count, options.rows, options.rounds)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
