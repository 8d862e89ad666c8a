"""What other tools name otherwise, with what to write here."""

from __future__ import annotations

import re

_ELSEWHERE = {
    **dict.fromkeys(("--start", "--start-date", "--since", "-s"), "Write --from KEY."),
    **dict.fromkeys(("--until", "--end", "--end-date", "-e"), "Write --to KEY."),
    **dict.fromkeys(("--key", "--keys", "--partition", "--date"), "Write --partitions KEYS."),
    **dict.fromkeys(("--dry-run", "--preview", "-n"), "`impact` takes the same arguments."),
    **dict.fromkeys(("--format", "--output", "-o"), "Write --json."),
    **dict.fromkeys(("-y", "--force-yes", "--no-confirm"), "Write --yes."),
    "--job": "Write --select JOB.",
    "--yes": "This command asks nothing: leave out --yes.",
    **dict.fromkeys(("backfill", "trigger", "start", "apply"), "Use `run`."),
    **dict.fromkeys(("preview", "dry-run", "explain", "downstream"), "Use `impact`."),
    **dict.fromkeys(("list", "ls", "show", "backfills"), "Use `history`."),
    **dict.fromkeys(("log", "logs"), "`status --failed --log` prints logs."),
    **dict.fromkeys(("stop", "abort", "kill"), "Use `cancel`."),
    **dict.fromkeys(("rollback", "restore", "revert"), "Use `undo`."),
    **dict.fromkeys(("check", "validate", "lint"), "Use `config check`."),
    **dict.fromkeys(("ui", "web", "server"), "Use `serve`."),
}
_NO_SUCH = re.compile(r"No such (?:option: |command ')(-*[\w-]+)")


def instead_of(message: str) -> str:
    """Return what to write, where a command says that an option or a command does not exist."""
    if "--format" in message and "'json' is not one of" in message:
        return "Use --json."
    found = _NO_SUCH.match(message)
    return _ELSEWHERE.get(found[1], "") if found else ""
