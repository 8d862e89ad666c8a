"""The project file: found, layered with environment and flags, and turned into declarations."""

from lineage_backfill.config.project import (
    LineageSetting,
    Project,
    Setting,
    find_file,
    load_project,
)

__all__ = ["LineageSetting", "Project", "Setting", "find_file", "load_project"]
