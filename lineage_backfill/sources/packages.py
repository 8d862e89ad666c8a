"""Lineage sources by their kind: ours, and those of other packages by their entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lineage_backfill.plugins import Plugins
from lineage_backfill.ports import LineageSource

_OURS = {"dbt": "lineage_backfill.sources.dbt:DbtSource"}
_PLUGINS = Plugins("lineage_backfill.sources", "a", "lineage source", LineageSource)


def create_source(kind: str, settings: Mapping[str, object], *, project: Path) -> LineageSource:
    """Make the lineage source of a kind; `settings` are those of the project file.

    `project` is the folder of the project file. References and environment variables only give
    strings, so a string may stand for a number, true or false. Raises ConfigError for an unknown
    kind and for settings that it does not take.
    """
    source: LineageSource = _PLUGINS.create(kind, settings, _OURS, from_text=True, project=project)
    return source
