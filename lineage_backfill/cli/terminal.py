"""The two streams: data on stdout, messages on stderr; outside text is escaped."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import typer

from lineage_backfill.errors import GuardRailError
from lineage_backfill.redaction import redacted
from lineage_backfill.show import documents
from lineage_backfill.show.text import safe, to_the_second

if TYPE_CHECKING:  # help and completion start without it
    from rich.console import Console, RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Output settings of this process, from the options of the program."""

    quiet: bool = False
    verbose: int = 0
    no_input: bool = False
    debug: bool = False


manner = Manner()


def out() -> Console:
    """Return the console for results."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console for errors and questions, also used with --quiet."""
    return _console(sys.stderr)


def talk() -> Console:
    """Return the console for all other messages; silent with --quiet."""
    return _console(sys.stderr, quiet=manner.quiet)


def is_interactive() -> bool:
    """Whether stdin and stderr are a terminal, so that questions can be answered."""
    return not manner.no_input and sys.stdin.isatty() and sys.stderr.isatty()


def refuse_unasked(what: str) -> None:
    """Raise GuardRailError if a confirmation is needed and cannot be asked for."""
    if not is_interactive():
        why = "--no-input" if manner.no_input else "not a terminal"
        raise GuardRailError(
            f"{why}: cannot ask for confirmation to {what}",
            hint=f"Pass --yes to {what} without confirmation.",
        )


def say(text: str, *, style: str = "", is_needed: bool = False) -> None:
    """Print one sentence on stderr; with --quiet only if it `is_needed`."""
    (err() if is_needed else talk()).print(safe(text), style=style, soft_wrap=True)


def moment(at: datetime | str | None) -> str:
    """Return a time to the second, in the local zone, with the zone."""
    return to_the_second(at, None)


def show(
    document: Mapping[str, Any],
    render: Callable[[Mapping[str, Any]], RenderableType],
    *,
    as_json: bool,
) -> None:
    """Print a document on stdout, as JSON or through `render`."""
    if as_json:
        documents.emit(document)
    else:
        out().print(render(document))


def give(text: str) -> None:
    """Print the text on stdout, without secrets."""
    typer.echo(redacted(text), nl=False)


def arguments() -> list[str]:
    """Return options that give another process the same log level."""
    return ["--verbose"] * manner.verbose


def follow_log() -> None:
    """Set the log level: warnings, or more with --verbose."""
    log = logging.getLogger("lineage_backfill")
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    log.setLevel(levels[min(manner.verbose, 2)])
    log.handlers = [_LogHandler()]


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if manner.verbose or record.levelno >= logging.WARNING:
            say(record.getMessage(), style="dim")


def _console(file: TextIO, *, width: int | None = None, quiet: bool = False) -> Console:
    console: type[Console] = import_module("rich.console").Console
    return console(
        file=file,
        width=width,
        quiet=quiet,
        force_terminal=file.isatty(),  # colours on a pipe do not make it a terminal
        color_system="standard" if os.environ.get("FORCE_COLOR") else "auto",
        # Text is never markup here: names come from lineage, and may hold [brackets].
        markup=False,
        emoji=False,
        highlight=False,
    )
