"""What comes from lineage can neither move the cursor nor hide, and documents keep their layout."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.main import main
from lineage_backfill.errors import UsageError
from lineage_backfill.show import documents
from lineage_backfill.show.text import UNKNOWN, safe
from tests.processes import Command


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 日本", "plain größe 日本"),
        ("a\x1b]0;title\x07b", r"a\x1b]0;title\x07b"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_could_do_harm_is_spelled_out(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_names_are_no_markup() -> None:
    console = Console(file=io.StringIO(), markup=False, emoji=False, highlight=False)
    console.print(Text(safe("[red]x[/red] :smile:")))
    assert console.file.getvalue() == "[red]x[/red] :smile:\n"  # type: ignore[attr-defined]


def test_a_document_has_a_line_for_each_item() -> None:
    document = {"kind": "plan", "jobs": [{"n": "é"}, {"n": 2}], "none": [], "of": {"a": [1]}}
    text = documents.dump(document)
    assert json.loads(text) == document
    assert text.isascii()
    assert text.splitlines() == [
        '{"kind": "plan",',
        ' "jobs": [',
        '  {"n": "\\u00e9"},',
        '  {"n": 2}],',
        ' "none": [],',
        ' "of": {"a": [1]}}',
    ]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    documents.save({"kind": "plan"}, file)
    assert documents.load(file) == {"kind": "plan"}
    with pytest.raises(TypeError):
        documents.save({"kind": object()}, file)
    assert documents.load(file) == {"kind": "plan"}
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]


def test_a_request_that_names_a_member_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"changed": [], "jobs": [{"exact": true}], "changed": []}')
    with pytest.raises(UsageError, match=r"request\.json: 'changed' occurs twice") as raised:
        documents.load(file, unique=True)
    assert raised.value.hint
    assert documents.load(file)["changed"] == []


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written") as raised:
        documents.save({}, tmp_path / "nowhere" / "plan.json")
    assert "--out" in raised.value.hint


SHOP = Path(__file__).parents[3] / "docs" / "examples" / "shop"
PREVIEW = ["impact", "raw_orders", "--from", "2024-03-30T20", "--now", "2024-04-02T08:00:00Z"]
#: What is asked for, and whether colours, and any other style, are in what is printed to a pipe.
COLOURS = [
    ("a pipe has no colours", [], {}, (False, False)),
    ("the environment may ask for them", [], {"FORCE_COLOR": "1"}, (True, True)),
    ("or refuse them", [], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, (False, True)),
    ("help has them too", ["-h"], {"FORCE_COLOR": "1"}, (True, True)),
]


@pytest.mark.parametrize(
    ("what", "given", "environment", "styles"), COLOURS, ids=[case[0] for case in COLOURS]
)
def test_colours(
    what: str,
    given: list[str],
    environment: dict[str, str],
    styles: tuple[bool, bool],
) -> None:
    command = Command(
        [*PREVIEW, *given],
        cwd=SHOP,
        env={**os.environ, "NO_COLOR": "", "FORCE_COLOR": "", **environment},
    )
    said, _ = command.communicate(timeout=60)
    assert command.returncode == 0
    codes = [code for found in re.findall(r"\x1b\[([\d;]*)m", said) for code in found.split(";")]
    coloured = any(30 <= int(code or 0) <= 37 for code in codes)
    assert (coloured, bool(codes)) == styles


def test_quiet_says_nothing_but_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(SHOP)
    out = str(tmp_path / "plan.json")
    assert main([*PREVIEW, "--out", out]) == 0
    loud = capsys.readouterr()
    assert main([*PREVIEW, "--out", out, "-q"]) == 0
    silent = capsys.readouterr()
    assert (silent.out, silent.err) == (loud.out, "")
    assert "run exactly this plan" in loud.err
    assert main(["-q", "impact", "nowhere"]) == 64
    assert capsys.readouterr().err.startswith("error[LB-101]")


def test_verbose_says_what_is_read_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SHOP)
    assert main([*PREVIEW, "--json"]) == 0
    plain = capsys.readouterr()
    assert main([*PREVIEW, "--json", "-v"]) == 0
    told = capsys.readouterr()
    assert (told.out, plain.err) == (plain.out, "")
    lines = [re.sub(r"in [\d.]+ s$", "in N s", line) for line in told.err.splitlines()]
    events = SHOP / "events.ndjson"
    assert lines == [
        f"project file: {SHOP / 'lineage-backfill.toml'}",
        f"lineage from lineage.events of {SHOP / 'lineage-backfill.toml'}",
        f"reading {events}, {events.stat().st_size} bytes",
        "lineage: 5 jobs, 7 datasets, in N s",
        "plan: 4 runs of 4 jobs, in N s",
    ]
    assert main([*PREVIEW, "--json"]) == 0
    assert capsys.readouterr().err == ""  # the next one is not verbose


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_times_are_local_with_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert terminal.moment("2024-06-15T12:00:00.123Z") == "2024-06-15 14:00:00 CEST"
        assert terminal.moment(None) == UNKNOWN
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_input_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setattr(terminal, "manner", terminal.Manner())
    assert terminal.is_interactive()
    monkeypatch.setattr(terminal, "manner", terminal.Manner(no_input=True))
    assert not terminal.is_interactive()


def test_a_file_that_is_not_there_is_called_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SHOP)
    assert main(["run", "plan.json", "--no-input"]) == 64
    assert "'plan.json' is neither a file nor a dataset" in capsys.readouterr().err


def test_no_at_the_question_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    shutil.copytree(SHOP, shop)
    monkeypatch.chdir(shop)
    monkeypatch.setattr(terminal, "is_interactive", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert main(["run", *PREVIEW[1:]]) == 130
    assert "Nothing was run." in capsys.readouterr().err
