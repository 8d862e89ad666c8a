"""Warnings of a plan by families: one line each, with a count and three names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lineage_backfill.model import listed


class Notice(NamedTuple):
    """A warning about a name; those that differ in it alone are a family.

    `leaves_out` if it names what the plan leaves out.
    """

    text: str  # what follows the name
    name: str = ""
    before: str = ""
    leaves_out: bool = False


def in_families(found: Iterable[Notice]) -> Iterator[str]:
    """Yield a line for each family, those first that name what the plan leaves out.

    >>> late = [Notice(": no log", f"orders_{number}") for number in range(5)]
    >>> list(in_families([*late, Notice("not planned: x", leaves_out=True)]))
    ['not planned: x', '5 of them (orders_0, orders_1, orders_2 and 2 more): no log']
    """
    families: dict[Notice, dict[str, None]] = {}
    for one in found:
        families.setdefault(one._replace(name=""), {})[one.name] = None
    for family, names in sorted(families.items(), key=lambda item: not item[0].leaves_out):
        among = list(names)
        name = among[0] if len(among) == 1 else f"{len(among):,} of them ({listed(among, 3)})"
        yield f"{family.before}{name}{family.text}"
