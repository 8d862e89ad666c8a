"""`[target.NAME]` tables, which overlay the project file where that target is chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lineage_backfill.errors import ConfigError
from lineage_backfill.project.table import near_misses

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
            found[name] = _listed(found.get(name, []), value, _NAMED[name])
        else:
            found[name] = _merged(found.get(name), value)
    return found


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    over = {name: _merged(below.get(name), one) for name, one in above.items()}
    return {**below, **over} if over else below


def _listed(below: Any, above: list[Any], keys: tuple[str, ...]) -> Any:
    def names_of(table: Any) -> list[Any]:
        return [table.get(key) for key in keys] if isinstance(table, Mapping) else [table]

    if not isinstance(below, list):
        return below  # the reader of the file says what is wrong with it
    over = {str(names_of(one)): one for one in above}
    found = [_merged(one, over.pop(str(names_of(one)), {})) for one in below]
    return [*over.values(), *found]  # of patterns the first one counts
