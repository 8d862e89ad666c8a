"""What comes from lineage can neither move the cursor nor hide, and documents keep their layout."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from lineage_backfill.cli import documents
from lineage_backfill.cli.terminal import safe
from lineage_backfill.errors import UsageError


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


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written") as raised:
        documents.save({}, tmp_path / "nowhere" / "plan.json")
    assert "--out" in raised.value.hint
