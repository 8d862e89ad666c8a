"""The documentation says what the code does: pages made from it are as it would make them now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("made_docs", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES: dict[Path, str] = maker().pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_made_from_the_code_are_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page], "run `python scripts/docs.py`"
