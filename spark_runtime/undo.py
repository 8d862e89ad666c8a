"""Undoes runs: restores exactly the partitions that they wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.values import OutputResult, OutputSpec, Recorded, Target
from spark_runtime.errors import UndoRefusedError
from spark_runtime.session import ANSI, ZONE, assert_safe, guarded
from spark_runtime.tables.commits import put_back, verify_put_backs
from spark_runtime.tables.scope import Scope, describe
from spark_runtime.tables.state import (
    Commit,
    TableLog,
    TableState,
    Transaction,
    undo_token,
    undone_by,
)
from spark_runtime.tables.storage import Storage
from spark_runtime.tables.tables import Tables
from spark_runtime.write.outcome import output_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def undo_runs(
    spark: SparkSession,
    *,
    tokens: Sequence[str],
    location: str | None = None,
    table: str | None = None,
    format: str = "delta",  # noqa: A002 (as the run spec names it)
    recorded: Sequence[Recorded] = (),
    dataset: DatasetRef | None = None,
) -> dict[str, object]:
    """Restore, in one commit, the partitions that the attempts with these tokens replaced.

    Every partition gets the contents from before the first of them. A second undo is a no-op, as is
    that of an attempt that wrote nothing. Returns `{"version", "partitions"}`: the version with the
    old rows (None: nothing to do) and the restored partitions. Raises UndoRefusedError, with
    nothing changed, if another writer changed them since (with its commit), if old files are gone,
    or if the log no longer goes back to them. `recorded` holds what the run store knows of the
    attempts; `dataset` is the name of the table there.
    """
    assert_safe(spark, but=(ANSI, ZONE))
    if format == "parquet":
        raise UndoRefusedError(
            f"{table or location} is a Parquet table, which keeps no old rows",
            hint="Restore its files from a backup, or run the job again on the right inputs.",
        )
    name = dataset or DatasetRef("", table or location or "")
    target = Target(dataset=name, format=format, columns=(), location=location, table=table)
    with guarded(spark):
        tables = Tables(spark)
        storage = tables.storage(_as_written(tables.log(target), target, tokens))
        return _undo(storage, tokens, {one.token: one for one in recorded}, str(name))


def _as_written(log: TableLog, target: Target, tokens: Sequence[str]) -> Target:
    """Return a table with the column by whose value these attempts wrote to it, if by one."""
    log.deepen()
    known = log.state().tokens
    for version in {known[token] for token in tokens if token in known}:
        (commit,) = log.commits(version - 1, version)
        if by := commit.metadata.get("by"):
            name, _, kind, form = by
            return replace(target, columns=(name,), scoped_by=kind, time_format=form)
    return target


def _undo(
    storage: Storage, tokens: Sequence[str], recorded: Mapping[str, Recorded], name: str
) -> dict[str, object]:
    log = storage.log
    log.deepen()
    state = log.state()
    for token in tokens:
        if not {token, undo_token(token)} & state.tokens.keys():
            _refuse_forgotten(log, state, recorded.get(token), name)
    versions = {state.tokens[token] for token in tokens if token in state.tokens}
    if not versions:
        return {"version": None, "partitions": []}
    everything = list(log.commits(min(versions) - 1, state.version))
    wanted = [commit for commit in everything if commit.version in versions]
    partitions = sorted(
        {describe(state.columns, values) for commit in wanted for values in commit.touched}
    )
    open_ = [c for c in wanted if not _is_undone(c, state)]
    undoings = [one for one in everything if set(tokens) & set(undone_by(one.metadata))]
    verify_put_backs(storage, undoings, everything)
    if open_:
        put_back(storage, open_, _transaction(log, open_))
    after = log.state().tokens
    undone = [after[undo_token(t)] for t in tokens if undo_token(t) in after]
    return {"version": max(undone, default=None), "partitions": partitions}


def _refuse_forgotten(log: TableLog, state: TableState, known: Recorded | None, name: str) -> None:
    """Raise UndoRefusedError if an attempt may have written before the log begins."""
    first = state.first_read
    if first == 0:
        return
    what = "whether the run wrote before that is no longer known"
    if known is not None and known.versions is not None:
        version = known.versions.get(name)
        if version is None or version >= first:
            return
        what = f"the run wrote version {version}, after {known.since:%Y-%m-%dT%H:%M:%SZ}"
    elif known is not None and first <= state.version:
        (commit,) = log.commits(first - 1, first)
        if commit.at is not None and known.since > commit.at:
            return  # the log would hold its commit
    raise UndoRefusedError(
        f"the log of {log.location} reaches back to version {first} only: {what}",
        hint="Restore the partitions from a backup.",
    )


def undo_attempts(
    spark: SparkSession,
    output: OutputSpec,
    tokens: Sequence[str],
    tables: Tables,
    recorded: Sequence[Recorded] = (),
) -> OutputResult:
    """Restore what these attempts wrote to an output; see `undo_runs`."""
    before = tables.state(output)
    if before is None or not output.scope:
        return OutputResult(dataset=output.dataset, version_before=-1, version=None, partitions=())
    log, scope = tables.log(output), Scope.of(before, output, output.scope)
    undo_runs(
        spark,
        tokens=tokens,
        location=output.location,
        table=output.table,
        format=output.format,
        recorded=recorded,
        dataset=output.dataset,
    )
    after = tables.state(output)
    assert after is not None
    after = before if after.version == before.version else after
    return output_result(output, scope, log, before, after)


def _is_undone(commit: Commit, state: TableState) -> bool:
    token = commit.metadata.get("token")
    return token is not None and undo_token(token) in state.tokens


def _transaction(log: TableLog, undone: Sequence[Commit]) -> Transaction:
    tokens = sorted(str(commit.metadata["token"]) for commit in undone)
    backfills = {commit.metadata.get("backfill_id") for commit in undone}
    metadata = {
        "schema_version": 1,
        "backfill_id": backfills.pop() if len(backfills) == 1 else None,
        "undo_of": tokens,
    }
    identity = hashlib.sha256("\n".join(tokens).encode()).hexdigest()[:32]
    app_id = f"lineage-backfill/undo/{identity}"
    # Delta makes each of them once; a reverted one is made again.
    version = log.state().transactions.get(app_id, 0) + 1
    return Transaction(app_id=app_id, version=version, metadata=metadata)
