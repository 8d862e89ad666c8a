"""Writes to tables by name in a Spark of its own, whose catalog is a Hive metastore on Derby.

    python tests/name_driver.py FOLDER

Which catalog there is cannot change while a Spark runs. What came of it is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import Target
from spark_runtime.logs.changes import changes
from spark_runtime.logs.history import history
from spark_runtime.session import get_session
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.writer import write_partitions
from tests.sessions import INTERPRETED


def settings(folder: Path) -> dict[str, str]:
    """The settings of a session with these catalogs: Hive's, and one of another format."""
    derby = "spark.hadoop.javax.jdo.option.ConnectionURL"
    jdbc = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
    return {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "1",
        **INTERPRETED,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        derby: f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.sql.catalog.other": jdbc,
        "spark.sql.catalog.other.url": f"jdbc:derby:{folder}/other;create=true",
        "spark.sql.catalog.other.driver": "org.apache.derby.jdbc.EmbeddedDriver",
    }


class Names:
    """A Spark with a Hive metastore, and runs that write to its tables."""

    def __init__(self, folder: Path) -> None:
        self.spark = get_session(settings(folder))
        self.folder = folder

    def write(self, run: str, rows: str, **where: Any) -> int | None:
        """Write d1 as a run does."""
        output = {
            "dataset": {"namespace": "test", "name": "t"},
            "columns": ["day"],
            "scope": [{"key": "d1", "values": {"day": "d1"}}],
            **where,
        }
        spec = parse_spec(
            {
                "schema_version": 1,
                "backfill_id": "b-1",
                "run_id": run,
                "attempt": 1,
                "token": run,
                "job": {"namespace": "test", "name": "job", "entrypoint": "jobs:job"},
                "partitions": ["d1"],
                "keys": [],
                "inputs": [],
                "outputs": [output],
            }
        )
        frame = self.spark.sql(f"SELECT * FROM VALUES {rows} AS r(day, n)")
        return write_partitions(frame, spec.outputs[0], spec, Tables(self.spark)).version

    def rows(self, name: str) -> list[list[Any]]:
        """All rows of a table."""
        return sorted(list(row) for row in self.spark.sql(f"SELECT * FROM {name}").collect())

    def log(self, name: str) -> DeltaLog:
        """The log of a table."""
        target = Target(
            dataset=DatasetRef("test", "t"), format="delta", columns=("day",), table=name
        )
        found = Tables(self.spark).log(target)
        assert isinstance(found, DeltaLog)
        return found

    def every_spelling(self) -> dict[str, Any]:
        """A table that is created, written, merged into, appended to and undone by its names."""
        told: dict[str, Any] = {}
        self.write("r-1", "('d1', 1)", table="shop.t")
        self.spark.sql("INSERT INTO shop.t VALUES ('d2', 2)")
        self.spark.sql("USE shop")
        told["versions"] = [
            self.write("r-2", "('d1', 3), ('d1', 4)", table="t"),
            self.write(
                "r-3",
                "('d1', 4), ('d1', 5)",
                table="spark_catalog.shop.t",
                mode="merge",
                merge_on=["n"],
            ),
            self.write("r-4", "('d1', 6)", table="`shop`.`t`", mode="append"),
            self.write("r-5", "('d1', 9)", location=f"{self.folder}/warehouse/shop.db/t"),
        ]
        told["written"] = self.rows("shop.t")
        undo_runs(self.spark, tokens=["r-5"], table="SHOP.T")
        told["undone"] = self.rows("shop.t")
        undo_runs(self.spark, tokens=["r-4"], location=f"{self.folder}/warehouse/shop.db/t")
        told["undone by its path"] = self.rows("shop.t")
        log = self.log("shop.t")
        told["changed"] = changes(log, after=3).partitions
        told["made"] = [one.made for one in history(log).events if one.made]
        self.spark.sql("USE default")
        self.write("r-1", "('d1', 1)", table="spark_catalog.shop.new")
        told["created"] = self.rows("shop.new")
        return told

    def elsewhere(self) -> dict[str, Any]:
        """A table whose files are outside of the warehouse, by its name and by its path."""
        path = str(self.folder / "elsewhere" / "a b")
        self.spark.sql(
            f"CREATE TABLE shop.external (day STRING, n INT) USING delta "
            f"PARTITIONED BY (day) LOCATION '{path}'"
        )
        self.write("r-1", "('d1', 1)", table="shop.external")
        self.write("r-2", "('d1', 2)", location=path)
        return {
            "rows": self.rows("shop.external"),
            "version": self.log("shop.external").state().version,
        }

    def refusals(self) -> dict[str, str]:
        """What is said of tables in other formats, and of names without a table."""
        sql = self.spark.sql
        sql("CREATE TABLE shop.hive (day STRING, n INT) STORED AS PARQUET")
        sql("CREATE TABLE shop.csv (day STRING, n INT) USING csv")
        sql("CREATE VIEW shop.view AS SELECT * FROM shop.t")
        sql("CREATE TABLE other.s.t (day STRING, n INT)")
        told = {}
        for name in (
            *("shop.hive", "shop.csv", "shop.view", "other.s.t", "other.s.none", "shop.none"),
            *("none.shop.t", "a.b.c.d"),
        ):
            try:
                self.log(name)
            except BackfillError as error:
                told[name] = str(error)
        for name in ("none.t", "other.s.new"):
            try:
                self.write("r-1", "('d1', 1)", table=name)
            except BackfillError as error:
                told[f"write {name}"] = str(error)
        return told


def main(folder: Path) -> None:
    """Do all of it."""
    names = Names(folder)
    names.spark.sql("CREATE SCHEMA shop")
    told = {
        "spellings": names.every_spelling(),
        "elsewhere": names.elsewhere(),
        "refusals": names.refusals(),
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
