"""Adapters that run one job elsewhere; each is loaded when a project names its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from lineage_backfill.errors import ConfigError
from lineage_backfill.ports import Engine

#: Where the engine of each kind is found; third parties add theirs by an entry point of GROUP.
ENGINES: Mapping[str, str] = {
    "airflow": "lineage_backfill.engines.airflow:AirflowEngine",
    "command": "lineage_backfill.engines.command:CommandEngine",
    "local": "lineage_backfill.engines.local:LocalEngine",
    "spark-submit": "lineage_backfill.engines.applications:spark_submit_engine",
}
GROUP = "lineage_backfill.engines"
#: How Python says that a setting is unknown or missing.
_UNKNOWN = re.compile(r"unexpected keyword argument '([^']+)'")
_MISSING = re.compile(r"missing \d+ required keyword-only arguments?: (.+)")


def create_engine(
    kind: str, settings: Mapping[str, object], *, project: Path, state_dir: Path
) -> Engine:
    """Make the engine of a kind; `settings` are those of its table in the project file.

    `project` is the folder of the project file, `state_dir` where the engine may keep files.
    Raises ConfigError for an unknown kind and for settings that it does not take.
    """
    others = {point.name: point.value for point in entry_points(group=GROUP)}
    known = {**others, **ENGINES}
    if kind not in known:
        raise ConfigError(
            f"there is no engine of kind {kind!r}", hint=f"Use one of {', '.join(sorted(known))}."
        )
    module, _, name = known[kind].partition(":")
    engine_class = getattr(import_module(module), name)
    try:
        engine = engine_class(project=project, state_dir=state_dir, **settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            _misfit(kind, str(error)),
            hint="See the documentation of this engine for its settings.",
        ) from error
    if not isinstance(engine, Engine):
        raise ConfigError(
            f"{name} of engine kind {kind!r} does not have all members of"
            " lineage_backfill.ports.Engine",
            hint="Subclass that protocol: it has defaults for what an engine need not do.",
        )
    return engine


def _misfit(kind: str, error: str) -> str:
    """Return what is wrong with the settings, in the words of the project file."""
    if unknown := _UNKNOWN.search(error):
        return f"an engine of kind {kind!r} has no setting {unknown[1]!r}"
    if missing := _MISSING.search(error):
        return f"an engine of kind {kind!r} needs the setting {missing[1]}"
    return f"the settings of engine {kind!r} do not fit: {error}"
