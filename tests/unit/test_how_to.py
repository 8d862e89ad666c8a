"""The pipelines of docs/how-to: what their commands print is what was counted by hand.

`scripts/docs` runs each command, and test_docs compares what it prints with the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
PRINTED = re.compile(r"(?ms)^\$ lineage-backfill impact .*?^```\n(.*?)(?=^```console|\Z)")
PLANNED = re.compile(r"^ *[\d-]+  (\w+) +\S.*? +(\d+)  \S", re.MULTILINE)
BY_HAND = re.compile(r"^\| `(\w+)` \| (\d+) \| .* \|$", re.MULTILINE)
TOTALS = re.compile(r"^Will run +(\d+) jobs?, (\d+) partitions?, (\d+) runs? ", re.MULTILINE)


def test_there_are_twelve_pipelines_and_one_of_code() -> None:
    assert len(PAGES) == 13


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_plan_is_what_was_counted_by_hand(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(PRINTED.finditer(text))
    assert len(found) == text.count("$ lineage-backfill impact") > 0
    for one in found:
        planned, by_hand = PLANNED.findall(one[0]), BY_HAND.findall(one[1])
        assert sorted(planned) == sorted(by_hand)
        runs = sum(int(count) for _, count in by_hand)
        assert TOTALS.findall(one[0]) == [(str(len(by_hand)), str(runs), str(runs))]


def test_code_is_planned_by_few_commands_and_no_declaration() -> None:
    (page,) = (page for page in PAGES if page.stem == "from-code")
    text = page.read_text(encoding="utf-8")
    assert text.count("\n@job(") == 6
    assert len(re.findall(r"^\$ ", text, re.MULTILINE)) <= 3
    assert "```toml" not in text
