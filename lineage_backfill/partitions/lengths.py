"""Lengths of time by which a reader looks back or ahead, where it does not count keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lineage_backfill.partitions.zones import Zone

_SPAN: Final = re.compile(r"(-?)(\d{1,6})\s*([mhdw])", re.ASCII)
_SECONDS: Final = {"m": 60, "h": 3_600}
_DAYS: Final = {"d": 1, "w": 7}


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time: local days and weeks, elapsed hours and minutes."""

    count: int
    unit: str

    @classmethod
    def read(cls, text: str) -> Span | None:
        """Return the length of a text such as `4h` or `-1d`, None where it is none.

        >>> print(Span.read("-1d"), Span.read("90 m"), Span.read("1y"))
        -1d 90m None
        """
        found = _SPAN.fullmatch(text.strip())
        return found and cls(int(found[1] + found[2]), found[3])

    def after(self, instant: int, zone: Zone) -> int:
        """Return the instant so much later; a local time that a clock skips counts as reached."""
        if self.unit in _SECONDS:
            return instant + self.count * _SECONDS[self.unit]
        if not self.count:
            return instant
        days = timedelta(days=self.count * _DAYS[self.unit])
        return zone.reached(zone.local(instant) + days)

    def __neg__(self) -> Span:
        return Span(-self.count, self.unit)

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"
