"""100,000 damaged events, files and answers: each is understood or refused, and nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.check import fuzz_answers, fuzz_events, fuzz_files


def test_events() -> None:
    assert 20_000 < fuzz_events(75_000, seed=5) < 74_000


def test_files(tmp_path: Path) -> None:
    assert 2_000 < fuzz_files(15_000, seed=7, folder=tmp_path) < 13_000


def test_answers() -> None:
    assert fuzz_answers(10_000, seed=6) > 100
