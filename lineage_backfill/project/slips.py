"""Tells a misspelt name from another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_DIGITS: Final = re.compile(r"\d+")
#: How long a name must be for one letter to be a slip: `ja` and `jb` are two names.
_LEAST: Final = 4


class Slips(Generic[T]):
    """Finds values whose names may be misspelt, without comparing each name with each other one.

    `wanted` are the names that will be asked for: values with names of other lengths are left out.
    """

    def __init__(
        self, values: Iterable[T], wanted: Iterable[str], name: Callable[[T], str]
    ) -> None:
        self._name = name
        self._found: dict[str, list[T]] = {}
        lengths = {len(one) + more for one in wanted for more in (-1, 0, 1)}
        for value in values if lengths else ():
            if len(name(value)) in lengths:
                for text in shortened(name(value)):
                    self._found.setdefault(text, []).append(value)

    def near(self, name: str) -> set[T]:
        """Return the values whose names differ by at most one slip."""
        found = {value for text in shortened(name) for value in self._found.get(text, ())}
        return {value for value in found if is_one_slip(self._name(value), name)}


def is_slip(one: str, other: str) -> bool:
    """Whether one of two names is probably the other, misspelt."""
    return not is_short(one, other) and is_one_slip(one, other) and not differ_in_digits(one, other)


def is_short(one: str, other: str) -> bool:
    """Whether both names are so short that one letter makes another name."""
    return max(len(one), len(other)) < _LEAST


def is_one_slip(one: str, other: str) -> bool:
    """Whether at most one letter differs, is missing, or is exchanged with the next."""
    one, other = one.casefold(), other.casefold()
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])


def shortened(name: str) -> set[str]:
    """Return the name and all variants without one letter: similar names share one."""
    text = name.casefold()
    return {text, *(text[:at] + text[at + 1 :] for at in range(len(text)))}


def differ_in_digits(one: str, other: str) -> bool:
    """Whether the names differ only in numbers, such as another year or store."""
    return one != other and _DIGITS.sub("0", one) == _DIGITS.sub("0", other)
