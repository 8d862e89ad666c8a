"""Arguments of the user's own programs, in which placeholders such as `{job}` stand for values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import Formatter


def check(argv: Sequence[str], known: Collection[str]) -> None:
    """Raise ValueError unless every placeholder is one of those known, and can be filled."""
    names = [name for item in argv for _, name, _, _ in Formatter().parse(item)]
    for name in names:
        if name is not None and name not in known:
            raise ValueError(
                f"{{{name}}} stands for nothing; there are {', '.join(known)}, and {{{{ is a brace"
            )
    filled(argv, dict.fromkeys(known, ""))  # such as {job:d}, which no text takes


def filled(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the arguments with the values: each stays one argument, whatever they hold."""
    return [item.format_map(values) for item in argv]
