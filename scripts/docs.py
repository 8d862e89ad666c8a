#!/usr/bin/env python3
"""Writes the pages of docs/ that are made from the code: errors.md.

Usage: python scripts/docs.py
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from lineage_backfill.cli.errors import all_errors, explained
from spark_runtime.errors import RuntimeFailure

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- Made by scripts/docs.py from the code: do not edit. -->"
ERRORS = """\
# Errors

Every error is one sentence with a code, and a second one that says what to do next. The codes are
stable. `lineage-backfill errors LB-101` prints what stands here. `--debug`, anywhere on the line,
adds the traceback."""
IN_A_JOB = """\
## Errors inside a Spark job

`spark_runtime` raises these inside the job. `status` and `report` show the name and the message of
the one that ended an attempt. Where the same attempt may succeed when it is simply made again, it
is made again by itself."""


def pages() -> dict[Path, str]:
    """Return the text of each page that is made from the code."""
    return {DOCS / "errors.md": "\n\n".join([MADE, *errors()]) + "\n"}


def errors() -> Iterator[str]:
    """Yield the page with every error: its code, what it means, and what to do about it."""
    yield ERRORS
    for error in all_errors():
        meaning, to_do = explained(error)
        yield f'<a id="{error.code.lower()}"></a>'
        yield f"## {error.code}: {error.__name__}"
        yield textwrap.fill(f"{meaning} Exit code {error.exit_code}.", 100)
        yield textwrap.fill(to_do, 100, break_on_hyphens=False)
    yield IN_A_JOB
    yield "\n".join(f"- **{one.__name__}**: {_first(one)}" for one in _below(RuntimeFailure))


def _below(root: type[RuntimeFailure]) -> Iterator[type[RuntimeFailure]]:
    for one in root.__subclasses__():
        yield one
        yield from _below(one)


def _first(one: type[RuntimeFailure]) -> str:
    return (inspect.getdoc(one) or "").partition("\n\n")[0]


if __name__ == "__main__":
    for page, text in pages().items():
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
