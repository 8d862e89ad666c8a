"""Reads documents as their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lineage_backfill.errors import ConfigError, UsageError
from lineage_backfill.model import did_you_mean
from lineage_backfill.typed.forms import (
    TOML,
    Bounds,
    Fault,
    Form,
    Misfit,
    OneOrMore,
    Rules,
    Star,
    Style,
    near_misses,
)

T = TypeVar("T")
#: Reads what is written; raises Misfit for a value, Fault for what is within a table.
Reader = Callable[[Any, Rules], Any]
LISTS = (list, tuple, set, frozenset, Sequence, Collection, Iterable)
TABLES = (dict, Mapping)
_LIMIT = 2**63  # of TOML's whole numbers
#: What the types of one value are called: one, and several.
_WORDS: Mapping[Any, tuple[str, str]] = {
    str: ("a string", "strings"),
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    datetime: ("an instant", "instants"),
}
_TITLES = ("name", "pattern", "dataset")


def read(
    kind: type[T],
    value: object,
    place: str,
    *,
    style: Style = TOML,
    fault: type[UsageError] = ConfigError,
    unknown: list[str] | None = None,
    strict_null: bool = False,
) -> T:
    """Return a document as its type, a dataclass; null is the same as an absent member.

    With `strict_null`, a list or a table may not be null.

    Raises an error of the class `fault` that names the place and what would fit. Members that the
    type does not have are refused, or added to `unknown`.

    >>> from dataclasses import make_dataclass
    >>> read(make_dataclass("Limits", [("max_runs", int)]), {"max_run": 5}, "the file")
    Traceback (most recent call last):
    lineage_backfill.errors.ConfigError: the file: unknown key `max_run`
    """
    rules = Rules(style, fault, unknown, strict_null)
    try:
        found: T = _whole(reader(kind), value, rules)
    except Fault as error:
        raise rules.error(place, error) from error.__cause__
    return found


def stated(
    kind: type, value: object, place: str, *, fault: type[UsageError] = ConfigError
) -> dict[str, Any]:
    """Return the members that a table states, read as `read` does."""
    rules = Rules(TOML, fault)
    try:
        found: dict[str, Any] = _whole(_members(kind).read_all, value, rules)
    except Fault as error:
        raise rules.error(place, error) from error.__cause__
    return found


def read_value(kind: Any, value: object, name: str, place: str) -> Any:
    """Return the value of one member of a table, read as `read` does."""
    rules = Rules()
    try:
        return reader(kind)(value, rules)
    except Misfit as error:
        raise rules.error(place, Fault(error.sentence(name), error.hint)) from None


def tables(value: object, name: str, place: str) -> list[tuple[Mapping[str, Any], str]]:
    """Return the tables of a list in a project file, each with its place."""
    if value is None:
        return []
    rules = Rules()
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise ConfigError(f"{place}: `{name}` must be a list of tables ([[{name}]])")
    return [
        (one, rules.at(place, [name, (number, _title(one, number))]))
        for number, one in enumerate(value, 1)
    ]


def _whole(read: Reader, value: object, rules: Rules) -> Any:
    try:
        return read(value, rules)
    except Misfit as error:
        raise Fault(error.of("")[1], error.hint) from None


@cache
def hints(kind: Any) -> dict[str, Any]:
    """Return the annotations of a type's members, with what else they say."""
    return get_type_hints(kind, include_extras=True)


def reader(annotation: Any) -> Reader:
    """Return what reads a value of a type."""
    try:
        return _cached(annotation)
    except TypeError:  # annotations of other packages may hold anything
        return _make(annotation)


def _make(annotation: Any) -> Reader:
    origin, inner = get_origin(annotation), get_args(annotation)
    kind = origin or annotation
    if kind is Annotated:
        return _annotated(inner[0], inner[1:])
    if kind in (Union, UnionType):
        return _union([one for one in inner if one is not NoneType], NoneType in inner)
    if kind is Literal:
        return _word(inner)
    if kind in _WORDS:
        return _instant if kind is datetime else _scalar(kind)
    if kind is tuple and inner and inner[-1] is not ...:
        return _fixed(inner)
    if kind in LISTS:
        return _list(reader(inner[0]) if inner else _any, annotation)
    if kind in TABLES:
        return _table(reader(inner[-1]) if inner else _any)
    if is_object(kind):
        return _object(kind)
    return _any


_cached = cache(_make)


def is_object(kind: Any) -> bool:
    """Whether a type is that of an object with named members."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def words(annotation: Any, style: Style = TOML, *, many: bool = False) -> str:
    """Return what a type is called in a sentence."""
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Annotated:
        return words(inner[0], style, many=many)
    if kind in (Union, UnionType):
        each = (words(one, style, many=many) for one in inner if one is not NoneType)
        return " or ".join(dict.fromkeys(each))
    if kind is Literal:
        return "one of " + ", ".join(map(str, inner))
    if kind in LISTS:
        of = words(inner[0], style, many=True) if inner else "any"
        return ("lists" if many else "a list") + ("" if of == "any" else f" of {of}")
    if kind in TABLES or is_object(kind):
        return style.tables if many else style.table
    return _WORDS[kind][many] if kind in _WORDS else "any"


def _any(value: Any, _: Rules) -> Any:
    return value


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number that other programs can hold, too."""
    # bool is an int to Python, and not to the person who wrote the file.
    return type(value) is int and -_LIMIT <= value < _LIMIT


def _scalar(kind: Any) -> Reader:
    kinds = (int, float) if kind is float else (kind,)

    def read(value: Any, rules: Rules) -> Any:
        if kind is int and type(value) is float and value.is_integer() and not rules.style.is_toml:
            value = int(value)  # JSON has one type for 1 and 1.0
        if type(value) not in kinds and not (kind is str and isinstance(value, str)):
            raise Misfit(f"must be {_WORDS[kind][0]}, not {{value}}", value)
        if type(value) is int and not is_whole(value):
            raise Misfit("is too large: a whole number has at most 64 bits", value)
        if type(value) is float and not math.isfinite(value):
            raise Misfit("must be a finite number, not {value}", value)
        return value

    return read


def _instant(value: Any, _: Rules) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit("is {value}, which is not an instant", value) from None
    if found.tzinfo is None:
        raise Misfit("is {value}, which has no UTC offset", value)
    return found


def _word(options: tuple[Any, ...]) -> Reader:
    def read(value: Any, _: Rules) -> Any:
        for one in options:
            if type(value) is type(one) and value == one:
                return one
        known = ", ".join(map(str, options))
        if isinstance(value, str):
            hint = did_you_mean(value, map(str, options), "`{}`".format)
            raise Misfit(f"is {{value}}, but must be one of {known}", value, hint=hint)
        raise Misfit(f"must be one of {known}, not {{value}}", value)

    return read


def _annotated(inner: Any, notes: tuple[Any, ...]) -> Reader:
    read = reader(inner)
    for note in notes:
        if isinstance(note, Form):
            return _formed(note)
        if isinstance(note, Bounds):
            read = _bounded(note)
        elif isinstance(note, Star):
            read = _starred(read, note.text)
        elif isinstance(note, OneOrMore):
            read = _one_or_more(read)
    return read


def _formed(form: Form) -> Reader:
    return lambda value, _: form.read(value)


def _bounded(bounds: Bounds) -> Reader:
    whole = _scalar(int)

    def read(value: Any, rules: Rules) -> Any:
        number = value if type(value) is int else whole(value, rules)
        fault = ""
        if bounds.least is not None and number < bounds.least:
            fault = f"least {bounds.least}"
        elif bounds.most is not None and number > bounds.most:
            fault = f"most {bounds.most}"
        if fault:
            raise Misfit(f"is {{value}}, but must be at {fault}", number, hint=bounds.hint)
        return whole(number, rules)

    return read


def _starred(inner: Reader, text: str) -> Reader:
    return lambda value, rules: None if value == text else inner(value, rules)


def _one_or_more(inner: Reader) -> Reader:
    def read(value: Any, rules: Rules) -> Any:
        return inner([value] if isinstance(value, str) else value, rules)

    return read


def _union(options: Sequence[Any], has_null: bool) -> Reader:
    if len(options) == 1:
        inner = reader(options[0])
        return lambda value, rules: None if value is None else inner(value, rules)
    readers = [reader(one) for one in options]

    def read(value: Any, rules: Rules) -> Any:
        if value is None and has_null:
            return None
        closest: Misfit | Fault | None = None
        hint = ""
        for each in readers:
            try:
                return each(value, rules)
            except Misfit as error:
                hint = hint or error.hint
                closest = error if error.within else closest
            except Fault as error:
                closest = error
        if closest is not None:
            raise closest
        known = " or ".join(dict.fromkeys(words(one, rules.style) for one in options))
        raise Misfit(f"must be {known}, not {{value}}", value, hint=hint)

    return read


def _fixed(inner: tuple[Any, ...]) -> Reader:
    readers = [reader(one) for one in inner]

    def read(value: Any, rules: Rules) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise Misfit(f"must be a list of {len(readers)}, not {{value}}", value)
        return tuple([_item(n, one, rules, readers[n]) for n, one in enumerate(value)])

    return read


def _item(number: int, value: Any, rules: Rules, inner: Reader) -> Any:
    try:
        return inner(value, rules)
    except Misfit as error:
        raise error.inside(number + 1) from None
    except Fault as error:
        title = _title(value, number + 1) if rules.style.is_toml else ""
        raise error.inside((number, title)) from error.__cause__


def _list(inner: Reader, annotation: Any) -> Reader:
    def read(value: Any, rules: Rules) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise Misfit(f"must be {words(annotation, rules.style)}, not {{value}}", value)
        return tuple([_item(number, one, rules, inner) for number, one in enumerate(value)])

    return read


def _title(item: Any, number: int) -> str:
    known = (item.get(key) for key in _TITLES) if isinstance(item, Mapping) else ()
    return next((f'"{one}"' for one in known if isinstance(one, str)), f"number {number}")


def _table(inner: Reader) -> Reader:
    def read(value: Any, rules: Rules) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit(f"must be {rules.style.table}, not {{value}}", value)
        found = {}
        for name, one in value.items():
            try:
                found[name] = inner(one, rules)
            except Misfit as error:
                raise error.inside(name) from None
            except Fault as error:
                raise error.inside(name) from error.__cause__
        return found

    return read


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a type: its name in the type and in documents, and its annotation."""

    name: str
    key: str
    annotation: Any
    required: bool
    default: Any
    notes: Mapping[str, Any]

    @property
    def is_list(self) -> bool:
        """Whether it holds a list or a table of any length, which is never null."""
        return get_origin(self.annotation) in (tuple, list, dict, Mapping, Sequence)


@cache
def members(kind: Any) -> tuple[Member, ...]:
    """Return the members of a dataclass or a named tuple that documents may have."""
    known = hints(kind)
    if not is_dataclass(kind):  # a named tuple: what has a default is not written
        names = [name for name in kind._fields if name not in kind._field_defaults]
        return tuple(Member(name, name, known[name], True, None, {}) for name in names)
    found = []
    for one in fields(kind):
        if one.metadata.get("hidden"):
            continue
        default = one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        key, required = one.metadata.get("key", one.name), default is MISSING
        found.append(Member(one.name, key, known[one.name], required, default, one.metadata))
    return tuple(found)


class _Members:
    """Reads the members of an object, in their order."""

    def __init__(self, kind: Any) -> None:
        every = members(kind)
        self.plain = [(m, reader(m.annotation)) for m in every if not m.notes.get("flat")]
        self.flat: list[tuple[Member, Any, _Members]] = [
            (m, *_flat(m.annotation)) for m in every if m.notes.get("flat")
        ]
        beside = [key for _, _, inner in self.flat for key in inner.keys]
        self.keys: dict[str, None] = dict.fromkeys([*(m.key for m, _ in self.plain), *beside])

    def read_all(self, value: Any, rules: Rules) -> dict[str, Any]:
        """Return the members of an object by name; refuse what is unknown and what is missing."""
        if not isinstance(value, Mapping):
            raise Misfit(f"must be {rules.style.table}, not {{value}}", value)
        found = self.given(value, rules)
        unknown = [key for key in value if key not in self.keys]
        if unknown and rules.unknown is None:
            raise Fault(f"unknown key `{unknown[0]}`", near_misses(str(unknown[0]), self.keys))
        if rules.unknown is not None:
            rules.unknown.extend(unknown)
        return found

    def given(self, value: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
        """Return the members of an object that it has."""
        found = {}
        for member, read in self.plain:
            one = value.get(member.key)
            is_null_list = one is None and member.key in value and member.is_list
            if one is not None or (is_null_list and rules.strict_null):
                try:
                    found[member.name] = read(one, rules)
                except Misfit as error:
                    is_path = not rules.style.is_toml
                    sentence = error.sentence(member.key, is_path=is_path)
                    raise Fault(sentence, error.hint) from None
                except Fault as error:
                    raise error.inside(member.key) from error.__cause__
        for member, kind, inner in self.flat:
            part = inner.given(value, rules)
            if member.required or any(one is not None for one in part.values()):
                found[member.name] = inner.make(kind, part, rules)
        return found

    def make(self, kind: Any, found: dict[str, Any], rules: Rules) -> Any:
        """Return an object of its members; what is wrong with them together is a fault."""
        for member, _ in self.plain:
            if member.required and member.name not in found:
                raise Fault(f"`{member.key}` is missing")
        try:
            return kind(**found)
        except UsageError as error:
            raise Fault(error.message, error.hint) from error


@cache
def _members(kind: Any) -> _Members:
    return _Members(kind)


def _flat(annotation: Any) -> tuple[Any, _Members]:
    options = [one for one in get_args(annotation) if one is not NoneType]
    kind = options[0] if options else annotation
    return kind, _members(kind)


def _object(kind: Any) -> Reader:
    def read(value: Any, rules: Rules) -> Any:
        known = _members(kind)
        return known.make(kind, known.read_all(value, rules), rules)

    return read
