"""The two streams: data on stdout, messages on stderr; outside text is escaped."""

from __future__ import annotations

import io
import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import typer

from lineage_backfill import redaction
from lineage_backfill.errors import GuardRailError
from lineage_backfill.redaction import redacted
from lineage_backfill.show import documents
from lineage_backfill.show.text import safe, to_the_second

if TYPE_CHECKING:  # help and completion start without it
    from rich.console import Console, RenderableType


class Color(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class LogFormat(StrEnum):
    """Format of stderr: text, or one JSON object per line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Output settings of this process, from the options of the program."""

    color: Color = Color.AUTO
    quiet: bool = False
    verbose: int = 0
    no_input: bool = False
    utc: bool = False
    debug: bool = False
    log_format: LogFormat = LogFormat.TEXT

    @property
    def is_log(self) -> bool:
        """Whether stderr is for programs."""
        return self.log_format is LogFormat.JSON


manner = Manner()


def out() -> Console:
    """Return the console for results."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console for errors and questions, also used with --quiet."""
    return _console(sys.stderr)


def talk() -> Console:
    """Return the console for all other messages; silent with --quiet."""
    return _console(sys.stderr, quiet=manner.quiet or manner.is_log)


def is_interactive() -> bool:
    """Whether stdin and stderr are a terminal, so that questions can be answered."""
    is_for_people = not (manner.no_input or manner.is_log)
    return is_for_people and sys.stdin.isatty() and sys.stderr.isatty()


def refuse_unasked(what: str) -> None:
    """Raise GuardRailError if a confirmation is needed and cannot be asked for."""
    if not is_interactive():
        is_log = "--log-format json" if manner.is_log else "not a terminal"
        raise GuardRailError(
            f"{'--no-input' if manner.no_input else is_log}: cannot ask for confirmation to {what}",
            hint=f"Pass --yes to {what} without confirmation.",
        )


def say(text: str, *, style: str = "", is_needed: bool = False) -> None:
    """Print one sentence on stderr; with --quiet only if it `is_needed`."""
    if manner.is_log:
        log_line("info", text)
        return
    (err() if is_needed else talk()).print(safe(text), style=style, soft_wrap=True)


def zone() -> tzinfo | None:
    """Return the zone of times that people read and write: UTC, or None for the local one."""
    return UTC if manner.utc else None


def moment(at: datetime | str | None) -> str:
    """Return a time to the second, in the local zone or in UTC, with the zone."""
    return to_the_second(at, zone())


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


def page(shown: RenderableType, console: Console) -> None:
    """Print on the console; on a terminal long output goes through PAGER."""
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if console.file is not sys.stdout or not console.is_terminal or not sys.stdin.isatty():
        pager = []
    if pager and shutil.which(pager[0]):
        with console.capture() as captured:
            console.print(shown)
        text = captured.get()
        if text.count("\n") >= console.height:
            # As git does: colours pass, and what fits on one screen stays there.
            environment = {"LESS": "FRX", **os.environ}
            subprocess.run(pager, input=text, encoding="utf-8", env=environment, check=False)
            return
    console.print(shown)


def give(text: str, file: Path | None = None, *, force: bool = False) -> None:
    """Print the text on stdout, or write it to a file, without secrets; raises UsageError."""
    text = redacted(text)
    if file is None:
        typer.echo(text, nl=False)
    else:
        documents.replace_alike([text], file, force=force)
        say(f"Wrote {file}.")


def arguments() -> list[str]:
    """Return options that give another process the same log level and format."""
    return [*["--verbose"] * manner.verbose, f"--log-format={manner.log_format.value}"]


def follow_log() -> None:
    """Set the log level: warnings, or more with --verbose."""
    log = logging.getLogger("lineage_backfill")
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    log.setLevel(levels[min(max(manner.verbose, manner.is_log), 2)])
    log.handlers = [_LogHandler()]


def log_line(level: str, message: str, **facts: Any) -> None:
    """Write a line of JSON on stderr, without secrets."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"at": at, "level": level, "message": message, **facts}
    sys.stderr.write(json.dumps(redaction.document(line)) + "\n")
    sys.stderr.flush()


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if manner.is_log:
            facts = record.__dict__.get("facts", {})
            log_line(record.levelname.lower(), record.getMessage(), **facts)
        elif manner.verbose or record.levelno >= logging.WARNING:
            say(record.getMessage(), style="dim")


def plain(renderable: RenderableType, *, width: int = 120) -> str:
    """Return rendered output as plain text, without colours or trailing spaces."""
    file = io.StringIO()
    _console(file, width=width).print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def color_system() -> Literal["auto", "standard"] | None:
    """Return Rich's colour system; None for no colours and no bold type."""
    if manner.color is Color.NEVER:
        return None
    always = manner.color is Color.ALWAYS or os.environ.get("FORCE_COLOR")
    return "standard" if always else "auto"


def _console(file: TextIO, *, width: int | None = None, quiet: bool = False) -> Console:
    console: type[Console] = import_module("rich.console").Console
    return console(
        file=file,
        width=width,
        quiet=quiet,
        force_terminal=file.isatty(),  # colours on a pipe do not make it a terminal
        color_system=color_system(),
        no_color=False if manner.color is Color.ALWAYS else None,  # None: NO_COLOR decides
        # Text is never markup here: names come from lineage, and may hold [brackets].
        markup=False,
        emoji=False,
        highlight=False,
    )
