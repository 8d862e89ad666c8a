"""What is printed never decides what becomes of a backfill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main

PRINTS = """
import sys
from lineage_backfill.cli.streams import lasting_streams
with lasting_streams():
    for number in range(20_000):
        sys.{stream}.write(f"line {{number}}\\n")
        sys.{stream}.flush()
    sys.{stream}.writelines(["more"])
sys.exit(3)
"""


def run(stream: str, to: int) -> subprocess.CompletedProcess[str]:
    """Print much on a stream that leads to a file descriptor."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: to}
    program = [sys.executable, "-c", PRINTS.format(stream=stream)]
    return subprocess.run(program, text=True, timeout=60, check=False, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_has_seen_enough_ends_nothing(stream: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = run(stream, writes)
    os.close(writes)
    assert (done.returncode, done.stderr or "") == (3, "")


def test_a_full_disk_takes_talk_and_refuses_data() -> None:
    with Path("/dev/full").open("w") as full:
        assert run("stderr", full.fileno()).returncode == 3
        refused = run("stdout", full.fileno())
    assert refused.returncode == 1
    assert "the output cannot be written: No space left on device" in refused.stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_stream_goes_nowhere(stream: str) -> None:
    number = 1 if stream == "stdout" else 2
    program = (
        f"import os; os.close({number})\nos.execv(sys.executable, [sys.executable, '-c', text])"
    )
    text = f"import sys; text = {PRINTS.format(stream=stream)!r}; {program}"
    done = subprocess.run([sys.executable, "-c", text], timeout=60, check=False)
    assert done.returncode == 3


def test_arguments_of_another_encoding_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "b-\udcff"]) == 64
    assert "is not UTF-8" in capsys.readouterr().err
