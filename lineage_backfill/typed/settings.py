"""Checks the settings of adapters, ours and those of other packages, by annotations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from lineage_backfill.typed.forms import Misfit, Rules
from lineage_backfill.typed.read import is_whole, reader

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)
_RULES = Rules()


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
    lineage_backfill.typed.settings.SettingError: `slots` must be a whole number, not 1.5
    >>> checked(make, {"slots": "2"}, from_text=True)
    {'slots': 2}
    """
    annotations = _annotations(make)
    return {
        name: _fitting(name, annotations.get(name, Any), value, from_text)
        for name, value in settings.items()
    }


def check_members(settings: Any) -> None:
    """Raise SettingError for a member of a dataclass that does not fit its annotation."""
    kind = type(settings)
    checked(kind, {name: getattr(settings, name) for name in kind.__dataclass_fields__})


def _fitting(name: str, annotation: Any, value: Any, from_text: bool) -> Any:
    if value is None:
        return None
    is_text = from_text and isinstance(value, str)
    try:
        reader(annotation)(value, _RULES)
    except Misfit as error:
        if is_text and (found := parsed(annotation, value)) != value:
            return _fitting(name, annotation, found, from_text)
        hidden = from_text and isinstance(error.value, str)
        raise SettingError(*error.of(name, hidden=hidden)) from None
    return value


def parsed(annotation: Any, text: str) -> Any:
    """Return the number, or true or false, that a text stands for; the text if it is none.

    >>> parsed(int | None, "12"), parsed(bool, "True"), parsed(int, "1.5")
    (12, True, '1.5')
    """
    options = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    for option in options:
        kind = get_args(option)[0] if get_origin(option) is Annotated else option
        if kind is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind in (int, float) and _WHOLE.fullmatch(text) and is_whole(int(text)):
            return int(text)
        if kind is float and _DECIMAL.fullmatch(text):
            return float(text)
    return text


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
            found |= get_type_hints(
                alone, globalns=getattr(function, "__globals__", {}), include_extras=True
            )
    return found
