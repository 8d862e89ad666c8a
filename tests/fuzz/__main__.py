"""`python -m tests.fuzz [NUMBER [SEED]]`: so many damaged events, files and answers, each."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.fuzz.check import fuzz_answers, fuzz_events, fuzz_files


def main(number: int = 100_000, seed: int = 1_000) -> None:
    """Check them, and say how many were understood."""
    print(f"events: {fuzz_events(number, seed):,} of {number:,} understood", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        understood = fuzz_files(number, seed, Path(folder))
    print(f"files: {understood:,} of {number:,} understood", flush=True)
    print(f"answers: {fuzz_answers(number, seed):,} of {number:,} reads understood")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
