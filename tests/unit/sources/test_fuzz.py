"""Damaged events, files and answers: each is understood or refused, and nothing else.

28,000 of them, always the same; `scripts/fuzz` reads as many others as one likes.
"""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.check import fuzz_answers, fuzz_events, fuzz_files


def test_events() -> None:
    assert 5_500 < fuzz_events(21_000, seed=5) < 20_800


def test_files(tmp_path: Path) -> None:
    assert 800 < fuzz_files(6_000, seed=7, folder=tmp_path) < 5_200


def test_answers() -> None:
    assert 60 < fuzz_answers(1_000, seed=6) < 900
