"""Writes values of types as documents, which `read` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from lineage_backfill.typed.forms import Form, Star
from lineage_backfill.typed.read import Member, is_object, members

_Writer = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """Return a value as JSON has it: members that have their default value are left out.

    >>> from dataclasses import make_dataclass
    >>> limits = make_dataclass("Limits", [("max_runs", int), ("most", int | None, None)])
    >>> plain(limits(max_runs=5))
    {'max_runs': 5}
    """
    kind: Any = type(value)
    if is_object(kind):
        found: dict[str, Any] = {}
        for member, write in _writers(kind):
            one = getattr(value, member.name)
            if member.required or member.notes.get("shown") or one != member.default:
                written = write(one)
                found |= written if member.notes.get("flat") else {member.key: written}
        return found
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return instant_text(value) if isinstance(value, datetime) else value


def instant_text(instant: datetime) -> str:
    """Return an instant as documents hold it, in UTC."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


@cache
def _writers(kind: Any) -> tuple[tuple[Member, _Writer], ...]:
    return tuple((member, _writer(member.annotation)) for member in members(kind))


def _writer(annotation: Any) -> _Writer:
    if get_origin(annotation) is not Annotated:
        found = [_writer(one) for one in get_args(annotation) if get_origin(one) is Annotated]
        return found[0] if found and type(None) in get_args(annotation) else plain
    for note in annotation.__metadata__:
        if isinstance(note, Form):
            form = note
            return lambda value: None if value is None else form.write(value)
        if isinstance(note, Star):
            text = note.text
            return lambda value: text if value is None else plain(value)
    return plain
