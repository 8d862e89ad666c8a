"""The files of an attempt that has succeeded become one, from which each can still be read."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from lineage_backfill.engines import attempt
from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.ports import AttemptState


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    """An attempt that has ended well, and another one beside it."""
    result = {
        "schema_version": 1,
        "run_id": "r",
        "attempt": 1,
        "token": "t",
        "state": "succeeded",
        "outputs": [],
        "inputs": [],
        "error": None,
    }
    place = str(tmp_path / "r-1.result.json")
    spec = {"run_id": "r", "attempt": 1, "token": "t", "result_path": place}
    (tmp_path / "r-1.spec.json").write_text(json.dumps(spec))
    (tmp_path / "r-1.result.json").write_text(json.dumps(result))
    (tmp_path / "r-1.log.txt").write_text("first\nlast\n")
    (tmp_path / "r-1.claim.json").write_text(json.dumps({"life_sign": "x", "pid": 5}))
    (tmp_path / "r-1.exit-code").write_text("0\n")
    (tmp_path / "r-10.spec.json").write_text("{}")
    return AttemptFiles(tmp_path / "r-1.spec.json")


def test_the_files_answer_what_they_hold(files: AttemptFiles) -> None:
    assert files.has_token("t")
    assert not files.has_token("other")
    outcome = files.left("t")
    assert outcome is not None
    assert outcome.state is AttemptState.SUCCEEDED
    assert files.exit_code() == 0
    assert (files.claimed_by() or {})["pid"] == 5
    assert files.log() == "first\nlast\n"
    assert files.log_end(5) == b"last\n"


def test_what_is_added_to_a_log_follows_it_and_is_private(
    files: AttemptFiles, tmp_path: Path
) -> None:
    files.add_to_log("from the cluster\n")
    assert files.log() == "first\nlast\nfrom the cluster\n"
    other = AttemptFiles(tmp_path / "r-10.spec.json")
    other.add_to_log("é\n")
    assert other.log() == "é\n"
    assert stat.S_IMODE(other.log_path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("null", "it must be an object with a `token`"),
        ("[]", "it must be an object with a `token`"),
        ("{}", "it must be an object with a `token`"),
        (None, "Is a directory"),
    ],
)
def test_a_result_that_is_none_fails_in_words(
    files: AttemptFiles, tmp_path: Path, text: str | None, why: str
) -> None:
    place = tmp_path / "r-1.result.json"
    place.unlink()
    if text is None:
        place.mkdir()
    else:
        place.write_text(text)
    outcome = files.left("t")
    assert outcome is not None
    assert outcome.error == f"the result file {place} cannot be read: {why}"


@pytest.mark.parametrize("text", ["", "1", "x\n"])
def test_an_exit_code_that_was_not_written_to_its_end_is_not_known(
    files: AttemptFiles, text: str
) -> None:
    files.exit_code_path.write_text(text)
    assert files.exit_code() is None


@pytest.mark.parametrize(("begin", "end"), [(0, None), (3, 7), (3, 3), (5, 2), (1, 99), (99, None)])
def test_a_part_of_a_file_is_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int, end: int | None
) -> None:
    monkeypatch.setattr(attempt, "_PIECE", 2)
    (tmp_path / "log").write_bytes(b"0123456789")
    pieces = list(attempt.read_from(tmp_path / "log", begin, end))
    assert b"".join(pieces) == b"0123456789"[begin : end if end is None else max(begin, end)]
    assert all(0 < len(piece) <= 2 for piece in pieces)
