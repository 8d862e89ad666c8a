"""Lengths of time in the settings of engines."""

from __future__ import annotations

_LONGEST = 1_000_000_000  # about 30 years; a program cannot wait for much longer


def check_seconds(name: str, seconds: float) -> None:
    """Raise ValueError unless a program can wait for this long; `name` is that of the setting."""
    if seconds <= 0:
        raise ValueError(f"`{name}` is {seconds}, but must be more than 0")
    if seconds > _LONGEST:
        raise ValueError(f"`{name}` is {seconds}, but must be at most {_LONGEST}")
