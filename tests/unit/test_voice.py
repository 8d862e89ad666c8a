"""No output, page, document or docstring uses a sentence that its reader has to translate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What is not written, and what is instead.
NOT_BUT = {
    r"\bnobody\b": "no process, no one named: say which",
    r"say so with": "pass",
    r"touched is (not )?what was planned": "every planned partition was rewritten, and no other",
    r"keys? back up to its own": "this day and the 6 before it",
    r"runs on, for": "continues to the latest partition: it reads its own previous one",
    r"left alone  |out of reach": "not affected",
    r"unknown of \d|too few past runs are known": "not estimated (fewer than 3 past runs)",
    r"is what it (has )?read before": "its inputs are unchanged since its last run",
    r"(says|tells) where the ways? (to it|from)": "shows where the path stops",
    r"\b(list|lists) \w+( \w+)? no more\b": "hide from lists",
    r"\bwho wants\b": "to also get",
    r"\bmend\b": "fix",
    r"gone on with|\bgo on with\b": "resume",
    r"what is to be said": "return the …",
    r"it is no error": "no-op",
    r"is told to the listener": "the listener is notified",
    r"has to type the number": "the count must be typed",
    r"says aloud": "warnings attached to",
    r"\bhad (this|that|it|the \w+) not\b": "if …",
    r"\bdoes no longer\b": "no longer",
    r"\bthis is no (?!longer)\w+": "not a …",
    r"has printed nothing": "no output",
    r"\banew\b": "again",
    r"\b(some|any)body\b": "someone, anyone, another user",
    r"\bby now\b": "now",
    r"\bbears? (the|a|its|this|one)\b|\bbears\b": "has",
    r"\bwork(s|ed|ing)? out\b": "compute",
    r"\bought to\b": "should, must",
    r"\bfrom then on\b": "afterwards",
    r"\bheld (it )?against\b": "compared with",
    r"(?<!there )\b(is|are) no (?!longer\b|one\b)\w": "is not a …",
    r"\bthe ways? (from|back to|to it)\b": "the path from",
    r"\b(un)?planned, for\b|\bfor (nothing|no data) is known\b": "not planned: …, as …",
    r"\bcount here any more\b": "is no longer used here",
    r"\bboth say (how|where|which)\b": "both set the …",
    r"\bwhat did not succeed of\b|\bwhat is drawn of\b": "name the things themselves",
    r"\bsay which ones\b": "name them with …",
    r"without a word": "without …",
    r"\bwhoever\b": "who",
    r"\bheld to\b": "compared with",
    r"\bof which (some|all|one|none|nothing|each)\b|\bof which \d": "two sentences, or 'with'",
    r"\b(senders|hooks|what) (is|are) told\b": "sent, shown, reported",
    r"\b(put|taken) back\b": "restored (data), reverted (a commit)",
    r"\bovertaken\b|\b(was|were) given up\b": "replaced by a later attempt, abandoned",
    r"\bsay (so\b|--|`|\w+ =)|\btell how\b": "write, pass, set, declare",
    r"\bsee that `?\w": "check that",
    r"\bit takes (the right|free)\b|\bgive the right\b": "grant, free",
    r"\bnot believed\b": "ignored",
    r"\bfor lack of\b|\blacks the \w": "without, does not have",
    r"\bread(s|ing)? (it|them|this) whole\b": "reads all of it",
}
_COMMENT = re.compile(r"(?:^|  )#:? (.+)$", re.MULTILINE)
_SOURCES = ("lineage_backfill", "spark_runtime", "docker")


def sentences() -> Iterator[tuple[str, str]]:
    """Yield every text for a reader with where it stands: pages, documents, strings, outputs."""
    pages = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/how-to/*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    pages += [*ROOT.glob("lineage_backfill/**/*.html"), ROOT / "CHANGELOG.md"]
    pages += [*ROOT.glob("lineage_backfill/**/*.schema.json")]
    pages += ROOT.glob("tests/unit/**/__snapshots__/*.ambr")
    for page in pages:
        yield str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    for folder in _SOURCES:
        for file in (ROOT / folder).rglob("*.py"):
            text, where = file.read_text(encoding="utf-8"), file.relative_to(ROOT)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{where}:{node.lineno}", node.value
            yield f"{where} (comments)", "\n".join(_COMMENT.findall(text))


TEXTS = list(sentences())


@pytest.mark.parametrize("pattern", NOT_BUT)
def test_no_text_has_to_be_translated(pattern: str) -> None:
    form = re.compile(pattern, re.IGNORECASE)
    found = [
        f"{where}: …{' '.join(text[max(0, hit.start() - 40) : hit.end() + 40].split())}…"
        for where, text in TEXTS
        if (hit := form.search(" ".join(text.split("\n")) if "  " not in pattern else text))
    ]
    assert not found, f"write: {NOT_BUT[pattern]}\n" + "\n".join(found)


#: A hint may end with something to paste, or announce the end of a log.
_TO_PASTE = re.compile(r"(^|: )(pip install|lineage-backfill|airflow|--[a-z-]+) .+$|:$")
#: A hint may begin with a command or a setting.
_BEGINS = re.compile(r"[A-Z`…{]|(pip|airflow|on_empty) ")


def hints() -> Iterator[tuple[str, str]]:
    """Yield every hint that is written in the code, with what stands for values as `…`."""
    for folder in _SOURCES:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg == "hint":
                    for text in _literals(node.value):
                        yield f"{file.relative_to(ROOT)}:{node.value.lineno}", text


def _literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from (*_literals(node.body), *_literals(node.orelse))
    elif isinstance(node, ast.JoinedStr):
        parts = node.values
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in parts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value


def test_a_hint_is_a_sentence_or_something_to_paste() -> None:
    found = dict(hints())
    assert len(found) > 400
    wrong = {
        where: text
        for where, text in found.items()
        if not (text.endswith((".", "?", "…")) or _TO_PASTE.search(text)) or not _BEGINS.match(text)
    }
    assert wrong == {}
