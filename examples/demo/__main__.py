"""Breaks a feed of real flights, fixes it, and re-runs exactly what it broke on Spark.

Usage: scripts/demo [FOLDER] [--year]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from examples.demo.story import run_demo
from lineage_backfill.cli import terminal
from lineage_backfill.errors import BackfillError


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("lineage-backfill-demo"),
        help="folder to build it in; the folder of an earlier demo is emptied",
    )
    parser.add_argument("--year", action="store_true", help="all of 2013 instead of its March")
    given = parser.parse_args()
    try:
        return run_demo(given.folder, year=given.year, console=terminal.out())
    except BackfillError as error:
        print(f"error: {error.full_text}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
