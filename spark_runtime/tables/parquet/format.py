"""Parquet tables: folders of files, read as they are and overwritten by Spark itself.

They have no old versions, no fingerprints and no undo. Partition columns are read as strings, as
the folders name them. A write that is killed may leave a partition half written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from lineage_backfill.runspec.values import OutputSpec
from spark_runtime.errors import TableError
from spark_runtime.session import is_alive
from spark_runtime.tables.parquet.log import Files, Listing, ParquetFolder
from spark_runtime.tables.places import remove
from spark_runtime.tables.schema import no_rows
from spark_runtime.tables.state import Contents, TableState
from spark_runtime.tables.values import PartitionColumn, Pattern, Values, partition_columns

_NOT_PARQUET = re.compile(r"(\S+) is not a Parquet file")


class ParquetStorage:
    """A Parquet table as one run reads it."""

    def __init__(self, spark: SparkSession, log: ParquetFolder) -> None:
        self._spark = spark
        self.log = log

    def held(self, version: int, scope: Collection[Pattern] | None = None) -> DataFrame:
        """Return the rows of these partitions (None: all), in the files that were listed."""
        folders = [
            folder
            for values, folders in self._listing().items()
            if scope is None or values in scope
            for folder in folders
        ]
        return self._read(folders) if folders else no_rows(self._spark, self._read([""]).schema)

    def _listing(self) -> Listing:
        return self.log.listing

    def _read(self, folders: Sequence[str]) -> DataFrame:
        """Read folders with the columns of all their files."""
        reader = self._spark.read.option("mergeSchema", "true").option("basePath", self.log.url)
        reader = reader.option("__globPaths__", "false")  # a value may contain `*`
        try:
            return reader.parquet(*[f"{self.log.url}/{folder}".rstrip("/") for folder in folders])
        except Exception as error:
            if not is_alive(self._spark):
                raise
            found = _NOT_PARQUET.search(str(error))
            raise TableError(
                f"{found[1] if found else self.log.location} is damaged or not a Parquet file",
                hint="Move it out of the table's folder, or declare the format of the table.",
            ) from error


class ParquetOutput(ParquetStorage):
    """A Parquet table that rows of a schema overwrite."""

    counts = False

    def __init__(
        self, spark: SparkSession, log: ParquetFolder, schema: StructType, output: OutputSpec
    ) -> None:
        super().__init__(spark, log)
        self._schema = schema
        self._output = output
        self._columns: tuple[PartitionColumn, ...] = ()

    def before(self) -> TableState:
        """Return the table as it is; its partition columns have the types of the rows."""
        found = self.log.state()
        ours = {field.name.lower(): field for field in self._schema}
        names = self.log.columns or self._output.columns
        fields = self._schema.fields
        if found.version >= 0:
            keys = {name.lower() for name in names}
            fields = [
                ours.get(field.name.lower(), field) if field.name.lower() in keys else field
                for field in self._read([""]).schema
            ]
        schema = StructType([StructField(f.name, f.dataType, True) for f in fields])
        types = {field.name.lower(): str(field.dataType.jsonValue()) for field in schema}
        known = {field.name.lower(): field.name for field in schema}
        self._columns = partition_columns([known[name.lower()] for name in names], types)
        return replace(
            found,
            columns=self._columns,
            schema=schema.jsonValue(),
            partitions={
                values: Contents({(folder, None): None for folder in folders})
                for values, folders in self._listing().items()
            },
        )

    def _listing(self) -> Listing:
        """Return the listing with values as keys have them: one may have several folders."""
        listing: dict[Values, dict[str, Files]] = {}
        for texts, folders in self.log.listing.items():
            values = tuple(c.found(text) for c, text in zip(self._columns, texts, strict=True))
            listing.setdefault(values, {}).update(folders)
        return listing

    def overwrite(self, rows: DataFrame, scope: Collection[Pattern]) -> None:
        """Replace these partitions by Spark's dynamic overwrite; remove those without rows."""
        before = [
            (folder, files)
            for values, folders in self._listing().items()
            if values in scope
            for folder, files in folders.items()
        ]
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*[column.name for column in self._columns]).parquet(self.log.url)
        self.log.latest_version()
        left = {
            folder: files for held in self.log.listing.values() for folder, files in held.items()
        }
        for folder, files in before:
            if files.keys() & left.get(folder, {}).keys():  # Spark has not written there
                remove(self.log.root / folder)


#: Its entry in the table of formats.
storage = ParquetStorage
