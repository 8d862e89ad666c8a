"""Undoes what one run wrote: its partitions become what they were before, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_runtime.errors import UndoRefusedError
from spark_runtime.session import assert_safe
from spark_runtime.spec import DatasetName, Target
from spark_runtime.state import Commit, TableLog, Transaction, undo_token
from spark_runtime.storage import Storage
from spark_runtime.tables import Tables
from spark_runtime.values import Values, describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def undo_run(
    spark: SparkSession,
    *,
    token: str,
    location: str | None = None,
    table: str | None = None,
    format: str = "delta",  # noqa: A002 (as the run spec names it)
) -> dict[str, object]:
    """Put back the partitions that the attempt with this token replaced in a table.

    The runs of a backfill are undone newest first. Undoing twice is the same as once. Returns
    `{"version", "partitions"}`: the version that holds the old rows again (None: nothing had to be
    done) and the partitions put back. Raises UndoRefusedError where somebody else changed them
    since or old files are gone; nothing is changed then.
    """
    assert_safe(spark)
    name = DatasetName("", table or location or "")
    target = Target(dataset=name, format=format, columns=(), location=location, table=table)
    storage = Tables(spark).storage(target)
    log = storage.log
    state = log.state()
    version = state.tokens.get(token)
    if version is None and state.first_read > 0:
        raise UndoRefusedError(
            f"the log of {log.location} reaches back to version {state.first_read} only: whether "
            "the run wrote before that is no longer known",
            hint="restore the partitions from a backup",
        )
    if version is None:
        return {"version": None, "partitions": []}
    (ours,) = log.commits(version - 1, version)
    names = sorted(describe(state.columns, values) for values in ours.touched)
    undone = state.tokens.get(undo_token(token))
    if undone is None:
        _refuse_later_changes(log, ours, state.version)
        _put_back(storage, ours, token)
        undone = log.state().tokens.get(undo_token(token))
    return {"version": undone, "partitions": names}


def _refuse_later_changes(log: TableLog, ours: Commit, until: int) -> None:
    columns = log.state(until).columns
    changed: dict[Values, Commit] = {}
    for commit in log.commits(ours.version, until):
        undone = commit.metadata.get("undo_of")
        if undone is not None:
            # A later run of the same partitions, undone before this one as it should be.
            for values in [v for v, c in changed.items() if c.metadata.get("token") == undone]:
                del changed[values]
            continue
        changed.update(dict.fromkeys(commit.touched & ours.touched, commit))
    if changed:
        values, commit = next(iter(changed.items()))
        raise UndoRefusedError(
            f"{commit} of {log.location} changed {describe(columns, values)} after the run that is "
            "to be undone",
            hint="undo that one first, or leave both as they are",
        )


def _put_back(storage: Storage, ours: Commit, token: str) -> None:
    metadata = {
        "schema_version": 1,
        "backfill_id": ours.metadata.get("backfill_id"),
        "run_id": ours.metadata.get("run_id"),
        "token": undo_token(token),
        "undo_of": token,
        "partitions": _fingerprints(storage.log, ours.version - 1, ours.touched),
    }
    transaction = Transaction(app_id=f"lineage-backfill/undo/{token}", version=1, metadata=metadata)
    storage.put_back(ours, transaction)


def _fingerprints(log: TableLog, version: int, touched: Iterable[Values]) -> list[object]:
    held = [(values, log.state(version).contents(values)) for values in touched]
    return [[list(values), contents.rows, contents.fingerprint] for values, contents in held]
