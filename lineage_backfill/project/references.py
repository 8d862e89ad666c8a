"""`env:NAME` and `file:PATH` in place of a secret: what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.errors import ConfigError

#: Returns a value with its references replaced, given its place and the folder of relative paths.
Reveal = Callable[..., Any]


def revealed(
    value: Any,
    *,
    place: str,
    base: Path,
    environ: Mapping[str, str],
    read: Callable[[Path], bytes | None],
) -> Any:
    """Return what a reference stands for, and any other value as it is; tables member by member.

    Raises ConfigError, which names the place, for a variable or a file that is not there.
    """
    if isinstance(value, Mapping):
        return {
            name: revealed(one, place=f"{place} {name}", base=base, environ=environ, read=read)
            for name, one in value.items()
        }
    if not isinstance(value, str):
        return value
    kind, _, name = value.partition(":")
    if kind == "env":
        if not environ.get(name):
            raise ConfigError(
                f"{place}: the environment variable {name} is not set",
                hint=f"Set {name}, or name another one.",
            )
        return environ[name]
    if kind == "file":
        path = base / Path(name).expanduser()
        data = read(path)
        if data is None:
            raise ConfigError(
                f"{place}: there is no file {path}", hint="Name the file of the secret."
            )
        try:
            return data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{place}: {path} is not UTF-8", hint="It holds one secret."
            ) from error
    return value
