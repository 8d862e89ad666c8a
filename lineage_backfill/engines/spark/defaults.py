"""Reads the properties that spark-submit takes from a file: spark-defaults.conf, or another."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

_log = logging.getLogger(__name__)
_OPTION = "--properties-file"
#: A line of a Java properties file, without its rarer forms.
_LINE = re.compile(r"^[ \t]*([^\s=:#!]+)[ \t]*[=: \t][ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


def defaults_file(environment: Mapping[str, str], arguments: Sequence[str]) -> Path | None:
    """Return the file that spark-submit reads, None if unknown; it may not exist.

    >>> defaults_file({}, ["--verbose", "--properties-file", "a.conf"])
    PosixPath('a.conf')
    """
    for argument, following in pairwise((*arguments, "")):
        option, _, value = argument.partition("=")
        if option == _OPTION:
            return Path(value or following)
    folder, home = environment.get("SPARK_CONF_DIR"), environment.get("SPARK_HOME")
    place = Path(folder) if folder else Path(home, "conf") if home else None
    return place and place / "spark-defaults.conf"


def read_defaults(path: Path) -> dict[str, str]:
    """Return the properties in a file; none if it cannot be read.

    Each is named and given in a line, with a space, `=` or `:` between.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read: %s", path, error)
        return {}
    return dict(_LINE.findall(text))
