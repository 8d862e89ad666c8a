"""Swaps staged files into a Parquet table and kills itself before one of its steps.

    python tests/swap_driver.py TABLE VERB STEP

VERB is `publish` or `undo`; steps are counted from 1. What it does is said on stdout, step by step.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from spark_runtime.parquetlog import Held, Now, ParquetLog, Record, list_partitions, swaps_for
from spark_runtime.state import Transaction

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def transaction(token: str, run: str | None = None) -> Transaction:
    """The first attempt of a run, of one of its own unless another run is named."""
    return Transaction(app_id=run or token, version=1, metadata={"token": token, "run_id": "r"})


def stage(folder: Path, token: str, days: str) -> None:
    """Stage one file per day; the file says who wrote it."""
    for day in days.split():
        (folder / f"day={day}").mkdir(parents=True)
        (folder / f"day={day}" / f"{token}.parquet").write_text(f"{token} {day}")


def publish(log: ParquetLog, token: str, days: str, scope: str, run: str | None = None) -> int:
    """Replace the days of the scope by those staged."""
    with log.staging(token) as folder:
        stage(folder, token, days)

        def make(now: Now) -> Record:
            version = now.state.version + 1
            replaced = [(day,) for day in scope.split()]
            arrived = list_partitions(folder, now.state.columns) if folder.exists() else {}
            return Record(
                version=version,
                at=datetime.now(UTC),
                operation="WRITE",
                transaction=transaction(token, run),
                schema=SCHEMA,
                columns=("day",),
                swaps=tuple(
                    swaps_for(
                        version,
                        root=log.root,
                        staged=folder.relative_to(log.root).as_posix(),
                        arrived=arrived,
                        listing=now.listing,
                        replaced=replaced,
                        adds=False,
                    )
                ),
                found=now.others,
                left={v: Held(folders=arrived.get(v, {}), rows=1) for v in replaced},
            )

        return log.publish(transaction(token, run), make)


def watch(step: int) -> None:
    """Tell every move of a file, and die before the one with that number."""
    done = 0

    def wrap(name: str) -> None:
        original = getattr(Path, name)

        def move(path: Path, target: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)
            sys.stdout.write(f"{name} {path.name}\n")
            sys.stdout.flush()
            return original(path, target)

        setattr(Path, name, move)

    wrap("rename")
    wrap("replace")


if __name__ == "__main__":
    table, verb, step = sys.argv[1:]
    watch(int(step))
    log = ParquetLog(table)
    if verb == "publish":
        publish(log, "new", "d1 d2 d5", scope="d1 d2 d3 d5")
    else:
        log.undo([2], Transaction(app_id="undo", version=1, metadata={"token": "undo:new"}))
