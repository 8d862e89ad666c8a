"""All that needs the JVM of this process, as a Spark driver of its own has.

A session of Spark Connect has none: `connect.py` says what takes its place there, or what is
refused. Each function here costs calls through a socket, a tenth of a millisecond each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

T = TypeVar("T")

#: The aliases of a table's rows and of those to merge in statements.
HELD, NEW = "held", "new"

#: The name of the RDDs in which Delta keeps the logs of tables, and which it drops itself.
_DELTA_STATE = "Delta Table State"


# Sessions


def new_session(spark: SparkSession) -> SparkSession:
    """Return a new session of this Spark, which is now the default."""
    own = spark.newSession()
    _make_default(own)
    return own


def end_session(spark: SparkSession) -> None:
    """Make another session the default again, and drop what one that ends has cached."""
    _make_default(spark)
    spark.catalog.clearCache()
    _in_jvm(spark).sharedState().globalTempViewManager().clear()
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        if not str(rdd.name()).startswith(_DELTA_STATE):
            rdd.unpersist()


def clone(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings and views of another one."""
    return type(spark)(spark.sparkContext, _in_jvm(spark).cloneSession())


def id_of(spark: SparkSession) -> str:
    """Return what tells a session from others."""
    return str(_in_jvm(spark).sessionUUID())


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM still answers."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 (a dead JVM shows in many ways)
        return False


def collect_garbage(spark: SparkSession) -> None:
    """Let the JVM collect all garbage, which takes a tenth of a second."""
    jvm: Any = spark._jvm
    jvm.System.gc()


def _in_jvm(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _make_default(spark: SparkSession) -> None:
    kind = type(spark)
    in_jvm = kind._get_j_spark_session_class(spark._jvm)
    kind._instantiatedSession = kind._activeSession = spark
    in_jvm.setDefaultSession(_in_jvm(spark))
    in_jvm.setActiveSession(_in_jvm(spark))


# Queries


def plan_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the analysed plan of a query, in Spark's JSON."""
    plan: list[dict[str, Any]] = json.loads(frame._jdf.queryExecution().analyzed().toJSON())
    return plan


def ends_in(frame: DataFrame, wanted: Collection[str], passed: Collection[str]) -> bool:
    """Whether the last operator of a query, after those that are passed, is one of these."""
    node = frame._jdf.queryExecution().analyzed()
    while node.nodeName() in passed:
        node = node.children().head()
    return node.nodeName() in wanted


def is_direction(column: Column) -> bool:
    """Whether a column says how rows are sorted."""
    expression: Any = column
    return bool(expression._jc.node().getClass().getSimpleName() == "SortOrder")


def jobs_so_far(spark: SparkSession) -> int:
    """Return how many Spark jobs the driver has begun."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def shuffled_rows(spark: SparkSession, rows: DataFrame) -> DataFrame | None:
    """Return the rows of a query that ends in a shuffle, None for others.

    They are in files: reading them twice costs less than one copy.
    """
    from pyspark.sql import DataFrame

    plan = rows._jdf.queryExecution()
    if plan.executedPlan().nodeName() != "Exchange":
        return None
    made = _in_jvm(spark).internalCreateDataFrame(plan.toRdd(), rows._jdf.schema(), False)
    return DataFrame(made, spark)


def drop_checkpoint(kept: DataFrame) -> None:
    """Free the rows that `localCheckpoint` has kept."""
    kept._jdf.queryExecution().analyzed().rdd().unpersist(False)


def variant_bytes(value: Column) -> list[Column]:
    """Return the bytes of a VARIANT: its value and its metadata."""
    from pyspark import SparkContext
    from pyspark.sql.classic.column import Column

    jvm: Any = SparkContext._active_spark_context._jvm  # type: ignore[union-attr]  # it has columns
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    encoded = expressions.expression(value._jc)
    binary = getattr(jvm.org.apache.spark.sql.types, "BinaryType$").__getattr__("MODULE$")
    none = jvm.PythonUtils.toSeq([])
    invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke
    return [
        Column(expressions.column(invoke(encoded, name, binary, none, none, True, True, True)))
        for name in ("getValue", "getMetadata")
    ]


# Files and tables


def on_file_system(spark: SparkSession, url: str, question: Callable[[Any, Any], T]) -> T:
    """Ask the Hadoop file system of a URL, as (system, path); raises OSError."""
    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        conf = _in_jvm(spark).sessionState().newHadoopConf()
        return question(path.getFileSystem(conf), path)
    except Exception as error:
        thrown = getattr(error, "java_exception", None)  # as Py4J has it
        if thrown is None:
            raise
        said = thrown.toString()
        kind = FileNotFoundError if "FileNotFoundException" in said else OSError
        raise kind(said) from error


def text_of(spark: SparkSession, url: str, encoding: str) -> str:
    """Return the text of a file on a Hadoop file system; raises OSError."""
    jvm: Any = spark._jvm

    def read(system: Any, path: Any) -> str:
        stream = system.open(path)
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, encoding))
        finally:
            stream.close()

    return on_file_system(spark, url, read)


def remove_files(
    spark: SparkSession, location: str, paths: Collection[str], app_id: str, version: int
) -> bool:
    """Remove data files of a Delta table in one commit, only once for an app id and version.

    Returns False, and commits nothing, if one of them is not in the table. No statement of Delta
    names files, so this is a transaction of its own library.
    """
    jvm: Any = spark._jvm
    delta, nothing = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
    with _active(spark):
        table = delta.DeltaLog.forTable(_in_jvm(spark), location)
        ours = table.startTransaction(nothing, nothing)
        if ours.txnVersion(app_id) >= version:
            return True
        named = ", ".join(f"CAST(X'{path.encode().hex()}' AS STRING)" for path in paths)
        found = ours.snapshot().allFiles().filter(f"path IN ({named})").collect()
        if len(found) != len(paths):
            return False
        actions, now = jvm.java.util.ArrayList(), jvm.java.lang.System.currentTimeMillis()
        for file in found:
            actions.add(file.removeWithTimestamp(now, True))
        actions.add(delta.actions.SetTransaction(app_id, version, nothing))
        operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        ours.commit(jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)
        return True


class Clauses(NamedTuple):
    """What a MERGE does: conditions, and values by quoted column (None: no condition, or nothing).

    Columns are added to the table if it `evolves`.
    """

    on: str
    evolves: bool
    deletes: str | None
    update: tuple[str, dict[str, str]]
    insert: tuple[str | None, dict[str, str]]


def merge(spark: SparkSession, rows: DataFrame, location: str, does: Clauses) -> None:
    """Merge rows into a table; a statement cannot, where the table has texts of a fixed length."""
    from delta.tables import DeltaTable

    merging: Any = DeltaTable.forPath(spark, location).alias(HELD).merge(rows.alias(NEW), does.on)
    merging = merging.withSchemaEvolution() if does.evolves else merging
    merging = merging if does.deletes is None else merging.whenMatchedDelete(does.deletes)
    merging.whenMatchedUpdate(*does.update).whenNotMatchedInsert(*does.insert).execute()


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make a session the one that Delta's own library uses in this thread, in this block."""
    jvm: Any = spark._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(_in_jvm(spark))
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def properties() -> Mapping[str, str]:
    """Return the settings that spark-submit has given, before there is a session."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())
