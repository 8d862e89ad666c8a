"""Writes small files into a Parquet table as Spark would, without Spark."""

from __future__ import annotations

from dataclasses import replace

from spark_runtime.tables.parquet.log import Held, Listing, Now, ParquetLog, Record
from spark_runtime.tables.state import Transaction
from spark_runtime.tables.values import Values

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def transaction(token: str, run: str | None = None, version: int = 1) -> Transaction:
    """The first attempt of a run, of one of its own unless another run is named."""
    metadata = {"token": token, "run_id": "r"}
    return Transaction(app_id=run or token, version=version, metadata=metadata)


def publish(
    log: ParquetLog,
    token: str,
    days: str,
    scope: str,
    run: str | None = None,
    *,
    adds: bool = False,
    version: int = 1,
) -> int:
    """Replace the days of the scope by one file a day, or add it; the file says who wrote it.

    The day `all` is a table without partitions.
    """
    with log.staging(token) as staging:
        staging.mkdir()
        (staging / "_SUCCESS").touch()
        for day in days.split():
            folder = staging / _folder(day)
            folder.mkdir(exist_ok=True)
            (folder / f"{token}.parquet").write_text(f"{token} {day}")

        def make(record: Record, now: Now, arrived: Listing) -> Record:
            left: dict[Values, Held] = {}
            for values in (() if day == "all" else (day,) for day in scope.split()):
                listings = (now.listing, arrived) if adds else (arrived,)
                found = [one.get(values, {}) for one in listings]
                files = [file for folders in found for held in folders.values() for file in held]
                left[values] = Held(rows=len(files))
            return replace(record, schema=SCHEMA, found=now.others, left=left)

        return log.publish(transaction(token, run, version), staging, make, adds=adds)


def _folder(day: str) -> str:
    return "" if day == "all" else f"day={day}"
