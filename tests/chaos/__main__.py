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
from collections.abc import Iterator, Mapping
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
from tests.e2e.test_spark_cluster import SCRIPT, SETTINGS
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
    parser.add_argument("--by-value", action="store_true", help="of a table without partitions")
    parser.add_argument("--cleaned", action="store_true", help="whose log begins with a checkpoint")
    parser.add_argument(
        "--engine",
        choices=["local", "command", "standalone", "yarn-client", "yarn-cluster"],
        default="local",
        help="command: without Spark; the others: on a cluster of this machine",
    )
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    if options.schedules is not None:
        layout = {"by_value": options.by_value, "cleaned": options.cleaned}
        return _play(options.schedules, options.seed, layout)
    kills = backfills = 0
    on, _, mode = options.engine.partition("-")
    is_cluster = on in ("standalone", "yarn")
    if is_cluster and options.tables == "files":
        parser.error(f"--engine {options.engine} needs --tables delta")
    if options.engine == "command" and options.tables != "files":
        parser.error(f"--engine command cannot write --tables {options.tables}")
    with ExitStack() as stack:
        server = stack.enter_context(postgres.server()) if options.store == "postgresql" else None
        cluster: dict[str, Any] = {}
        if is_cluster:
            started = _standalone() if on == "standalone" else _yarn(mode)
            cluster = {"kind": "spark", **stack.enter_context(started)}
        while kills < options.kills:
            folder = Path(tempfile.mkdtemp(prefix="lb-chaos-"))
            with _store(folder, server) as url:
                # Runs of a cluster take long.
                fewest, times = (_AT_ONCE, 2) if is_cluster else (1, 4)
                days = DAYS[:1] if mode == "cluster" else DAYS
                tables: Tables = (
                    FileTables(folder, days, engine=options.engine)
                    if options.tables == "files"
                    else SparkTables(folder, days, cluster=cluster)
                )
                scenario = Scenario(folder, url, tables, days=days)
                wanted = min(options.kills - kills, chance.randint(fewest, _AT_ONCE))
                patience = 30.0 if options.tables != "files" else 0.6
                disturb_at_random(scenario, chance, kills=wanted, patience=patience, times=times)
                assert scenario.run() == SUCCEEDED, f"{folder}: {scenario.log()}"
                scenario.check(rewritten=scenario.workers_killed)
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
def _yarn(mode: str) -> Iterator[dict[str, Any]]:
    """Start a small YARN; the settings of an engine there, in a deploy mode."""
    with tempfile.TemporaryDirectory(prefix="lb-yarn-") as folder:
        yarn = Yarn(Path(folder))
        try:
            yarn.call("up")
            yield yarn.settings(mode)
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


def _play(number: int, seed: int, layout: Mapping[str, bool]) -> int:
    """Play schedules, each with a seed of its own; go on after one that comes out wrong."""
    spark = get_session(_CONF)
    folder = Path(tempfile.mkdtemp(prefix="lb-schedules-"))
    templates = Templates(spark, folder / "templates", **layout)
    sessions, attempts = [spark], 0
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
