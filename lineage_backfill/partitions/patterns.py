"""Patterns of dataset names with a partition key, such as `orders_{day:%Y_%m_%d}`.

A placeholder may stand in several places, as in `year={day:%Y}/month={day:%m}/day={day:%d}`;
without a format it is the label of a grain that it is named after, or else any text without a `/`.
`{{` and `}}` are plain braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Final

from lineage_backfill.errors import DeclarationError

#: How a key's local start is written as its label, for each grain; None: cron and fixed steps.
_LABELS: Final[Mapping[str | None, str]] = {
    "hour": "%Y-%m-%dT%H",
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m-01",
    "quarter": "%Y-%m-01",
    "year": "%Y-01-01",
    None: "%Y-%m-%dT%H:%M",
}
#: What each directive of strftime matches; `%q` is the quarter, which strftime lacks, and a `-`
#: as in `%-m` allows for numbers without leading zeros.
_DIRECTIVES: Final[Mapping[str, str]] = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "q": r"[1-4]",
    "m": r"\d{2}",
    "d": r"\d{2}",
    "j": r"\d{3}",
    "G": r"\d{4}",
    "V": r"\d{2}",
    "H": r"\d{2}",
    "M": r"\d{2}",
    "S": r"\d{2}",
}
#: The grain that a directive determines, finest first; None: finer than an hour.
_BY_LETTER: Final[Mapping[str, str | None]] = {
    "S": None,
    "M": None,
    "H": "hour",
    "d": "day",
    "j": "day",
    "V": "week",
    "m": "month",
    "q": "quarter",
    "Y": "year",
    "y": "year",
    "G": "year",
}
#: A directive means a date only beside one of these.
_NEEDS: Final[Mapping[str, str]] = {
    "S": "M",
    "M": "H",
    "H": "djV",
    "d": "m",
    "j": "Yy",
    "V": "GY",
    "m": "Yy",
    "q": "Yy",
}
_FROM_FINE_TO_COARSE: Final = (None, "hour", "day", "week", "month", "quarter", "year")
_PART: Final = re.compile(r"\{\{|\}\}|\{(\w+)(?::([^{}]*))?\}|[{}]")
#: Characters between a placeholder and the text before it.
_SET_APART: Final = re.compile(r"(?:/\w+=|(?:^|[-_.])[^\W_]+=|[-_./=$@]+)\Z")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern of names, one for each partition of a dataset.

    `placeholders` maps each to the grain whose beginning it tells, None for an instant within an
    hour and "" for any text; `stem` is what is left of the name without them, perhaps nothing.
    Raises DeclarationError for a text that is not a pattern.

    >>> NamePattern("/data/orders/ds={day:%Y-%m-%d}/region={region}").stem
    '/data/orders'
    """

    text: str
    placeholders: Mapping[str, str | None] = field(init=False)
    stem: str = field(init=False)
    _names: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _groups: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        expression = stem = ""
        groups: list[tuple[str, str]] = []
        for plain, name, form in _pieces(self.text):
            expression += re.escape(plain)
            stem += _SET_APART.sub("", plain) if name else plain
            if name:
                inner, letters = _form(name, form)
                expression += inner
                groups += [(name, letter) for letter in letters]
        if not groups:
            raise DeclarationError(
                f"`pattern` has no placeholder: {self.text}",
                hint='Mark the part that differs, as in "orders_{day:%Y_%m_%d}".',
            )
        stated = {name: _grain_of([x for one, x in groups if one == name]) for name, _ in groups}
        if self.text.startswith("{"):
            stem = stem.lstrip("-_./=")
        object.__setattr__(self, "placeholders", stated)
        object.__setattr__(self, "stem", stem)
        object.__setattr__(self, "_names", re.compile(expression, re.ASCII))
        object.__setattr__(self, "_groups", tuple(groups))

    def match(self, name: str, grain: str | None = None) -> Mapping[str, str] | None:
        """Return the key that a name holds, as a label for each placeholder; None if it has none.

        `grain` is that of the calendar, where it is not the one that the format tells.

        >>> NamePattern("orders_{day:%Y_%m_%d}").match("orders_2021_06_04")
        {'day': '2021-06-04'}
        >>> NamePattern("orders_{day:%Y_%m_%d}").match("orders_2021_13_04") is None
        True
        """
        found = self._names.fullmatch(name)
        if found is None:
            return None
        texts: dict[str, str] = {}
        numbers: dict[str, dict[str, int]] = {}
        for (placeholder, letter), text in zip(self._groups, found.groups(), strict=True):
            if letter:
                number = int(text)
                same = numbers.setdefault(placeholder, {}).setdefault(letter, number) == number
            else:
                same = texts.setdefault(placeholder, text) == text
            if not same:  # a placeholder that occurs twice must have one value
                return None
        key = {}
        for placeholder, stated in self.placeholders.items():
            if stated == "":
                key[placeholder] = texts[placeholder]
            elif label := _label(numbers[placeholder], grain or stated):
                key[placeholder] = label
            else:
                return None
        return key


def tells_grain(stated: str | None, grain: str) -> bool:
    """Return whether a name with the grain `stated` determines a partition of `grain`.

    >>> tells_grain("day", "week"), tells_grain("day", "hour"), tells_grain("", "day")
    (True, False, False)
    """
    order = _FROM_FINE_TO_COARSE
    return stated != "" and order.index(stated) <= order.index(grain)


def escaped(text: str) -> str:
    """Return a plain text as it stands in a pattern."""
    return text.replace("{", "{{").replace("}", "}}")


def _pieces(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield (plain text, the placeholder after it, its format), in the end with no placeholder."""
    plain, at = "", 0
    for part in _PART.finditer(text):
        plain += text[at : part.start()]
        at = part.end()
        if part[1]:
            yield plain, part[1], part[2]
            plain = ""
        elif len(part[0]) == 2:
            plain += part[0][0]
        else:
            raise DeclarationError(
                f"`pattern` has a brace outside of a placeholder: {text}",
                hint="Write {{ or }} for a plain brace.",
            )
    yield plain + text[at:], "", None


def _form(name: str, form: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the regular expression of a placeholder and the directive of each of its groups."""
    form = _LABELS.get(name) if form is None else form
    if form is None:
        return "([^/]+?)", ("",)
    expression, letters = "", []
    for piece in re.findall(r"%-?.?|[^%]+", form):
        letter = piece[-1]
        if not piece.startswith("%"):
            expression += re.escape(piece)
        elif piece == "%%":
            expression += "%"
        elif letter in _DIRECTIVES and (piece[1] != "-" or letter in "mdH"):
            expression += r"(\d{1,2})" if piece[1] == "-" else f"({_DIRECTIVES[letter]})"
            letters.append(letter)
        else:
            raise DeclarationError(
                f"`pattern` has an unsupported directive: {piece}",
                hint=f"There are {', '.join('%' + known for known in _DIRECTIVES)}.",
            )
    return expression, tuple(letters)


def _grain_of(letters: Sequence[str]) -> str | None:
    """Return the grain that the directives of one placeholder determine."""
    if letters == [""] * len(letters):
        return ""
    for letter in letters:
        if letter in _NEEDS and not set(_NEEDS[letter]) & set(letters):
            raise DeclarationError(
                f"`pattern` has %{letter} without the date it belongs to",
                hint="Use a format with a whole date, such as %Y-%m-%d.",
            )
    if not {"Y", "y", "G"} & set(letters) or "" in letters:
        raise DeclarationError(
            "`pattern` has a placeholder without a year",
            hint="Use a format with a whole date, such as %Y-%m-%d.",
        )
    return next(grain for letter, grain in _BY_LETTER.items() if letter in letters)


def _label(number: Mapping[str, int], grain: str | None) -> str | None:
    """Return the label of the key that begins there or holds it; None for a date that is none."""
    year = number.get("Y", 2000 + number.get("y", 0))
    try:
        if "V" in number:
            day = date.fromisocalendar(number.get("G", year), number["V"], 1)
        elif "j" in number:
            day = date(year, 1, 1) + timedelta(number["j"] - 1)
            if day.year != year:
                return None
        else:
            month = number.get("m", 3 * number.get("q", 1) - 2)
            day = date(year, month, number.get("d", 1))
        clock = time(number.get("H", 0), number.get("M", 0))
    except ValueError:
        return None
    if grain == "quarter":
        day = day.replace(month=day.month - (day.month - 1) % 3)
    return datetime.combine(day, clock).strftime(_LABELS[grain])
