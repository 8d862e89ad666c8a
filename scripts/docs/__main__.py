"""Writes what is made from the code: reference pages, pictures, console examples, JSON Schemas.

Usage: python scripts/docs
"""

from __future__ import annotations

import json
from pathlib import Path

import consoles
import pictures
import reference

from lineage_backfill.plans.request import Request
from lineage_backfill.project.settings import ProjectFile
from lineage_backfill.runspec.values import RunResult, RunSpec
from lineage_backfill.show import printed
from lineage_backfill.typed import json_schema

ROOT = Path(__file__).parents[2]


def pages() -> dict[Path, str]:
    """Return the text of every file of the documentation that is made from the code, or in part."""
    docs = ROOT / "docs"
    made = {docs / name: text for name, text in reference.pages().items()}
    made |= {docs / "pictures" / name: text for name, text in pictures.pictures().items()}
    schemas = Path(printed.__file__).parents[2] / "schemas"
    for kind in printed.DOCUMENTS:
        text = json.dumps(printed.schema_of(kind), indent=2, ensure_ascii=False)
        made[schemas / f"{kind}.schema.json"] = f"{text}\n"
    for name, kind in (
        ("runspec/schemas/run_spec", RunSpec),
        ("runspec/schemas/result", RunResult),
        ("schemas/project_file", ProjectFile),
        ("schemas/request", Request),
    ):
        title = f"lineage-backfill: {name.rpartition('/')[2].replace('_', ' ')}"
        text = json.dumps(json_schema(kind, title), indent=2, ensure_ascii=False)
        made[schemas.parent / f"{name}.schema.json"] = f"{text}\n"
    for page in (ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted(docs.glob("how-to/*.md"))):
        if page not in made and consoles.CONSOLE in (text := page.read_text(encoding="utf-8")):
            made[page] = consoles.refreshed(text, docs / "examples")
    return made


if __name__ == "__main__":
    for path, content in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
