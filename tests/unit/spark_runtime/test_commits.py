"""Which attempt of a run may commit, and which later commits keep commits from being undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from spark_runtime.errors import StaleAttemptError, UndoRefusedError
from spark_runtime.tables.commits import (
    app_id,
    commit_number,
    fence_number,
    refuse_later_changes,
    refuse_stale,
)
from spark_runtime.tables.state import Commit, TableState
from spark_runtime.tables.values import PartitionColumn

LOG: Any = SimpleNamespace(
    location="/t", state=lambda: TableState(columns=(PartitionColumn("day", "string"),))
)


def commits(*told: tuple[str, Mapping[str, Any]]) -> list[Commit]:
    """Commits from version 1 on: the days that each touched, and its metadata."""
    return [
        Commit(
            version=version,
            touched=frozenset((day,) for day in days.split()),
            operation="WRITE",
            metadata={key: value for key, value in metadata.items() if key != "repartitioned"},
            repartitioned="repartitioned" in metadata,
        )
        for version, (days, metadata) in enumerate(told, 1)
    ]


OURS: tuple[str, Mapping[str, Any]] = ("d1 d2", {"token": "a"})
THEIRS: tuple[str, Mapping[str, Any]] = ("d2 d3", {})
THEIR_RUN: tuple[str, Mapping[str, Any]] = ("d2", {"token": "b"})


@pytest.mark.parametrize(
    ("later", "refused"),
    [
        ([], None),
        ([THEIRS], r"version 2 .* changed day=d2 after"),
        ([("d3", {})], None),
        ([("", {})], None),
        ([("", {"repartitioned": True})], r"version 2 .* its partition columns"),
        ([THEIR_RUN], "version 2"),
        # What was undone or taken back since counts as little as what did it.
        ([THEIR_RUN, ("d2", {"undo_of": ["b"]})], None),
        ([THEIR_RUN, ("d2", {"undo_of": "b"})], None),
        ([THEIRS, ("d2 d3", {"taken_back": 2})], None),
        ([THEIR_RUN, ("d2", {"undo_of": ["c"]})], "version [23] "),
        # An undoing that was itself taken back leaves what it had undone.
        ([THEIR_RUN, ("d2", {"undo_of": ["b"]}), ("d2", {"taken_back": 3})], "version 2"),
        ([THEIR_RUN, ("d2", {"undo_of": ["b"]}), THEIRS], "version 4"),
    ],
)
def test_a_later_change_that_stands_keeps_commits_from_being_undone(
    later: Sequence[tuple[str, Mapping[str, Any]]], refused: str | None
) -> None:
    everything = commits(OURS, *later)
    if refused is None:
        refuse_later_changes(LOG, everything[:1], everything)
        return
    with pytest.raises(UndoRefusedError, match=refused):
        refuse_later_changes(LOG, everything[:1], everything)


def test_what_came_before_does_not_count_and_what_came_between_does() -> None:
    everything = commits(THEIRS, OURS, ("d1", {}), ("d1", {"token": "a2"}))
    refuse_later_changes(LOG, [everything[3]], everything)
    with pytest.raises(UndoRefusedError, match=r"version 3 .* day=d1"):
        refuse_later_changes(LOG, [everything[1], everything[3]], everything)
    refuse_later_changes(LOG, [everything[1]], everything[:2])


@pytest.mark.parametrize(
    ("number", "is_refused"),
    [
        (None, False),
        (lambda run: commit_number(run(1)), False),
        (lambda run: fence_number(run(2)), False),
        (lambda run: commit_number(run(2)) + 1, False),
        (lambda run: fence_number(run(3)), True),
        (lambda run: commit_number(run(3)), True),
    ],
)
def test_an_attempt_is_stale_once_a_later_one_has_raised_its_fence(
    number: Callable[[Callable[[int], Any]], int] | None, is_refused: bool
) -> None:
    def run(attempt: int) -> Any:
        return SimpleNamespace(backfill_id="b", run_id="r", store=None, attempt=attempt)

    seen = {} if number is None else {app_id(run(2)): number(run)}
    state = TableState(transactions={**seen, "somebody else's": 10**9})
    if not is_refused:
        refuse_stale(state, run(2))
        return
    with pytest.raises(StaleAttemptError, match="attempt 2 of run r was replaced"):
        refuse_stale(state, run(2))
