"""Writes and reads Parquet tables: rows are staged, checked, then swapped in by partition.

Spark's own overwrite loses data: the static one deletes the table first, the dynamic one keeps
partitions that came out empty, and both leave half of the work when they are killed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from spark_runtime.errors import InputChangedError, TableError
from spark_runtime.session import is_alive
from spark_runtime.tables.parquet.log import (
    DAYS_KEPT,
    Folders,
    Held,
    Listing,
    Now,
    ParquetLog,
    Record,
    list_partitions,
)
from spark_runtime.tables.schema import columns_of, no_rows
from spark_runtime.tables.state import Commit, TableState, Transaction
from spark_runtime.tables.storage import Publication, Rows
from spark_runtime.tables.values import Pattern, Values

DAYS_SETTING = "spark.lineageBackfill.trashDays"
_NOT_PARQUET = re.compile(r"(?:file:)?(\S+) is not a Parquet file")


def create(
    spark: SparkSession, log: ParquetLog, schema: StructType, columns: Sequence[str]
) -> None:
    """Record the table's schema: that of its files, if any, else that of the rows.

    Partition columns have the types of the rows; folder names contain their texts.
    """
    ours = {field.name.lower(): field for field in schema}
    names = log.column_names() or tuple(ours[column.lower()].name for column in columns)
    fields = list(schema)
    if log.latest_version() is not None:
        fields = [
            ours.get(field.name.lower(), field) if field.name in names else field
            for field in _inferred(spark, log)
        ]
    nullable = StructType([StructField(f.name, f.dataType, True) for f in fields])
    log.create(nullable.jsonValue(), names)


class ParquetStorage:
    """A Parquet table, on a file system whose files can be locked and renamed."""

    counts = False
    merges = False

    def __init__(self, spark: SparkSession, log: ParquetLog) -> None:
        self._spark = spark
        self.log = log
        self._staging: Path | None = None

    def before(self) -> TableState:
        """Return the table as it is."""
        return self.log.state()

    @contextmanager
    def staged(self, rows: DataFrame, token: str) -> Iterator[DataFrame]:
        """Write the rows to a hidden folder, and read them from there."""
        columns = self.log.state().columns
        with self.log.staging(token) as folder:
            names = [column.name for column in columns]
            rows.write.partitionBy(*names).parquet(_url(folder))
            self._staging = folder
            arrived = list_partitions(folder, columns)
            yield _read(self._spark, rows.schema, folder, arrived.values())

    def held(self, version: int, scope: Collection[Pattern] | None = None) -> DataFrame:
        """Return the rows of these partitions (None: all), if they are unchanged since `version`.

        The files are listed now: a later write makes the read fail, and never mixes old and new.
        Raises InputChangedError.
        """
        while True:
            now = self.log.now()
            for commit in self.log.commits(version, now.state.version):
                if scope is None or commit.changed(scope):
                    raise InputChangedError(
                        f"{commit} of {self.log.location} came after version {version}, which "
                        "this run is to read; a Parquet table keeps no old versions"
                    )
            recorded = now.state.schema
            schema = columns_of(recorded) if recorded else None
            folders = [
                held for values, held in now.listing.items() if scope is None or values in scope
            ]
            frame = _read(
                self._spark, schema or _inferred(self._spark, self.log), self.log.root, folders
            )
            if self.log.latest_version() == now.state.version:
                return frame

    def publish(self, rows: DataFrame, publication: Publication) -> int:
        """Swap the staged partitions with the visible ones: all or none."""
        assert self._staging is not None, "rows are staged before they are published"

        def make(record: Record, now: Now, arrived: Listing) -> Record:
            publication.recheck(now.state)
            replaced = [v for v in {**now.listing, **arrived} if v in publication.replaced]
            return replace(
                record,
                schema=rows.schema.jsonValue(),
                found={
                    values: replace(held, rows=publication.before.contents(values).rows)
                    for values, held in now.others.items()
                },
                left={values: _left(publication, values) for values in replaced},
            )

        version = self.log.publish(
            publication.transaction, self._staging, make, adds=publication.adds
        )
        days = float(self._spark.conf.get(DAYS_SETTING, str(DAYS_KEPT)) or DAYS_KEPT)
        self.log.purge(timedelta(days=days))
        return version

    def fence(self, transaction: Transaction) -> None:
        """Record the transaction and nothing else, if it is above those of the same app id."""
        self.log.fence(transaction)

    def put_back(self, commits: Sequence[Commit], transaction: Transaction) -> None:
        """Swap partitions with what commits replaced; raises UndoRefusedError if that is gone."""
        self.log.undo([commit.version for commit in commits], transaction)


def _left(publication: Publication, values: Values) -> Held:
    """Return the number of rows in a partition afterwards, and their fingerprint."""
    assert publication.written is not None, (
        "rows of Parquet tables are counted where they are staged"
    )
    part = publication.written.get(values, Rows())
    if not publication.adds:
        return Held(rows=part.count, fingerprint=part.fingerprint)
    before = publication.before.contents(values).rows
    return Held(rows=None if before is None else before + part.count)


def _read(
    spark: SparkSession, schema: StructType, root: Path, partitions: Collection[Folders]
) -> DataFrame:
    """Read partitions; all column types are given, none is inferred from folder names."""
    folders = [_url(root / name) for folders in partitions for name in folders]
    if not folders:
        return no_rows(spark, schema)
    reader = spark.read.schema(schema).option("basePath", _url(root))
    # A value may contain characters of path patterns.
    frame = reader.option("__globPaths__", "false").parquet(*folders)
    return frame.select(*[f"`{field.name.replace('`', '``')}`" for field in schema])


def _inferred(spark: SparkSession, log: ParquetLog) -> StructType:
    """Return the combined schema of all files; partition columns are strings.

    Raises TableError.
    """
    reader = spark.read.option("mergeSchema", "true").option("__globPaths__", "false")
    try:
        return reader.parquet(_url(log.root)).schema
    except Exception as error:
        if not is_alive(spark):
            raise
        found = _NOT_PARQUET.search(str(error))
        raise TableError(
            f"{found[1] if found else log.location} is damaged or not a Parquet file",
            hint="Move it out of the table's folder, or declare the format of the table.",
        ) from error


def _url(path: Path) -> str:
    # Hadoop does not decode paths, so they are not encoded.
    return f"file:{path.absolute()}"


#: Its entry in the table of formats.
storage = ParquetStorage
