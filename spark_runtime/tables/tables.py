"""Finds tables by path or by catalog name, and caches their logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from lineage_backfill.project.locations import is_remote, table_parts
from lineage_backfill.runspec.values import OutputSpec, Target
from spark_runtime.errors import SchemaMismatchError, TableError
from spark_runtime.session import is_alive
from spark_runtime.tables.by_value import ByValue, by_value
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.parquet.log import ParquetFolder
from spark_runtime.tables.places import place
from spark_runtime.tables.state import TableState
from spark_runtime.tables.storage import Storage
from spark_runtime.tables.values import is_storable, partition_columns, refuse_inexact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Tables:
    """The tables of one session; keep it as long as the session.

    Without a session, it can read the logs of tables given by location.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self._logs: dict[tuple[str, str, ByValue | None], DeltaLog | ParquetFolder] = {}
        self._keeper = self

    def within(self, spark: SparkSession) -> Tables:
        """Return the same tables for another session of this Spark; cached logs are kept."""
        tables = Tables(spark)
        tables._keeper = self._keeper
        return tables

    @property
    def spark(self) -> SparkSession:
        """The session; raises TableError if there is none."""
        if self._spark is None:
            raise TableError("this needs a Spark session")
        return self._spark

    def location(self, target: Target) -> str:
        """Return the location of the table; raises TableError for an unknown catalog table."""
        if target.location is not None:
            return target.location
        name = target.table or ""
        if target.format != "delta":
            raise TableError(
                f"{target.dataset} is a {target.format} table of the catalog, which would not "
                "learn of its new partitions",
                hint="Give its `location` instead of `table`, or make it a Delta table.",
            )
        if not self._exists(name):
            raise TableError(
                f"table {name} does not exist in the catalog",
                hint="Create it once, partitioned as the project file says.",
            )
        return str(_format("delta").location_of(self.spark, name))

    def _exists(self, name: str) -> bool:
        """Whether the catalog has a table of this name; raises TableError if that fails."""
        try:
            return bool(self.spark.catalog.tableExists(name))
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            raise TableError(
                f"table {name} cannot be looked up in the catalog: {said}",
                hint="Correct its name, `[catalog.][schema.]table`; Spark knows another catalog by "
                "its setting spark.sql.catalog.NAME.",
            ) from error

    def latest_version(self, target: Target) -> int | None:
        """Return the newest version of the table, None if there is no table."""
        if target.table is not None and not self._exists(target.table):
            return None
        return self.log(target).latest_version()

    def state(self, target: Target, version: int | None = None) -> TableState | None:
        """Return the table at a version (None: the newest), None if there is no table."""
        if self.latest_version(target) is None:
            return None
        return self.log(target).state(version)

    def storage(self, target: Target) -> Storage:
        """Return the storage of the table for one run."""
        found: Storage = _format(target.format).storage(self.spark, self.log(target))
        return found

    def writable(self, output: OutputSpec, schema: StructType) -> Storage:
        """Return the storage for rows of this schema; the first write creates a Delta table.

        Raises SchemaMismatchError and TableError.
        """
        log = None if output.table is not None else self.log(output)
        if isinstance(log, ParquetFolder):
            _check_storable(schema, output)
            new = _format("parquet").ParquetOutput(self.spark, log, schema, output)
            return cast("Storage", new)
        if self.latest_version(output) is None:
            _check_storable(schema, output)
            if output.table is not None:
                self._check_catalog(output.table)
            log_of = partial(self.log, output)
            new = _format("delta").NewDeltaTable(self.spark, log_of, schema, output)
            return cast("Storage", new)
        return self.storage(output)

    def _check_catalog(self, name: str) -> None:
        """Raise TableError if a table of this name would be created in another format."""
        first, *rest = table_parts(name)
        kind = self.spark.conf.get(f"spark.sql.catalog.{first}", "") if len(rest) > 1 else ""
        if kind and not re.search("delta|unity", kind, re.IGNORECASE):
            raise TableError(
                f"table {name} does not exist, and its catalog creates no Delta tables: it is"
                f" {kind}",
                hint="Name a catalog of Delta tables, or give the `location` of the table.",
            )

    def read_checkpoint(self, files: list[str]) -> Iterable[Mapping[str, Any]]:
        """Return the actions in Parquet files of a Delta log; raises TableError."""
        urls = [file if is_remote(file) else f"file:{file}" for file in files]
        try:
            found = self.spark.read.parquet(*urls)
            rows = [row[0] for row in found.selectExpr("to_json(struct(*))").collect()]
        except Exception as error:
            if not is_alive(self.spark):
                raise
            raise TableError(
                f"{files[0]} is damaged or cannot be read: Spark finds no checkpoint in it",
                hint="Restore this file from a backup; the commits that it replaces are gone.",
            ) from error
        return [json.loads(text) for text in rows]

    def log(self, target: Target) -> DeltaLog | ParquetFolder:
        """Return the log of the table."""
        return self._keeper._log_at(target.format, self.location(target), by_value(target))

    def _log_at(self, form: str, location: str, by: ByValue | None) -> DeltaLog | ParquetFolder:
        found = self._logs.get((form, location, by))
        if found is None:
            reader = None if self._spark is None else self.read_checkpoint
            root = place(location, self._spark)
            found = (
                ParquetFolder(location, root)
                if form == "parquet"
                else DeltaLog(location, checkpoint_reader=reader, root=root, by=by)
            )
            self._logs[form, location, by] = found
        return found


def _format(name: str) -> Any:
    """Return the module of a table format; imported on use, as it needs Spark."""
    return import_module(f"spark_runtime.tables.{name}.format")


def _check_storable(schema: StructType, output: OutputSpec) -> None:
    """Raise unless rows of this schema can be the first of the table.

    Raises SchemaMismatchError, or TableError if its partition columns cannot be keys.
    """
    untyped = [field.name for field in schema if not is_storable(field.dataType.jsonValue())]
    if untyped:
        raise SchemaMismatchError(
            f"column {untyped[0]!r} of {output.dataset} has no type", hint="Cast it in the job."
        )
    names = [field.name for field in schema]
    lower = {name.lower() for name in names}
    missing = [column for column in output.columns if column.lower() not in lower]
    if missing:
        raise SchemaMismatchError(
            f"column {missing[0]!r} of {output.dataset} is not among the job's columns: "
            f"{', '.join(names)}",
            hint="Add it to the job's result, or correct `columns` in the project file.",
        )
    if output.scoped_by is not None:
        return
    types = {field.name.lower(): str(field.dataType.jsonValue()) for field in schema}
    refuse_inexact(partition_columns(output.columns, types))
