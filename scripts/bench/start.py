#!/usr/bin/env python3
"""How much CPU time `--help` takes beside that of a bare Typer application with one command.

Usage: python scripts/bench/start.py [ROUNDS]     (default: 15)

Both are run in turn, each in a process of its own; the least of each counts. More than 1.3 times as
much fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

BARE = '''
import typer
app = typer.Typer()

@app.command()
def hello(name: str = typer.Option("you", help="Whom to greet.")) -> None:
    """Say hello."""

if __name__ == "__main__":
    app()
'''
MOST = 1.3


def seconds(command: list[str]) -> float:
    """Return the CPU time of a command, with that of what it starts."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def main() -> int:
    """Measure, print, and say whether it is fast enough."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE, encoding="utf-8")
        commands = {
            "bare": [sys.executable, str(bare), "--help"],
            "--help": [sys.executable, "-m", "lineage_backfill", "--help"],
            "impact --help": [sys.executable, "-m", "lineage_backfill", "impact", "--help"],
        }
        least = dict.fromkeys(commands, float("inf"))
        for _ in range(rounds):
            for name, command in commands.items():
                least[name] = min(least[name], seconds(command))
    for name, took in least.items():
        print(f"{name:>14}  {1000 * took:6.0f} ms CPU  {took / least['bare']:5.2f} x")
    return int(least["--help"] > MOST * least["bare"])


if __name__ == "__main__":
    sys.exit(main())
