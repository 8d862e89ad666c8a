"""Every feature of Delta that can be switched on here: read, written, undone and told stale.

Each is a table whose log is whole, or begins with a commit of another writer. What it holds is
compared by value, row for row, with a model; what cannot be is refused in a sentence.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from lineage_backfill.ports import TableHistory, TablePlace
from lineage_backfill.sources import table_logs
from lineage_backfill.workspace.catchup import keys_of
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace
from spark_runtime.errors import TableError, UndoRefusedError, UnexpectedPartitionError
from spark_runtime.logs.changes import changes
from spark_runtime.logs.history import history
from spark_runtime.tables.by_value import ValueColumn
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions
from tests.delta_logs import Log, add, metadata
from tests.sampling import is_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_runtime.tables.values import Values

PARTITIONED = "PARTITIONED BY (day)"


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A table of days: columns beside `day`, `n` and `m` with their values, what is done to it.

    `before` are settings while it is made, `after` comes before our first write and `last` after
    our last one. `named` are the values once `after` is done, `stored` what the table makes of
    them, by default the same; None for numbers that Delta gives. `refused` says of an operation
    why it is refused.
    """

    columns: str = ""
    values: str = ""
    stored: str | None = ""
    named: str = ""
    properties: Mapping[str, object] = field(default_factory=dict)
    layout: str = PARTITIONED
    day: str = "day"
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    made_by: str = "CREATE"
    refused: Mapping[str, str] = field(default_factory=dict)


def on(*names: str, **values: object) -> dict[str, object]:
    return {**dict.fromkeys(names, "true"), **values}


MAPPED = {"columnMapping.mode": "name", "minReaderVersion": 2, "minWriterVersion": 5}
DELETED = "DELETE FROM {t} WHERE n = 2"
FEATURES = {
    "plain": Feature(),
    "the oldest protocol": Feature(properties={"minReaderVersion": 1, "minWriterVersion": 1}),
    "deletion vectors": Feature(properties=on("enableDeletionVectors"), after=(DELETED,)),
    "deletion vectors purged": Feature(
        properties=on("enableDeletionVectors"), after=(DELETED, "REORG TABLE {t} APPLY (PURGE)")
    ),
    "column mapping by name": Feature(
        columns="v SMALLINT, gone INT",
        values="1S v, 1 gone",
        named="1S w",
        properties=MAPPED,
        after=("ALTER TABLE {t} RENAME COLUMN v TO w", "ALTER TABLE {t} DROP COLUMN gone"),
    ),
    "column mapping by id": Feature(properties={**MAPPED, "columnMapping.mode": "id"}),
    "a renamed partition column": Feature(
        properties=MAPPED,
        day="date",
        layout="PARTITIONED BY (date)",
        after=("ALTER TABLE {t} RENAME COLUMN date TO day",),
    ),
    "check, not null, varchar": Feature(
        columns="v VARCHAR(3) NOT NULL",
        values="'a' v",
        after=("ALTER TABLE {t} ADD CONSTRAINT some CHECK (n > 0)",),
    ),
    "defaults": Feature(
        columns="v INT DEFAULT 5",
        values="1 v",
        properties={"feature.allowColumnDefaults": "supported"},
    ),
    "a generated column": Feature(columns="v INT GENERATED ALWAYS AS (n * 2)", stored="n * 2 v"),
    "an identity column": Feature(
        columns="v BIGINT GENERATED ALWAYS AS IDENTITY",
        stored=None,
        refused={"undo": "identity column 'v'"},
    ),
    "clustering": Feature(layout="CLUSTER BY (day)", properties=on("enableDeletionVectors")),
    "clustering, files copied": Feature(layout="CLUSTER BY (day)"),
    "no partitions": Feature(layout="", after=("OPTIMIZE {t}",)),
    "change feed": Feature(properties=on("enableChangeDataFeed"), after=(DELETED,)),
    "row tracking": Feature(
        properties=on("enableRowTracking", "enableDeletionVectors"), after=(DELETED, "OPTIMIZE {t}")
    ),
    "type widening": Feature(
        columns="v SMALLINT",
        values="1S v",
        named="70000 v",
        properties=on("enableTypeWidening"),
        after=(
            "ALTER TABLE {t} ALTER COLUMN v TYPE INT",
            "UPDATE {t} SET v = 70000 WHERE n = 2",
        ),
    ),
    "in-commit timestamps": Feature(properties=on("enableInCommitTimestamps")),
    "in-commit timestamps, later": Feature(
        after=("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",)
    ),
    "v2 checkpoints": Feature(properties={"checkpointPolicy": "v2"}),
    "v2 checkpoints in JSON": Feature(
        properties={"checkpointPolicy": "v2"},
        before=("SET spark.databricks.delta.checkpointV2.topLevelFileFormat = json",),
    ),
    "checkpoints of several parts": Feature(
        before=("SET spark.databricks.delta.checkpoint.partSize = 1",)
    ),
    "checkpoints without statistics": Feature(
        properties={"checkpoint.writeStatsAsJson": "false", "checkpoint.writeStatsAsStruct": "true"}
    ),
    "checkpoint protection": Feature(properties={"feature.checkpointProtection": "supported"}),
    "commits compacted": Feature(after=("compact",)),
    "Iceberg's rules, version 1": Feature(properties={**MAPPED, **on("enableIcebergCompatV1")}),
    "Iceberg's rules, version 2": Feature(
        properties={
            **MAPPED,
            "minReaderVersion": 2,
            "minWriterVersion": 7,
            **on("enableIcebergCompatV2"),
        }
    ),
    "Iceberg's rules, version 3": Feature(
        properties={**MAPPED, **on("enableIcebergCompatV3", "enableRowTracking")}
    ),
    "partition columns in files": Feature(
        properties={"feature.materializePartitionColumns": "supported"}
    ),
    "variants": Feature(columns="v VARIANT", values="parse_json('[1]') v", after=("OPTIMIZE {t}",)),
    "variants shredded": Feature(
        columns="v VARIANT",
        values="parse_json('{\"a\": 1}') v",
        properties=on("enableVariantShredding"),
    ),
    "times without a zone": Feature(
        columns="v TIMESTAMP_NTZ", values="TIMESTAMP_NTZ'2024-01-01 00:00:00' v"
    ),
    "rows appended only": Feature(
        last=("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",),
        refused=dict.fromkeys(("write", "undo"), "append-only"),
    ),
    "a protocol for VACUUM": Feature(properties={"feature.vacuumProtocolCheck": "supported"}),
    "a shallow clone": Feature(made_by="CLONE"),
    "restored": Feature(
        after=("UPDATE {t} SET n = 9 WHERE n = 2", "RESTORE TABLE {t} TO VERSION AS OF 1")
    ),
    "vacuumed": Feature(
        before=(
            "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
            "SET spark.sql.sources.parallelPartitionDiscovery.parallelism = 2",
        ),
        after=(DELETED, "VACUUM {t} RETAIN 0 HOURS"),
    ),
    "converted": Feature(made_by="CONVERT"),
}
OPERATIONS = ("state", "history", "changes", "write", "undo", "stale")
WRITING = ("write", "undo")
LOGS = ("whole", "cleaned")
#: What of the matrix every run of these tests does: what the log of a made table tells, and some
#: that write; of one feature in ten also with a cleaned log.
CELLS = [
    (of, log, operation)
    for (number, of), log, operation in product(enumerate(FEATURES), LOGS, OPERATIONS)
    if is_run(number, every=10)
    or (
        log == "whole"
        and (operation not in WRITING or number % 8 == 3 + 4 * WRITING.index(operation))
    )
]


class Template:
    """A table with a feature, to be copied, and what it has held.

    Others wrote d1 to d4, run r-0 wrote d1, others d3, run r-1 wrote d1, others d2. A cleaned log
    begins with their commit to d3.
    """

    def __init__(self, spark: SparkSession, make: Callable[..., Any], path: Path, of: str) -> None:
        self.spark, self.feature, self._make = spark, FEATURES[of], make
        self.table = self._at(path / "t")
        self.name = f"delta.`{self.table.path}`"

    def _at(self, path: Path) -> Any:
        table = self._make(path, ["day"])
        table.by = None if self.feature.layout.startswith("PARTITIONED") else "key"
        return table

    def make(self, *, cleaned: bool) -> Template:
        """Make it."""
        feature = self.feature
        settings = [step.removeprefix("SET ").split(" = ") for step in feature.before]
        for name, value in settings:
            self.spark.conf.set(name, value)
        try:
            self._create()
            for step in feature.after:
                self._do(step)
            self.first = self.held()
            self.write([("d1", 5, 0)], ["d1"], "r-0")
            self.insert([("d3", 6, 0)])
            self.base = int(self.table.version)
            self.before = self.held()
            if cleaned:
                self._clean()
        finally:
            for name, _ in settings:
                self.spark.conf.unset(name)
        ours, theirs = [("d1", 7, 0), ("d1", 8, 0)], ("d2", 9, 0)
        self.write(ours, ["d1"], "r-1")
        self.insert([theirs])
        self.rows = sorted(less(self.before, "d1") + self.stored(*ours, theirs))
        for step in feature.last:
            self._do(step)
        self.is_cleaned = cleaned
        return self

    def _create(self) -> None:
        """Let others create it, with their rows of four days."""
        feature = self.feature
        new = [("d1", 1, 0), ("d1", 2, 0), ("d2", 3, 0), ("d4", 4, 0)]
        if feature.made_by == "CONVERT":
            frame = self.frame(new, feature.values)
            frame.write.partitionBy("day").parquet(self.table.path)
            there = f"parquet.`{self.table.path}`"
            self.spark.sql(f"CONVERT TO DELTA {there} PARTITIONED BY (day STRING)")
            return
        columns = ", ".join(filter(None, (f"{feature.day} STRING, n INT, m INT", feature.columns)))
        listed = ", ".join(
            f"'delta.{name}' = '{value}'"
            for name, value in {"checkpointInterval": 1000, **feature.properties}.items()
        )
        name = self.name
        if feature.made_by == "CLONE":
            name = f"delta.`{self.table.path}-source`"
        self.spark.sql(
            f"CREATE TABLE {name} ({columns}) USING delta {feature.layout} TBLPROPERTIES ({listed})"
        )
        frame = self.frame(new, feature.values).withColumnRenamed("day", feature.day)
        frame.write.format("delta").mode("append").save(name[7:-1])
        if feature.made_by == "CLONE":
            self.spark.sql(f"CREATE TABLE {self.name} SHALLOW CLONE {name}")

    def _do(self, step: str) -> None:
        if step == "compact":
            compact(Path(self.table.path), 0, 1)
        else:
            self.spark.sql(step.format(t=self.name)).collect()

    def _clean(self) -> None:
        """Make a checkpoint, and delete all older files of the log."""
        delta: Any = self.spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
        delta.DeltaLog.forTable(self.spark._jsparkSession, self.table.path).checkpoint()
        for file in Path(self.table.path, "_delta_log").glob("0*"):
            if int(file.name[:20]) < self.base:
                file.unlink()

    def copy(self, path: Path) -> Template:
        """Make one like it."""
        shutil.copytree(self.table.path, path)
        copied = Template.__new__(Template)
        copied.__dict__.update(self.__dict__)
        copied.table, copied.name = self._at(path), f"delta.`{path}`"
        return copied

    def frame(self, rows: Sequence[tuple[str, int, int]], more: str | None = None) -> DataFrame:
        """Rows, with the columns that a writer gives."""
        feature = self.feature
        names = feature.named or feature.values if more is None else more
        values = ", ".join(map(str, rows)) or "('', 0, 0)"
        made = self.spark.sql(
            f"SELECT day, n, m{names and ', '}{names} FROM VALUES {values} AS r(day, n, m)"
        )
        return made.coalesce(1).limit(len(rows))

    def insert(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Add rows as another writer does."""
        self.frame(rows).write.format("delta").mode("append").save(self.table.path)

    def write(
        self, rows: Sequence[tuple[str, int, int]], days: Sequence[str], run: str, **more: Any
    ) -> None:
        """Write as a run does."""
        options = WriteOptions(merge_on=("n",)) if more.get("mode") == "merge" else None
        self.table.write(self.frame(rows), days, options, run_id=run, **more)

    def held(self) -> list[str]:
        """All rows."""
        return self._texts(self.spark.read.format("delta").load(self.table.path))

    def stored(self, *rows: tuple[str, int, int]) -> list[str]:
        """What the table makes of rows that are written to it."""
        stored = self.feature.stored
        return self._texts(self.frame(rows, stored or None)) if rows else []

    def _texts(self, frame: DataFrame) -> list[str]:
        names = "*" if self.feature.stored is not None else "day, n, m"
        found = frame.selectExpr(f"to_json(struct({names})) AS row").collect()
        return sorted(json.dumps(json.loads(one.row), sort_keys=True) for one in found)

    @property
    def log(self) -> DeltaLog:
        """Its log, read afresh."""
        found = Tables(self.spark).log(self.table.target)
        assert isinstance(found, DeltaLog)
        return found

    def key(self, day: str) -> Values:
        """A day as the log has it."""
        (column,) = self.log.state().columns
        return column.span(day) if isinstance(column, ValueColumn) else (day,)


def compact(table: Path, first: int, last: int) -> None:
    """Gather commits in one more file, as the protocol describes it; none removes a file."""
    actions = []
    for version in range(first, last + 1):
        lines = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        actions += [line for line in lines if "commitInfo" not in json.loads(line)]
    file = table / "_delta_log" / f"{first:020}.{last:020}.compacted.json"
    file.write_text("".join(f"{action}\n" for action in actions))


@pytest.fixture(scope="module")
def templates(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Template]:
    """Makes each table once."""
    made: dict[tuple[str, str], Template] = {}

    def template(of: str, log: str) -> Template:
        if (of, log) not in made:
            path = tmp_path_factory.mktemp("features")
            template = Template(spark, make_table, path, of)
            made[of, log] = template.make(cleaned=log == "cleaned")
        return made[of, log]

    return template


def less(rows: Sequence[str], day: str) -> list[str]:
    """Rows of other days."""
    return [row for row in rows if json.loads(row)["day"] != day]


def of_day(rows: Sequence[str], day: str) -> list[str]:
    """Rows of a day."""
    return [row for row in rows if json.loads(row)["day"] == day]


def state(made: Template, _folder: Path) -> None:
    assert made.held() == made.rows
    log = made.log
    for version, rows in ((log.latest_version(), made.rows), (made.base, made.before)):
        found = log.state(version)
        held = Counter(json.loads(row)["day"] for row in rows)
        assert found.complete
        assert found.first_read == (made.base if made.is_cleaned else 0)
        if made.table.by is None:
            assert {values[0]: one.rows for values, one in found.partitions.items()} == held
        else:
            assert sum(one.rows or 0 for one in found.partitions.values()) == len(rows)
    assert log.state().contents(made.key("d1")).rows == 2


def written(made: Template, _folder: Path) -> None:
    found = history(made.log)
    (ours,) = (one for one in found.events if one.job)
    assert (ours.version, ours.made, ours.changed) == (
        made.base + 1,
        (made.key("d1"),),
        (made.key("d1"),),
    )
    (theirs,) = (one for one in found.events if one.version == made.base + 2)
    assert theirs.changed == (made.key("d2"),)
    assert (found.since is not None) == made.is_cleaned
    if made.table.by is None:
        assert found.old == (((made.key("d4"),)) if made.is_cleaned else ())


def changed(made: Template, _folder: Path) -> None:
    found = changes(made.log, after=made.base)
    assert found.partitions == (made.key("d1"), made.key("d2"))
    if made.is_cleaned:
        with pytest.raises(TableError, match="no longer in its log"):
            changes(made.log, after=0)
    elif made.table.by is None:
        assert {made.key(day) for day in ("d1", "d2", "d3")} <= {
            *changes(made.log, after=0).partitions
        }


def write(made: Template, folder: Path) -> None:
    made = made.copy(folder / "copy")
    rows = made.rows
    if said := made.feature.refused.get("write"):
        with pytest.raises(TableError, match=said):
            made.write([("d2", 20, 1)], ["d2"], "r-2")
        assert made.held() == rows
        return
    new = [("d2", 20, 1), ("d2", 21, 1)]
    made.write(new, ["d2"], "r-2")
    rows = sorted(less(rows, "d2") + made.stored(*new))
    assert made.held() == rows

    made.write([("d1", 7, 5), ("d1", 30, 5)], ["d1"], "r-3", mode="merge")
    merged = made.stored(("d1", 7, 5), ("d1", 8, 0), ("d1", 30, 5))
    rows = sorted(less(rows, "d1") + merged)
    assert made.held() == rows

    made.write([("d3", 40, 1)], ["d3"], "r-4", mode="append")
    rows = sorted(rows + made.stored(("d3", 40, 1)))
    assert made.held() == rows

    made.write([], ["d4"], "r-5")
    rows = less(rows, "d4")
    assert made.held() == rows

    with pytest.raises(UnexpectedPartitionError):
        made.write([("d2", 1, 1), ("d3", 1, 1)], ["d2"], "r-6")
    assert made.held() == rows


def undo(made: Template, folder: Path) -> None:
    made = made.copy(folder / "copy")
    if said := made.feature.refused.get("undo"):
        with pytest.raises(UndoRefusedError, match=said):
            undo_runs(made.spark, tokens=["b-1-r-1-1"], location=made.table.path)
        assert made.held() == made.rows
        return
    undo_runs(made.spark, tokens=["b-1-r-1-1"], location=made.table.path)
    rows = sorted(less(made.rows, "d1") + of_day(made.before, "d1"))
    assert made.held() == rows
    if made.is_cleaned:
        with pytest.raises(UndoRefusedError, match=f"back to version {made.base} only"):
            undo_runs(made.spark, tokens=["b-1-r-0-1"], location=made.table.path)
    else:
        undo_runs(made.spark, tokens=["b-1-r-0-1"], location=made.table.path)
        rows = sorted(less(rows, "d1") + of_day(made.first, "d1"))
    assert made.held() == rows


PROJECT = """
[project]
namespace = "test"
[[dataset]]
name = "t"
keys = ["d1", "d2", "d3", "d4"]
{by} = "day"
location = "{t}"
[[dataset]]
name = "out"
keys = ["d1", "d2", "d3", "d4"]
column = "day"
location = "{out}"
[[job]]
name = "copy"
[[job.reads]]
dataset = "t"
[[job.writes]]
dataset = "out"
"""


def stale(made: Template, folder: Path) -> None:
    """A table that was made of all days between the commits to d3 and to d1."""
    out = Log(folder / "out")
    out.commit(metadata(), {"commitInfo": {"operation": "CREATE TABLE"}})
    days = [add(day, day) for day in ("d1", "d2", "d3", "d4")]
    out.commit(*days, {"commitInfo": {"operation": "WRITE"}})
    times = made.log.times(made.base, made.base + 1)
    between = times[made.base] + (times[made.base + 1] - times[made.base]) / 2
    for version in range(2):
        os.utime(out.path(version), (between.timestamp(),) * 2)
    file = folder / "lineage-backfill.toml"
    by = "column" if made.table.by is None else "key_column"
    file.write_text(PROJECT.format(by=by, t=made.table.path, out=out.root))

    class Logs:
        """Reads them with the session of the tests."""

        def __init__(self, **_settings: Any) -> None: ...

        def histories(self, tables: Sequence[TablePlace]) -> list[TableHistory]:
            logs = {str(out.root): DeltaLog(str(out.root)), made.table.path: made.log}
            found = [history(logs[str(place.location)]).to_dict() for place in tables]
            return [table_logs._history(one) for one in found]

    with patch.object(table_logs, "DeltaTableLogs", Logs):
        found, silent = Planning(Workspace(open_project(file))).find_stale()
    (job,) = found
    assert not silent
    assert not job.unjudged, job.why
    assert keys_of(job, job.stale) == ["d1", "d2"]


DO = {
    "state": state,
    "history": written,
    "changes": changed,
    "write": write,
    "undo": undo,
    "stale": stale,
}


@pytest.mark.parametrize(("of", "log", "operation"), CELLS)
def test_a_table_with_a_feature(
    templates: Callable[[str, str], Template], tmp_path: Path, of: str, log: str, operation: str
) -> None:
    DO[operation](templates(of, log), tmp_path)
