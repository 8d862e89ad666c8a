"""How backfills that are driven at the same time share a cap: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lineage_backfill.ports import Use

#: Stands for all runs, where else the name of a pool stands.
ALL = ""


def shares(
    caps: Mapping[str, int], own: Mapping[str, Use], others: Iterable[Mapping[str, Use]]
) -> dict[str, int]:
    """Return how many runs a backfill may have under way, by pool and in all."""
    uses = list(others)
    return {
        name: share(cap, own.get(name, Use()), [use[name] for use in uses if name in use])
        for name, cap in caps.items()
    }


def share(cap: int, own: Use, others: Iterable[Use]) -> int:
    """Return how many runs a backfill may have under way, of a cap that it shares.

    What it and the others want is filled up evenly, the smallest demand first, so none holds a
    place that another one needs more. Places become free as runs end; every backfill gets its one
    run, and so none starves, even where there are more backfills than places.

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
