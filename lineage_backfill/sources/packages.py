"""Lineage sources by their kind: ours, and those of other packages by their entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from lineage_backfill.errors import ConfigError
from lineage_backfill.plugins import Plugins
from lineage_backfill.ports import LineageSource

#: What to read instead of catalogs that a project may name.
_EVENTS = 'Read the events of its OpenLineage provider: source = "events" or "marquez".'
_EXPORT = "Write its edges as events: docs/events.md, *Another catalog*."
_INSTEAD = {
    "airflow": _EVENTS,
    **dict.fromkeys(("databricks", "datahub", "openmetadata", "unity", "unity_catalog"), _EXPORT),
}
_OURS = {"dbt": "lineage_backfill.sources.dbt:DbtSource"}
_PLUGINS = Plugins("lineage_backfill.sources", "a", "lineage source", LineageSource)


def create_source(kind: str, settings: Mapping[str, object], *, project: Path) -> LineageSource:
    """Make the lineage source of a kind; `settings` are those of the project file.

    `project` is the folder of the project file. References and environment variables only give
    strings, so a string may stand for a number, true or false. Raises ConfigError for an unknown
    kind and for settings that it does not take.
    """
    if kind in _INSTEAD and not entry_points(group=_PLUGINS.group, name=kind):
        raise ConfigError(f"there is no lineage source of kind {kind!r}", hint=_INSTEAD[kind])
    source: LineageSource = _PLUGINS.create(kind, settings, _OURS, from_text=True, project=project)
    return source
