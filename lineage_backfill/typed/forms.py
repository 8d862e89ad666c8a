"""What a type says of a document besides its annotations, and what is wrong with a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from datetime import date, time
from typing import Annotated, Any, Final

from lineage_backfill.errors import ConfigError, UsageError
from lineage_backfill.model import did_you_mean, listed
from lineage_backfill.redaction import MASK, is_secret


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How a value is written that is not written as itself.

    `read` takes what is written, and raises Misfit; `write` is its inverse, `schema` that of what
    is written.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    write: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that a number may be, and what it counts."""

    least: int | None = None
    most: int | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Star:
    """The text that stands for None, where None has a meaning."""

    text: str = "*"


@dataclass(frozen=True, slots=True)
class OneOrMore:
    """A list that may be written as its only item."""


ONE_OR_MORE: Final = OneOrMore()


def member(
    default: Any = MISSING,
    help: str = "",  # noqa: A002 (as argparse calls it)
    *,
    key: str = "",
    flat: bool = False,
    shown: bool = False,
    repr: bool = True,  # noqa: A002 (as dataclasses call it)
    compare: bool = True,
    **more: Any,
) -> Any:
    """Return the field of a dataclass, with what its annotation does not say.

    `key` is its name in the document, where it has another. The members of one that is `flat` stand
    beside the others; one that is `hidden` is not in documents, one that is `shown` is written even
    if it has its default value. `help` is for readers, also of the JSON Schema; `more` is for those
    who know it.
    """
    extra = {"key": key, "flat": flat, "shown": shown, "help": help, **more}
    metadata = {name: one for name, one in extra.items() if one}
    if isinstance(default, dict):
        return field(default_factory=default.copy, repr=repr, compare=compare, metadata=metadata)
    return field(default=default, repr=repr, compare=compare, metadata=metadata)


class Misfit(ValueError):
    """One value does not fit: `fault` is the rest of the sentence about it.

    `{value}` in it stands for the value, which is hidden where its name says that it is secret.
    """

    def __init__(self, fault: str, value: Any = None, *, hint: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.value = value
        self.hint = hint
        self.within: list[str | int] = []

    def inside(self, step: str | int) -> Misfit:
        """Return it as a fault of what is inside a list, or a table of values."""
        self.within.append(step)
        return self

    def of(self, name: str, *, hidden: bool = False, is_path: bool = False) -> tuple[str, str]:
        """Return the value's place, `name` and where in it, and what is wrong with it."""
        place = f"`{name}`"
        for step in reversed(self.within):
            if isinstance(step, str):
                place = f"{place[:-1]}.{step}`"
            else:
                place = f"{place[:-1]}[{step - 1}]`" if is_path else f"item {step} of {place}"
        names = [name, *(step for step in self.within if isinstance(step, str))]
        hidden = hidden or any(is_secret(one) or one == "headers" for one in names)
        return place, self.fault.replace("{value}", _shown(self.value, hidden=hidden))

    def sentence(self, name: str, *, is_path: bool = False) -> str:
        """Return what is wrong with the member of a name."""
        return " ".join(self.of(name, is_path=is_path))


class Fault(Exception):
    """What is wrong within a table, or an object: the sentence, and the path to it."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.path: list[str | tuple[int, str]] = []

    def inside(self, step: str | tuple[int, str]) -> Fault:
        """Return it as a fault of what is in a member, or an item with its title."""
        self.path.append(step)
        return self


@dataclass(frozen=True, slots=True)
class Style:
    """How a kind of file calls its parts."""

    table: str
    tables: str
    is_toml: bool

    def place(self, path: Iterable[str | tuple[int, str]]) -> str:
        """Return the way to a table, from the outside.

        >>> TOML.place(["job", (1, '"daily"'), "map"]), JSON.place(["jobs", (0, ""), "job"])
        ('[[job]] "daily" map', 'jobs[0].job')
        """
        found, plain = "", ""
        for step in path:
            if isinstance(step, str):
                plain += f".{step}" if plain else step
            elif self.is_toml:
                found, plain = f"{found} [[{plain}]] {step[1]}", ""
            else:
                plain += f"[{step[0]}]"
        if plain and self.is_toml and not found:
            plain = f"[{plain}]"
        return f"{found} {plain}".strip()


TOML: Final = Style("a table", "tables", is_toml=True)
JSON: Final = Style("an object", "objects", is_toml=False)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a document is read: errors are of the class `fault`.

    Unknown members are refused, or noted in `unknown`. With `strict_null`, no list may be null.
    """

    style: Style = TOML
    fault: type[UsageError] = ConfigError
    unknown: list[str] | None = None
    strict_null: bool = False

    def error(self, place: str, found: Fault) -> UsageError:
        """Return the error for a fault in the document at a place."""
        return self.fault(f"{self.at(place, found.path[::-1])}: {found.sentence}", hint=found.hint)

    def at(self, place: str, path: Iterable[str | tuple[int, str]]) -> str:
        """Return a place in a document."""
        inner = self.style.place(path)
        between = " " if self.style.is_toml else ": "
        return f"{place}{between}{inner}" if inner else place


def near_misses(word: str, known: Iterable[str]) -> str:
    """Return a hint that offers what `word` may have meant, or lists all that is known."""
    names = list(known)
    near = did_you_mean(word, names, "`{}`".format)
    return near or (f"Known here: {listed(names, len(names), '`{}`'.format)}." if names else "")


def _shown(value: Any, *, hidden: bool) -> str:
    if isinstance(value, dict | list | tuple):
        return "a table" if isinstance(value, dict) else "a list"
    if hidden:
        return MASK
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, date | time) else f"{value!r:.80}"


def text(value: Any) -> str:
    """Return a string that is not empty; raises Misfit for anything else."""
    if not isinstance(value, str):
        raise Misfit("must be a string, not {value}", value)
    if not value.strip():
        raise Misfit("is empty", hint="Give it a value or leave it out.")
    if "\0" in value:  # no path holds one, and no name
        raise Misfit("holds a NUL character", hint="Remove it.")
    return value


#: A string that is not empty.
Text = Annotated[str, Form(text, {"type": "string", "minLength": 1})]
