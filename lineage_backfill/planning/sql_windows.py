"""Finds time spans in the SQL of a job, which may make it read more keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UNIT: Final = r"(hour|day|week|month|quarter|year)s?"
_SPANS: Final = re.compile(
    rf"""
    \b(?P<rows>\d{{1,4}})\s+preceding\b
    |\binterval\s*'?\s*(?P<interval>\d{{1,4}})\s*'?\s*{_UNIT}\b\s*'?
    |\bdate_sub\s*\([^(),]*,\s*(?P<sub>\d{{1,4}})\s*\)
    |\bdate_add\s*\([^(),]*,\s*-\s*(?P<add>\d{{1,4}})\s*\)
    |\b(?:dateadd|date_add|timestampadd)\s*\(\s*'?{_UNIT}'?\s*,\s*-\s*(?P<part>\d{{1,4}})\s*,
    """,
    re.IGNORECASE | re.VERBOSE,
)


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
        length = next(
            int(found) for found in match.group("rows", "interval", "sub", "add", "part") if found
        )
        text = " ".join(match[0].rstrip(",' ").split())
        if length:
            found[text] = SqlSpan(text=text, length=length)
    return tuple(sorted(found.values(), key=lambda one: (-one.length, one.text)))
