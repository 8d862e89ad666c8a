"""The settings of a project as the document that `config show` prints."""

from __future__ import annotations

from typing import Any

from lineage_backfill.project import Project


def document(project: Project) -> dict[str, Any]:
    """Return every setting in effect with its origin; secrets are masked."""
    return {
        "schema_version": 1,
        "kind": "config",
        "file": project.file and str(project.file),
        "settings": [
            {"name": one.name, "value": one.shown, "origin": one.origin} for one in project.settings
        ],
    }
