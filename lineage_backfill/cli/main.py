"""The command line: its commands, exit codes and error messages."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from io import TextIOWrapper
from traceback import format_exception
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException
from typer.main import get_command

from lineage_backfill.cli import terminal
from lineage_backfill.cli.elsewhere import instead_of
from lineage_backfill.cli.streams import lasting_streams
from lineage_backfill.cli.verbs import add_verbs
from lineage_backfill.errors import BackfillError, UsageError
from lineage_backfill.redaction import redacted
from lineage_backfill.show.text import safe

_OUTPUT = "Output"
_SURROGATE = re.compile("[\ud800-\udfff]")
_app = typer.Typer(
    name="lineage-backfill",
    help="Re-run exactly what an upstream fix broke downstream.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _note(param: typer.CallbackParam, value: Any) -> None:
    """Store the value of an option that may stand anywhere on the command line."""
    if value:
        terminal.manner = replace(terminal.manner, **{param.name: value})


def _verbose(wanted: int) -> None:
    if wanted:
        terminal.manner = replace(terminal.manner, verbose=wanted)
        terminal.follow_log()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(import_module("importlib.metadata").version("lineage-backfill"))
        raise typer.Exit


def _shared(*names: str, callback: Callable[..., None], text: str, **more: Any) -> Any:
    """Return an option of the program that every command accepts, too."""
    return typer.Option(
        *names, callback=callback, expose_value=False, help=text, rich_help_panel=_OUTPUT, **more
    )


_QUIET = "Print only errors and questions on stderr."
_VERBOSE = "Log reads, requests and their duration on stderr; -vv for more."


@_app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, _shared("--quiet", "-q", callback=_note, text=_QUIET)] = False,
    verbose: Annotated[
        int, _shared("--verbose", "-v", callback=_verbose, count=True, text=_VERBOSE)
    ] = 0,
    no_input: Annotated[
        bool, _shared("--no-input", callback=_note, text="Never ask; fail if --yes is needed.")
    ] = False,
    debug: Annotated[bool, _shared("--debug", callback=_note, text="Show tracebacks.")] = False,
) -> None:
    """Options of the program; every command accepts those of the panel."""


def program() -> TyperGroup:
    """Return the whole command line."""
    group = get_command(_app)
    assert isinstance(group, TyperGroup)  # it has a callback
    shared = ("quiet", "verbose", "no_input", "debug")
    add_verbs(group, shared=shared)
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    terminal.manner = terminal.Manner()
    terminal.follow_log()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an encoding without ✓ shows ? instead
            stream.reconfigure(errors="replace")
    sys.excepthook = _tell_unexpected
    if threading.excepthook is threading.__excepthook__:  # otherwise the application has its own
        threading.excepthook = _tell_of_thread
    with lasting_streams():
        return _run(given)


def _run(given: Sequence[str]) -> int:
    try:
        _refuse_other_encodings(given)
        code = program().main(args=given, prog_name="lineage-backfill", standalone_mode=False)
        sys.stdout.flush()
    except BackfillError as error:
        _tell(error)
        return error.exit_code
    except TyperException as error:
        return _tell_usage(error)
    except (Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def _refuse_other_encodings(given: Sequence[str]) -> None:
    for one in given:
        if _SURROGATE.search(one):
            raise UsageError(f"{one!r} is not UTF-8", hint="Pass arguments as UTF-8.")


def _tell(error: BackfillError) -> None:
    if terminal.manner.debug:
        sys.stderr.write(redacted("".join(format_exception(error))))
    console = terminal.err()
    console.print(f"error[{error.code}]: {safe(error)}", style="red", soft_wrap=True)
    if error.hint:
        console.print(f"  {safe(error.hint)}", soft_wrap=True)
    for line in error.lines:
        console.print(f"    {safe(line)}".rstrip(), soft_wrap=True)


#: What the checks of values say, and what is printed instead.
_TYPERS_WORDS = (
    (re.compile(r"\bValue error, "), ""),
    (re.compile(r"\bInput should be a valid integer\b.*"), "it must be a whole number."),
    (re.compile(r"\bInput should be a valid (\w+)\b.*"), r"it must be a \1."),
    (re.compile(r"\bInput should be (.*[^.])\.?$"), r"it must be \1."),
)


def _tell_usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    console = terminal.err()
    message = error.format_message()
    instead = instead_of(message)
    if instead:
        message = message.partition(" (Possible")[0]
    for theirs, ours in _TYPERS_WORDS:
        message = theirs.sub(ours, message)
    if message:  # none where the help has just been shown
        console.print(f"error[{UsageError.code}]: {safe(message)}", style="red", soft_wrap=True)
    if message and context is not None:
        console.print(f"  {instead or f'See `{context.command_path} --help`.'}", soft_wrap=True)
    # Typer's code is 2, which here means that there is work to do.
    return UsageError.exit_code if error.exit_code == 2 else error.exit_code


def _tell_of_thread(seen: threading.ExceptHookArgs) -> None:
    _tell_unexpected(seen.exc_type, seen.exc_value or seen.exc_type(), seen.exc_traceback)


def _tell_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if terminal.manner.debug:
        sys.stderr.write(redacted("".join(format_exception(kind, error, trace))))
        return
    console = terminal.err()
    where = f" (in {trace.tb_frame.f_code.co_name})" if trace else ""
    message = f"error[{BackfillError.code}]: {kind.__name__}: {safe(error)}{where}"
    console.print(message, style="red", soft_wrap=True)
    console.print(
        "  This is a bug in lineage-backfill; --debug shows the traceback.", soft_wrap=True
    )
