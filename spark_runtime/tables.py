"""Finds Delta tables by path or by catalog name, and keeps their logs at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spark_runtime.deltalog import DeltaLog, TableState
from spark_runtime.errors import TableError
from spark_runtime.spec import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaTables:
    """The tables that one session works on; keep it as long as the session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._logs: dict[str, DeltaLog] = {}

    def location(self, target: Target) -> str:
        """Return where the table is; raises TableError for a catalog table that does not exist."""
        if target.location is not None:
            return target.location
        name = target.table or ""
        if not self._spark.catalog.tableExists(name):
            raise TableError(
                f"table {name} does not exist in the catalog",
                hint="create it once, partitioned as the project file says",
            )
        from delta.tables import DeltaTable

        return str(DeltaTable.forName(self._spark, name).detail().collect()[0]["location"])

    def log(self, target: Target) -> DeltaLog:
        """Return the log of the table."""
        location = self.location(target)
        if location not in self._logs:
            self._logs[location] = DeltaLog(location, checkpoint_reader=self._read_checkpoint)
        return self._logs[location]

    def latest_version(self, target: Target) -> int | None:
        """Return the newest version of the table, None if there is no table."""
        if target.table is not None and not self._spark.catalog.tableExists(target.table):
            return None
        return self.log(target).latest_version()

    def state(self, target: Target, version: int | None = None) -> TableState | None:
        """Return the table at a version (None: the newest), None if there is no table."""
        if self.latest_version(target) is None:
            return None
        return self.log(target).state(version)

    def _read_checkpoint(self, files: list[str]) -> Iterable[Mapping[str, Any]]:
        rows = self._spark.read.parquet(*[f"file:{file}" for file in files])
        return [json.loads(text) for text in rows.toJSON().collect()]
