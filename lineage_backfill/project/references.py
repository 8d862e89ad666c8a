"""Resolves `env:NAME` and `file:PATH`, references to secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.errors import ConfigError

#: Returns a value with references replaced, for its place and the folder of relative paths.
Reveal = Callable[..., Any]


def revealed(
    value: Any,
    *,
    place: str,
    base: Path,
    environ: Mapping[str, str],
    read: Callable[[Path], bytes | None],
) -> Any:
    """Return a value with references replaced, also inside tables.

    Raises ConfigError, which names the place, for a missing variable or file.
    """
    if isinstance(value, Mapping):
        return {
            name: revealed(one, place=f"{place} {name}", base=base, environ=environ, read=read)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [revealed(one, place=place, base=base, environ=environ, read=read) for one in value]
    if not isinstance(value, str):
        return value
    kind, _, name = value.partition(":")
    if kind == "env":
        if not environ.get(name):
            raise ConfigError(
                f"{place}: the environment variable {name} is not set",
                hint=f"Set {name}, or name another variable.",
            )
        return environ[name]
    if kind == "file":
        path = base / Path(name).expanduser()
        try:
            data = read(path)
        except ConfigError as error:
            raise ConfigError(
                f"{place}: {error}", hint="Name a file that this account can read."
            ) from error
        if data is None:
            raise ConfigError(
                f"{place}: there is no file {path}", hint="Create the file, or correct the path."
            )
        try:
            return data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{place}: {path} is not UTF-8", hint="Save it as UTF-8; it contains one secret."
            ) from error
    return value
