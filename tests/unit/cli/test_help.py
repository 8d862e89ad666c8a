"""The help of every verb: each option says what it does, and all of it fits a narrow terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lineage_backfill.cli.main import app


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from verbs(below, (*path, name))


VERBS = list(verbs(get_command(app)))


def test_all_verbs_are_there() -> None:
    assert {
        *[("impact",), ("run",), ("watch",), ("resume",), ("retry",), ("pause",), ("cancel",)],
        *[("status",), ("report",), ("history",), ("plan", "show"), ("plan", "diff")],
        *[
            ("lineage", "show"),
            ("lineage", "pull"),
            ("lineage", "diff"),
            ("graph",),
            ("config", "show"),
            ("config", "check"),
            ("doctor",),
            ("init",),
            ("demo",),
        ],
    } <= set(VERBS)


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    command: Any = get_command(app)
    for name in path:
        command = command.commands[name]
    assert command.help
    for one in command.params:
        assert one.help, f"{one.name} does not say what it is"
    done = CliRunner().invoke(app, [*path, "-h"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert command.help.split("\n")[0][:40] in " ".join(done.stdout.split())
