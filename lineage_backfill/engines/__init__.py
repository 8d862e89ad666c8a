"""Adapters that run one job elsewhere; each is loaded when a project names its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lineage_backfill.engines.lists import ListEngine
from lineage_backfill.plugins import Plugins
from lineage_backfill.ports import Engine

#: Where the engine of each kind is found; third parties add theirs by an entry point.
ENGINES: Mapping[str, str] = {
    "airflow": "lineage_backfill.engines.airflow.engine:AirflowEngine",
    "command": "lineage_backfill.engines.command.engine:CommandEngine",
    "databricks": "lineage_backfill.engines.databricks.engine:DatabricksEngine",
    "local": "lineage_backfill.engines.spark.engine:spark_engine",
    "spark": "lineage_backfill.engines.spark.engine:spark_engine",
    "spark-submit": "lineage_backfill.engines.spark.settings:refuse_spark_submit",
}
_PLUGINS = Plugins("lineage_backfill.engines", "an", "engine", Engine)


def create_engine(
    kind: str,
    settings: Mapping[str, object],
    *,
    project: Path,
    state_dir: Path,
    name: str = "",
) -> Engine:
    """Make the engine of a kind; `settings` are those of its table in the project file.

    `project` is the folder of the project file, `state_dir` where the engine may keep files,
    `name` what the project file calls the engine, by default its kind. Raises ConfigError for an
    unknown kind and for settings that it does not take.
    """
    engine: Engine = _PLUGINS.create(
        kind, settings, ENGINES, name=name, project=project, state_dir=state_dir
    )
    return ListEngine(engine) if engine.lists else engine
