"""Small builders for run specs and tables of the one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import OutputResult, OutputSpec, RunSpec, Target
from spark_runtime.tables.state import TableState
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: The settings of an output.
POLICY = (
    *("mode", "on_empty", "on_drift", "merge_on"),
    *("delete_when", "delete_missing", "unsafe_overwrite", "appended"),
)


@pytest.fixture(scope="session")
def tables(spark: SparkSession) -> Tables:
    """The session's tables."""
    return Tables(spark)


class Table:
    """A table under test: writes to it as a run does, and reads it back as anybody does."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        path: Path,
        columns: Sequence[str],
        kind: str = "delta",
    ) -> None:
        self.spark = spark
        self.tables = tables
        self.path = str(path)
        self.columns = tuple(columns)
        self.kind = kind
        self.by: Literal["time", "key"] | None = None

    @property
    def target(self) -> Target:
        """Where it is."""
        name = DatasetRef("test", Path(self.path).name)
        return Target(
            dataset=name,
            format=self.kind,
            columns=self.columns,
            location=self.path,
            scoped_by=self.by,
        )

    def scope(self, partitions: Sequence[Mapping[str, str | None] | str]) -> list[dict[str, Any]]:
        """Partitions as a spec holds them; a bare text is the value of the only column.

        A column that is left out is open.
        """
        scope = []
        for partition in partitions:
            values = {self.columns[0]: partition} if isinstance(partition, str) else partition
            key: Any = "/".join(f"{name}={value}" for name, value in values.items()) or "*"
            if len(values) < len(self.columns) > 1:
                key = {name: values.get(name, "*") for name in self.columns}
            scope.append({"key": key, "values": dict(values)})
        return scope

    def run_spec(
        self, partitions: Sequence[Mapping[str, str | None] | str], **changes: Any
    ) -> RunSpec:
        """A run spec that writes these partitions; `changes` go to the run or to its output."""
        output: dict[str, Any] = {
            "dataset": {"namespace": "test", "name": Path(self.path).name},
            "format": self.kind,
            "location": self.path,
            "columns": list(self.columns),
            "scoped_by": self.by,
            "scope": self.scope(partitions),
        }
        for name in POLICY:
            if name in changes:
                output[name] = changes.pop(name)
        run: dict[str, Any] = {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": "r-1",
            "attempt": 1,
            "job": {"namespace": "test", "name": "job", "entrypoint": "jobs:job"},
            "partitions": [entry["key"] for entry in output["scope"]],
            "keys": [],
            "outputs": [output],
            "inputs": [],
            "result_path": self.path + ".result.json",
            **changes,
        }
        run.setdefault("token", f"{run['backfill_id']}-{run['run_id']}-{run['attempt']}")
        return parse_spec(run)

    def write(
        self,
        frame: DataFrame,
        partitions: Sequence[Mapping[str, str | None] | str],
        options: WriteOptions | None = None,
        **changes: Any,
    ) -> OutputResult:
        """Write as one run does."""
        run = self.run_spec(partitions, **changes)
        (output,) = run.outputs
        assert isinstance(output, OutputSpec)
        return write_partitions(frame, output, run, self.tables, options)

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, sorted."""
        frame = self.spark.read.format(self.kind).load(self.path)
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    def state(self, version: int | None = None) -> TableState:
        """What its log says, read afresh."""
        return Tables(self.spark).log(self.target).state(version)

    @property
    def version(self) -> int | None:
        """The newest version."""
        return Tables(self.spark).latest_version(self.target)


@pytest.fixture(scope="session")
def make_table(spark: SparkSession, tables: Tables) -> Callable[..., Table]:
    """Makes a table (not yet there) at a path, with the given partition columns."""

    def make(path: Path, columns: Sequence[str], kind: str = "delta") -> Table:
        return Table(spark, tables, path, columns, kind)

    return make


@pytest.fixture
def table(make_table: Callable[..., Table], tmp_path: Path) -> Callable[..., Table]:
    """Makes a table (not yet there) in a folder of the test's own."""

    def make(*columns: str, name: str = "t", kind: str = "delta") -> Table:
        return make_table(tmp_path / name, columns, kind)

    return make
