"""Which old backfills may go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lineage_backfill.model import BackfillState
from lineage_backfill.ports import BackfillRecord
from lineage_backfill.runs.prune import prunable
from tests.fakes import NOW, backfill_record


def ended(id_: str, days: int, **more: Any) -> BackfillRecord:
    at = NOW - timedelta(days=days)
    given = {"state": BackfillState.SUCCEEDED, "ended_at": at, "updated_at": at, **more}
    return backfill_record(id_, **given)


OPEN = {"state": BackfillState.PAUSED}


@pytest.mark.parametrize(
    ("sentence", "records", "going", "kept"),
    [
        ("age decides", [ended("a", 91), ended("b", 89)], ["a"], {}),
        ("a deleted one goes, too", [ended("a", 91, deleted=True)], ["a"], {}),
        (
            "what has not ended stays",
            [ended("a", 91, **OPEN)],
            [],
            {"a": "it has not ended, but is paused"},
        ),
        (
            "so does what can be resumed, whenever its driver ended, unless it is deleted",
            [
                ended("a", 91, state=BackfillState.INTERRUPTED),
                ended("b", 91, state=BackfillState.RUNNING),
                ended("c", 91, state=BackfillState.INTERRUPTED, deleted=True),
            ],
            ["c"],
            {
                "a": "it has not ended, but is interrupted",
                "b": "it has not ended, but is running",
            },
        ),
        (
            "an undo and what it took back go together",
            [ended("a", 100, undone_by="u"), ended("u", 95, undo_of="a")],
            ["a", "u"],
            {},
        ),
        (
            "what a younger undo may need stays",
            [ended("a", 100, undone_by="u"), ended("u", 5, undo_of="a")],
            [],
            {"a": "its undo u stays"},
        ),
        (
            "so does what an open undo needs, and the undo",
            [ended("a", 100, undone_by="u"), ended("u", 95, undo_of="a", **OPEN)],
            [],
            {"a": "its undo u stays", "u": "it has not ended, but is paused"},
        ),
        (
            "what was undone and is gone holds nothing",
            [ended("u", 95, undo_of="a")],
            ["u"],
            {},
        ),
    ],
)
def test_prunable(
    sentence: str, records: list[BackfillRecord], going: list[str], kept: dict[str, str]
) -> None:
    found, why = prunable(records, before=NOW - timedelta(days=90))
    assert ([one.id for one in found], why) == (going, kept), sentence
