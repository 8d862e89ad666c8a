"""The commands with their help lines and modules; modules are imported when called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


def _init() -> Any:
    from lineage_backfill.cli.commands import init

    return init


def _impact() -> Any:
    from lineage_backfill.cli.commands import impact

    return impact


def _plan() -> Any:
    from lineage_backfill.cli.commands import plan

    return plan


def _backfill() -> Any:
    from lineage_backfill.cli.commands import backfill

    return backfill


def _drive() -> Any:
    from lineage_backfill.cli.commands import drive

    return drive


def _stale() -> Any:
    from lineage_backfill.cli.commands import stale

    return stale


def _stop() -> Any:
    from lineage_backfill.cli.commands import stop

    return stop


def _status() -> Any:
    from lineage_backfill.cli.commands import status

    return status


def _serve() -> Any:
    from lineage_backfill.cli.commands import serve

    return serve


def _token() -> Any:
    from lineage_backfill.cli.commands import token

    return token


def _lineage() -> Any:
    from lineage_backfill.cli.commands import lineage

    return lineage


def _graph() -> Any:
    from lineage_backfill.cli.commands import graph

    return graph


def _settings() -> Any:
    from lineage_backfill.cli.commands import settings

    return settings


def _doctor() -> Any:
    from lineage_backfill.cli.commands import doctor

    return doctor


#: Each command with its module, its name there and its help line.
_VERBS: tuple[tuple[str, Callable[[], Any], str, str], ...] = (
    ("init", _init, "init", "Draft a project file from the lineage, with questions."),
    ("impact", _impact, "impact", "Show what a fix made stale downstream, and what would run."),
    ("plan", _plan, "plan", "Show a plan saved with `impact --out`."),
    ("run", _backfill, "run", "Run a saved plan, or plan and run in one step."),
    ("watch", _backfill, "watch", "Follow a backfill that another process drives."),
    ("resume", _backfill, "resume", "Resume a backfill that was paused or interrupted."),
    ("retry", _backfill, "retry", "Re-run failed runs and the runs they blocked."),
    ("undo", _backfill, "undo", "Restore the partitions that a backfill overwrote."),
    ("drive", _drive, "drive", "Drive backfills without a driver, as a service."),
    ("stale", _stale, "stale", "List partitions that are missing or older than their inputs."),
    ("catchup", _stale, "catchup", "Plan and run what `stale` lists."),
    ("pause", _stop, "pause", "Start no more runs of a backfill."),
    ("cancel", _stop, "cancel", "Cancel the runs that a backfill has not started."),
    ("delete", _stop, "delete", "Hide a backfill from lists; the data it wrote stays."),
    ("status", _status, "status", "Show the state of a backfill and its runs."),
    ("report", _status, "report", "Show the partitions a backfill planned and rewrote."),
    ("history", _status, "history", "List the backfills of this project."),
    ("serve", _serve, "serve", "Show and manage backfills, plans and lineage in a browser."),
    ("token", _token, "token", "Make, list and revoke tokens that log in to `serve`."),
    ("lineage", _lineage, "lineage", "Show and save the lineage."),
    ("graph", _graph, "graph", "Show the lineage or a part of it as a graph."),
    ("config", _settings, "config", "Show and check the settings of this project."),
    ("doctor", _doctor, "doctor", "Check everything that a backfill needs; show how to fix it."),
)


class Verb(TyperCommand):
    """A command that is imported when it is called.

    `load` imports its module, where `within` names its function or group; `shared` are options of
    the whole program, which each verb takes too.
    """

    def __init__(
        self, name: str, load: Callable[[], Any], within: str, line: str, shared: Iterable[Any]
    ) -> None:
        super().__init__(name, help=line)
        self._load, self._within, self._shared = load, within, tuple(shared)

    @cached_property
    def command(self) -> Any:
        """The command itself, with all its options."""
        found = getattr(self._load(), self._within)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            alone = typer.Typer(add_completion=False)
            alone.command()(found)
            command = get_command(alone)
        for one in (command, *getattr(command, "commands", {}).values()):
            one.params += self._shared
        return command

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Return the context of the command itself."""
        return self.command.make_context(*given, **more)


def add_verbs(program: TyperGroup, *, shared: Collection[str]) -> None:
    """Add all commands to the program; they accept the named program options, too."""
    options = [one for one in program.params if one.name in shared]
    for verb in _VERBS:
        program.add_command(Verb(*verb, options))
