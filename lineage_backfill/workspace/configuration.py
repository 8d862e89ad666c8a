"""Reads the configuration: project file, environment, and user file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from lineage_backfill import files, redaction
from lineage_backfill.project import settings
from lineage_backfill.project.settings import Project, unreadable


def load_project(
    start: Path | None = None,
    *,
    file: Path | None = None,
    search: bool = True,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: Path | None = None,
) -> Project:
    """Load the project that `start` (default: the working directory) belongs to.

    See `read_project`. `environ` and `user_file` default to the process's environment and the
    user's configuration folder. Raises ConfigError or DeclarationError.
    """
    variables = os.environ if environ is None else environ
    found = settings.read_project(
        (start or Path.cwd()).absolute(),
        read_file,
        environ=variables,
        user_file=user_file or platformdirs.user_config_path("lineage-backfill") / "config.toml",
        file=file,
        search=search,
        flags=flags,
    )
    redaction.remember(_secrets(found, variables))
    return found


def lineage_origin(project: Project, environ: Mapping[str, str] | None = None) -> str:
    """Return where the lineage is read from, which setting says so, and overruled variables.

    Empty if no source is named.
    """
    variables = os.environ if environ is None else environ
    named = {one.name: one for one in project.settings}
    source = next((named[name] for name in settings.SOURCES if named[name].value), None)
    if source is None:
        return ""
    overruled = [
        name
        for name in settings.SENDERS
        if variables.get(name)
        and name != source.origin
        and variables[name].rstrip("/") != str(source.value).rstrip("/")
    ]
    said = f"; it overrides {' and '.join(overruled)}" if overruled else ""
    return f"from {source.name} of {source.origin}{said}"


def _secrets(project: Project, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in the project file and the environment."""
    yield from redaction.secrets_in_address(project.store_url)
    for lineage in (project.lineage, *project.lineage.sources):
        yield lineage.api_key or ""
        for value in lineage.headers.values():
            yield value
            yield value.rpartition(" ")[2]  # of `Bearer …`
        yield from redaction.secrets_in_address(lineage.marquez or "")
        yield from redaction.secrets_of(lineage.source_settings)
    for hook in project.notify:
        yield from redaction.secrets_of({"url": hook.webhook or "", "command": hook.command})
        yield from redaction.secrets_in_path(urlsplit(hook.webhook or "").path)
    yield from redaction.secrets_of_environment(environ)
    engines = (one.settings for one in project.declarations.engines)
    for table in (project.spark, *engines):
        yield from redaction.secrets_of(table)


def find_file(start: Path) -> Path | None:
    """Return the project file in a folder or the nearest folder above, else None."""
    return settings.find_file(start, read_file)


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, None if it does not exist; raises ConfigError."""
    try:
        return files.read_file(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, files.reason(error)) from error
