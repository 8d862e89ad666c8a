"""Who made a commit, and what changed in a table since it was read.

The same rules hold before a write, at its commit, after it, when an attempt is reverted or undone,
and when a dead one is reconciled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from lineage_backfill.model import listed
from lineage_backfill.runspec.values import RunSpec
from spark_runtime.errors import (
    RuntimeFailure,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    VerificationError,
    WriteConflictError,
)
from spark_runtime.tables.by_value import overlap
from spark_runtime.tables.scope import Scope, describe
from spark_runtime.tables.state import (
    UNKNOWN,
    Commit,
    File,
    Since,
    TableLog,
    TableState,
    Transaction,
    undo_token,
    undone_by,
)
from spark_runtime.tables.storage import Storage
from spark_runtime.tables.values import Values

#: Transaction numbers of one attempt: its fence, its reverts of earlier attempts, its commit, the
#: revert of that. A later attempt only has higher ones.
_PER_ATTEMPT = 1000
_COMMIT = 500


def is_of(commit: Commit, run: RunSpec) -> bool:
    """Whether an attempt of this run made a commit; other stores may have runs with the same id."""
    ours = commit.metadata
    return (ours.get("backfill_id"), ours.get("run_id")) == (run.backfill_id, run.run_id)


def app_id(run: RunSpec) -> str:
    """Return the app id of all transactions of a run: Delta serialises those."""
    store = f"{run.store}/" if run.store else ""
    return f"lineage-backfill/{store}{run.backfill_id}/{run.run_id}"


def fence_number(run: RunSpec) -> int:
    """Return the first transaction number of an attempt, which stops earlier attempts."""
    return run.attempt * _PER_ATTEMPT


def commit_number(run: RunSpec) -> int:
    """Return the transaction number of an attempt's write."""
    return fence_number(run) + _COMMIT


def refuse_stale(state: TableState, run: RunSpec) -> None:
    """Raise StaleAttemptError if a later attempt of the run has begun to write to the table."""
    if state.transactions.get(app_id(run), -1) >= fence_number(run) + _PER_ATTEMPT:
        raise StaleAttemptError(
            f"attempt {run.attempt} of run {run.run_id} was replaced: a later attempt is writing",
            hint="Nothing to do: the later attempt completes the run.",
        )


def foreign_change(
    log: TableLog,
    since: Since,
    state: TableState,
    scope: Scope,
    run: RunSpec,
    until: int | None,
    adds: bool,
) -> tuple[str, Collection[Any]] | None:
    """Return who changed which part of the scope in (since, until], None if only the run did.

    `state` is the current table; without `until` the range ends there. Attempts of the run count as
    its own: once a later one has raised its fence, no earlier one can commit. For a run that `adds`
    rows, those that others add do not count; by value nor do files with copies of the same rows.
    """
    if (problem := since.problem(state)) is not None:
        return f"{log.location} {problem}; that", scope
    if _is_replaced(log, since, state):
        return f"{log.location} was restored from a copy, or its log was rewritten; that", scope
    for commit in log.commits(since.version, state.version if until is None else until):
        is_ours = is_of(commit, run) or (adds and commit.adds)
        if not is_ours and (touched := _changed(log, commit, scope)):
            return f"{commit} of {log.location}", touched
    return None


def _changed(log: TableLog, commit: Commit, scope: Scope) -> Collection[Any]:
    """Return which part of the scope a commit changed; by value it may have copied the rows."""
    touched = commit.changed(scope)
    if touched and commit.is_by_files and log.same is not None:
        keys = {key for span in commit.touched for key in scope if overlap(key, span)}
        return () if log.same(commit.version, keys) else touched
    return touched


def _is_replaced(log: TableLog, since: Since, state: TableState) -> bool:
    """Whether the log has another commit at a version that a run has seen."""
    if since.commit_id is None:
        return False
    if state.version == since.version:
        return state.commit_id not in (None, since.commit_id)
    try:
        (seen,) = log.commits(since.version - 1, since.version)
    except TableError:  # it was cleaned up meanwhile
        return False
    return seen.id not in (None, since.commit_id)


def standing(own: Sequence[Commit], state: TableState) -> list[Commit]:
    """Return the commits of attempts that were neither undone nor reverted, newest first."""
    attempts = [one for one in reversed(own) if one.metadata.get("token")]
    return [one for one in attempts if undo_token(one.metadata["token"]) not in state.tokens]


def put_back(
    storage: Storage, undone: Sequence[Commit], transaction: Transaction, *, mends: bool = False
) -> None:
    """Restore what these commits (oldest first) changed, and keep the rows of other writers.

    A restore that `mends` an earlier one is not mended itself. Raises UndoRefusedError with the
    commit if others have changed the partitions since; nothing is then changed, or it is reverted,
    as it is if a partition does not get its number of rows back.
    Raises StaleAttemptError if a later attempt has replaced it.
    """
    log = storage.log
    seen = log.state()
    added = _added(log, undone, seen) if storage.removes_files else None
    if added is None:
        refuse_later_changes(log, undone, log.commits(undone[0].version - 1, seen.version))
    wanted = {values for commit in undone for values in commit.touched}
    if not wanted:
        return
    # The commit records the version seen, so that it can be verified even after a kill.
    metadata = {
        **transaction.metadata,
        **seen.identity,
        "seen": seen.version,
        "removes": added is not None,
        "partitions": _held_before(log, undone, seen, added),
    }
    transaction = replace(transaction, metadata=metadata)
    storage.put_back(undone, transaction, added)
    after = log.state()
    first = undone[-1].version if mends else seen.version  # another process may have mended it
    ours = _made_by(transaction, log.commits(first, after.version), mends=mends)
    if ours is None and after.transactions.get(transaction.app_id, -1) >= transaction.version:
        raise StaleAttemptError(
            f"{undone[-1]} of {log.location} was not restored: another attempt is restoring it",
            hint="Check the table once that attempt has ended.",
        )
    if ours is None:
        raise VerificationError(
            f"{log.location} was not restored: the log has no commit of the restore",
            hint="Check its history, and report this.",
        )
    if not mends:
        verify_put_backs(storage, [ours], [])
    elif problem := _problem(log, ours):
        raise left_standing(VerificationError, f"{problem.message}; it is not reverted again", ours)


def verify_put_backs(storage: Storage, own: Sequence[Commit], everything: Sequence[Commit]) -> None:
    """Revert a restore that is not as planned, and raise UndoRefusedError.

    Commits that restore nothing, or were reverted already, are skipped.
    """
    gone = {commit.metadata.get("taken_back") for commit in everything}
    for ours in reversed(own):
        if "seen" in ours.metadata and ours.version not in gone:
            problem = _problem(storage.log, ours)
            if problem is not None:
                _leave(storage, ours, problem)


def miscounted(ours: Commit, after: TableState) -> list[Values]:
    """Return the partitions that do not have the number of rows that their commit recorded."""
    return [
        values
        for values, (rows, _) in ours.recorded.items()
        if rows is not None and after.contents(values).rows not in (None, rows)
    ]


def left_standing(kind: type[RuntimeFailure], message: str, ours: Commit) -> RuntimeFailure:
    """Return the error for a wrong commit that could not be reverted."""
    error = kind(
        message,
        hint=f"Compare the table with its version {ours.version - 1}, and restore the rows that "
        "are missing.",
    )
    error.stands = True
    return error


def _problem(log: TableLog, ours: Commit) -> UndoRefusedError | None:
    """Return what is wrong with a restore, None if nothing is.

    Another writer's commit that it had not seen changed the same partitions, or they do not have
    as many rows as before.
    """
    between = log.commits(ours.metadata["seen"], ours.version - 1)
    touched = Scope(log.state(ours.version).columns, dict.fromkeys(ours.touched, ""))
    unseen = next((one for one in between if one.changed(touched)), None)
    if unseen is not None and ours.metadata.get("removes"):
        unseen = None  # it removed files, in which none of others' rows are
    if unseen is not None:
        return UndoRefusedError(
            f"{unseen} of {log.location} changed the same partitions at the same time",
            hint="Undo that one too, or leave both as they are.",
        )
    state = log.state(ours.version)
    planned = ours.recorded.keys()
    wrong = {*miscounted(ours, state), *(ours.touched - planned if planned else ())}
    if wrong:
        named = listed(sorted(describe(state.columns, values) for values in wrong))
        return UndoRefusedError(
            f"{ours} of {log.location} did not restore the previous rows of {named}",
            hint="Compare these partitions with the version before the run, and report this.",
        )
    return None


def _leave(storage: Storage, ours: Commit, problem: UndoRefusedError) -> NoReturn:
    names = {name: ours.metadata.get(name) for name in ("backfill_id", "run_id")}
    metadata = {"schema_version": 1, **names, "taken_back": ours.version}
    # Deterministic, so that it is reverted only once.
    what = json.dumps([ours.version, ours.metadata], sort_keys=True)
    identity = f"lineage-backfill/undo/{hashlib.sha256(what.encode()).hexdigest()[:32]}"
    try:
        undoing = Transaction(app_id=identity, version=1, metadata=metadata)
        put_back(storage, [ours], undoing, mends=True)
    except UndoRefusedError as error:
        raise left_standing(
            VerificationError,
            f"{problem.message}; {ours} could not be reverted: {error.message}",
            ours,
        ) from error
    raise UndoRefusedError(
        f"{problem.message}; the undo was reverted", hint=problem.hint
    ) from problem


def _made_by(transaction: Transaction, commits: Iterable[Commit], *, mends: bool) -> Commit | None:
    """Return the commit of a transaction; a mending one may be of another process."""

    def named(metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in metadata.items() if not (mends and key == "seen")}

    wanted = named(json.loads(json.dumps(dict(transaction.metadata))))
    return next((commit for commit in commits if named(commit.metadata) == wanted), None)


def _added(log: TableLog, undone: Sequence[Commit], seen: TableState) -> frozenset[File] | None:
    """Return the files that appends added, if all are as they left them; else None.

    Then no row of others is in them.
    """
    added: set[File] = set()
    for commit in undone:
        if commit.metadata.get("mode") != "append" or commit.version <= seen.first_read:
            return None
        before, after = log.state(commit.version - 1), log.state(commit.version)
        added |= after.every_file() - before.every_file()
    return frozenset(added) if added and added <= seen.every_file() else None


def _held_before(
    log: TableLog, undone: Sequence[Commit], seen: TableState, added: frozenset[File] | None
) -> list[object]:
    """Return the rows and fingerprints of partitions from before these commits (None: unknown).

    If only what they `added` is removed, rows of others may have come to a partition since.
    """
    before: dict[Values, int] = {}
    for commit in undone:
        for values in commit.touched:
            before.setdefault(values, commit.version - 1)
    held: list[object] = []
    for values, version in before.items():
        state = log.state(version)
        contents = state.contents(values)
        if added is not None:
            now, then = seen.files(values) or {}, state.files(values) or {}
            if now.keys() - added != then.keys():
                contents = UNKNOWN
        held.append([list(values), contents.rows, contents.fingerprint])
    return held


def refuse_later_changes(
    log: TableLog, undone: Sequence[Commit], everything: Iterable[Commit]
) -> None:
    """Raise UndoRefusedError if another writer's commit changed the same partitions since.

    Commits that were undone or reverted since do not count, nor do those that did so.
    """
    ours = {commit.version for commit in undone}
    first: dict[Values, int] = {}
    others: dict[int, Commit] = {}
    undone_by_version: dict[int, list[Commit]] = {}
    for commit in everything:
        for values in commit.touched if commit.version in ours else ():
            first.setdefault(values, commit.version)
        again = undone_by_version.pop(commit.metadata.get("taken_back", -1), [])
        others.update((one.version, one) for one in again)  # their undo is reverted
        gone = [c.version for c in others.values() if _takes_back(commit, c)]
        undone_by_version[commit.version] = [others.pop(version) for version in gone]
        if not gone and not again and commit.version not in ours:
            others[commit.version] = commit
    columns = log.state().columns
    for commit in others.values():
        if commit.repartitioned:
            raise UndoRefusedError(
                f"{commit} of {log.location} changed its partition columns",
                hint="Restore the partitions from a backup.",
            )
        earlier = [values for values, version in first.items() if commit.version > version]
        if changed := _changed(log, commit, Scope(columns, dict.fromkeys(earlier, ""))):
            touched = Scope(columns, dict.fromkeys(changed, ""))
            partition = describe(columns, next(values for values in earlier if values in touched))
            raise UndoRefusedError(
                f"{commit} of {log.location} changed {partition} after the run that is to be "
                "undone",
                hint="Undo that one too, or leave both as they are.",
            )


def _takes_back(commit: Commit, other: Commit) -> bool:
    token = other.metadata.get("token")
    return token in undone_by(commit.metadata) or (
        commit.metadata.get("taken_back") == other.version
    )


def conflict(scope: Scope, who: str, touched: Collection[Any]) -> WriteConflictError:
    """Return the error for a foreign change of a part of the scope."""
    named = listed(sorted(describe(scope.columns, values) for values in touched))
    return WriteConflictError(
        f"{who} changed {named} after this run had started",
        hint="Let the other writer finish, then retry the run.",
    )
