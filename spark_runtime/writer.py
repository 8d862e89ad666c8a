"""Writes exactly the partitions of a run: checks first, then one atomic commit, then looks.

The order of a write: settings and table fit; rows are computed once and kept; every row lies in the
scope; empty partitions are allowed; the job's checks pass; nobody changed the scope since the run
started; replace; the commit is found in the log by the attempt's token; it touched only the scope
and holds the rows that were counted, or it is taken back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from spark_runtime.checks import Audit, Check
from spark_runtime.deltalog import EMPTY_FINGERPRINT, DeltaLog, TableState, undo_token
from spark_runtime.errors import (
    CheckFailedError,
    ConstraintError,
    EmptyPartitionError,
    EntrypointError,
    SchemaMismatchError,
    StaleAttemptError,
    TableError,
    UnexpectedPartitionError,
    VerificationError,
    WriteConflictError,
)
from spark_runtime.fingerprint import ROWS, Fingerprint
from spark_runtime.replace import (
    Transaction,
    append,
    exclusively,
    interpreted,
    is_conflict,
    put_back,
    replace,
)
from spark_runtime.session import assert_safe
from spark_runtime.spec import (
    NULL_DIRECTORY,
    InputResult,
    OutputResult,
    OutputSpec,
    PartitionResult,
    RunSpec,
)
from spark_runtime.tables import DeltaTables
from spark_runtime.values import PartitionColumn, Values, describe, predicate, quoted, scope_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: How often a write is made again after commits that changed no data of its partitions.
MAX_CONFLICTS = 5

_AGE, _RANK = "__age", "__rank"
_NULL_KEY = "NULL in the merge key"
_CONDITION = re.compile(r"\[(DELTA_[A-Z_.]+)\]")
_CONSTRAINT = re.compile(r"DELTA_(VIOLATE_CONSTRAINT|NOT_NULL_CONSTRAINT|EXCEED_CHAR)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How many rows one partition gets, and their fingerprint."""

    count: int = 0
    fingerprint: str | None = EMPTY_FINGERPRINT


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a job declares about its writes, and what its run has seen so far.

    `since` is the table's version when the run started (-1: there was none; None: the present
    one): a partition of the scope that somebody changed after it is a conflict.
    """

    checks: Sequence[Check] = ()
    ignore: Sequence[str] = ()
    merge_on: Sequence[str] = ()
    newest_by: str | None = None
    inputs: Sequence[InputResult] = field(default=())
    since: int | None = None


def write_partitions(
    frame: DataFrame,
    output: OutputSpec,
    run: RunSpec,
    tables: DeltaTables,
    options: WriteOptions | None = None,
) -> OutputResult:
    """Replace the output's scope by the rows of `frame`, and touch nothing else.

    Calling it again with the same run changes nothing and returns the same result. Raises a
    RuntimeFailure; the old rows are then all still there.
    """
    assert_safe(frame.sparkSession)
    if tables.latest_version(output) is None:
        _create(frame, output)
    return _Write(frame, output, run, tables.log(output), options or WriteOptions()).make()


class _Write:
    """One write on its way; its table exists."""

    def __init__(
        self,
        frame: DataFrame,
        output: OutputSpec,
        run: RunSpec,
        log: DeltaLog,
        options: WriteOptions,
    ) -> None:
        self.spark = frame.sparkSession
        self.frame = frame
        self.output = output
        self.run = run
        self.log = log
        self.options = options
        self.before = log.state()
        self.columns = _columns(self.before, output)
        self.scope = scope_values(self.columns, output.scope)
        self.since = self.before.version if options.since is None else options.since
        self.app_id = f"lineage-backfill/{run.backfill_id}/{run.run_id}"

    def make(self) -> OutputResult:
        done = self.before.tokens.get(self.run.token)
        undone = undo_token(self.run.token) in self.before.tokens
        if done is not None and not undone:
            return self._result(done)
        if undone or self.before.transactions.get(self.app_id, -1) >= self.run.attempt:
            raise StaleAttemptError(
                f"attempt {self.run.attempt} of run {self.run.run_id} was undone, or a later one "
                f"has written to {self.output.dataset} already",
                hint="retry the run as a new attempt",
            )
        if self.output.mode == "full":
            self._refuse_other_partitions()
        self._refuse_foreign_changes(self.before.version)
        rows = self._prepared().persist()
        try:
            written = self._count(rows)
            self._check_scope(written)
            replaced = self._replaced(written)
            self._audit(rows, written)
            if not replaced:
                return self._outcome(self.before, self.before, version=None)
            version = self._commit(rows, replaced, written)
        finally:
            rows.unpersist()
        self._verify(version, written)
        return self._result(version)

    # Before the write.

    def _refuse_other_partitions(self) -> None:
        others = [values for values in self.before.partitions if values not in self.scope]
        if others:
            raise TableError(
                f"a full replacement of {self.output.dataset} would drop partitions that are not "
                f"planned: {self._describe(others)}",
                hint='plan them too, or use mode = "overwrite"',
            )

    def _refuse_foreign_changes(self, until: int) -> None:
        for commit in self.log.commits(self.since, until):
            if commit.metadata.get("run_id") == self.run.run_id:
                continue  # an earlier attempt of this run, given up as lost, that had committed
            touched = commit.touched & self.scope.keys()
            if touched:
                raise WriteConflictError(
                    f"{commit} of {self.output.dataset} changed {self._describe(touched)} "
                    "after this run had started",
                    hint="let the other writer finish, then retry the run",
                )

    def _prepared(self) -> DataFrame:
        """Return the rows in the table's shape, those of one partition together."""
        from pyspark.sql import functions as F

        fields = _check_schema(self.frame.schema, self.before)
        text = {column.name.lower() for column in self.columns if column.type == "string"}
        shaped = []
        for name in fields:
            value = F.col(quoted(name))
            if name.lower() in text:
                # Both are stored as NULL; told now, the scope is checked against what will be.
                value = F.when(~value.isin("", NULL_DIRECTORY), value).alias(name)
            shaped.append(value)
        frame = self.frame.select(*shaped)
        if self.output.mode == "merge":
            frame = self._merged(frame)
        if len(self.scope) == 1:
            return frame
        # Else every task would write a file into every partition. Rebalancing splits the large
        # ones again, which takes adaptive execution.
        names = [quoted(column.name) for column in self.columns]
        if self.spark.conf.get("spark.sql.adaptive.enabled") == "true":
            return frame.hint("rebalance", *names)
        return frame.repartition(*names)

    def _count(self, rows: DataFrame) -> dict[Values, Rows]:
        from pyspark.sql import functions as F

        names = [F.col(quoted(column.name)) for column in self.columns]
        fingerprint = Fingerprint(rows.schema, ignore=self.options.ignore)
        found = rows.groupBy(*names).agg(*fingerprint.aggregates())
        texts = [name.cast("string").alias(f"__key{i}") for i, name in enumerate(names)]
        aggregated = found.select(*texts, *found.columns[len(names) :]).collect()
        return {
            tuple(
                column.canonical(row[f"__key{i}"]) for i, column in enumerate(self.columns)
            ): Rows(count=row[ROWS], fingerprint=fingerprint.text(row.asDict()))
            for row in aggregated
        }

    def _check_scope(self, written: Mapping[Values, Rows]) -> None:
        outside = written.keys() - self.scope.keys()
        if outside:
            rows = sum(written[values].count for values in outside)
            raise UnexpectedPartitionError(
                f"{rows} rows for {self.output.dataset} lie outside the partitions of this run: "
                f"{self._describe(outside)}; nothing was written",
                hint="filter the job's result to the run's keys, or correct `columns` or the "
                "mapping in the project file",
            )

    def _replaced(self, written: Mapping[Values, Rows]) -> tuple[Values, ...]:
        """Return the partitions to replace, by what is to become of the empty ones."""
        empty = [values for values in self.scope if written.get(values, Rows()).count == 0]
        if empty and self.output.on_empty == "fail":
            raise EmptyPartitionError(
                f"no rows for {self._describe(empty)} of {self.output.dataset}; "
                "nothing was written",
                hint='on_empty = "clear" would empty them, "keep" would leave them as they are',
            )
        kept = set(empty) if self.output.on_empty == "keep" or self._adds else set()
        return tuple(values for values in self.scope if values not in kept)

    def _audit(self, rows: DataFrame, written: Mapping[Values, Rows]) -> None:
        audit = Audit(
            frame=rows,
            rows={str(key): written.get(v, Rows()).count for v, key in self.scope.items()},
            rows_before={str(key): self.before.contents(v).rows for v, key in self.scope.items()},
        )
        failed = [problem for check in self.options.checks if (problem := check(audit))]
        if failed:
            raise CheckFailedError(
                f"{self.output.dataset}: {'; '.join(failed)}; nothing was written",
                hint="correct the job or its input, or the check if it asks too much",
            )

    # The write.

    @property
    def _adds(self) -> bool:
        return self.output.mode == "append"

    def _commit(
        self, rows: DataFrame, replaced: Sequence[Values], written: Mapping[Values, Rows]
    ) -> int:
        transaction = self._transaction(replaced, written)
        count = sum(part.count for part in written.values())
        conflict: Exception | None = None
        for _ in range(MAX_CONFLICTS + 1):
            try:
                with exclusively(self.log.root), interpreted(self.spark, count):
                    if self._adds:
                        append(rows, self.log.location, transaction)
                    else:
                        replace(rows, self.log.location, self.columns, replaced, transaction)
            except Exception as error:  # noqa: BLE001 (re-raised below)
                # Whatever was raised: only the log says whether the commit is there.
                state = self.log.state()
                if self.run.token in state.tokens:
                    return state.tokens[self.run.token]
                if not is_conflict(error):
                    _raise_translated(error, self.output)
                self._refuse_foreign_changes(state.version)
                _check_schema(self.frame.schema, state)
                conflict = error
                continue
            version = self.log.state().tokens.get(self.run.token)
            if version is None:
                raise StaleAttemptError(
                    f"attempt {self.run.attempt} of run {self.run.run_id} was overtaken by a later "
                    f"one while it wrote to {self.output.dataset}"
                )
            return version
        raise WriteConflictError(
            f"{self.output.dataset} was changed {MAX_CONFLICTS + 1} times while this run wrote",
            hint="retry when the table is quieter, for instance after an OPTIMIZE",
        ) from conflict

    def _transaction(
        self, replaced: Iterable[Values], written: Mapping[Values, Rows]
    ) -> Transaction:
        rows = [(values, written.get(values, Rows())) for values in replaced]
        scope = json.dumps(sorted(self.scope, key=repr))
        return Transaction(
            app_id=self.app_id,
            version=self.run.attempt,
            metadata={
                "schema_version": 1,
                "backfill_id": self.run.backfill_id,
                "run_id": self.run.run_id,
                "attempt": self.run.attempt,
                "token": self.run.token,
                "job": str(self.run.job.name),
                "mode": self.output.mode,
                "scope": f"sha256:{hashlib.sha256(scope.encode()).hexdigest()}",
                # What rows are added to is not known, so neither is the fingerprint of both.
                "partitions": [
                    [list(values), part.count, None if self._adds else part.fingerprint]
                    for values, part in rows
                ],
                "inputs": [[str(read.dataset), read.version] for read in self.options.inputs],
            },
        )

    # After the write.

    def _verify(self, version: int, written: Mapping[Values, Rows]) -> None:
        (ours,) = self.log.commits(version - 1, version)
        after = self.log.state(version)
        outside = ours.touched - self.scope.keys()
        wrong = [
            values
            for values, part in written.items()
            if not self._adds and after.contents(values).rows not in (None, part.count)
        ]
        if outside or wrong:
            self._take_back(version, ours.touched)
        if outside:
            raise VerificationError(
                f"{ours} of {self.output.dataset} touched {self._describe(outside)} outside its "
                "scope; it was taken back",
                hint="report this with the table's properties; it should not be possible",
            )
        if wrong:
            raise VerificationError(
                f"{ours} of {self.output.dataset} holds other rows than were counted in "
                f"{self._describe(wrong)}; it was taken back",
                hint="the job does not compute the same rows twice; make it deterministic",
            )
        try:
            # Between the last look and Delta's own somebody may have slipped in.
            self._refuse_foreign_changes(version - 1)
        except WriteConflictError:
            self._take_back(version, ours.touched)
            raise

    def _take_back(self, version: int, touched: Iterable[Values]) -> None:
        transaction = Transaction(
            app_id=f"{self.app_id}/taken-back",
            version=self.run.attempt,
            metadata={"schema_version": 1, "run_id": self.run.run_id, "taken_back": version},
        )
        put_back(self.spark, self.log, tuple(touched), version - 1, transaction)

    def _result(self, version: int) -> OutputResult:
        return self._outcome(self.log.state(version - 1), self.log.state(version), version=version)

    def _outcome(
        self, before: TableState, after: TableState, *, version: int | None
    ) -> OutputResult:
        parts = []
        for values, key in self.scope.items():
            old, new = before.contents(values), after.contents(values)
            parts.append(
                PartitionResult(
                    key=key,
                    rows_before=old.rows,
                    rows=new.rows,
                    fingerprint_before=old.fingerprint,
                    fingerprint=new.fingerprint,
                    emptied=new.rows == 0 and old.rows != 0,
                )
            )
        return OutputResult(
            dataset=self.output.dataset,
            version_before=before.version,
            version=version,
            partitions=tuple(parts),
        )

    def _describe(self, partitions: Iterable[Values]) -> str:
        texts = sorted(describe(self.columns, values) for values in partitions)
        more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
        return ", ".join(texts[:5]) + more

    def _merged(self, frame: DataFrame) -> DataFrame:
        """Return what the scope holds once these rows are in it, the newest row of each key."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        if not self.options.merge_on:
            raise EntrypointError(
                f"{self.output.dataset} is written by merge, and its job names no key",
                hint='declare it: @job(..., merge_on=("id",), newest_by="updated_at")',
            )
        held = (
            self.spark.read.format("delta")
            .option("versionAsOf", self.before.version)
            .load(self.log.location)
        )
        if self.columns:
            held = held.where(predicate(self.columns, self.scope))
        keys = [quoted(name) for name in self.options.merge_on]
        null = F.lit(False)
        for key in keys:
            null = null | F.col(key).isNull()
        # A NULL key matches nothing, so each replay of the run would add its rows once more.
        refused = F.raise_error(F.lit(f"{_NULL_KEY} {', '.join(self.options.merge_on)}"))
        frame = frame.withColumn(_AGE, F.when(null, refused.cast("int")).otherwise(F.lit(0)))
        both = frame.unionByName(held.withColumn(_AGE, F.lit(1)))
        newest = [quoted(self.options.newest_by)] if self.options.newest_by else []
        order = [F.col(name).desc_nulls_last() for name in newest]
        rest = [F.to_json(F.struct(*[F.col(quoted(name)) for name in frame.columns]))]
        window = Window.partitionBy(*keys).orderBy(*order, F.col(_AGE), *rest)
        ranked = both.withColumn(_RANK, F.row_number().over(window))
        return ranked.where(F.col(_RANK) == 1).drop(_AGE, _RANK)


def _create(frame: DataFrame, output: OutputSpec) -> None:
    """Create the table empty, in a commit of its own; no replacement ever creates one.

    A replacement would not check its rows on a table that does not exist yet.
    """
    from delta.tables import DeltaTable
    from pyspark.sql.types import StructField, StructType

    _check_storable(frame.schema, output)
    names = {field.name.lower(): field.name for field in frame.schema}
    missing = [column for column in output.columns if column.lower() not in names]
    if missing:
        raise SchemaMismatchError(
            f"partition column {missing[0]!r} of {output.dataset} is not among the job's columns: "
            f"{', '.join(names.values())}",
            hint="add it to the job's result, or correct `columns` in the project file",
        )
    fields = [StructField(field.name, field.dataType, True) for field in frame.schema]
    builder = DeltaTable.createIfNotExists(frame.sparkSession).addColumns(StructType(fields))
    builder = builder.location(output.location) if output.location else builder
    builder = builder.tableName(output.table) if output.table else builder
    if output.columns:
        builder = builder.partitionedBy(*[names[column.lower()] for column in output.columns])
    try:
        builder.execute()
    except Exception as error:
        # Another first writer was faster: its table is as good, and is checked like any other.
        if not is_conflict(error):
            raise


def _columns(state: TableState, output: OutputSpec) -> tuple[PartitionColumn, ...]:
    """Return the table's partition columns; raises TableError unless they are the declared ones."""
    actual = [column.name for column in state.columns]
    if state.clustered:
        raise TableError(
            f"{output.dataset} is clustered, not partitioned: its partitions cannot be replaced "
            "exactly",
            hint='partition the table by its keys, or declare it with grain = "none"',
        )
    if {name.lower() for name in actual} != {name.lower() for name in output.columns}:
        raise TableError(
            f"{output.dataset} is partitioned by {actual or 'nothing'}, the run spec says "
            f"{list(output.columns) or 'nothing'}",
            hint="correct `columns` in the project file",
        )
    return state.columns


def _check_storable(schema: StructType, output: OutputSpec) -> None:
    void = [field.name for field in schema if "void" in field.dataType.simpleString()]
    if void:
        raise SchemaMismatchError(
            f"column {void[0]!r} of {output.dataset} has no type", hint="cast it in the job"
        )


def _check_schema(schema: StructType, state: TableState) -> list[str]:
    """Return the table's columns in order; raises SchemaMismatchError unless both sides agree."""
    from pyspark.sql.types import StructType

    table = StructType.fromJson(dict(state.schema))
    theirs = {field.name.lower(): field.dataType.simpleString() for field in table}
    ours = {field.name.lower(): field.dataType.simpleString() for field in schema}
    problems = [
        *[f"{name} is missing" for name in theirs if name not in ours],
        *[f"{name} is not in the table" for name in ours if name not in theirs],
        *[
            f"{name} is {ours[name]}, in the table {theirs[name]}"
            for name in theirs
            if name in ours and ours[name] != theirs[name]
        ],
    ]
    if len(ours) != len(schema):
        problems.append("a column stands twice")
    if problems:
        raise SchemaMismatchError(
            f"the job's columns are not those of the table: {'; '.join(problems)}; "
            "nothing was written",
            hint="cast or select them in the job, or ALTER the table first",
        )
    return [field.name for field in table]


def _raise_translated(error: Exception, output: OutputSpec) -> NoReturn:
    text = str(error)
    conditions = _CONDITION.findall(text)
    broken = [condition for condition in conditions if _CONSTRAINT.match(condition)]
    if broken:
        # Delta's message shows the row; rows do not belong into logs.
        raise ConstraintError(
            f"rows for {output.dataset} break a constraint of the table ({broken[0]}); "
            "nothing was written",
            hint="correct the rows in the job, or drop the constraint",
        ) from error
    raise error
