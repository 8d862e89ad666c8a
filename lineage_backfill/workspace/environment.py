"""The environment of a project: its file, its code, the account, and adapters."""

from __future__ import annotations

import getpass
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.errors import ConfigError, ServiceUnreachableError
from lineage_backfill.project import Project
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.references import revealed
from lineage_backfill.project.resolve.functions import mapping_functions
from lineage_backfill.project.targets import folder
from lineage_backfill.workspace.code import declared_in_code
from lineage_backfill.workspace.configuration import lineage_origin, load_project, read_file

_log = logging.getLogger(__name__)
_SQLITE = "sqlite:///"
_COMMAND_TIMEOUT = 60  # seconds for a command that prints a secret


def load(name: str) -> Any:
    """Import the module of MODULE:NAME and return the object."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def open_project(
    file: Path | None = None,
    *,
    start: Path | None = None,
    search: bool = True,
    target: str | None = None,
    lineage: Mapping[str, object] | None = None,
    allow_torn: bool = False,
    code: bool = True,
) -> Project:
    """Return the project of `file`, or the one found upward; settings of `lineage` come first.

    The search begins at `start`, by default the working directory.

    Without `file` and `search` it has no file. `target` overlays the file. Without `code`, what the
    code declares is left out. Raises ConfigError or DeclarationError.
    """
    flags = {f"lineage.{name}": value for name, value in (lineage or {}).items()}
    project = load_project(start, file=file, search=search, flags={**flags, "target": target})
    if allow_torn:
        project = replace(project, lineage=replace(project.lineage, allow_torn=True))
    if code:
        project = declared_in_code(project)
    elif project.jobs:
        project = replace(project, lineage=replace(project.lineage, no_code=True))
    _log.info("project file: %s", project.file or "none")
    _log.info("lineage %s", lineage_origin(project) or "none: no source is named")
    return project


def log_time(began: float, what: str) -> None:
    """Log an action since `began`, an instant of the monotonic clock."""
    _log.info("%s, in %.2f s", what, time.monotonic() - began)


def sqlite_file(project: Project) -> Path | None:
    """Return the file of the run store; None for a database server."""
    if not project.store_url.startswith(_SQLITE):
        return None
    return Path(project.store_url.removeprefix(_SQLITE))


def state_dir(project: Project) -> Path:
    """Return the folder for the files of backfills."""
    return project.root / folder(project.target)


def spark_conf(declarations: Declarations) -> Mapping[str, Any]:
    """Return the Spark settings of the first engine that has any, to read tables with."""
    confs = (one.settings.get("conf") for one in declarations.engines)
    return next((conf for conf in confs if isinstance(conf, Mapping)), {})


def code_version(root: Path) -> str:
    """Return the commit of the project's code, marked if it has changes; empty if unknown."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()[:200]


def load_functions(project: Project) -> Mapping[str, Callable[[Any], Any]]:
    """Load the functions that `python` mappings name, from the project's code."""

    def load_ours(name: str) -> Any:
        if str(project.code) not in sys.path:
            sys.path.insert(0, str(project.code))
        with redirect_stdout(sys.stderr):
            return _on_stderr(load(name))

    hint = f"It is looked for below {project.code}."
    return mapping_functions(project.declarations.jobs, load_ours, hint=hint)


def _on_stderr(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a user's function whose prints go to stderr: stdout is data."""

    @wraps(function)
    def call(key: Any) -> Any:
        with redirect_stdout(sys.stderr):
            return function(key)

    return call


def true_parameters(parameters: Mapping[str, Any], *, base: Path) -> dict[str, Any]:
    """Return parameters with their secrets resolved, which are masked from now on.

    Raises ConfigError for a missing variable or file; `base` is the base of relative paths.
    """
    return {name: _true(name, value, base) for name, value in parameters.items()}


def _true(name: str, value: Any, base: Path) -> Any:
    if isinstance(value, Mapping):
        return true_parameters(value, base=base)
    if not isinstance(value, str) or not redaction.is_secret(name, value):
        return value
    text = value.removeprefix(redaction.DECLARED)
    return true_text(text, base=base, place=f"parameter `{name}`")


def true_text(text: str, *, base: Path, place: str = "[[notify]]") -> str:
    """Return the value of a secret's reference, which is masked from now on."""
    found: str = revealed(text, place=place, base=base, environ=os.environ, read=read_file)
    redaction.remember([found])
    return found


def current_secret(source: object, *, base: Path, place: str) -> str:
    """Return a secret that may change: a reference, read again, or the output of a command.

    `source` is a reference, or a table with the `command`. Raises ConfigError.
    """
    if isinstance(source, str):
        return true_text(source, base=base, place=place)
    command = source.get("command") if isinstance(source, Mapping) else None
    if not (isinstance(command, list) and command and len(source) == 1):  # type: ignore[arg-type]
        raise ConfigError(
            f"{place}: `token` must be a reference or a command",
            hint='Write token = "file:PATH", "env:NAME" or { command = ["program", "argument"] }.',
        )
    try:
        found = subprocess.run(
            [str(part) for part in command],
            cwd=base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_COMMAND_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServiceUnreachableError(
            f"{place}: the command of `token` failed: {redaction.redacted(str(error))}",
            hint="Run it by hand; it must print the token.",
        ) from error
    redaction.remember([found.stdout.strip()])
    return found.stdout.strip()


def account() -> str:
    """Return the name of the current account; empty if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in containers
        return ""
