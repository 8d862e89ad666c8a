"""Names and keys for people to read."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet, as_text, in_short
from lineage_backfill.plans.plan import Plan
from lineage_backfill.show.text import safe

_SHOWN_RANGES = 6


class Names:
    """Shortens names: bare if unique among all that is shown, full otherwise."""

    def __init__(self, refs: Iterable[DatasetRef | JobRef]) -> None:
        self._spaces: dict[tuple[str, str], set[str]] = {}
        for ref in refs:
            self._spaces.setdefault((ref.kind, ref.name), set()).add(ref.namespace)

    @classmethod
    def of(cls, plan: Plan, untouched: Iterable[JobRef] = ()) -> Names:
        """Return the names for everything in the plan, and for jobs outside it."""
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
    """Return a set of keys as ranges, one per line; a long tail becomes a number."""
    if keys is None or tuple(keys) == ("*",):
        return "whole"
    lines = [safe(as_text(one)) for one in keys[:most]]
    if len(keys) > most:
        lines.append(f"and {len(keys) - most:,} more")
    return "\n".join(lines)


def keys_on_a_line(keys: KeySet) -> str:
    """Return a set of keys on one line: the first range, and how many more."""
    return keys_in_words(keys, most=1).replace("\n", " ")


def keys_in_short(keys: KeySet) -> str:
    """Return a set of keys in few columns: the first range, and how many more."""
    return safe(in_short(keys))
