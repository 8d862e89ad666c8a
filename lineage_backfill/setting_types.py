"""Checks values against types: the annotations of a function or dataclass, or one type."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lineage_backfill.redaction import MASK, is_secret

_LISTS = (list, tuple, set, frozenset, Sequence, Collection, Iterable)
_TABLES = (dict, Mapping)
#: The names of the types of one value: for one, and for several.
_WORDS = (
    (str, "a string", "strings"),
    (bool, "true or false", "true or false"),
    (int, "a whole number", "whole numbers"),
    (float, "a number", "numbers"),
)
_LIMIT = 2**63  # of TOML's whole numbers
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class SettingError(ValueError):
    """A setting that does not fit its annotation: `place` names it, `fault` says what is wrong."""

    def __init__(self, place: str, fault: str) -> None:
        super().__init__(f"{place} {fault}")
        self.place = place
        self.fault = fault


def checked(
    make: Callable[..., Any], settings: Mapping[str, Any], *, from_text: bool = False
) -> dict[str, Any]:
    """Return the settings; raises SettingError for one that does not fit its annotation in `make`.

    Without an annotation, or with an unknown one, any value fits. With `from_text`, a string may
    stand for a number or for true or false, and is replaced by it; no error shows a string.

    >>> def make(*, slots: int = 1, files: Sequence[str] = ()): ...
    >>> checked(make, {"slots": 1.5})
    Traceback (most recent call last):
    lineage_backfill.setting_types.SettingError: `slots` must be a whole number, not 1.5
    >>> checked(make, {"slots": "2"}, from_text=True)
    {'slots': 2}
    """
    annotations = _annotations(make)
    return {
        name: _Place(f"`{name}`", name, from_text).fit(annotations.get(name, Any), value)
        for name, value in settings.items()
    }


def check_members(settings: Any) -> None:
    """Raise SettingError for a member of a dataclass that does not fit its annotation."""
    kind = type(settings)
    checked(kind, {name: getattr(settings, name) for name in kind.__dataclass_fields__})


def misfit(name: str, kind: type, value: Any) -> str | None:
    """Return the sentence on a value that is not a string, flag, number, list or table; else None.

    >>> misfit("slots", int, True)
    '`slots` must be a whole number, not true'
    """
    if type(value) is kind or _is_of(kind, value):  # a large number has bounds of its own
        return None
    place = f"`{name}`"
    return f"{place} {_Place(place, name, from_text=False).fault((kind,), value)}"


def _annotations(make: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of the parameters, without those that cannot be evaluated.

    Some names may only exist for a type checker.
    """
    own: Any = inspect.getattr_static(make, "__init__") if isinstance(make, type) else make
    function = inspect.unwrap(own)
    given = {**getattr(function, "__annotations__", {})}
    given.pop("return", None)
    found: dict[str, Any] = {}
    for name, annotation in given.items():
        alone = SimpleNamespace(__annotations__={name: annotation})
        with suppress(Exception):  # an annotation of another package may raise anything
            found |= get_type_hints(alone, globalns=getattr(function, "__globals__", {}))
    return found


class _Place:
    """Where a value stands: in a setting, or inside a list or a table in it."""

    def __init__(self, text: str, name: str, from_text: bool, hidden: bool = False) -> None:
        self._text = text
        self._name = name
        self._from_text = from_text
        self._hidden = hidden or is_secret(name) or name == "headers"

    def fit(self, annotation: Any, value: Any) -> Any:
        """Return the value; raises SettingError if it does not fit."""
        options = [one for one in _options(annotation) if one is not type(None)]
        if value is None or not (options and all(map(_is_known, options))):
            return value
        fault = None
        for option in options:
            if _is_of(option, value):
                try:
                    return self._with_items(option, value)
                except SettingError as error:
                    fault = error
        if fault is not None:
            raise fault
        if self._from_text and isinstance(value, str):
            for option in options:
                if (read := _read(option, value)) is not None:
                    return read
        raise SettingError(self._text, self.fault(options, value))

    def _with_items(self, option: Any, value: Any) -> Any:
        """Return a value of this type, with what is inside it checked."""
        kind, inner = _kind(option), get_args(option)
        if kind in _TABLES and inner:
            return {
                name: self._inside(f"{self._text[:-1]}.{name}`", name).fit(inner[-1], one)
                for name, one in value.items()
            }
        if kind in _LISTS and inner and (kind is not tuple or inner[1:] == (...,)):
            return [
                self._inside(f"item {number} of {self._text}", self._name).fit(inner[0], one)
                for number, one in enumerate(value, 1)
            ]
        return value

    def _inside(self, text: str, name: str) -> _Place:
        return _Place(text, str(name), self._from_text, self._hidden)

    def fault(self, options: Sequence[Any], value: Any) -> str:
        """Return what is wrong with a value that has none of these types."""
        if type(value) is int and not _is_whole(value) and {int, float} & set(options):
            return "is too large: a whole number has at most 64 bits"
        if type(value) is float and float in options:
            return f"must be a finite number, not {value}"
        return f"must be {_joined(options, many=False)}, not {self._shown(value)}"

    def _shown(self, value: Any) -> str:
        if isinstance(value, (dict, list, tuple)):
            return "a table" if isinstance(value, dict) else "a list"
        if self._hidden or (self._from_text and isinstance(value, str)):
            return MASK
        if isinstance(value, bool):
            return str(value).lower()
        return str(value) if isinstance(value, (date, time)) else repr(value)


def _options(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if is_union else (annotation,)


def _kind(annotation: Any) -> Any:
    return get_origin(annotation) or annotation


def _is_known(annotation: Any) -> bool:
    known = (Literal, *_LISTS, *_TABLES, *(kind for kind, _, _ in _WORDS))
    return _kind(annotation) in known


def _is_of(option: Any, value: Any) -> bool:
    """Whether a value has this type; what is inside it may still be of another."""
    kind = _kind(option)
    if kind is Literal:
        return any(type(value) is type(one) and value == one for one in get_args(option))
    if kind is float:
        return _is_whole(value) or (type(value) is float and math.isfinite(value))
    if kind is int:
        return _is_whole(value)
    if kind in (str, bool):
        return isinstance(value, kind)
    return isinstance(value, (list, tuple) if kind in _LISTS else Mapping)


def _is_whole(value: Any) -> bool:
    # bool is an int to Python, and not to the person who wrote the file.
    return type(value) is int and -_LIMIT <= value < _LIMIT


def _read(option: Any, text: str) -> Any:
    """Return the number, or true or false, that a text stands for; None if it is none."""
    if option is bool:
        return {"true": True, "false": False}.get(text.lower())
    if option in (int, float) and _WHOLE.fullmatch(text) and _is_whole(int(text)):
        return int(text)
    if option is float and _DECIMAL.fullmatch(text):
        return float(text)
    return None


def _joined(options: Iterable[Any], *, many: bool) -> str:
    """Return the words for what fits one of the types."""
    return " or ".join(dict.fromkeys(_words(one, many=many) for one in options))


def _words(option: Any, *, many: bool) -> str:
    kind, inner = _kind(option), get_args(option)
    if kind is Literal:
        return "one of " + ", ".join(map(str, inner))
    if kind in _LISTS:
        items = _options(inner[0]) if inner else (Any,)
        of = f" of {_joined(items, many=True)}" if all(map(_is_known, items)) else ""
        return ("lists" if many else "a list") + of
    if kind in _TABLES:
        return "tables" if many else "a table"
    return next(words[many] for one, *words in _WORDS if one is kind)
