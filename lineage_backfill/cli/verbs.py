"""The commands with their help lines and modules; modules are imported when called."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

#: Each command with its module, its name there and its help line.
_VERBS = (
    ("init", "commands.init:init", "Draft a project file from the lineage, with questions."),
    (
        "impact",
        "commands.impact:impact",
        "Show what a fix made stale downstream, and what would run.",
    ),
    ("plan", "commands.plan:plan", "Show and compare plans saved with `impact --out`."),
    ("run", "commands.backfill:run", "Run a saved plan, or plan and run in one step."),
    ("watch", "commands.backfill:watch", "Follow a backfill that another process drives."),
    ("resume", "commands.backfill:resume", "Resume a backfill that was paused or interrupted."),
    ("retry", "commands.backfill:retry", "Re-run failed runs and the runs they blocked."),
    ("undo", "commands.backfill:undo", "Restore the partitions that a backfill overwrote."),
    ("drive", "commands.drive:drive", "Drive backfills without a driver, as a service."),
    (
        "stale",
        "commands.stale:stale",
        "List partitions that are missing or older than their inputs.",
    ),
    ("catchup", "commands.stale:catchup", "Plan and run what `stale` lists."),
    ("pause", "commands.stop:pause", "Start no more runs of a backfill."),
    ("cancel", "commands.stop:cancel", "Cancel the runs that a backfill has not started."),
    ("delete", "commands.stop:delete", "Hide a backfill from lists; the data it wrote stays."),
    ("prune", "commands.prune:prune", "Remove the records of old backfills."),
    ("status", "commands.status:status", "Show the state of a backfill and its runs."),
    ("report", "commands.status:report", "Show the partitions a backfill planned and rewrote."),
    ("history", "commands.status:history", "List the backfills of this project."),
    ("serve", "commands.serve:serve", "Show backfills, plans and lineage in a browser, read-only."),
    ("lineage", "commands.lineage:lineage", "Show, save and compare the lineage."),
    ("graph", "commands.graph:graph", "Draw the lineage or a part of it."),
    ("config", "commands.settings:config", "Show and check the settings of this project."),
    (
        "doctor",
        "commands.doctor:doctor",
        "Check everything that a backfill needs; show how to fix it.",
    ),
    ("errors", "commands.errors:show", "Explain an error and what to do about it."),
    ("demo", ".demo.verb:demo", "Break a flights feed, fix it, and backfill it on Spark."),
)


class Verb(TyperCommand):
    """A command that is imported when it is called.

    `where` names its function or group, as MODULE:NAME from this package on; `shared` are options
    of the whole program, which each verb takes too.
    """

    def __init__(self, name: str, where: str, line: str, shared: Iterable[Any]) -> None:
        super().__init__(name, help=line)
        self._where, self._shared = where, tuple(shared)

    @cached_property
    def command(self) -> Any:
        """The command itself, with all its options."""
        module, _, name = self._where.partition(":")
        found = getattr(import_module(f".{module}", __package__), name)
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
    for name, where, line in _VERBS:
        program.add_command(Verb(name, where, line, options))
