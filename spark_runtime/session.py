"""A SparkSession with Delta: with jars of this machine, or the session of a cluster."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from spark_runtime import classic, connect
from spark_runtime.configuration import user_folder
from spark_runtime.errors import (
    JarsMissingError,
    JavaMissingError,
    SessionError,
    SparkMissingError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = "delta-spark_"
JARS_VARIABLE = "LINEAGE_BACKFILL_JARS"
MINIMUM_JAVA = 17

#: Settings on which the values that a write computes depend; checked before it, never changed.
ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
_MEANING: Mapping[str, str] = {
    ZONE: "UTC",
    ANSI: "true",
    "spark.sql.caseSensitive": "false",
}

#: Other names of UTC, which clusters may set.
_UTC = frozenset({"etc/utc", "etc/gmt", "gmt", "z", "+00:00"})

#: Settings while a table is read or written. Without them a literal or a write could mean another
#: partition, rows of a damaged file would be left out silently, or a version with all its files be
#: refused for its age. `partitionOverwriteMode` is not among them: each write sets its own, and in
#: another thread of the session it could overwrite a whole table.
_WRITING: Mapping[str, str] = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "true",
    "spark.databricks.delta.replaceWhere.dataColumns.enabled": "true",
    "spark.databricks.delta.retentionDurationCheck.enabled": "true",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}
SAFE_CONF: Mapping[str, str] = {**_MEANING, **_WRITING}

#: Delta answers some queries from the table's log alone; a job's own queries must be noticed.
EVERY_QUERY_IS_A_JOB = "spark.databricks.delta.optimizeMetadataQuery.enabled"

#: Enables OpenLineage's own listener in Spark, `openlineage-spark`, which needs its jar.
LISTENER_SETTING = "spark.lineageBackfill.listener"
_LISTENERS = "spark.extraListeners"
_LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
#: The listener's namespace, by which readers recognise runs that also report themselves.
_LISTENER_CONF = {"spark.openlineage.namespace": "lineage-backfill.listener"}

_STAGE_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"

#: Settings of every session, also on a server that others have started: a table's log is read in
#: one task.
_SMALL_TABLES: Mapping[str, str] = {
    "spark.sql.files.openCostInBytes": "131072",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.databricks.delta.snapshotPartitions": "1",
}

#: Settings of a Spark that is started from Python, on any master, for tables of megabytes. Little
#: is kept of past runs: with Spark's defaults the plans and stages of a hundred runs double a small
#: driver's heap.
DRIVER_CONF: Mapping[str, str] = {
    "spark.app.name": "lineage-backfill",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.dagGraph.retainedRootRDDs": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    **_SMALL_TABLES,
    # A file's permissions are set by a forked `chmod`, and VFORK is the cheapest way to fork;
    # queries over small tables are over before the second compiler has paid for itself.
    "spark.driver.extraJavaOptions": (
        "-Djdk.lang.Process.launchMechanism=VFORK -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    ),
}

#: Settings for Spark as a library on one machine: loopback, no UI, no more tasks than cores.
#: Measured on two cores: with all of them, replacing one partition takes a third of the time,
#: replacing 744 a quarter. `--conf` overrides each.
LOCAL_CONF: Mapping[str, str] = {
    **DRIVER_CONF,
    "spark.master": "local[*]",
    # Data files without a checksum file beside each; Delta's log keeps its own.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # No executor can be lost here; if a shuffle file is lost, the job fails rather than recompute
    # it.
    _STAGE_ATTEMPTS: "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.speculation": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.sql.adaptive.enabled": "false",
}


#: With more rows than this, compiled code is faster.
_WORTH_COMPILING = 20_000


def get_session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, that of spark-submit, or a new one with `conf`, by default local.

    Raises SparkMissingError, JavaMissingError and JarsMissingError before anything is started.
    """
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("delta") is None:
        raise SparkMissingError(
            "PySpark with Delta is not installed in this Python",
            hint="pip install 'lineage-backfill[spark]'",
        )
    running = _running()
    if running is not None:
        return running
    given = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM
    conf = conf or {}
    if connect.is_address(conf.get("spark.master", "")):
        return connect.open_session({**_SMALL_TABLES, **SAFE_CONF, **conf})
    ours = {} if given else _started_here(conf)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    noticed = {EVERY_QUERY_IS_A_JOB: "false"}
    wanted = {**ours, **SAFE_CONF, **noticed, **conf}
    for name, value in {**wanted, **listening({**_submitted(), **wanted})}.items():
        builder = builder.config(name, value)
    import delta.exceptions  # noqa: F401  (turns Delta's conflicts into Python classes)

    try:
        return builder.getOrCreate()
    except Exception as error:
        if f"ClassNotFoundException: {_LISTENER}" not in str(error):
            raise
        raise JarsMissingError(
            f"{LISTENER_SETTING} is on, and Spark has no {_LISTENER}",
            hint="Give Spark its jar, io.openlineage:openlineage-spark_2.13:1.53.0: `jars.packages`"
            " in [spark], or --packages of spark-submit.",
        ) from error


def _started_here(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a Spark that this process starts, and prepare its environment."""
    is_local = conf.get("spark.master", "local").startswith("local")
    ours = dict(LOCAL_CONF if is_local else DRIVER_CONF)
    if "spark.jars" not in conf:
        ours["spark.jars"] = ",".join(map(str, find_jars()))
    _check_java()
    # Python workers must use this Python, whatever is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return ours


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit, if no session uses them yet."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    return dict(classic.properties())


def listening(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that add OpenLineage's listener, if it is enabled."""
    if not is_on(LISTENER_SETTING, conf.get(LISTENER_SETTING, "false")):
        return {}
    listeners = [name for name in conf.get(_LISTENERS, "").split(",") if name]
    return {_LISTENERS: ",".join(dict.fromkeys([*listeners, _LISTENER])), **_LISTENER_CONF}


def is_on(name: str, text: str) -> bool:
    """Whether a setting of ours is true, ignoring case; raises SessionError."""
    text = text.lower()
    if text not in ("true", "false"):
        raise SessionError(f"the session has {name} = {text}", hint="Set it to true or false.")
    return text == "true"


def seconds(spark: SparkSession, name: str, default: float) -> float:
    """Return a setting of ours in seconds; raises SessionError."""
    text = spark.conf.get(name, str(default)) or str(default)
    try:
        return float(text)
    except ValueError:
        hint = "set it to a number of seconds"
        raise SessionError(f"the session has {name} = {text}", hint=hint) from None


def effective(spark: SparkSession, name: str) -> str | None:
    """Return the effective value of a setting in a session; None if it is unknown."""
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(name)
    except PySparkException:  # a Delta setting before Delta is loaded
        return None


def assert_safe(spark: SparkSession, *, but: Collection[str] = ()) -> None:
    """Raise SessionError unless the session has the settings that a write needs, `but` these."""
    for name, expected in _MEANING.items():
        if name in but:
            continue
        actual = effective(spark, name)
        is_utc = expected == "UTC" and (actual or "").lower() in _UTC
        if actual is None or not (is_utc or actual.lower() == expected.lower()):
            raise SessionError(
                f"the session has {name} = {actual}, but a safe write needs {expected}",
                hint=f"Start Spark with --conf {name}={expected}, or before the run makes its first"
                f' DataFrame: spark.conf.set("{name}", "{expected}").',
            )


@contextmanager
def session_of_its_own(
    spark: SparkSession, conf: Mapping[str, str] = MappingProxyType({}), token: str | None = None
) -> Iterator[SparkSession]:
    """Give an attempt a new session of this Spark, which is the default in this block.

    Settings, temporary views, functions, caches and the current catalog end with it. What Delta
    knows of tables stays. `conf` are the settings of the given session.
    """
    if connect.is_connect(spark):
        own = connect.open_session({**_SMALL_TABLES, **_MEANING, **conf}, token)
        try:
            yield own
        finally:
            connect.close(own)
            connect.make_default(spark)
        return
    own = classic.new_session(spark)
    try:
        yield own
    finally:
        if is_alive(spark):
            classic.end_session(spark)


@contextmanager
def with_settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Give another session like this one that also has these settings, for one statement.

    It sees the global temporary views of this one.
    """
    if connect.is_connect(spark):
        meaning = {name: text or "" for name, text in connect.values_of(spark, _MEANING).items()}
        with connect.second(spark) as other, settings(other, {**meaning, **_WRITING, **conf}):
            yield other
        return
    copy = classic.clone(spark)
    for name, value in conf.items():
        copy.conf.set(name, value)
    yield copy


@contextmanager
def guarded(spark: SparkSession | None) -> Iterator[None]:
    """Apply the settings of a safe read or write to a session in this block.

    No-op without a session.
    """
    if spark is None:
        yield
        return
    with settings(spark, _WRITING):
        yield


@contextmanager
def interpreted(spark: SparkSession, rows: int | None) -> Iterator[None]:
    """Interpret, rather than compile, the expressions of a write of few rows (None: unknown).

    Most of such a write is Delta reading its own log, for which compiling costs more than it saves
    (measured: a third of the whole write).
    """
    if rows is None or rows > _WORTH_COMPILING:
        yield
        return
    with settings(spark, {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}):
        yield


@contextmanager
def unsorted(spark: SparkSession, *, is_single: bool) -> Iterator[None]:
    """Skip Spark's sort by partition in a write to a single partition.

    Spark's writer then keeps files open, and only sorts the rest beyond a maximum: two, so never
    with one partition. A higher maximum would need more memory.
    """
    if not is_single:
        yield
        return
    with settings(spark, {"spark.sql.maxConcurrentOutputFileWriters": "2"}):
        yield


#: By session and name: the original value of a setting, and the values set since.
_given: dict[tuple[str, str], tuple[str | None, list[str]]] = {}
_giving = Lock()


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session to these values in this block.

    Several threads of one session may do so at once: the last one to end restores the original
    values.
    """
    session = _id(spark)
    with _giving:
        before = _values(spark, conf)
        for name, value in conf.items():
            _given.setdefault((session, name), (before[name], []))[1].append(value)
        _set(spark, {name: value for name, value in conf.items() if before[name] != value})
    try:
        yield
    finally:
        with _giving:
            _take_away(spark, session, conf)


def _take_away(spark: SparkSession, session: str, conf: Mapping[str, str]) -> None:
    changed: dict[str, str] = {}
    unset: list[str] = []
    for name, value in conf.items():
        before, values = _given[session, name]
        is_newest = values[-1] == value
        del values[-1 - values[::-1].index(value)]
        if not values:
            del _given[session, name]
        left = values[-1] if values else before
        if is_newest and left is None:
            unset.append(name)
        elif is_newest and left is not None and left != value:
            changed[name] = left
    try:
        _set(spark, changed)
        for name in unset:
            spark.conf.unset(name)
    except Exception:  # without its JVM a session has no settings
        if is_alive(spark):
            raise


def _id(spark: SparkSession) -> str:
    return connect.id_of(spark) if connect.is_connect(spark) else classic.id_of(spark)


def _values(spark: SparkSession, names: Mapping[str, str]) -> dict[str, str | None]:
    if connect.is_connect(spark):
        return connect.values_of(spark, names)
    return {name: spark.conf.get(name, None) for name in names}


def _set(spark: SparkSession, conf: Mapping[str, str]) -> None:
    if connect.is_connect(spark):
        connect.set_all(spark, conf)
        return
    for name, value in conf.items():
        spark.conf.set(name, value)


def keeps_shuffles(spark: SparkSession) -> bool:
    """Whether shuffled rows are never recomputed; a job that would need that fails."""
    if connect.is_connect(spark):
        return False
    is_local = str(spark.sparkContext.master).startswith("local[")
    return is_local and spark.sparkContext.getConf().get(_STAGE_ATTEMPTS) == "1"


def is_alive(spark: SparkSession) -> bool:
    """Whether the session's JVM, or its server, still answers."""
    return connect.is_alive(spark) if connect.is_connect(spark) else classic.is_alive(spark)


def find_jars() -> tuple[Path, ...]:
    """Return the jars in LINEAGE_BACKFILL_JARS, else those in the cache folder.

    Of Delta's, only those for the installed PySpark. Raises JarsMissingError unless its two jars
    are among them.
    """
    setting = os.environ.get(JARS_VARIABLE)
    places = [Path(p) for p in setting.split(os.pathsep) if p] if setting else [jars_folder()]
    jars = [jar for place in places for jar in (sorted(place.glob("*.jar")) or [place])]
    jars = [jar for jar in jars if jar.suffix == ".jar" and jar.is_file()]
    ours = f"{_DELTA}{_pyspark_release()}"
    jars = [jar for jar in jars if not jar.name.startswith(_DELTA) or jar.name.startswith(ours)]
    for prefix in (ours, "delta-storage-"):
        if not any(jar.name.startswith(prefix) for jar in jars):
            raise JarsMissingError(
                f"no {prefix}*.jar in {os.pathsep.join(map(str, places))}",
                hint=f"Run scripts/fetch-jars once, or set {JARS_VARIABLE} to the jars' folder.",
            )
    return tuple(jars)


def _pyspark_release() -> str:
    """Return how the names of jars for the installed PySpark go on; empty if there is none."""
    try:
        return ".".join(importlib.metadata.version("pyspark").split(".")[:2]) + "_"
    except importlib.metadata.PackageNotFoundError:
        return ""


def jars_folder() -> Path:
    """Return the folder in which `scripts/fetch-jars` keeps the jars."""
    return user_folder("cache") / "jars"


def _running() -> SparkSession | None:
    sql = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def _check_java() -> None:
    import subprocess  # takes a tenth of the time of importing all of this package

    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise JavaMissingError(
            f"no Java found in {where}",
            hint=f"Install a JDK {MINIMUM_JAVA} (Debian: apt-get install openjdk-17-jre-headless).",
        )
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', text)
    if match is None or int(match[1]) < MINIMUM_JAVA:
        raise JavaMissingError(
            f"{java} is Java {match[1] if match else 'of unknown version'}, Spark 4 needs "
            f"{MINIMUM_JAVA}",
            hint=f"Install a JDK {MINIMUM_JAVA} and point JAVA_HOME at it.",
        )
