"""The command line: its verbs, its exit codes, and how errors are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException
from typer.main import get_command

from lineage_backfill.cli import (
    backfill,
    demo,
    doctor,
    errors,
    graph,
    impact,
    init,
    lineage,
    look,
    plan,
    settings,
    stale,
    stop,
)
from lineage_backfill.errors import BackfillError, UsageError

_DEBUG = "--debug"

app = typer.Typer(
    name="lineage-backfill",
    help="Re-run exactly what an upstream fix broke downstream.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (
    init,
    impact,
    plan,
    backfill,
    stale,
    stop,
    look,
    lineage,
    graph,
    settings,
    doctor,
    errors,
    demo,
):
    _module.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("lineage-backfill"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, help="Show tracebacks; allowed anywhere on the line.")
    ] = False,
) -> None:
    """Options of the whole program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = _DEBUG in given
    if not debug:
        sys.excepthook = _tell_unexpected
    try:
        code = get_command(app).main(
            args=[one for one in given if one != _DEBUG],
            prog_name="lineage-backfill",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except BackfillError as error:
        if debug:
            raise
        _tell(error)
        return error.exit_code
    except TyperException as error:
        return _tell_usage(error)
    except (Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _tell(error: BackfillError) -> None:
    from lineage_backfill.cli.terminal import err, safe

    console = err()
    console.print(f"error[{error.code}]: {safe(error)}", style="red", soft_wrap=True)
    if error.hint:
        console.print(f"  {safe(error.hint)}", soft_wrap=True)
    for line in error.lines:
        console.print(f"    {safe(line)}".rstrip(), soft_wrap=True)


def _tell_usage(error: TyperException) -> int:
    from lineage_backfill.cli.terminal import err, safe

    context = getattr(error, "ctx", None)
    console = err()
    message = error.format_message()
    if message:  # none where the help has just been shown
        console.print(f"error[{UsageError.code}]: {safe(message)}", style="red", soft_wrap=True)
    if message and context is not None:
        console.print(f"  See `{context.command_path} --help`.", soft_wrap=True)
    # Typer says 2, which here means that there is work to do.
    return UsageError.exit_code if error.exit_code == 2 else error.exit_code


def _tell_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    from lineage_backfill.cli.terminal import err, safe

    console = err()
    where = f" (in {trace.tb_frame.f_code.co_name})" if trace else ""
    said = f"error[{BackfillError.code}]: {kind.__name__}: {safe(error)}{where}"
    console.print(said, style="red", soft_wrap=True)
    console.print("  This is a fault of lineage-backfill; --debug shows where.", soft_wrap=True)
