"""Kills processes of small backfills at random, until enough have died or something is wrong.

Each backfill is killed, resumed and killed again, then left to end; then its tables, its run store
and its partitions outside the plan are checked. What is wrong is told with the folder, which is
kept, and the seed. With --schedules nothing is killed from outside: attempts, undoings and somebody
else take turns at the steps of writes to one table, and every version of it is checked.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from spark_runtime.session import get_session
from tests import postgres
from tests.chaos.driver import SUCCEEDED
from tests.chaos.lake import SparkTables
from tests.chaos.scenario import DAYS, Scenario, disturb_at_random
from tests.chaos.schedules import Schedule, Templates, play
from tests.chaos.world import FileTables, Tables
from tests.e2e.test_spark_submit import SCRIPT, SETTINGS
from tests.services.yarn import Yarn
from tests.sessions import INTERPRETED

_AT_ONCE = 12  # kills of one backfill at most


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, metavar="N")
    parser.add_argument("--tables", choices=["files", "delta"], default="files")
    parser.add_argument(
        "--schedules", type=int, metavar="N", help="play N random schedules of writes to one table"
    )
    parser.add_argument(
        "--engine",
        choices=["local", "command", "spark-submit", "cluster"],
        default="local",
        help="command: without Spark; spark-submit: an application a run; cluster: warm ones",
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="the runs at once of a warm application"
    )
    parser.add_argument("--on", choices=["standalone", "yarn"], default="standalone")
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    if options.schedules is not None:
        return _play(options.schedules, options.seed)
    kills = backfills = 0
    is_cluster = options.engine in ("cluster", "spark-submit")
    real = is_cluster and options.tables != "files"
    if (options.engine, options.tables == "files") in (("command", False), ("spark-submit", True)):
        parser.error(f"--engine {options.engine} cannot write --tables {options.tables}")
    if options.at_once > 1 and options.engine != "cluster":
        parser.error("--at-once is for --engine cluster")
    with ExitStack() as stack:
        server = stack.enter_context(postgres.server()) if options.store == "postgresql" else None
        clusters = {"standalone": _standalone, "yarn": _yarn}
        cluster = stack.enter_context(clusters[options.on]()) if real else {}
        if cluster:
            cluster |= (
                {"cluster": True, "runs_at_once": options.at_once}
                if options.engine == "cluster"
                else {"kind": "spark-submit", "reuse": False}
            )
        while kills < options.kills:
            folder = Path(tempfile.mkdtemp(prefix="lb-chaos-"))
            with _store(folder, server) as url:
                fewest, times = (_AT_ONCE, 2) if real else (1, 4)  # runs of a cluster take long
                days = DAYS[:1] if options.engine == "spark-submit" else DAYS
                tables: Tables = (
                    FileTables(folder, days, engine=options.engine, at_once=options.at_once)
                    if options.tables == "files"
                    else SparkTables(folder, days, cluster=cluster)
                )
                scenario = Scenario(folder, url, tables, days=days)
                wanted = min(options.kills - kills, chance.randint(fewest, _AT_ONCE))
                patience = 30.0 if options.tables != "files" else 3.0 if is_cluster else 0.6
                disturb_at_random(scenario, chance, kills=wanted, patience=patience, times=times)
                assert scenario.run() == SUCCEEDED, f"{folder}: {scenario.log()}"
                scenario.check(rewritten=scenario.workers_killed)
            scenario.end_applications()
            if cluster.get("master") == "yarn":
                Yarn(Path(cluster["env"]["HADOOP_CONF_DIR"]).parent).end_applications()
            kills += scenario.kills
            backfills += 1
            shutil.rmtree(folder)
            print(f"{kills} kills, {backfills} backfills: all as if undisturbed", flush=True)
    return 0


@contextmanager
def _standalone() -> Iterator[dict[str, Any]]:
    """Start a small standalone cluster; the settings of an engine there."""
    with tempfile.TemporaryDirectory(prefix="lb-cluster-") as folder:
        up = subprocess.run([SCRIPT, "up", folder], stdout=subprocess.PIPE, text=True, check=True)
        try:
            yield {**SETTINGS, "master": up.stdout.strip()}
        finally:
            subprocess.run([SCRIPT, "down", folder], check=True)


@contextmanager
def _yarn() -> Iterator[dict[str, Any]]:
    """Start a small YARN; the settings of an engine there, in cluster mode."""
    with tempfile.TemporaryDirectory(prefix="lb-yarn-") as folder:
        yarn = Yarn(Path(folder))
        try:
            yarn.call("up")
            yield yarn.settings("cluster")
        finally:
            yarn.call("down")


#: Hundreds of schedules are worth compiling Spark itself for, unlike their queries.
_COMPILED = "-Djdk.lang.Process.launchMechanism=VFORK -XX:+UseSerialGC"
_CONF = {
    "spark.master": "local[2]",
    "spark.driver.extraJavaOptions": _COMPILED,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    **INTERPRETED,
}


def _play(number: int, seed: int) -> int:
    """Play schedules, each with a seed of its own; go on after one that comes out wrong."""
    spark = get_session(_CONF)
    folder = Path(tempfile.mkdtemp(prefix="lb-schedules-"))
    templates, sessions, attempts = Templates(spark, folder / "templates"), [spark], 0
    wrong: list[int] = []
    for one in range(seed, seed + number):
        path = folder / str(one) / "t"
        try:
            attempts += play(Schedule(sessions, templates, path, one))
            shutil.rmtree(path.parent)
        except AssertionError as error:
            wrong.append(one)
            print(f"seed {one}, {path}: {error}", flush=True)
        done = one - seed + 1
        if done % 10 == 0 or done == number:
            print(f"{done} schedules, {attempts} attempts, wrong: {wrong or 'none'}", flush=True)
    return bool(wrong)


@contextmanager
def _store(folder: Path, server: sa.URL | None) -> Iterator[str]:
    if server is None:
        yield f"sqlite:///{folder}/runs.db"
        return
    with postgres.schema(server) as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
