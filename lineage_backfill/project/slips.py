"""Tells a misspelt name from another one."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile(r"\d+")
#: How long a name must be for one letter to be a slip: `ja` and `jb` are two names.
_LEAST: Final = 4


def is_slip(one: str, other: str) -> bool:
    """Whether one of two names is probably the other, misspelt."""
    is_long = max(len(one), len(other)) >= _LEAST and abs(len(one) - len(other)) <= 1
    return is_long and is_one_slip(one, other) and not differ_in_digits(one, other)


def is_one_slip(one: str, other: str) -> bool:
    """Whether at most one letter differs, is missing, or is exchanged with the next."""
    one, other = one.casefold(), other.casefold()
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])


def differ_in_digits(one: str, other: str) -> bool:
    """Whether the names differ only in numbers, such as another year or store."""
    return one != other and _DIGITS.sub("0", one) == _DIGITS.sub("0", other)
