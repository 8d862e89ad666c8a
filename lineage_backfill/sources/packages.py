"""Lineage sources by their kind: ours, those of Python files, and those of other packages."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from lineage_backfill.errors import ConfigError
from lineage_backfill.plugins import Plugins
from lineage_backfill.ports import LineageSource

#: What to read instead of catalogs that a project may name.
_EXPORT = "Write its edges as events: docs/events.md, *Another catalog*."
_UNITY = 'Export its system tables: source = "unity", docs/events.md.'
_INSTEAD = {
    **dict.fromkeys(("databricks", "unity_catalog"), _UNITY),
    **dict.fromkeys(("datahub", "openmetadata"), _EXPORT),
}
_OURS = {
    "airflow": "lineage_backfill.engines.airflow.assets:AirflowAssets",
    "dbt": "lineage_backfill.sources.dbt:DbtSource",
    "unity": "lineage_backfill.sources.unity:UnitySource",
}
_PLUGINS = Plugins("lineage_backfill.sources", "a", "lineage source", LineageSource)


def create_source(kind: str, settings: Mapping[str, object], *, project: Path) -> LineageSource:
    """Make the lineage source of a kind; `settings` are those of the project file.

    `project` is the folder of the project file, and the base of a kind that is a Python file, as
    FILE.py or FILE.py:NAME. References and environment variables only give strings, so a string may
    stand for a number, true or false. Raises ConfigError for an unknown kind, for settings that it
    does not take and for a file that does not offer a source.
    """
    known = _OURS
    file, _, name = kind.partition(":")
    if file.endswith(".py"):
        known = {kind: _in_file(project / Path(file).expanduser(), name)}
    elif kind in _INSTEAD and not entry_points(group=_PLUGINS.group, name=kind):
        raise ConfigError(f"there is no lineage source of kind {kind!r}", hint=_INSTEAD[kind])
    source: LineageSource = _PLUGINS.create(kind, settings, known, from_text=True, project=project)
    return source


def _in_file(file: Path, name: str) -> str:
    """Return MODULE:NAME of the source that a file offers."""
    module = _loaded(file)
    offered = [
        one
        for one, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and hasattr(value, "read")
    ]
    if name and not callable(getattr(module, name, None)):
        raise ConfigError(
            f"{file} has no class or function {name!r}",
            hint=f"It offers {', '.join(offered)}." if offered else _HINT,
        )
    if not name and len(offered) != 1:
        what = f"several classes with `read`: {', '.join(offered)}" if offered else "no such class"
        raise ConfigError(f"{file} offers {what}", hint=_HINT)
    return f"{module.__name__}:{name or offered[0]}"


_HINT = "A source is a class with a method `read`, named as FILE.py:NAME: docs/extending.md."


def _loaded(file: Path) -> ModuleType:
    if not file.is_file():
        raise ConfigError(f"{file}: no such file", hint="Correct the path of the source.")
    name = f"lineage_source_{file.stem}"
    spec = spec_from_file_location(name, file)
    assert spec is not None  # its name ends with .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(
            f"{file} cannot be imported: {type(error).__name__}: {error}",
            hint="Try it alone: python FILE.py.",
        ) from error
    return module
