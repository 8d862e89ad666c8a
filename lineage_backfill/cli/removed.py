"""What was removed or has another name in other tools, with what to use instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Never, TypeVar

from typer.core import TyperCommand

from lineage_backfill.errors import UsageError

E = TypeVar("E", bound=StrEnum)

#: By the path of the command that had them.
_COMMANDS = {
    "": {"demo": "Run scripts/demo in a checkout of the project."},
    "lineage": {
        "diff": "Print both with `lineage show --snapshot FILE --json` and compare the files.",
        "refresh": "Delete .lineage-backfill/cache, or pass --no-cache.",
    },
    "plan": {"diff": "Compare the files with `diff`: each job and each run has a line of its own."},
}
#: Options by their command.
_OPTIONS = {
    "graph": dict.fromkeys(("--jobs", "--datasets"), "Read the edges of `graph --json`."),
    "history": dict.fromkeys(
        ("--dataset", "--owner", "--since", "--state", "--text"),
        "Filter `history --json`, as with jq.",
    ),
    "report": {"--markdown": "Use `report --json`, or the page of `serve`."},
}
#: Options of several commands.
_PLANNING = {
    "--group-by": "Long plans are in groups by themselves; --all lists each job.",
    "--only": "`catchup` runs what is missing, `retry` what failed.",
}
_FORMATS = {
    "airflow": "Give the jobs an engine of kind `airflow` and use `run`, or read --json.",
    "dot": "Use --format mermaid, or write DOT from --json.",
    "heatmap": "The pages of `lineage-backfill serve` have it.",
    "svg": "The pages of `lineage-backfill serve` have it; or use --format mermaid.",
    "tree": "Use --format table or mermaid.",
}


#: What other tools name so, and what to write here.
_ELSEWHERE = {
    **dict.fromkeys(("--start", "--start-date", "--since", "-s"), "Write --from KEY."),
    **dict.fromkeys(("--until", "--end", "--end-date", "-e"), "Write --to KEY."),
    **dict.fromkeys(("--key", "--keys", "--partition", "--date"), "Write --partitions KEYS."),
    **dict.fromkeys(("--dry-run", "--preview", "-n"), "`impact` takes the same arguments."),
    **dict.fromkeys(("--format", "--output", "-o"), "Write --json."),
    **dict.fromkeys(("-y", "--force-yes", "--no-confirm"), "Write --yes."),
    "--job": "Write --select JOB.",
    **dict.fromkeys(("backfill", "trigger", "start", "apply"), "Use `run`."),
    **dict.fromkeys(("preview", "dry-run", "explain", "downstream"), "Use `impact`."),
    **dict.fromkeys(("list", "ls", "show", "backfills"), "Use `history`."),
    **dict.fromkeys(("log", "logs"), "`report` prints where each log is."),
    **dict.fromkeys(("stop", "abort", "kill"), "Use `cancel`."),
    **dict.fromkeys(("rollback", "restore", "revert"), "Use `undo`."),
    **dict.fromkeys(("check", "validate", "lint"), "Use `config check`."),
    **dict.fromkeys(("ui", "web", "server"), "Use `serve`."),
}
_NO_SUCH = re.compile(r"No such (?:option: |command ')(-*[\w-]+)")


def instead_of(message: str, command: str) -> str:
    """Return what to write, where a command says that an option or a command does not exist."""
    if not (found := _NO_SUCH.match(message)):
        return ""
    removed = _OPTIONS.get(command, _PLANNING).get(found[1])
    return f"It was removed. {removed}" if removed else _ELSEWHERE.get(found[1], "")


class Removed(TyperCommand):
    """A command that was removed; a call is refused with what to use instead."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(name, hidden=True)
        self._instead = instead

    def make_context(self, *_: Any, **__: Any) -> Never:
        """Raise UsageError."""
        raise UsageError(f"`{self.name}` was removed", hint=self._instead)


def removed_from(command: str) -> list[Removed]:
    """Return the removed subcommands of a command."""
    return [Removed(*one) for one in _COMMANDS.get(command, {}).items()]


def form_of(kind: type[E]) -> Callable[[str], E]:
    """Return a reader of the option --format, which refuses formats that were removed."""

    def read(text: str) -> E:
        if text in list(kind):
            return kind(text)
        if text == "json":
            raise UsageError("JSON is not a --format", hint="Use --json.")
        if text in _FORMATS:
            raise UsageError(f"--format {text} was removed", hint=_FORMATS[text])
        raise ValueError(f"{text!r} is not one of {', '.join(map(repr, map(str, kind)))}.")

    return read
