"""Whose a commit is, and what happened to a table since someone looked at it.

One rule for every look: before a write, at its commit, after it, when an attempt is taken back or
undone, and when a dead one is reconciled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from lineage_backfill.runspec.values import RunSpec
from spark_runtime.checks import some
from spark_runtime.errors import (
    RuntimeFailure,
    StaleAttemptError,
    UndoRefusedError,
    VerificationError,
    WriteConflictError,
)
from spark_runtime.scope import Scope, describe
from spark_runtime.state import (
    Commit,
    Since,
    TableLog,
    TableState,
    Transaction,
    undo_token,
    undone_by,
)
from spark_runtime.storage import Storage
from spark_runtime.values import Values

#: Transaction numbers of one attempt: its fence first, then what it takes back of earlier attempts,
#: its commit, what it takes back of that. Those of a later attempt are all higher.
_PER_ATTEMPT = 1000
_COMMIT = 500


def is_of(commit: Commit, run: RunSpec) -> bool:
    """Whether an attempt of this run made a commit; the same plan has the same runs elsewhere."""
    ours = commit.metadata
    return (ours.get("backfill_id"), ours.get("run_id")) == (run.backfill_id, run.run_id)


def app_id(run: RunSpec) -> str:
    """Return what all transactions of a run are known by: Delta lets no two of them cross."""
    store = f"{run.store}/" if run.store else ""
    return f"lineage-backfill/{store}{run.backfill_id}/{run.run_id}"


def fence_number(run: RunSpec) -> int:
    """Return the first transaction number of an attempt; no earlier attempt commits after it."""
    return run.attempt * _PER_ATTEMPT


def commit_number(run: RunSpec) -> int:
    """Return the transaction number of what an attempt writes."""
    return fence_number(run) + _COMMIT


def refuse_stale(state: TableState, run: RunSpec) -> None:
    """Raise StaleAttemptError if a later attempt of the run has begun to write to the table."""
    if state.transactions.get(app_id(run), -1) >= fence_number(run) + _PER_ATTEMPT:
        raise StaleAttemptError(
            f"attempt {run.attempt} of run {run.run_id} was given up: a later one writes",
            hint="Nothing to do: the later attempt writes what is missing.",
        )


def foreign_change(
    log: TableLog, since: Since, state: TableState, scope: Scope, run: RunSpec, until: int | None
) -> tuple[str, Collection[Any]] | None:
    """Return who changed which part of the scope in (since, until], None where only the run did.

    `state` is the table now; `until` None means up to that. Attempts of the run count as its own:
    no earlier one commits once a later one has raised its fence.
    """
    if (problem := since.problem(state)) is not None:
        return f"{log.location} {problem}; that", scope
    own: list[Commit] = []
    for commit in log.commits(since.version, state.version if until is None else until):
        if is_of(commit, run):
            own.append(commit)
        elif touched := commit.changed(scope):
            return f"{commit} of {log.location}", touched
    if until is None:
        unlogged = [values for values in since.restamped(state, own) if values in scope]
        if unlogged:
            return f"another writer of {log.location}", unlogged
    return None


def standing(own: Sequence[Commit], state: TableState) -> list[Commit]:
    """Return which commits of attempts were neither undone nor taken back, the newest first."""
    attempts = [one for one in reversed(own) if one.metadata.get("token")]
    return [one for one in attempts if undo_token(one.metadata["token"]) not in state.tokens]


def put_back(
    storage: Storage, undone: Sequence[Commit], transaction: Transaction, *, mends: bool = False
) -> None:
    """Restore what commits, oldest first, changed, and keep the rows of other writers.

    One that `mends` another putting back is not mended in its turn. Raises UndoRefusedError,
    naming the commit, where others have changed it since: nothing is done, or is done no
    longer. Raises StaleAttemptError where the transaction was overtaken.
    """
    log = storage.log
    seen = log.state()
    refuse_later_changes(log, undone, log.commits(undone[0].version - 1, seen.version))
    wanted = {values for commit in undone for values in commit.touched}
    if not wanted:
        return
    # The version seen is recorded, so that this is verified even after a kill.
    transaction = replace(transaction, metadata={**transaction.metadata, "seen": seen.version})
    storage.put_back(undone, transaction)
    after = log.state()
    first = undone[-1].version if mends else seen.version  # another one may have mended it
    ours = _made_by(transaction, log.commits(first, after.version), mends=mends)
    if ours is None and after.transactions.get(transaction.app_id, -1) >= transaction.version:
        raise StaleAttemptError(
            f"{undone[-1]} of {log.location} was not put back: another attempt has begun to",
            hint="Look at the table once that attempt has ended.",
        )
    if ours is None or not ours.touched <= wanted:
        raise VerificationError(
            f"{log.location} was not put back as it should have been: {ours or 'no commit'}",
            hint="Look at its history, and report this.",
        )
    if not mends:
        verify_put_backs(storage, [ours], [])
    elif (unseen := _unseen(log, ours, ours.metadata["seen"])) is not None:
        raise left_standing(
            VerificationError,
            f"{ours} of {log.location} came over {unseen}, and is not taken back once more",
            ours,
        )


def verify_put_backs(storage: Storage, own: Sequence[Commit], everything: Sequence[Commit]) -> None:
    """Take back what was put back over a commit by another writer, unseen so far, and raise.

    Raises UndoRefusedError. What puts nothing back, or was taken back by then, is passed over.
    """
    gone = {commit.metadata.get("taken_back") for commit in everything}
    for ours in reversed(own):
        seen = ours.metadata.get("seen")
        if seen is not None and ours.version not in gone:
            unseen = _unseen(storage.log, ours, seen)
            if unseen is not None:
                _leave(storage, ours, unseen)


def left_standing(kind: type[RuntimeFailure], message: str, ours: Commit) -> RuntimeFailure:
    """Return the error for a commit that is not right and could not be taken back."""
    error = kind(
        message,
        hint=f"Compare the table with its version {ours.version - 1}, and put back the rows that "
        "are missing.",
    )
    error.stands = True
    return error


def _unseen(log: TableLog, ours: Commit, seen: int) -> Commit | None:
    """Return a commit that changed what one of ours put back, after the version it had seen."""
    between = log.commits(seen, ours.version - 1)
    return next((one for one in between if one.changed(ours.touched)), None)


def _leave(storage: Storage, ours: Commit, unseen: Commit) -> NoReturn:
    log = storage.log
    names = {name: ours.metadata.get(name) for name in ("backfill_id", "run_id")}
    metadata = {"schema_version": 1, **names, "taken_back": ours.version}
    # The same for all who find it, so that it is taken back once.
    what = json.dumps([ours.version, ours.metadata], sort_keys=True)
    identity = f"lineage-backfill/undo/{hashlib.sha256(what.encode()).hexdigest()[:32]}"
    try:
        undoing = Transaction(app_id=identity, version=1, metadata=metadata)
        put_back(storage, [ours], undoing, mends=True)
    except UndoRefusedError as error:
        raise left_standing(
            VerificationError,
            f"{ours} of {log.location} came over {unseen}, and could not be taken back: "
            f"{error.message}",
            ours,
        ) from error
    raise UndoRefusedError(
        f"{unseen} of {log.location} changed the same partitions at the same time; the "
        "undoing was taken back",
        hint="Undo that one too, or leave both as they are.",
    )


def _made_by(transaction: Transaction, commits: Iterable[Commit], *, mends: bool) -> Commit | None:
    """Return the commit of a transaction; one that mends may be of another process."""

    def named(metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in metadata.items() if not (mends and key == "seen")}

    wanted = named(json.loads(json.dumps(dict(transaction.metadata))))
    return next((commit for commit in commits if named(commit.metadata) == wanted), None)


def held_before(log: TableLog, undone: Sequence[Commit]) -> list[object]:
    """Return partitions with their rows and fingerprint as they were before commits."""
    before: dict[Values, int] = {}
    for commit in undone:
        for values in commit.touched:
            before.setdefault(values, commit.version - 1)
    held = [(values, log.state(version).contents(values)) for values, version in before.items()]
    return [[list(values), contents.rows, contents.fingerprint] for values, contents in held]


def refuse_later_changes(
    log: TableLog, undone: Sequence[Commit], everything: Iterable[Commit]
) -> None:
    """Raise UndoRefusedError if someone else touched what commits have touched, and it stands.

    Commits that were undone or taken back since count as little as those that did it.
    """
    ours = {commit.version for commit in undone}
    first: dict[Values, int] = {}
    others: dict[int, Commit] = {}
    undone_by_version: dict[int, list[Commit]] = {}
    for commit in everything:
        for values in commit.touched if commit.version in ours else ():
            first.setdefault(values, commit.version)
        again = undone_by_version.pop(commit.metadata.get("taken_back", -1), [])
        others.update((one.version, one) for one in again)  # their undoing is taken back
        gone = [c.version for c in others.values() if _takes_back(commit, c)]
        undone_by_version[commit.version] = [others.pop(version) for version in gone]
        if not gone and not again and commit.version not in ours:
            others[commit.version] = commit
    for commit in others.values():
        for values in commit.touched:
            if values in first and commit.version > first[values]:
                partition = describe(log.state().columns, values)
                raise UndoRefusedError(
                    f"{commit} of {log.location} changed {partition} after the run that is to be "
                    "undone",
                    hint="Undo that one too, or leave both as they are.",
                )
        if commit.repartitioned:
            raise UndoRefusedError(
                f"{commit} of {log.location} gave it other partition columns",
                hint="Restore the partitions from a backup.",
            )


def _takes_back(commit: Commit, other: Commit) -> bool:
    token = other.metadata.get("token")
    return token in undone_by(commit.metadata) or (
        commit.metadata.get("taken_back") == other.version
    )


def refuse_foreign_change(
    log: TableLog,
    since: Since,
    state: TableState,
    scope: Scope,
    run: RunSpec,
    until: int | None = None,
) -> None:
    """Raise WriteConflictError, naming the commit, unless only the run itself changed the scope."""
    found = foreign_change(log, since, state, scope, run, until)
    if found is not None:
        who, touched = found
        named = some(sorted(describe(scope.columns, values) for values in touched))
        raise WriteConflictError(
            f"{who} changed {named} after this run had started",
            hint="Let the other writer finish, then retry the run.",
        )
