"""The project file: found, layered with environment and flags, and turned into declarations."""

from lineage_backfill.project.settings import (
    FILE_NAME,
    LineageSetting,
    Project,
    Setting,
    find_file,
    load_project,
)

__all__ = ["FILE_NAME", "LineageSetting", "Project", "Setting", "find_file", "load_project"]
