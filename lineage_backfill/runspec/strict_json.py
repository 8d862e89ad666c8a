"""JSON as every program reads it: no NaN, no infinite number, and each member once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lineage_backfill.errors import UsageError


def refuse_constant(constant: str) -> float:
    """Raise ValueError for what only Python accepts as JSON, as databases do not."""
    raise ValueError(f"{constant} is not a JSON value")


def finite(text: str) -> float:
    """Return a number; raises ValueError where no program can hold it."""
    return float(text) if abs(float(text)) < float("inf") else refuse_constant(text)


def unique(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object; raises UsageError where one occurs twice."""
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise UsageError(f"{name!r} occurs twice in one object", hint="Keep one of the two.")
        found[name] = value
    return found


def read_parameters(given: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of NAME=VALUE: JSON, or else strings; raises UsageError.

    >>> read_parameters(["day=2024-01-02", "limit=3"])
    {'day': '2024-01-02', 'limit': 3}
    """
    parameters: dict[str, Any] = {}
    for number, one in enumerate(given, 1):
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise UsageError(
                f"--parameter number {number} has no name or no `=`", hint="Write it as NAME=VALUE."
            )
        if name in parameters:
            raise UsageError(f"--parameter {name} is given twice", hint="Give each name once.")
        parameters[name] = _value(name, value)
    return parameters


def _value(name: str, text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=unique, parse_constant=refuse_constant, parse_float=finite
        )
    except ValueError:
        return text
    except (RecursionError, UsageError) as error:
        raise UsageError(
            f"the value of --parameter {name} cannot be used: {error}",
            hint="Write it as plain JSON; a string in double quotes.",
        ) from error
