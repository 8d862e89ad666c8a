"""Times what safe writing costs over Delta's bare `replaceWhere`, and what reading the log costs.

    python scripts/bench/write.py [--rows N] [--rounds N] [--commits N]

Everything is timed in one run and one session, in turns, and the least of several rounds counts:
the ratios mean something on a busy machine, the seconds do not.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from spark_runtime.changes import changes
from spark_runtime.deltalog import DeltaLog
from spark_runtime.session import get_session
from spark_runtime.spec import parse_spec
from spark_runtime.tables import Tables
from spark_runtime.values import predicate, scope_values
from spark_runtime.writer import write_partitions

PARTITIONS = (1, 24, 720)


def spec(path: Path, keys: list[str], number: int) -> Any:
    """The spec of one run that replaces these keys."""
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
                    "scope": [{"key": key, "values": {"k": key}} for key in keys],
                }
            ],
            "result_path": f"{path}.json",
        }
    )


def least(rounds: int, *ways: Callable[[], object]) -> list[float]:
    """Return the least seconds of each way; they take turns, so that all see the same machine."""
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for i, way in enumerate(ways):
            start = time.perf_counter()
            way()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def writing(spark: Any, folder: Path, rows: int, rounds: int) -> None:
    """Print the cost of a write of 1, 24 and 720 partitions over the bare one."""
    numbers = iter(range(10_000))
    for count in PARTITIONS:
        keys = [f"{i:04}" for i in range(count)]
        source = folder / f"source-{count}"
        names = [f"rand({i}) AS x{i}" for i in range(5)]
        key = f"lpad(CAST(id % {count} AS STRING), 4, '0') AS k"
        spark.range(rows).selectExpr(key, "id AS n", *names).write.parquet(str(source))
        frame = spark.read.parquet(str(source))
        ours, bare = folder / f"ours-{count}", folder / f"bare-{count}"
        for path in (ours, bare):
            frame.limit(0).write.format("delta").partitionBy("k").save(str(path))
        tables = Tables(spark)
        columns = DeltaLog(str(ours)).state().columns

        def safe(path: Path = ours, keys: list[str] = keys, frame: Any = frame) -> None:
            run = spec(path, keys, next(numbers))
            write_partitions(frame, run.outputs[0], run, tables)  # noqa: B023

        def plain(path: Path = bare, keys: list[str] = keys, frame: Any = frame) -> None:
            run = spec(path, keys, 0)
            scope = scope_values(columns, run.outputs[0].scope)  # noqa: B023
            writer = frame.repartition("k") if len(keys) > 1 else frame
            writer.write.format("delta").mode("overwrite").option(
                "replaceWhere",
                predicate(columns, scope),  # noqa: B023
            ).save(str(path))

        with_us, without = least(rounds, safe, plain)
        print(
            f"write {count:>4} partitions, {rows:,} rows: {with_us:6.2f} s, bare {without:6.2f} s,"
            f" ratio {with_us / without:.2f} (with fingerprints)"
        )
        wanted = keys[: max(1, count // 24)]
        where = predicate(columns, scope_values(columns, spec(ours, wanted, 0).outputs[0].scope))
        target = spec(ours, wanted, 0).outputs[0]
        version = tables.latest_version(target) or 0
        scope = tuple(scope_values(columns, target.scope))
        through_us, direct = least(
            rounds,
            lambda: tables.storage(target).held(version, scope).agg({"n": "sum"}).collect(),  # noqa: B023
            lambda: (
                spark.read.format("delta").load(str(ours)).where(where).agg({"n": "sum"}).collect()  # noqa: B023
            ),
        )
        print(
            f"read  {len(wanted):>4} of {count}: {through_us:.2f} s, bare {direct:.2f} s,"
            f" ratio {through_us / direct:.2f}"
        )


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
            actions.append({"metaData": metadata})
        for i in range(4):
            values = {"k": f"{(version + i) % 720:04}"}
            body = {"path": f"k={i}/part-{version}", "partitionValues": values, "dataChange": True}
            actions += [{"add": {**body, "stats": '{"numRecords":10}'}}, {"remove": body}]
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
    (log / f"{commits * 2:020}.crc").write_text(json.dumps({"metadata": metadata}))
    for looked_at in (commits // 10, commits):
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        (took,) = least(
            rounds,
            lambda: changes(DeltaLog(str(log.parent)), after=commits * 2 - looked_at),  # noqa: B023
        )
        spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
        print(
            f"changes over {looked_at:,} of {commits * 2:,} commits: {took * 1000:.0f} ms"
            f" ({spent / rounds * 1000:.0f} ms of CPU)"
        )


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--log-only", action="store_true", help="no Spark")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-write-"))
    try:
        log_reading(folder, options.commits, options.rounds)
        if not options.log_only:
            spark = get_session({"spark.master": "local[2]"})
            writing(spark, folder, options.rows, options.rounds)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
