"""How concurrent backfills share a cap; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lineage_backfill.ports import Use

#: The key for all runs, used instead of a pool's name.
ALL = ""


def shares(
    caps: Mapping[str, int], own: Mapping[str, Use], others: Iterable[Mapping[str, Use]]
) -> dict[str, int]:
    """Return how many active runs a backfill may have, by pool and in total."""
    uses = list(others)
    return {
        name: share(cap, own.get(name, Use()), [use[name] for use in uses if name in use])
        for name, cap in caps.items()
    }


def share(cap: int, own: Use, others: Iterable[Use]) -> int:
    """Return how many active runs a backfill may have under a shared cap.

    The cap is divided evenly, the smallest demand first, so no backfill keeps a place that another
    one needs more. Places become free as runs end; every backfill gets at least one run, so none
    starves, even with more backfills than places.

    >>> share(4, Use(active=4, wanted=100), [Use(active=0, wanted=100)])
    2
    >>> share(4, Use(active=0, wanted=100), [Use(active=3, wanted=100)])
    1
    >>> share(4, Use(active=2, wanted=100), [Use(active=1, wanted=1)])
    3
    """
    uses = list(others)
    left, due = cap, 0
    for number, wanted in enumerate(sorted([own.wanted, *(use.wanted for use in uses)])):
        due = min(wanted, left // (len(uses) + 1 - number))
        left -= due
        if wanted >= own.wanted:
            break
    free = cap - sum(use.active for use in uses)
    return max(1, min(due, free))
