"""Names and keys as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.plan import Plan
from lineage_backfill.presentation.text import safe

_SHOWN_RANGES = 6
#: What the end of a range need not repeat of its start, the longest first.
_COMMON = tuple(map(re.compile, (r"\d{4}-\d\d-\d\d(?=T)", r"\d{4}-\d\d-(?=\d\d$)", r"\d{4}-(?=W)")))


class Names:
    """Bare names where no other dataset (or job) that is shown bears it, whole ones otherwise."""

    def __init__(self, refs: Iterable[DatasetRef | JobRef]) -> None:
        self._spaces: dict[tuple[str, str], set[str]] = {}
        for ref in refs:
            self._spaces.setdefault((ref.kind, ref.name), set()).add(ref.namespace)

    @classmethod
    def of(cls, plan: Plan, untouched: Iterable[JobRef] = ()) -> Names:
        """Return the names for all that the plan mentions, and for jobs that it does not touch."""
        read = (
            DatasetRef(**one["dataset"])
            for job in plan.jobs
            for one in job.reason.get("inputs", ())
        )
        changed = (one.dataset for one in plan.changed)
        return cls(chain(changed, read, (job.job for job in plan.jobs), untouched))

    def __call__(self, ref: DatasetRef | JobRef) -> str:
        others = self._spaces.get((ref.kind, ref.name), set()) - {ref.namespace}
        return safe(ref if others else ref.name)


def keys_in_words(keys: KeySet | None, *, most: int = _SHOWN_RANGES) -> str:
    """Return a set of keys in its ranges, one per line, the tail of a long one as a number."""
    if keys is None or tuple(keys) == ("*",):
        return "whole"
    lines = [_key_in_words(one) for one in keys[:most]]
    if len(keys) > most:
        lines.append(f"and {len(keys) - most:,} more")
    return "\n".join(lines)


def keys_on_a_line(keys: KeySet) -> str:
    """Return a set of keys on one line: its only range, or its first one and how many more."""
    return keys_in_words(keys, most=1).replace("\n", " ")


def keys_in_short(keys: KeySet) -> str:
    """Return a set of keys in few columns: its first range, and how many more.

    >>> keys_in_short(("2024-03-10T22..2024-03-10T23",)), keys_in_short(("2024-03-10..2024-03-16",))
    ('2024-03-10T22..T23', '2024-03-10..16')
    >>> keys_in_short(("2024-01..2024-03", "2024-05"))
    '2024-01..2024-03 +1'
    """
    if not keys or tuple(keys) == ("*",):
        return "whole" if keys else ""
    more = f" +{len(keys) - 1:,}" if len(keys) > 1 else ""
    return _range_in_short(_key_in_words(keys[0])) + more


def _range_in_short(text: str) -> str:
    """Return a range with the part of its end that differs; only hours, days and weeks have one."""
    first, dots, last = text.partition("..")
    for form in _COMMON:
        start = form.match(first)
        if dots and start and last.startswith(start[0]):
            return f"{first}..{last[len(start[0]) :]}"
    return text


def _key_in_words(key: str | Mapping[str, Any]) -> str:
    if isinstance(key, str):
        return safe(key)
    return safe("/".join(f"{name}={','.join(keys)}" for name, keys in key.items()))
