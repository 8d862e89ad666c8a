"""Documents that the command line prints, checked against the types that declare them."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from lineage_backfill.show.printed import schema_of


def fits(document: Any, kind: str) -> bool:
    """Whether the document has the declared members and no other; says where it does not."""
    wrong = [f"{one.json_path}: {one.message}" for one in _validator(kind).iter_errors(document)]
    assert not wrong, wrong
    return True


@cache
def _validator(kind: str) -> Draft202012Validator:
    schema = schema_of(kind, closed=True)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=FormatChecker())
