"""Locations of tables: paths on this machine, or URLs of another file system."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

#: One letter is a drive, not a scheme; `dbfs:/` has no host.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(location: str) -> bool:
    """Whether a location is a URL of another file system than this machine's.

    >>> is_remote("s3a://bucket/t"), is_remote("dbfs:/t"), is_remote("file:///t"), is_remote("a:b")
    (True, True, False, False)
    """
    return _URL.match(location) is not None and urlsplit(location).scheme != "file"


def absolute(location: str, base: Path) -> str:
    """Return a location below `base` unless it is absolute or a URL; links are followed."""
    if _URL.match(location):
        return location
    return str((base / Path(location).expanduser()).resolve())
