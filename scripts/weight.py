"""Prints how many lines each folder has; a line of more than 100 columns counts once per 100.

Usage: scripts/weight [--max N]: exits with 1 if the Python of the two packages exceeds N lines.
"""

import argparse
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lineage_backfill", "spark_runtime")
OTHERS = ("tests", "examples", "scripts", "docs")
KINDS = (".py", ".html", ".js", ".css", ".sql", ".sh")
COLUMNS = 100


def lines(path: Path) -> int:
    """Return the lines of a file at 100 columns."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return sum(max(1, -(-len(line) // COLUMNS)) for line in text.splitlines())


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max", type=int, help="the most lines of Python in the two packages")
    limit = parser.parse_args().max
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES, *OTHERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    folders: Counter[str] = Counter()
    kinds: Counter[tuple[str, str]] = Counter()
    for name in listed:
        path = ROOT / name
        top = name.split("/")[0]
        is_code = path.suffix in KINDS or (top == "scripts" and not path.suffix)
        if not path.is_file() or not is_code:
            continue
        count = lines(path)
        kinds[top, path.suffix or ".sh"] += count
        folders["/".join(name.split("/")[:-1] if top in PACKAGES else name.split("/")[:1])] += count
    for folder, count in sorted(folders.items()):
        print(f"{count:8,}  {folder}")
    python = sum(kinds[package, ".py"] for package in PACKAGES)
    other = sum(n for (top, kind), n in kinds.items() if top in PACKAGES and kind != ".py")
    print(f"{python:8,}  Python in {' and '.join(PACKAGES)}")
    print(f"{other:8,}  pages, styles, queries and scripts in them")
    return int(limit is not None and python > limit)


if __name__ == "__main__":
    raise SystemExit(main())
