"""The project file: read, checked, layered with environment and flags, and resolved."""

from lineage_backfill.project.settings import FILE_NAME, LineageSetting, Project, Setting

__all__ = ["FILE_NAME", "LineageSetting", "Project", "Setting"]
