"""Writes exactly the partitions of a run: checks, one atomic commit, then verification.

The steps of a write: check that settings and table fit; compute the rows once and keep them; check
that every row is in the scope, that empty partitions are allowed, the job's own checks, and that no
other commit changed the scope since the run started; replace; find the commit in the log by the
attempt's token; verify that it touched only the scope and has the counted rows, else revert it.

A Parquet table has no commits: after the same checks Spark overwrites its partitions.

If nothing needs to be known about the rows before they are published (no fingerprints, no checks,
empty partitions are cleared), they are not kept: each is checked while it is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lineage_backfill.model import listed
from lineage_backfill.project.declarations import WritePolicy, parquet_refusal
from lineage_backfill.runspec.values import OutputResult, OutputSpec, PartitionResult, RunSpec
from spark_runtime import classic
from spark_runtime.connect import is_connect
from spark_runtime.errors import (
    AppendedBeforeError,
    CheckFailedError,
    EmptyPartitionError,
    RuntimeFailure,
    SchemaMismatchError,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    UnexpectedPartitionError,
    VerificationError,
    WriteConflictError,
    first_line,
)
from spark_runtime.session import ANSI, ZONE, assert_safe, guarded, interpreted
from spark_runtime.tables.by_value import ValueColumn
from spark_runtime.tables.commits import (
    app_id,
    commit_number,
    conflict,
    fence_number,
    foreign_change,
    is_of,
    left_standing,
    miscounted,
    put_back,
    refuse_stale,
    standing,
    verify_put_backs,
)
from spark_runtime.tables.fingerprint import ROWS, Fingerprint, is_wanted
from spark_runtime.tables.merge import Match, marked, match_of
from spark_runtime.tables.schema import GENERATED, fit
from spark_runtime.tables.scope import Member, Scope, describe, patterns_of, predicate
from spark_runtime.tables.staging import computed_once
from spark_runtime.tables.state import (
    Commit,
    Since,
    TableLog,
    TableState,
    Transaction,
    total,
    undo_token,
)
from spark_runtime.tables.storage import Publication, Rows, Storage
from spark_runtime.tables.tables import Tables
from spark_runtime.tables.values import (
    Pattern,
    Values,
    is_exact,
    quoted,
)
from spark_runtime.write.checks import Audit, WriteOptions, problem
from spark_runtime.write.outcome import before_commit, is_as_planned, output_result
from spark_runtime.write.stamp import stamped

_COUNT_OUTSIDE = "__outside"
_NO_FOLDER = "Mkdirs failed to create "
_OUTSIDE = "lineage-backfill: a row outside the scope: "
#: Query operators that neither drop rows of a projection above them, as a limit does, nor are
#: removed by a shuffle above them, as a sort or another shuffle is; and those that pass this on.
_PLAIN = frozenset({"Aggregate", "Generate", "Join", "LogicalRDD", "LogicalRelation", "Window"})
_PASSED = frozenset({"Filter", "Project", "SubqueryAlias"})


def write_partitions(
    frame: DataFrame,
    output: OutputSpec,
    run: RunSpec,
    tables: Tables,
    options: WriteOptions | None = None,
) -> OutputResult:
    """Replace the output's scope with the rows of `frame`, and nothing else.

    Calling it again with the same run changes nothing and returns the same result. On a
    RuntimeFailure all old rows are unchanged.
    """
    if output.scoped_by is not None and output.mode == "full":
        raise TableError(
            f"{output.dataset} is not partitioned by its keys: rows without a key would stay",
            hint='Write it by mode = "overwrite", and delete other rows yourself.',
        )
    if output.format == "parquet":
        policy = WritePolicy(mode=output.mode, unsafe_overwrite=output.unsafe_overwrite)
        if refusal := parquet_refusal(policy):
            raise TableError(f"{output.dataset}: {refusal[0]}", hint=refusal[1])
    with guarded(frame.sparkSession):
        state = tables.state(output)
        assert_safe(frame.sparkSession, but=_indifferent(output, state))
        if not output.scope:
            return _nothing(frame, output, -1 if state is None else state.version)
        frame = stamped(frame, output, state)
        options = options or WriteOptions()
        schema = frame.schema
        if (condition := output.delete_when or options.delete_when) and output.mode == "merge":
            stored = [field["name"] for field in state.schema["fields"]] if state else ()
            frame, gone = marked(frame, condition, stored)
            options, schema = replace(options, gone=gone), frame.drop(gone).schema
        storage = tables.writable(output, schema)
        kind = _Overwrite if output.format == "parquet" else _Write
        return kind(frame, output, run, storage, options).make()


def _indifferent(output: OutputSpec, state: TableState | None) -> tuple[str, ...]:
    """Return the session settings that do not matter: rows are stored as the job returns them.

    Only generated columns, and keys by value, are computed here.
    """
    if output.scoped_by is not None:
        return (ZONE,)  # see `_refuse_other_zone`
    fields = () if state is None else state.schema.get("fields", ())  # Parquet keeps none
    is_generated = any(GENERATED in (field.get("metadata") or {}) for field in fields)
    return () if is_generated else (ANSI, ZONE)


def _nothing(frame: DataFrame, output: OutputSpec, version: int) -> OutputResult:
    """Write nothing to an output without partitions at the run's keys; refuse rows for it."""
    if not frame.isEmpty():
        raise UnexpectedPartitionError(
            f"{output.dataset} has no partition at the keys of this run, and there are rows for it;"
            " nothing was written",
            hint="Return no rows for it, or correct its `start` and `end` in the project file.",
        )
    return OutputResult(dataset=output.dataset, version_before=version, version=None, partitions=())


class _Write:
    """One write in progress."""

    def __init__(
        self,
        frame: DataFrame,
        output: OutputSpec,
        run: RunSpec,
        storage: Storage,
        options: WriteOptions,
    ) -> None:
        self.spark = frame.sparkSession
        self.frame = frame
        self.output = output
        self.run = run
        self.storage = storage
        self.options = options
        found = storage.before()
        self.columns = found.columns
        self.scope = Scope.of(found, output, output.scope)
        self.before = self._counted(found)
        gone = options.gone if output.mode == "merge" else None
        self.schema = frame.schema if gone is None else frame.drop(gone).schema
        self.fit = fit(self.schema, found, output.on_drift)
        partitioned = {name.lower() for name in found.partitioned_by}
        texts = frozenset(
            column.name
            for column in self.columns
            if column.type == "string" and (found.by is None or column.name.lower() in partitioned)
        )
        self.shaped = self.fit.apply(frame, texts, also=gone)
        self.match: Match | None = None
        if output.mode == "merge":
            on = output.merge_on or options.merge_on
            self.match = replace(
                match_of(self.shaped.schema, on, options.newest_by),
                gone=gone,
                delete_missing=output.delete_missing or options.delete_missing,
                lacking=self.fit.lacking,
            )
        self.since = Since.of(self.before) if options.since is None else options.since
        self.fingerprints = is_wanted(self.spark)

    @property
    def log(self) -> TableLog:
        return self.storage.log

    def make(self) -> OutputResult:
        """Write; raises a RuntimeFailure."""
        try:
            return self._made()
        except TableError as error:
            if not error.is_missing or self.before.version < 0:
                raise
            hint = (
                "Restore it and retry the run. Without the table, a retry creates one that holds "
                "only the partitions of this run."
            )
            if self._adds:  # then nothing tells a retry that they are there
                hint += (
                    " If only the log is gone, first delete the rows of this run that are there: a "
                    "retry would append them again."
                )
            raise WriteConflictError(
                f"{self.log.location} or its log was deleted while this run wrote to it", hint=hint
            ) from error

    def _made(self) -> OutputResult:
        has_begun = app_id(self.run) in self.before.transactions
        if (has_begun or self._adds) and self.log.deepen():
            self.before = self._counted(self.storage.before())
        done = self.before.tokens.get(self.run.token)
        undone = undo_token(self.run.token) in self.before.tokens
        if done is not None and not undone:
            return self._found(done)
        refuse_stale(self.before, self.run)
        if undone or self.before.transactions.get(app_id(self.run), -1) >= commit_number(self.run):
            is_known = undone or self.before.first_read == 0
            outcome = (
                "was undone or reverted"
                if is_known
                else f"the log, which begins at version {self.before.first_read}, no longer says "
                "whether its rows stand"
            )
            raise StaleAttemptError(
                f"attempt {self.run.attempt} of run {self.run.run_id} has written to "
                f"{self.output.dataset} already, and {outcome}",
                hint="Retry the run as a new attempt.",
            )
        self._refuse_foreign_changes(self.before)
        if self.run.attempt > 1 and self.before.version >= 0:
            self._supersede()
            self._refuse_foreign_changes(self.before)
        self._refuse_second_append(self.before)
        self.since = Since.of(self.before)
        if self.output.mode == "full":
            self._refuse_other_partitions()
        written: dict[Values, Rows] | None = None
        if not self._must_stage:
            version = self._publish(self._unchecked(), self.scope, None)
        else:
            with ExitStack() as kept:
                rows, written, replaced = self._checked(kept)
                if not replaced:
                    return self._outcome(self.before, self.before)
                version = self._publish(rows, replaced, written)
        self._verify(version)
        before = replace(self.before, version=version - 1)
        return self._outcome(before, self._counted(self.log.state(version)))

    # Before the write.

    def _refuse_second_append(self, state: TableState) -> None:
        """Raise AppendedBeforeError if another run of the job has appended to these keys."""
        job, ours = str(self.run.job.name), (self.run.backfill_id, self.run.run_id)
        known = state.appended
        again = [one for one in self.scope if is_exact(one) and known.get((one, job), ours) != ours]
        who = "a recorded run"  # older than the log
        if again:
            backfill, run = known[again[0], job]
            who = f"run {run} of backfill {backfill}" if backfill else f"run {run}"
        elif state is self.before and state.first_read > 0:
            places = {n for a, b in self.output.appended or () for n in range(a, b + 1)}
            patterns = patterns_of(self.before, self.output, self.output.scope)
            old = [one for place, one in enumerate(patterns) if place in places]
            again = [one for one in old if is_exact(one) and self.before.contents(one).rows != 0]
        if self._adds and again and not self.run.append_again:
            raise AppendedBeforeError(
                f"{who} has appended to {self._describe(again)} of {self.output.dataset}: the rows "
                "would be there twice",
                hint="Undo that run first, or pass --allow-append-again.",
            )

    def _checked(self, kept: ExitStack) -> tuple[DataFrame, dict[Values, Rows], Scope]:
        """Compute the rows and check them; return them with their counts and what they replace."""
        with self._translated():
            with interpreted(self.spark, self._expected):
                rows = kept.enter_context(computed_once(self.spark, self._new()))
                after = self._held_after(rows)
                written = self._count(after)
            self._check_scope(written)
            replaced = self._replaced(written)
            self._audit(after, written)
        return rows, written, replaced

    def _counted(self, found: TableState) -> TableState:
        """Return the state with the rows of the scope counted if the log has no counts."""
        held = self.scope.members(found)
        unknown = [v for v in held if is_exact(v) and found.contents(v).rows is None]
        if not unknown:
            return found
        frame = self.storage.held(found.version, unknown)
        rows = _by_partition(frame, self.scope, [_count_of_rows()])
        return found.counted({values: rows.get(values, {}).get(ROWS, 0) for values in unknown})

    def _refuse_other_partitions(self) -> None:
        others = [values for values in self.before.partitions if values not in self.scope]
        if others:
            raise TableError(
                f"a full replacement of {self.output.dataset} would drop partitions that are not "
                f"planned: {self._describe(others)}",
                hint='Plan them too, or use mode = "overwrite".',
            )

    def _refuse_foreign_changes(self, state: TableState, until: int | None = None) -> None:
        if state.version < 0 and self.since.version < 0:
            return
        found = foreign_change(self.log, self.since, state, self.scope, self.run, until, self._adds)
        if found is not None:
            raise conflict(self.scope, *found)

    def _new(self) -> DataFrame:
        """Return the rows to publish in the table's shape; for a merge, one per key."""
        if self.match is None:
            return self._gathered(self.shaped)
        new = self.match.newest(self._checked_on_the_way(self.shaped))
        return new if self._merges else self._gathered(self._merged(new))

    def _held_after(self, rows: DataFrame) -> DataFrame:
        """Return the rows of the scope after publishing these."""
        return self._merged(rows) if self._merges else rows

    @property
    def _merges(self) -> bool:
        """Whether the table itself merges the rows.

        Not if others are deleted: Delta's MERGE then rewrites files beside the scope as well.
        """
        return self.match is not None and not self.match.delete_missing

    def _merged(self, new: DataFrame) -> DataFrame:
        assert self.match is not None, "only a merge reads existing rows"
        return self.match.merged(self.storage.held(self.before.version, self.scope), new)

    def _gathered(self, frame: DataFrame) -> DataFrame:
        """Return the rows grouped by partition.

        Otherwise every task would write a file into every partition.
        """
        names = [quoted(column.name) for column in self.columns]
        if self.before.by is not None:
            names = [quoted(name) for name in self.before.partitioned_by]
        if self.scope.is_single or not names:
            return frame
        # Rebalancing splits large ones again, which needs adaptive execution.
        if self.spark.conf.get("spark.sql.adaptive.enabled") == "true":
            return frame.hint("rebalance", *names)
        return frame.repartition(*names)

    @property
    def _must_stage(self) -> bool:
        """Whether something must be known about the rows before they are published."""
        return (
            self.fingerprints
            or bool(self.options.checks)
            or self.output.on_empty != "clear"
            or self._adds
            or not self.storage.counts
        )

    @property
    def _expected(self) -> int | None:
        """The number of rows of the write, as far as it is known before."""
        replaced = (self.before.contents(v).rows for v in self._members())
        return total((self.options.reads, *replaced))

    def _unchecked(self) -> DataFrame:
        """Return the rows to publish if nothing is checked before."""
        if self.match is not None:
            return self._new()
        is_plain = not is_connect(self.spark) and classic.ends_in(self.shaped, _PLAIN, _PASSED)
        if is_plain:  # then the check before the shuffle is almost free
            return self._gathered(self._checked_on_the_way(self.shaped))
        return self._checked_on_the_way(self._gathered(self.shaped))

    def _checked_on_the_way(self, frame: DataFrame) -> DataFrame:
        """Return the rows; computing one outside the scope fails, naming it."""
        if not self.columns:
            return frame
        inside = self._inside()
        values = F.array(*[F.col(quoted(column.name)).cast("string") for column in self.columns])
        refused = F.raise_error(F.concat(F.lit(_OUTSIDE), F.to_json(values)))
        # A value rather than a filter, which could be moved before a join that drops such rows.
        first = self.columns[0].name
        return frame.withColumn(first, F.when(inside, F.col(quoted(first))).otherwise(refused))

    def _inside(self) -> Column:
        return F.coalesce(F.expr(predicate(self.columns, self.scope)), F.lit(False))

    def _count(self, rows: DataFrame) -> dict[Values, Rows]:
        if not self.fingerprints:
            counted = self._aggregated(rows, [_count_of_rows()])
            return {v: Rows(count=row[ROWS], fingerprint=None) for v, row in counted.items()}
        fingerprint = Fingerprint(rows.schema, ignore=self.options.ignore)
        found = self._aggregated(rows, fingerprint.aggregates())
        return {
            values: Rows(count=row[ROWS], fingerprint=fingerprint.text(row))
            for values, row in found.items()
        }

    def _aggregated(
        self, rows: DataFrame, aggregates: Sequence[Column]
    ) -> dict[Values, dict[str, Any]]:
        """Return aggregates by partition.

        A single partition needs no grouping, which costs as much as a fingerprint; only if a row is
        outside are the others grouped.
        """
        if self.columns and self.scope.is_single:
            outside = F.count_if(~self._inside()).alias(_COUNT_OUTSIDE)
            row = rows.agg(*aggregates, outside).collect()[0].asDict()
            if not row[_COUNT_OUTSIDE]:
                return {values: row for values in self.scope if row[ROWS] and is_exact(values)}
        return _by_partition(rows, self.scope, aggregates)

    def _check_scope(self, written: Mapping[Values, Rows]) -> None:
        outside = [values for values in written if values not in self.scope]
        if outside:
            rows = sum(written[values].count for values in outside)
            raise self._unexpected(f"{rows} rows", outside)

    def _unexpected(self, rows: str, outside: Iterable[Pattern]) -> UnexpectedPartitionError:
        return UnexpectedPartitionError(
            f"{rows} for {self.output.dataset} lie outside the partitions of this run: "
            f"{self._describe(outside)}; nothing was written",
            hint="Filter the job's result to the run's keys, or correct `columns` or the "
            "mapping in the project file.",
        )

    def _members(self, written: Iterable[Values] = ()) -> dict[Pattern, Member]:
        """Return the partitions of the scope: listed, existing, or written now."""
        return self.scope.members(self.before, also=written)

    def _replaced(self, written: Mapping[Values, Rows]) -> Scope:
        """Return the partitions to replace, by the policy for empty ones."""
        members = self._members(written)
        empty = [values for values in members if values not in written]
        if empty and self.output.on_empty == "fail":
            raise EmptyPartitionError(
                f"no rows for {self._describe(empty)} of {self.output.dataset}; "
                "nothing was written",
                hint='Set on_empty = "clear" to empty them, or "keep" to leave them unchanged.',
            )
        if self.output.on_empty == "keep" or self._adds:
            return Scope(self.columns, {values: members[values].key for values in written})
        return self.scope

    def _audit(self, rows: DataFrame, written: Mapping[Values, Rows]) -> None:
        keys = {pattern: str(one.key) for pattern, one in self._members(written).items()}
        audit = Audit(
            frame=rows,
            rows={key: _rows(written, pattern).count for pattern, key in keys.items()},
            rows_before={key: self.before.contents(pattern).rows for pattern, key in keys.items()},
        )
        failed = [text for check in self.options.checks if (text := problem(check, audit))]
        if failed:
            raise CheckFailedError(
                f"{self.output.dataset}: {'; '.join(failed)}; nothing was written",
                hint="Correct the job, its input, or the check.",
            )

    # The write.

    @property
    def _adds(self) -> bool:
        return self.output.mode == "append"

    def _publish(
        self, rows: DataFrame, replaced: Scope, written: Mapping[Values, Rows] | None
    ) -> int:
        def recheck(state: TableState) -> None:
            refuse_stale(state, self.run)
            self._refuse_foreign_changes(state)
            self._refuse_second_append(state)
            for commit in self.log.commits(self.before.version, state.version):
                if is_of(commit, self.run) and commit.metadata.get("token"):
                    raise WriteConflictError(
                        f"{commit} of {self.output.dataset} is of another attempt of this run",
                        hint="Retry the run: a new attempt takes its rows back.",
                    )
            Scope.of(state, self.output, self.output.scope)
            fit(self.schema, state, self.output.on_drift)

        publication = Publication(
            scope=self.scope,
            replaced=replaced,
            written=written,
            expected=self._expected,
            adds=self._adds,
            match=self.match if self._merges else None,
            before=self.before,
            new_columns=self.fit.added,
            transaction=self._transaction(replaced, written),
            recheck=recheck,
        )
        with self._translated():
            return self.storage.publish(rows, publication)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of Spark about rows that are outside, or do not fit, as ours."""
        try:
            yield
        except Exception as error:
            _, found, rest = str(error).partition(_OUTSIDE)
            if found:
                texts, _ = json.JSONDecoder().raw_decode(rest)
                first = self.columns[0]
                values = (
                    first.outside(texts[0])
                    if isinstance(first, ValueColumn)
                    else tuple(
                        column.found(text) for column, text in zip(self.columns, texts, strict=True)
                    )
                )
                raise self._unexpected("rows", [values]) from error
            if _NO_FOLDER in str(error):
                raise TableError(
                    f"a folder for rows of {self.output.dataset} cannot be created; nothing was "
                    "written",
                    hint="Check who may write there. A folder is called after a column and its "
                    "value, in at most 255 bytes: use shorter values, or set "
                    "delta.columnMapping.mode = 'name' on the table.",
                ) from error
            if not isinstance(error, AnalysisException):
                raise
            raise SchemaMismatchError(
                f"the rows for {self.output.dataset} cannot be checked or written: "
                f"{first_line(error)}; nothing was written",
                hint="Correct the columns in the job, or the names in its checks.",
            ) from error

    def _transaction(self, replaced: Scope, written: Mapping[Values, Rows] | None) -> Transaction:
        def recorded(values: Values) -> list[object]:
            if written is None:
                return [list(values), None, None]
            part = _rows(written, values)
            if not self._adds:
                return [list(values), part.count, part.fingerprint]
            # The existing rows are unknown: others may append at the same time.
            return [list(values), part.count if self.before.by is None else None, None]

        members = replaced.members(self.before, also=written or ())
        return Transaction(
            app_id=app_id(self.run),
            version=commit_number(self.run),
            metadata={
                "schema_version": 1,
                **self._names,
                **self.before.identity,
                "attempt": self.run.attempt,
                "token": self.run.token,
                "job": str(self.run.job.name),
                "mode": self.output.mode,
                "scope": self.scope.digest,
                "partitions": [recorded(values) for values in members if is_exact(values)],
                "inputs": [[str(read.dataset), read.version] for read in self.options.inputs],
                # Read by reconcile.py if the run left no result.
                "since": self.since.version,
                "table_id": self.since.table_id,
                "started_at": self.options.started_at and self.options.started_at.isoformat(),
                "ended_at": datetime.now(UTC).isoformat(),
                "drift": list(self.fit.drift),
            },
        )

    # After the write.

    def _verify(self, version: int) -> None:
        (ours,) = self.log.commits(version - 1, version)
        after = self.log.state(version)
        try:
            # A commit may have occurred between this check and Delta's own.
            self._refuse_foreign_changes(after, version - 1)
            if self._adds:
                self._refuse_second_append(self.log.state(version - 1))
        except (AppendedBeforeError, WriteConflictError) as error:
            self._refuse(ours, error)
        outside = [values for values in ours.touched if values not in self.scope]
        wrong: list[Values] = []
        if not self._adds:
            counted = after if after.by is None else self._counted(replace(after, keys={}))
            wrong = miscounted(ours, counted)
            if after.by is not None and (problem := self._beside(version, counted)):
                self._refuse(ours, problem)
        if outside:
            self._refuse(
                ours,
                VerificationError(
                    f"{ours} of {self.output.dataset} touched {self._describe(outside)} outside "
                    "its scope",
                    hint="Report this with the table's properties; it should not be possible.",
                ),
            )
        if wrong:
            self._refuse(
                ours,
                VerificationError(
                    f"{ours} of {self.output.dataset} does not have the counted rows in "
                    f"{self._describe(wrong)}",
                    hint="The job computes different rows each time: make it deterministic.",
                ),
            )
        refuse_stale(self.log.state(), self.run)

    def _beside(self, version: int, after: TableState) -> VerificationError | None:
        """Return what is wrong if the rows beside the scope are more or fewer than before."""
        beside = []
        for state, scope in ((self.log.state(version - 1), self.before), (after, after)):
            rows = total(held.rows for held in state.partitions.values())
            keyed = total(scope.contents(values).rows for values in self.scope)
            beside.append(None if rows is None or keyed is None else rows - keyed)
        if None in beside or beside[0] == beside[1]:
            return None  # without counts in the log, Delta's own check of the condition stands
        return VerificationError(
            f"version {version} of {self.output.dataset} has {beside[1]} rows beside the keys of "
            f"the run, and there were {beside[0]} before",
            hint="Report this with the table's properties; it should not be possible.",
        )

    def _found(self, version: int) -> OutputResult:
        """Return what this attempt committed before it was stopped, after verifying it."""
        (ours,) = self.log.commits(version - 1, version)
        if not is_as_planned(ours, self.log, self.scope, self.output, self.run):
            self._refuse(
                ours,
                VerificationError(
                    f"{ours} of {self.output.dataset} differs from what the run had to write",
                    hint="Retry the run as a new attempt.",
                ),
            )
        return self._outcome(before_commit(self.log, version), self.log.state(version))

    def _refuse(self, ours: Commit, error: RuntimeFailure) -> NoReturn:
        """Revert a commit and raise the error, which says whether that was possible."""
        try:
            self._take_back(ours)
        except Exception as refused:
            if isinstance(refused, RuntimeFailure) and refused.stands:
                raise  # it names the commit that stands
            said = str(getattr(refused, "message", refused)).strip().partition("\n")[0]
            raise left_standing(
                type(error), f"{error.message}; it could not be reverted: {said}", ours
            ) from error
        raise type(error)(f"{error.message}; it was reverted", hint=error.hint) from error

    def _supersede(self) -> None:
        """Prevent earlier attempts of this run from committing, and revert what they added.

        What they replaced may stay, unless it overwrote a change of another writer.
        """
        has_begun = app_id(self.run) in self.before.transactions
        first = self.before.first_read - 1 if has_begun else self.before.version
        fence = {"schema_version": 1, **self._names, "fence": self.run.attempt}
        self.storage.fence(
            Transaction(app_id=app_id(self.run), version=fence_number(self.run), metadata=fence)
        )
        self.before = self._counted(self.storage.before())
        refuse_stale(self.before, self.run)
        own = [c for c in self.log.commits(first, self.before.version) if is_of(c, self.run)]
        attempts = standing(own, self.before)
        oldest = self.before.first_read
        is_unknown = has_begun and self._builds_on and not attempts and oldest > 0
        if is_unknown and app_id(self.run) in self.log.state(oldest).transactions:
            raise WriteConflictError(
                f"an earlier attempt of this run may have written to {self.output.dataset},"
                " and the log does not reach back that far: its rows may be there",
                hint="Check the table for them, and start the run as a new one.",
            )
        try:
            verify_put_backs(self.storage, own, own)
            for ours in attempts:
                if self._builds_on or not is_as_planned(
                    ours, self.log, self.scope, self.output, self.run
                ):
                    self._take_back(ours)
        except UndoRefusedError as error:
            if self._builds_on:
                raise WriteConflictError(
                    f"an earlier attempt of this run has written its rows, and {error.message}",
                    hint="Delete the rows of one of the two, and start the run as a new one.",
                ) from error
            # What it wrote is replaced.
        self.before = self._counted(self.storage.before())

    @property
    def _builds_on(self) -> bool:
        """Whether the table's contents after the write depend on existing rows."""
        return self.output.mode in ("append", "merge") or self.output.on_empty == "keep"

    @property
    def _names(self) -> dict[str, str]:
        return {"backfill_id": self.run.backfill_id, "run_id": self.run.run_id}

    def _take_back(self, ours: Commit) -> None:
        """Restore what a commit touched; raises UndoRefusedError and StaleAttemptError."""
        state = self.log.state()
        refuse_stale(state, self.run)
        transaction = Transaction(
            app_id=app_id(self.run),
            version=max(fence_number(self.run), state.transactions.get(app_id(self.run), 0)) + 1,
            metadata={
                "schema_version": 1,
                **self._names,
                "taken_back": ours.version,
            },
        )
        put_back(self.storage, [ours], transaction)

    def _outcome(self, before: TableState, after: TableState) -> OutputResult:
        return output_result(self.output, self.scope, self.log, before, after, self.fit.drift)

    def _describe(self, partitions: Iterable[Pattern]) -> str:
        return listed(sorted(describe(self.columns, values) for values in partitions))


class _Overwrite(_Write):
    """A write to a Parquet table: checked before, by a listing after, and never reverted."""

    def _made(self) -> OutputResult:
        self.fingerprints = False
        if self.output.mode == "full":
            self._refuse_other_partitions()
        with ExitStack() as kept:
            rows, written, replaced = self._checked(kept)
            storage: Any = self.storage
            if replaced:
                with self._translated():
                    storage.overwrite(rows, replaced)
            after = storage.before()
        there = {values for values in after.partitions if values in replaced}
        if self.columns and there != written.keys():
            raise VerificationError(
                f"{self.output.dataset} does not have the written rows in "
                f"{self._describe(there ^ written.keys())}: another writer was at work",
                hint="Let it finish, then retry the run.",
            )
        parts = []
        for pattern, member in self._members(written).items():
            old = self.before.contents(pattern).rows
            new = _rows(written, pattern).count if pattern in replaced else old
            parts.append(
                PartitionResult(
                    key=member.key,
                    rows_before=old,
                    rows=new,
                    fingerprint_before=None,
                    fingerprint=None,
                    emptied=new == 0 and old != 0,
                    values=member.values,
                    within=member.within,
                )
            )
        return OutputResult(
            dataset=self.output.dataset,
            version_before=self.before.version,
            version=max(after.version, self.before.version + 1) if replaced else None,
            partitions=tuple(parts),
            drift=self.fit.drift,
            types=self.scope.types,
        )


def _rows(written: Mapping[Values, Rows], pattern: Pattern) -> Rows:
    return written.get(pattern, Rows()) if is_exact(pattern) else Rows()


def _count_of_rows() -> Column:
    return F.count(F.lit(1)).alias(ROWS)


def _by_partition(
    frame: DataFrame, scope: Scope, aggregates: Sequence[Column]
) -> dict[Values, dict[str, Any]]:
    """Return aggregates by partition."""
    columns = scope.columns
    if columns and isinstance(columns[0], ValueColumn):
        return _by_value(frame, columns[0], scope, aggregates)
    # Grouped under our own names: a column may have the name of an aggregate.
    keys = [F.col(quoted(c.name)).alias(f"__key{i}") for i, c in enumerate(columns)]
    counted = frame.groupBy(*keys).agg(*aggregates)
    texts = [F.col(name).cast("string").alias(name) for name in counted.columns[: len(keys)]]
    return {
        tuple(column.found(row[f"__key{i}"]) for i, column in enumerate(columns)): row.asDict()
        for row in counted.select(*texts, *counted.columns[len(keys) :]).collect()
    }


def _by_value(
    frame: DataFrame, column: ValueColumn, scope: Scope, aggregates: Sequence[Column]
) -> dict[Values, dict[str, Any]]:
    """Return aggregates by key; values that no key of the scope has are grouped by day."""
    spans = [span for span in scope if is_exact(span)]
    text = F.col(quoted(column.name)).cast("string")
    place = F.expr(column.place(spans)) if column.by == "time" else F.lit(None).cast("int")
    other = F.when(place.isNull(), text if column.by == "key" else F.substring(text, 1, 10))
    counted = frame.groupBy(place.alias("__key0"), other.alias("__key1")).agg(*aggregates)
    rows = [row.asDict() for row in counted.collect()]
    return {
        column.outside(row["__key1"]) if row["__key0"] is None else spans[row["__key0"]]: row
        for row in rows
    }
