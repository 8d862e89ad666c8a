"""The partitions that a run read or wrote, by OpenLineage's `subset` facets.

A facet says it by values of columns, or by the folders of its files; conditions on rows name no
partitions (https://openlineage.io/spec/facets/1-0-0/BaseSubsetDatasetFacet.json).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from lineage_backfill.lineage.identity.families import date_parts, folders, label_of

#: How many partitions one facet may name to count at all; lineage is untrusted input.
MOST: Final = 1_000
_LONGEST: Final = 200  # characters of one value
#: What keys, ranges and sets are written with.
_NOTATION: Final = re.compile(r"[,/=%]|\.\.")

Columns = dict[str, str]


def subset_keys(facet: Any) -> frozenset[str]:
    """Return the keys that a subset facet tells, none where it tells no whole partitions.

    A key is written as a user would: a label where one column, or several that are parts of one
    date, hold it; else as in `ds=2024-06-15/region=eu`. Raises what a facet of another shape does:
    AttributeError, KeyError, TypeError or ValueError.
    """
    found = _columns(facet.get("inputCondition") or facet.get("outputCondition"))
    if len(found) > MOST:
        return frozenset()
    keys = [_key(tuple(sorted(columns.items()))) for columns in found]
    return frozenset(key for key in keys if key) if all(keys) else frozenset()


def _columns(condition: Any) -> list[Columns]:
    """Return the values of columns of each partition; nothing where they are not told."""
    kind = condition.get("type") if condition else None
    if kind == "partition":
        return [_texts(part["dimensions"]) for part in condition["partitions"]]
    if kind == "location":
        found = [folders(location) for location in condition["locations"]]
        return found if all(found) else []
    return []


def _texts(values: Any) -> Columns:
    texts = {str(name): str(value) for name, value in values.items()}
    if not texts or any(len(value) > _LONGEST for value in texts.values()):
        raise ValueError("a partition without values, or with long ones")
    return texts


@lru_cache(maxsize=10_000)
def _key(columns: tuple[tuple[str, str], ...]) -> str:
    """Return the key in the notation of users; empty where a plain key cannot be written in it."""
    named = date_parts(dict(columns))
    if len(named) == 1:
        (value,) = named.values()
        return label_of(value) or ("" if _NOTATION.search(value) else value)
    pairs = (f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(named.items()))
    return "/".join(pairs)


def _encoded(text: str) -> str:
    return _NOTATION.sub(lambda found: "".join(f"%{ord(sign):02X}" for sign in found[0]), text)
