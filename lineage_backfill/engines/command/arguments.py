"""Arguments of the user's own programs, with placeholders such as `{job}`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import Formatter


def check(argv: Sequence[str], known: Collection[str]) -> None:
    """Raise ValueError unless every placeholder is known and can be filled."""
    names = [name for item in argv for _, name, _, _ in Formatter().parse(item)]
    for name in names:
        if name is not None and name not in known:
            raise ValueError(
                f"{{{name}}} is not a placeholder: use {', '.join(known)}, or {{{{ for a brace"
            )
    filled(argv, dict.fromkeys(known, ""))  # such as {job:d}, which does not format text


def filled(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the arguments with the values filled in; each stays one argument."""
    return [item.format_map(values) for item in argv]
