"""Finds time spans in the SQL of a job, which may make it read more keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UNIT: Final = r"(?:hour|day|week|month|quarter|year)s?"
#: An argument of a function, with calls in calls.
_ARGUMENT: Final = r"(?:[^(),]|\((?:[^()]|\([^()]*\))*\))*"
_SPANS: Final = re.compile(
    rf"""
    \b\d{{1,4}}\s+preceding\b
    |\binterval\s*'?\s*-?\d{{1,4}}\s*'?\s*{_UNIT}\b\s*'?
    |'\d{{1,4}}\s+{_UNIT}'\s*(?:::|as)\s*interval\b
    |\bmake_interval\s*\(\s*{_UNIT}\s*=>\s*\d{{1,4}}\b
    |\bdate_sub\s*\({_ARGUMENT},\s*\d{{1,4}}\s*\)
    |\b(?:date_add|add_months)\s*\({_ARGUMENT},\s*-\s*\d{{1,4}}\s*\)
    |\b(?:dateadd|date_add|timestampadd)\s*\(\s*'?{_UNIT}'?\s*,\s*-\s*\d{{1,4}}\s*,
    |\b(?:current_date|today|curdate)\b(?:\s*\(\s*\))?\s*-\s*\d{{1,4}}\b(?!\s*[*/])
    |\blag\s*\({_ARGUMENT}(?:,\s*\d{{1,4}}\b)?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NUMBER: Final = re.compile(r"(?<![\w.])\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSpan:
    """A span as written in the SQL, with its length in rows or units."""

    text: str
    length: int


def sql_spans(query: str) -> tuple[SqlSpan, ...]:
    """Return the spans of a query that look back, without duplicates, longest first.

    >>> [one.text for one in sql_spans("where d > date_sub(day, 7) and e > d - interval 2 days")]
    ['date_sub(day, 7)', 'interval 2 days']
    """
    found = {}
    for match in _SPANS.finditer(query):
        text = " ".join(match[0].rstrip(", ").split())
        length = int((_NUMBER.findall(text) or ["1"])[-1])  # `lag` reads the row before
        if length:
            found[text] = SqlSpan(text=text, length=length)
    return tuple(sorted(found.values(), key=lambda one: (-one.length, one.text)))
