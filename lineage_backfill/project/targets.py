"""`[target.NAME]` tables, which overlay the project file where that target is chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lineage_backfill.errors import ConfigError
from lineage_backfill.typed import near_misses

#: Names the target where the command line does not.
VARIABLE = "LINEAGE_BACKFILL_TARGET"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
#: Lists of tables: one with the same name is overlaid, another one is added.
_NAMED = {"dataset": ("name", "pattern"), "job": ("name",)}
_SHARED = ("name", "namespace")  # of [project]: what names mean is the same in all targets


def chosen(document: Mapping[str, Any], target: str, place: str) -> dict[str, Any]:
    """Return a project file's document as it holds for a target, "" for none.

    Raises ConfigError for a target that it has no table of.

    >>> file = {"store": {"url": "a"}, "target": {"prod": {"store": {"url": "b"}}}}
    >>> chosen(file, "prod", "the file")
    {'store': {'url': 'b'}}
    """
    rest = {name: value for name, value in document.items() if name != "target"}
    targets = document.get("target", {})
    if not isinstance(targets, Mapping) or not all(
        isinstance(one, Mapping) for one in targets.values()
    ):
        raise ConfigError(f"{place}: `target` must be tables ([target.NAME])")
    for name in targets:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{place}: invalid name of a target: {name!r}", hint="Use letters, digits, - and _."
            )
    if not target:
        return rest
    if target not in targets:
        known = f"It has {', '.join(sorted(targets))}." if targets else "It has no [target.…]."
        raise ConfigError(
            f"{place}: no target {target!r}", hint=near_misses(target, targets) or known
        )
    return _overlaid(rest, targets[target], f"{place} [target.{target}]")


def folder(target: str) -> str:
    """Return the folder of what backfills of a target leave behind, below the project's."""
    return f".lineage-backfill/targets/{target}" if target else ".lineage-backfill"


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any], place: str) -> dict[str, Any]:
    for key in _SHARED:
        if key in above.get("project", {}):
            raise ConfigError(
                f"{place}: [project] `{key}` is the same in all targets",
                hint="Set it in [project], outside of the target.",
            )
    found = dict(below)
    for name, value in above.items():
        if name == "target":
            raise ConfigError(f"{place}: a target within a target")
        if name in _NAMED and isinstance(value, list):
            found[name] = _listed(found.get(name, []), value, f"{place} [[{name}]]", _NAMED[name])
        else:
            found[name] = _merged(found.get(name), value)
    return found


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    over = {name: _merged(below.get(name), one) for name, one in above.items()}
    return {**below, **over} if over else below


def _listed(below: Any, above: list[Any], place: str, keys: tuple[str, ...]) -> Any:
    if not isinstance(below, list):
        return below  # the reader of the file says what is wrong with it
    if not all(isinstance(one, Mapping) for one in (*below, *above)):
        return [*above, *below]
    found, added = list(below), []
    places: dict[str, list[int]] = {}
    for number, one in enumerate(below):
        places.setdefault(str([one.get(key) for key in keys]), []).append(number)
    for over in above:
        names = [over.get(key) for key in keys]
        named = f'{place} "{next(filter(None, names), "")}"'
        same = places.get(str(names), [])
        if len(same) > 1:
            space = over.get("namespace")
            same = [number for number in same if below[number].get("namespace") == space]
            if not same and space is None:
                raise ConfigError(f"{named}: overrides several tables", hint="Add a `namespace`.")
        for number in same:
            if found[number] is not below[number]:
                raise ConfigError(f"{named}: overridden twice", hint="Merge the two tables.")
            found[number] = _merged(below[number], over)
        if not same:
            added.append(over)
    return [*added, *found]  # of patterns the first one counts
