"""Describes types as JSON Schema, for documents that are read and for those that are written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from lineage_backfill.typed.forms import Bounds, Form, OneOrMore, Star
from lineage_backfill.typed.read import LISTS, TABLES, Member, hints, is_object, members

_SCALARS: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    NoneType: {"type": "null"},
}


def json_schema(kind: Any, title: str, *, closed: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of a document: a dataclass, a TypedDict, or a union of them.

    Unless it is `closed`, its objects may have members that the types do not have.

    >>> from typing import TypedDict
    >>> json_schema(TypedDict("Size", {"rows": int}), "A size")["properties"]
    {'rows': {'type': 'integer'}}
    """
    describe = _Describer(closed)
    top = describe.object(kind) if _has_members(kind) else describe.type(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **top,
        **({"$defs": dict(sorted(describe.named.items()))} if describe.named else {}),
    }


def _has_members(kind: Any) -> bool:
    return is_object(kind) or is_typeddict(kind)


class _Describer:
    """Describes types; those with members are collected by name."""

    def __init__(self, closed: bool) -> None:
        self._closed = closed
        self.named: dict[str, Any] = {}

    def type(self, annotation: Any) -> dict[str, Any]:
        origin, inner = get_origin(annotation), get_args(annotation)
        kind = origin or annotation
        if kind is Annotated:
            return self._annotated(inner[0], inner[1:])
        if kind in (Required, NotRequired):
            return self.type(inner[0])
        if kind in (Union, UnionType):
            return _any_of([self.type(one) for one in inner])
        if kind is Literal:
            return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
        if kind is tuple and inner and inner[-1] is not ...:
            size = {"minItems": len(inner), "maxItems": len(inner)}
            return {"type": "array", "prefixItems": [self.type(one) for one in inner], **size}
        if kind in LISTS:
            return {"type": "array", **_unless_empty("items", self.type(inner[0]) if inner else {})}
        if kind in TABLES:
            values = self.type(inner[-1]) if inner else {}
            return {"type": "object", **_unless_empty("additionalProperties", values)}
        return self._reference(kind) if _has_members(kind) else {}

    def _annotated(self, inner: Any, notes: tuple[Any, ...]) -> dict[str, Any]:
        found: dict[str, Any] | None = None
        for note in notes:
            if isinstance(note, Form):
                return dict(note.schema)
            found = found or self.type(inner)
            if isinstance(note, Bounds):
                found |= {} if note.least is None else {"minimum": note.least}
                found |= {} if note.most is None else {"maximum": note.most}
            elif isinstance(note, Star):
                found = _any_of([{"const": note.text}, _without_null(found)])
            elif isinstance(note, OneOrMore):
                found = _any_of([found["items"], found])
            elif isinstance(note, str):
                found["description"] = note
        return self.type(inner) if found is None else found

    def _reference(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.named:
            self.named[name] = {}  # it may hold itself
            self.named[name] = self.object(kind)
        return {"$ref": f"#/$defs/{name}"}

    def object(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type with members."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        if is_typeddict(kind):
            known = hints(kind)
            properties = {name: self.type(one) for name, one in known.items()}
            must = kind.__required_keys__
            required = [n for n in known if n in must and get_origin(known[n]) is not NotRequired]
        else:
            for member in members(kind):
                self._member(member, properties, required)
        found: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            found["required"] = required
        return found | ({"additionalProperties": False} if self._closed else {})

    def _member(self, member: Member, properties: dict[str, Any], required: list[str]) -> None:
        if member.notes.get("flat"):
            options = [one for one in get_args(member.annotation) if one is not NoneType]
            inner = self.object(options[0] if options else member.annotation)
            properties |= inner["properties"]
            required += inner.get("required", []) if member.required else []
            return
        found = self.type(member.annotation)
        if not member.required and not member.notes.get("shown"):
            found = _without_null(found)
        text = member.notes.get("help")
        properties[member.key] = found | ({"description": text} if text else {})
        if member.required:
            required.append(member.key)


def _unless_empty(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {name: schema} if schema else {}


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of values that fit one of several; types without more are one list."""
    if {} in options:
        return {}
    if all(list(one) == ["type"] and isinstance(one["type"], str) for one in options):
        types = list(dict.fromkeys(one["type"] for one in options))
        return {"type": types[0] if len(types) == 1 else types}
    return {"anyOf": options}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        options = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return options[0] if len(options) == 1 else schema | {"anyOf": options}
    if isinstance(schema.get("type"), list):
        types = [one for one in schema["type"] if one != "null"]
        return schema | {"type": types[0] if len(types) == 1 else types}
    return schema
