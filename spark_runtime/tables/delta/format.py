"""Writes Delta tables: partitions replaced in one commit, rows merged or appended once."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from textwrap import shorten
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StructField, StructType

from lineage_backfill.project.locations import is_remote
from lineage_backfill.runspec.values import OutputSpec
from spark_runtime import classic
from spark_runtime.classic import HELD, NEW
from spark_runtime.connect import is_connect
from spark_runtime.errors import (
    ConstraintError,
    RuntimeFailure,
    SchemaMismatchError,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    WriteConflictError,
)
from spark_runtime.session import interpreted, seconds, unsorted, with_settings
from spark_runtime.tables.by_value import ValueColumn, by_value, overlap
from spark_runtime.tables.delta.log import (
    METADATA_KEY,
    DeltaLog,
    physical_names,
    vector_file,
    with_metadata,
)
from spark_runtime.tables.fingerprint import Fingerprint
from spark_runtime.tables.locks import LIMIT, TIMEOUT_SETTING, exclusively
from spark_runtime.tables.merge import Match
from spark_runtime.tables.places import local_path, place
from spark_runtime.tables.schema import GENERATED, columns_of, no_rows
from spark_runtime.tables.scope import describe, predicate
from spark_runtime.tables.state import Commit, File, TableState, Transaction, is_numbered
from spark_runtime.tables.storage import Publication
from spark_runtime.tables.values import PartitionColumn, Pattern, Values, quoted

#: How often a write is retried after commits that changed no data of its partitions.
MAX_CONFLICTS = 5

#: Delta's conflicts have no common Python class; their messages share this text.
_CONFLICT = re.compile(
    r"\[?DELTA_(CONCURRENT_[A-Z_.]+|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|Concurrent(Append|DeleteRead|DeleteDelete|Write|Transaction|Modification)Exception"
    r"|(Metadata|Protocol)ChangedException"
)
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APPEND_ONLY = "delta.appendOnly"
_CONDITION = re.compile(r"\[([A-Z_.]+)\]")
#: What Delta says of a table in another format, or in a catalog that is not its own.
_IS_OTHER = re.compile(r"DELTA_(MISSING_DELTA_TABLE|OPERATION_MISSING_PATH)")
#: What is said where a new table cannot lie.
_NO_PLACE = re.compile(r"\[(SCHEMA_NOT_FOUND|PARSE_SYNTAX_ERROR|DELTA_CANNOT_CREATE_LOG_PATH)\].*")
_CONSTRAINT = re.compile(r"DELTA_(VIOLATE_CONSTRAINT|NOT_NULL_CONSTRAINT|EXCEED_CHAR)")
_TEXT_LENGTH = 400
#: The stored partition in a sample of bounds, and of how many newest partitions they are.
_STORED = "__stored"
_SAMPLES = 200
#: A refusal by Delta that has no Python class: its condition and text, up to Java's stack.
_REFUSAL = re.compile(
    r"^(?:[^\n]*\n?: |\()org\.apache\.spark\.sql\.delta\.Delta\w*Exception(?:: |\) )"
    r"(\[[A-Z_.]+\].*?)(?:\n\tat |\Z)",
    re.DOTALL,
)
#: What a broken constraint is called: its name, its column, or its condition.
_BROKEN = re.compile(
    r"CHECK constraint (.+?) \(|violated for column: (.+?)\.\s|Failed check: (.+?)\.\s"
)


def create(spark: SparkSession, schema: StructType, output: OutputSpec) -> None:
    """Create the empty table in a separate commit; a replacement never creates one.

    On a table that does not exist yet, a replacement would not check its rows.
    """
    try:
        _create(spark, schema, output)
    except Exception as error:  # noqa: BLE001 (told apart here)
        # Another first writer was faster: use its table, which is checked like any other.
        if not is_conflict(error):
            _raise_translated(error, str(output.dataset))


def _nullable(schema: StructType) -> StructType:
    """Return the columns as a first `df.write` creates them: nullable at every depth."""
    fields = schema.toNullable().fields
    return StructType([StructField(field.name, field.dataType, True) for field in fields])


def _create(spark: SparkSession, schema: StructType, output: OutputSpec) -> None:
    names = {field.name.lower(): field.name for field in schema}
    columns = [names[column.lower()] for column in _partitioned_by(output)]
    # Also where a creation that was killed has left a log without commits.
    writer = no_rows(spark, _nullable(schema)).write.format("delta").mode("ignore")
    writer = writer.partitionBy(*columns)
    if output.table is None:
        writer.save(output.location)
    else:
        writer = writer.option("path", output.location) if output.location else writer
        writer.saveAsTable(output.table)


def _partitioned_by(output: OutputSpec) -> tuple[str, ...]:
    """Return the columns that partition a new table."""
    return output.columns if output.scoped_by is None else ()


def location_of(spark: SparkSession, table: str) -> str:
    """Return the location of a catalog table; raises TableError if it is not a Delta table."""
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        if detail["format"] == "delta":
            return str(detail["location"])
    except Exception as error:  # noqa: BLE001 (re-raised, or told apart below)
        if not _IS_OTHER.search(str(error)) and not _is_view(spark, table):
            _raise_translated(error, table)
    if _is_view(spark, table):
        raise TableError(
            f"{table} is a view, which has no partitions of its own",
            hint="Name the Delta table that it selects from, or read the view inside the job.",
        )
    raise TableError(
        f"table {table} of the catalog is not a Delta table",
        hint="Convert it (CONVERT TO DELTA), or declare a Parquet table by its `location`.",
    )


def _is_view(spark: SparkSession, table: str) -> bool:
    return spark.catalog.getTable(table).tableType in ("VIEW", "TEMPORARY")


class DeltaStorage:
    """An existing Delta table to write to."""

    counts = True

    def __init__(self, spark: SparkSession, log: DeltaLog) -> None:
        self._spark = spark
        self._log = log
        log.same = self._same
        self._compared: dict[tuple[int, frozenset[Pattern]], bool] = {}

    @property
    def log(self) -> DeltaLog:
        """Its versions."""
        return self._log

    @property
    def removes_files(self) -> bool:
        """Whether files can be named in a commit: no statement does, only Delta's own library."""
        return not is_connect(self._spark)

    def before(self) -> TableState:
        """Return the newest version."""
        return self.log.state()

    def _alone(self) -> AbstractContextManager[None]:
        return exclusively(self.log.root, limit=seconds(self._spark, TIMEOUT_SETTING, LIMIT))

    def held(self, version: int, scope: Collection[Pattern] | None = None) -> DataFrame:
        """Return the rows of these partitions (None: all) at a version."""
        reader = self._spark.read.format("delta").option("versionAsOf", version)
        try:
            frame = reader.load(self.log.location)
        except Exception as error:  # noqa: BLE001 (re-raised)
            _raise_translated(error, self.log.location)
        if scope is None:
            return frame
        state = self.log.state(version)
        _refuse_other_zone(self._spark, state, self.log.location, scope)
        return frame.where(predicate(state.columns, scope)) if state.columns else frame

    def _same(self, version: int, scope: Collection[Pattern]) -> bool:
        """Whether the rows of these partitions are those of the version before, as far as known."""
        asked = version, frozenset(scope)
        if asked not in self._compared:
            self._compared[asked] = self._compare(version, scope)
        return self._compared[asked]

    def _compare(self, version: int, scope: Collection[Pattern]) -> bool:
        try:
            before, after = (self.held(one, scope) for one in (version - 1, version))
            if before.schema != after.schema:
                return False
            fingerprint = Fingerprint(after.schema)
            found = (one.agg(*fingerprint.aggregates()).collect()[0] for one in (before, after))
            one, other = (fingerprint.text(row.asDict()) for row in found)
            return one is not None and one == other
        except Exception:  # noqa: BLE001 (such as a file that is gone: then it is unknown)
            return False

    def publish(self, rows: DataFrame, publication: Publication) -> int:
        """Commit; retry after commits that did not change the partitions to replace."""
        transaction = publication.transaction
        columns = publication.before.columns
        _refuse_other_zone(self._spark, publication.before, self.log.location, publication.scope)
        conflict: Exception | None = None
        for _ in range(MAX_CONFLICTS + 1):
            try:
                with (
                    self._alone(),
                    interpreted(self._spark, publication.count),
                    unsorted(self._spark, is_single=publication.scope.is_single),
                ):
                    publication.recheck(self.log.state())
                    merging = {"mergeSchema": "true"} if publication.new_columns else {}
                    if publication.match is not None:
                        merge(rows, self.log.location, publication, publication.match)
                    elif publication.adds:
                        append(rows, self.log.location, transaction, merging)
                    else:
                        scope, where = publication.replaced, self.log.location
                        within = implied(self._spark, publication.before, scope)
                        replace(rows, where, columns, scope, transaction, merging, within)
            except Exception as error:  # noqa: BLE001 (re-raised below)
                # Whatever the error: only the log shows whether the commit exists.
                state = self.log.state()
                if publication.token in state.tokens:
                    return self._after(state.tokens[publication.token])
                if not is_conflict(error):
                    _raise_translated(error, self.log.location)
                publication.recheck(state)
                conflict = error
                continue
            version = self.log.state().tokens.get(publication.token)
            if version is None:
                raise StaleAttemptError(
                    f"this attempt was replaced by a later one while it wrote to "
                    f"{self.log.location}; nothing was written",
                    hint="Nothing to do: the later attempt completes the run.",
                )
            return self._after(version)
        raise WriteConflictError(
            f"{self.log.location} was changed {MAX_CONFLICTS + 1} times while this run wrote",
            hint="Retry when fewer processes write to the table.",
        ) from conflict

    def _after(self, version: int) -> int:
        """Return the version of a commit to this table; raises WriteConflictError for a new one.

        Delta's writes create a table where there is none.
        """
        if version > 0:
            return version
        error = WriteConflictError(
            f"{self.log.location} was deleted while this run wrote to it, and Delta created a new "
            "table there, which holds only what this run wrote",
            hint="Delete the new table, restore the previous one, and retry the run.",
        )
        error.stands = True
        raise error

    def fence(self, transaction: Transaction) -> None:
        """Commit only the transaction, if its number is above those of the same app id."""
        for again in reversed(range(MAX_CONFLICTS + 1)):
            state = self.log.state()
            if state.transactions.get(transaction.app_id, -1) >= transaction.version:
                return
            fields = columns_of(state.schema)
            given = StructType([field for field in fields if not is_numbered(field.metadata)])
            nothing = no_rows(self._spark, given)
            try:
                with self._alone(), interpreted(self._spark, 0):
                    append(nothing, self.log.location, transaction)
                self._after(self.log.state().version)
            except Exception as error:  # noqa: BLE001 (re-raised below)
                if not is_conflict(error) or not again:
                    _raise_translated(error, self.log.location)

    def put_back(
        self,
        commits: Sequence[Commit],
        transaction: Transaction,
        added: Collection[File] | None = None,
    ) -> None:
        """Remove what appends added, or replace what commits touched with old versions.

        Raises a RuntimeFailure.
        """
        state = self.log.state()
        column = state.numbered
        if column is not None and added is None:
            raise UndoRefusedError(
                f"{self.log.location} has the identity column {column!r}, which would get new"
                " values",
                hint=f"RESTORE TABLE … TO VERSION AS OF {commits[0].version - 1}, if no commit "
                "came since.",
            )
        if state.configuration.get(_APPEND_ONLY) == "true":
            raise UndoRefusedError(
                f"{self.log.location} is append-only: none of its rows may be replaced",
                hint=f"Set {_APPEND_ONLY} = false.",
            )
        if added is not None:
            with self._alone():
                self._replaced(partial(remove, self._spark, self.log.location, added, transaction))
            return
        scopes = self._versions_of(commits)
        with self._alone():
            rows: DataFrame | None = None
            for version, scope in scopes.items():
                held = as_of(self.log.state(version), state, self.held(version, scope))
                rows = held if rows is None else rows.unionByName(held)
            everything = [values for scope in scopes.values() for values in scope]
            if rows is None:
                return
            columns = state.columns
            where, within = self.log.location, implied(self._spark, state, everything)
            self._replaced(
                lambda: replace(rows, where, columns, everything, transaction, {}, within)
            )

    def _replaced(self, write: Callable[[], None]) -> None:
        """Restore rows, and raise errors of Delta as ours."""
        try:
            write()
        except Exception as error:
            if is_conflict(error):
                raise WriteConflictError(
                    f"someone else changed {self.log.location} while it was restored; "
                    "nothing was written",
                    hint="Try again.",
                ) from error
            known = _translated(error, self.log.location)
            if isinstance(known, ConstraintError):
                raise ConstraintError(
                    f"old rows break a constraint that {self.log.location} has now; nothing "
                    "was restored",
                    hint="Drop the constraint and undo again, or keep the new rows.",
                ) from error
            if known is None and type(error).__name__ == "AnalysisException":
                raise UndoRefusedError(
                    f"the old rows do not fit the columns that {self.log.location} has now: "
                    f"{str(error).splitlines()[0]}",
                    hint="Restore its previous columns, or run the job again.",
                ) from error
            if known is None:
                raise
            raise known from error

    def _versions_of(self, commits: Sequence[Commit]) -> dict[int, list[Values]]:
        """Return the partitions to read from each version: few versions, with all files present.

        A partition that no commit touched in between is the same before the oldest of the commits
        as before its own.
        """
        oldest = commits[0].version - 1
        own: dict[Values, int] = {}
        for commit in commits:
            for values in commit.touched:
                own.setdefault(values, commit.version - 1)
        at: dict[int, list[Values]] = {}
        for values, version in own.items():
            at.setdefault(version, []).append(values)
        touched: set[Values] = set()
        scopes: dict[int, list[Values]] = {}
        for commit in self.log.commits(oldest, max(own.values(), default=oldest) + 1):
            for values in at.get(commit.version - 1, ()):
                is_same = values not in touched and self.log.state(oldest).by is None
                choices = (oldest, own[values]) if is_same else (own[values],)
                scopes.setdefault(self._whole(values, choices), []).append(values)
            touched |= commit.touched
        return scopes

    def _whole(self, values: Values, versions: Sequence[int]) -> int:
        """Return the first of the versions that still has all files of a partition."""
        if versions[0] < 0:
            raise UndoRefusedError(
                f"{self.log.location} was created by the commit that is to be undone",
                hint="Delete the table, and restore the previous one if there was one.",
            )
        for version in versions:
            state = self.log.state(version)
            files = state.files(values)
            vectors = (vector for _, vector in files or () if vector)
            paths = [path for path, _ in files or ()]
            paths += [path for vector in vectors if (path := vector_file(vector))]
            if files is not None and all(map(self._exists, paths)):
                return version
        partition = describe(state.columns, values)
        if files is None:
            raise UndoRefusedError(
                f"version {version} of {self.log.location} can no longer be read from its log, "
                f"so the previous rows of {partition} are unknown",
                hint="Restore it from a backup.",
            )
        raise UndoRefusedError(
            f"a file of {partition} at version {version} of {self.log.location} is gone",
            hint="It was vacuumed; restore it from a backup.",
        )

    def _exists(self, path: str) -> bool:
        """Whether a data file exists; a shallow clone has the URLs of its source's files."""
        if path.startswith("file:"):
            return local_path(path).exists()
        name = unquote(path)
        return (place(name, self._spark) if is_remote(name) else self.log.root / name).exists()


def replace(
    frame: DataFrame,
    location: str,
    columns: tuple[PartitionColumn, ...],
    scope: Collection[Pattern],
    transaction: Transaction,
    options: Mapping[str, str] = MappingProxyType({}),
    within: str = "",
) -> None:
    """Replace the partitions in `scope`, or the whole table if that is all of them.

    `within` is the condition of `implied`.
    Always by a condition: without one, Delta also forgets by which columns a table is clustered.
    """
    writer = frame.write.format("delta").mode("overwrite").options(**options)
    condition = predicate(columns, scope)
    writer = writer.option("replaceWhere", f"({condition}) AND {within}" if within else condition)
    _with(writer, transaction).option("partitionOverwriteMode", "static").save(location)


def append(
    frame: DataFrame,
    location: str,
    transaction: Transaction,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Append rows, only once for each transaction."""
    writer = frame.write.format("delta").mode("append").options(**options)
    _with(writer, transaction).save(location)


def remove(
    spark: SparkSession, location: str, files: Collection[File], transaction: Transaction
) -> None:
    """Remove whole data files in one commit, only once for each transaction."""
    paths = [path for path, _ in files]
    with with_settings(spark, {_USER_METADATA: _metadata(transaction)}) as session:
        if not classic.remove_files(
            session, location, paths, transaction.app_id, transaction.version
        ):
            raise WriteConflictError(
                f"someone else changed {location} while it was restored; nothing was written",
                hint="Try again.",
            )


def merge(rows: DataFrame, location: str, publication: Publication, match: Match) -> None:
    """Merge rows with distinct keys into the partitions of the scope."""
    transaction, spark = publication.transaction, rows.sparkSession
    # For MERGE these are session settings; no other write of the run may use them.
    settings = {
        "spark.databricks.delta.write.txnAppId": transaction.app_id,
        "spark.databricks.delta.write.txnVersion": str(transaction.version),
        _USER_METADATA: _metadata(transaction),
    }
    if publication.written is not None:  # the rows are stored already
        settings["spark.databricks.delta.merge.materializeSource"] = "none"
    if any({"`", "."} & set(column.name) for column in publication.before.columns):
        # Delta repartitions by these names unquoted, and does not find the columns.
        settings["spark.databricks.delta.merge.repartitionBeforeWrite.enabled"] = "false"
    scope = f"({predicate(publication.before.columns, publication.scope, HELD)})"
    if within := implied(spark, publication.before, publication.scope, HELD):
        scope = f"{scope} AND {within}"
    # By name: an identity column is in no row, and keeps its numbers.
    values = {quoted(name): f"{NEW}.{quoted(name)}" for name in match.names(rows.columns)}
    kept = {quoted(name) for name in match.lacking}
    gone = None if match.gone is None else f"{NEW}.{quoted(match.gone)}"
    does = classic.Clauses(
        on=f"{scope} AND {match.condition}",
        evolves=bool(publication.new_columns),
        deletes=None if gone is None else f"{gone} AND {match.replaces}",
        update=(match.replaces, {name: new for name, new in values.items() if name not in kept}),
        insert=(None if gone is None else f"NOT {gone}", values),
    )
    with with_settings(spark, settings) as session:
        (_merge_by_sql if is_connect(spark) else classic.merge)(session, rows, location, does)


def _merge_by_sql(
    session: SparkSession, rows: DataFrame, location: str, does: classic.Clauses
) -> None:
    """Merge by a statement; Delta itself refuses one for a table with texts of a fixed length."""
    updates = ", ".join(f"{name} = {value}" for name, value in does.update[1].items())
    condition, values = does.insert
    insert = f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"  # noqa: S608
    clauses = [
        f"WHEN MATCHED AND {does.update[0]} THEN UPDATE SET {updates}",
        f"WHEN NOT MATCHED{f' AND {condition}' if condition else ''} THEN {insert}",
    ]
    if does.deletes is not None:
        clauses.insert(0, f"WHEN MATCHED AND {does.deletes} THEN DELETE")
    view = f"lineage_backfill_{uuid.uuid4().hex}"
    rows.createOrReplaceGlobalTempView(view)
    try:
        session.sql(
            f"MERGE {'WITH SCHEMA EVOLUTION ' if does.evolves else ''}INTO delta.{quoted(location)}"
            f" AS {HELD} USING global_temp.{view} AS {NEW} ON {does.on} {' '.join(clauses)}"
        )
    finally:
        rows.sparkSession.catalog.dropGlobalTempView(view)


def implied(
    spark: SparkSession, state: TableState, scope: Collection[Pattern], table: str = ""
) -> str:
    """Return SQL for the partitions that rows of a scope by time are in; empty if none is implied.

    Delta itself only reads by it: two writers of other days conflict without.
    """
    column = next((c for c in state.columns if isinstance(c, ValueColumn)), None)
    ends = sorted(str(end) for span in scope for end in span[:2])
    if column is None or column.by != "time" or not ends or ends[0] == ends[-1]:
        return ""
    made = {
        field["name"]: str((field.get("metadata") or {}).get(GENERATED, ""))
        for field in state.schema["fields"]
    }
    is_date = re.compile(rf"CAST\(\s*`?{re.escape(column.name)}`?\s+AS\s+DATE\s*\)", re.IGNORECASE)
    names = [name for name in state.partitioned_by if is_date.fullmatch(made.get(name, "").strip())]
    if not names or column.type not in ("timestamp", "timestamp_ntz"):
        return ""
    first, last = (column.end(end) for end in (ends[0], ends[-1]))
    days = (first, f"{last} - INTERVAL '0.000001' SECOND")
    row = spark.range(1).selectExpr(*(f"STRING(DATE({day}))" for day in days)).collect()[0]
    name = f"{table}.{quoted(names[0])}" if table else quoted(names[0])
    return f"{name} >= DATE'{row[0]}' AND {name} <= DATE'{row[1]}'"


def _refuse_other_zone(
    spark: SparkSession, state: TableState, location: str, scope: Iterable[Pattern]
) -> None:
    """Raise TableError if the session computes partitions of files in another zone than its writer.

    Delta finds the files of a time by the partition that the session's zone gives it: rows in
    others would be left out. The bounds of the newest partitions are compared, and of those with
    rows near the scope.
    """
    column = next((c for c in state.columns if isinstance(c, ValueColumn)), None)
    if column is None or column.type != "timestamp" or not state.partitions:
        return
    ends = sorted(str(end) for span in scope for end in span[:2])
    for number, name in enumerate(state.partitioned_by, 2):
        (field,) = (f for f in state.schema["fields"] if f["name"].lower() == name.lower())
        made = str((field.get("metadata") or {}).get(GENERATED, ""))
        if not re.search(rf"(?<!\w)`?{re.escape(column.name)}`?(?!\w)", made, re.IGNORECASE):
            continue
        bounds = _bounds(state, number)
        newest = list(bounds)[-_SAMPLES:]
        near = [value for value, held in bounds.items() if overlap(held, (ends[0], ends[-1]))]
        sampled = [
            F.struct(
                F.expr(f"TIMESTAMP'{end}Z'").alias(column.name),
                F.lit(value).cast(field["type"]).alias(_STORED),
            )
            for value in {*newest, *near}
            for end in (bounds[value][0], _just_before(bounds[value][1]))
        ]
        rows = spark.range(1).select(F.inline(F.array(*sampled))) if sampled else None
        differs = F.expr(f"NOT (({made}) <=> {_STORED})")
        if rows is None or not rows.where(differs).isEmpty():
            zone = spark.conf.get("spark.sql.session.timeZone")
            raise TableError(
                f"{location} computes its partition column {name!r} from {column.name!r} in another"
                f" time zone than that of this session, {zone}: rows would be left out",
                hint="Set spark.sql.session.timeZone (`sql.session.timeZone` in [spark]) to the "
                "zone in which the table is written. If none fits, rewrite it in one zone.",
            )


def _bounds(state: TableState, number: int) -> dict[str | None, tuple[str, str]]:
    """Return the first and last time in the files of each value of a partition column."""
    bounds: dict[str | None, tuple[str, str]] = {}
    for span in state.partitions:
        if span and span[0] is not None and span[1] is not None:
            first, last = bounds.get(span[number], span[:2])
            bounds[span[number]] = min(str(first), span[0]), max(str(last), span[1])
    return bounds


def _just_before(text: str) -> str:
    """Return the last instant of a file, as far as its bounds tell."""
    return (datetime.fromisoformat(text) - timedelta(milliseconds=1)).isoformat()


def as_of(then: TableState, now: TableState, rows: DataFrame) -> DataFrame:
    """Return rows of an older version in the table's current columns.

    Renamed columns and wider types keep their values; a column that did not exist yet is NULL, as
    in all older rows. A dropped column stays dropped.
    """
    names = {physical: name for name, physical in physical_names(then).items()}
    physical = physical_names(now)
    columns = []
    for column in columns_of(now.schema):
        name = names.get(physical[column.name])
        value = F.lit(None) if name is None else F.col(quoted(name))
        # Delta itself matches nested fields by name.
        if name is None or isinstance(column.dataType, AtomicType):
            value = value.cast(column.dataType)
        columns.append(value.alias(column.name))
    return rows.select(*columns)


def is_conflict(error: BaseException) -> bool:
    """Whether our commit failed because of a concurrent one (nothing is visible then)."""
    return _CONFLICT.search(f"{type(error).__name__}: {error}") is not None


def _with(writer: Any, transaction: Transaction) -> Any:
    return (
        writer.option("txnAppId", transaction.app_id)
        .option("txnVersion", str(transaction.version))
        .option("userMetadata", _metadata(transaction))
    )


def _metadata(transaction: Transaction) -> str:
    text = json.dumps({METADATA_KEY: dict(transaction.metadata)}, ensure_ascii=False)
    return text.replace("$", "\\u0024")  # Spark replaces ${env:…} by an environment variable


def _raise_translated(error: Exception, location: str) -> NoReturn:
    found = _translated(error, location)
    if found is None:
        raise error
    raise found from error


def _translated(error: Exception, location: str) -> RuntimeFailure | None:
    """Return our error for a Delta error, None if it is unknown."""
    conditions = _CONDITION.findall(str(error))
    broken = [condition for condition in conditions if _CONSTRAINT.match(condition)]
    if broken:
        # Delta's message contains the row; rows must not get into logs.
        named = _BROKEN.search(f"{error} ")
        name = broken[0] if named is None else f"{next(filter(None, named.groups()))}, {broken[0]}"
        return ConstraintError(
            f"rows for {location} break a constraint of the table ({name}); nothing was written",
            hint="Correct the rows in the job, or drop the constraint.",
        )
    if any("INVALID_CHARACTERS_IN_COLUMN_NAME" in condition for condition in conditions):
        return SchemaMismatchError(
            f"{location} cannot have a column whose name holds a blank, a tab, a line end or one "
            "of ,;{}()=; nothing was written",
            hint="Rename it in the job, or set delta.columnMapping.mode = 'name' on the table.",
        )
    if said := _NO_PLACE.search(str(error)):
        return TableError(
            f"the table of {location} cannot be created: {said[0]}",
            hint="Correct its `location` or `table`, or create the folder or schema it is to lie "
            "in.",
        )
    if any("APPEND_ONLY" in condition for condition in conditions):
        return TableError(
            f"{location} is append-only: none of its rows may be replaced",
            hint='Write it by mode = "append", or set delta.appendOnly = false.',
        )
    if refused := _REFUSAL.match(str(error)):
        said_by_delta = shorten(refused[1], _TEXT_LENGTH, placeholder=" …")
        return TableError(
            f"Delta refuses to read or write {location}: {said_by_delta}",
            hint="Correct the job's columns or the table's properties as Delta describes; a table "
            "of a newer Delta needs that version in this Spark.",
        )
    return None


class NewDeltaTable(DeltaStorage):
    """A Delta table that its first write creates, once its rows are checked.

    `find` returns its log; for a table of the catalog only once it exists.
    """

    counts = False

    def __init__(
        self,
        spark: SparkSession,
        find: Callable[[], DeltaLog],
        schema: StructType,
        output: OutputSpec,
    ) -> None:
        self._spark = spark
        self._find = find
        self._schema = _nullable(schema)
        self._output = output

    @property
    def log(self) -> DeltaLog:
        """Its versions; raises TableError before a table of the catalog is created."""
        return self._find()

    def before(self) -> TableState:
        """Return the table as it will be created."""
        names = {name.lower(): name for name in self._schema.names}
        columns = [names[column.lower()] for column in _partitioned_by(self._output)]
        layout = {"schemaString": self._schema.json(), "partitionColumns": columns}
        return with_metadata(TableState(by=by_value(self._output)), layout)

    def held(self, version: int, scope: Collection[Pattern] | None = None) -> DataFrame:
        """Return the rows, none if the table does not exist yet."""
        if version < 0:
            return no_rows(self._spark, self._schema)
        return super().held(version, scope)

    def publish(self, rows: DataFrame, publication: Publication) -> int:
        """Create the table, then commit to it as to any other."""
        create(self._spark, self._schema, self._output)
        ours = publication.transaction
        if ours.metadata["attempt"] > 1:  # an earlier attempt may be creating it too
            self.fence(Transaction(app_id=ours.app_id, version=ours.version - 1, metadata={}))
        return super().publish(rows, publication)


#: Its entry in the table of formats.
storage = DeltaStorage
