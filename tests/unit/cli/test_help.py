"""The help of every verb: each option says what it does, and all of it fits a narrow terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lineage_backfill.cli.main import main, program
from lineage_backfill.cli.verbs import Verb

SHARED = {"quiet", "verbose", "debug"}


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from verbs(below.command if isinstance(below, Verb) else below, (*path, name))


VERBS = dict(verbs(program()))


def test_all_verbs_are_there() -> None:
    assert {
        *[("impact",), ("run",), ("watch",), ("resume",), ("retry",), ("pause",), ("cancel",)],
        *[("status",), ("report",), ("history",), ("plan", "show")],
        *[
            ("lineage", "show"),
            ("lineage", "pull"),
            ("graph",),
            ("serve",),
            ("drive",),
            ("config", "show"),
            ("config", "check"),
            ("doctor",),
            ("init",),
        ],
    } <= VERBS.keys()


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_help(
    path: tuple[str, ...],
    width: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = VERBS[path]
    assert command.help
    for one in command.params:
        assert one.help, f"{one.name} does not say what it is"
        assert "[" not in one.help, "the help would read it as markup, and leave it out"
    assert {one.name for one in command.params} >= SHARED
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*path, "-h"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    assert command.help.split("\n")[0][:40] in " ".join(shown.split())


def test_the_help_of_the_program_has_a_line_for_each_verb(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for path in VERBS:
        assert not path or f"│ {path[0]} " in shown
