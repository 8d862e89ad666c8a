"""The verbs: what each is for, and where it is; none is imported before it is called."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

#: Each verb with its module, its name there and its line in the help of the program.
_VERBS = (
    ("init", "init:init", "Draft a project file: what the lineage tells, and questions."),
    ("impact", "impact:impact", "Show what a fix of datasets broke downstream, and why."),
    ("plan", "plan:plan", "Show and compare plans that `impact --out` has saved."),
    ("run", "backfill:run", "Run a saved plan, or plan and run in one."),
    ("watch", "backfill:watch", "Show the progress of a backfill that runs elsewhere."),
    ("resume", "backfill:resume", "Resume a backfill that was paused or interrupted."),
    ("retry", "backfill:retry", "Run again what failed, and what was blocked by it."),
    ("undo", "backfill:undo", "Put back what a backfill wrote."),
    ("drive", "drive:drive", "Drive the backfills that have no driver, as a service."),
    ("stale", "stale:stale", "Show what is missing, or older than what it is made from."),
    ("catchup", "stale:catchup", "Plan and run what `stale` shows."),
    ("pause", "stop:pause", "Start no more runs of a backfill."),
    ("cancel", "stop:cancel", "Give up what a backfill has not started."),
    ("delete", "stop:delete", "Hide a backfill from lists; the data it wrote stays."),
    ("prune", "prune:prune", "Remove what is kept of old backfills."),
    ("status", "status:status", "Show where a backfill and each of its runs stand."),
    ("report", "status:report", "Show what a backfill has touched beside what it had planned."),
    ("history", "status:history", "List the backfills of this project."),
    ("serve", "serve:serve", "Show all that is known in a browser; changes nothing."),
    ("lineage", "lineage:lineage", "Show, save and compare the lineage that plans are made from."),
    ("graph", "graph:graph", "Draw the lineage, or a part of it."),
    ("config", "settings:config", "Show and check the settings of this project."),
    ("doctor", "doctor:doctor", "Check everything that a backfill needs, and say how to fix it."),
    ("errors", "errors:show", "Say what an error means and what to do about it."),
    ("demo", ".demo.verb:demo", "Break a feed of flights, fix it, and see it backfilled on Spark."),
)


class Verb(TyperCommand):
    """A verb by its name and its line; `command` is the verb itself.

    `where` names its function or group, as MODULE:NAME from this package on; `shared` are options
    of the whole program, which it takes as well.
    """

    def __init__(self, name: str, where: str, line: str, shared: Iterable[Any]) -> None:
        super().__init__(name, help=line)
        self._where, self._shared = where, tuple(shared)

    @cached_property
    def command(self) -> Any:
        """The verb itself, with all its options."""
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
        """Return the context of the verb itself."""
        return self.command.make_context(*given, **more)


def add_verbs(program: TyperGroup, *, shared: Collection[str]) -> None:
    """Add all verbs to the program; they take those of its options, too, that are named."""
    options = [one for one in program.params if one.name in shared]
    for name, where, line in _VERBS:
        program.add_command(Verb(name, where, line, options))
