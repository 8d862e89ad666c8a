"""A file of events, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of events: its name for messages, its size in bytes, and how to open it.

    One that `is_named` is read whatever its ending.
    """

    name: str
    size: int
    open: Callable[[], BinaryIO]
    is_named: bool = False
