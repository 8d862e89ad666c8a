"""Finds the project file of this process, and reads it by the rules of the core."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from lineage_backfill.project.settings import Project, read_project, unreadable

_NAME = "lineage-backfill"


def load_project(start: Path, file: Path | None = None) -> Project:
    """Return the project of a folder: from `file`, or the project file found upward.

    Raises ConfigError or DeclarationError, as the tool does.
    """
    return read_project(
        start.absolute(),
        read_file,
        environ=os.environ,
        user_file=user_folder("config") / "config.toml",
        file=file and file.absolute(),
    )


def outbox_of(project: Project) -> Path | None:
    """Return the folder for lineage events; None if neither file nor variable sets one."""
    (setting,) = (one for one in project.settings if one.name == "lineage.outbox")
    return project.outbox if project.file or setting.origin != "default" else None


def address_of(project: Project) -> str | None:
    """Return the address to send lineage events to."""
    return project.lineage.address or os.environ.get("OPENLINEAGE_URL")


def user_folder(kind: str) -> Path:
    """Return the user's folder of a kind, "config" or "cache"."""
    if importlib.util.find_spec("platformdirs") is not None:
        import platformdirs

        folder: Path = getattr(platformdirs, f"user_{kind}_path")(_NAME)
        return folder
    given = os.environ.get(f"XDG_{kind.upper()}_HOME")
    return Path(given or Path.home() / f".{kind}") / _NAME


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, None if it does not exist; raises ConfigError."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
