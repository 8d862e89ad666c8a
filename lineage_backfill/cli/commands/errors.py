"""`errors`: explains the error codes and what to do about each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.output.render import table
from lineage_backfill.errors import BackfillError, UnknownNameError


def show(
    code: Annotated[
        str | None,
        typer.Argument(
            help="Code, such as LB-101; by default all.", metavar="CODE", show_default=False
        ),
    ] = None,
) -> None:
    """Explain an error and what to do about it."""
    known = {one.code: one for one in all_errors()}
    if code is None:
        every = known.values()
        rows = ((one.code, f"{one.exit_code}", Text(explained(one)[0])) for one in every)
        terminal.out().print(table("Code", "Exit", "What it means", rows=rows))
    elif code.upper() in known:
        one = known[code.upper()]
        head = f"{one.code}  {one.__name__}, exit code {one.exit_code}"
        terminal.out().print(Text(head, style="bold"), *explained(one), sep="\n\n")
    else:
        raise UnknownNameError(
            f"no error has the code {code!r}", hint="`lineage-backfill errors` lists them."
        )


def all_errors(root: type[BackfillError] = BackfillError) -> Iterator[type[BackfillError]]:
    """Yield the classes of errors, each before its subclasses."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == root.__module__:  # errors of spark_runtime have no codes
            yield from all_errors(below)


def explained(error: type[BackfillError]) -> list[str]:
    """Return the paragraphs for users: what the error means, and what to do about it."""
    paragraphs = (inspect.getdoc(error) or "").split("\n\n")[:2]
    return [" ".join(one.split()) for one in paragraphs]
