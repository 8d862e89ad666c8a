"""Documents that the command line prints, held against their published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

import lineage_backfill

SCHEMAS = Path(lineage_backfill.__file__).parent / "schemas"


def fits(document: Any, schema: str) -> bool:
    """Whether the document fits the schema; says where it does not."""
    published = json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    Draft202012Validator.check_schema(published)
    validator = Draft202012Validator(published, format_checker=FormatChecker())
    wrong = [f"{one.json_path}: {one.message}" for one in validator.iter_errors(document)]
    assert not wrong, wrong
    return True
