"""How the values of a project file are written: keys, zones, code, numbers of keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from functools import lru_cache
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from lineage_backfill.partitions.lengths import Span
from lineage_backfill.partitions.zones import nearest_zones
from lineage_backfill.typed import ONE_OR_MORE, Bounds, Form, Misfit, Text, text

#: The most keys that a declaration may count: centuries of days, 11 years of hours.
MOST_KEYS: Final = 100_000
#: The most that a length of time counts of its unit: a century of days.
_LONGEST: Final = 36_500
_COUNTS: Final = "It counts partition keys."
#: The JSON Schema of what is written as a text.
TEXT: Final = {"type": "string", "minLength": 1}
_DIRECTIVES: Final = re.compile(r"%([A-Za-z])")
_DESCENDING: Final = "YmdHMSf"
_DATE: Final = 3
_GLOB: Final = re.compile(r"[*?\[]")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ENTRYPOINT: Final = re.compile(_FUNCTION.pattern + r"|[^\s:]+\.(?:py|sql)")


def is_glob(name: str) -> bool:
    """Whether a declared name is a glob."""
    return _GLOB.search(name) is not None


def _label(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.strftime("%Y-%m-%dT%H" if value.time() == time(value.hour) else "%FT%R")
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value:
        return value
    hint = 'Write it in quotes, as in "2024-06-15T14" or "2024-W24".'
    raise Misfit("must be a partition key", hint=hint)


def _static_key(value: Any) -> str:
    if type(value) is int or (isinstance(value, str) and value):
        return str(value)
    raise Misfit("must be a string, not {value}", value)


def _zone(value: Any) -> str:
    zone = text(value)
    if not is_zone(zone):
        raise Misfit("{value} is not a time zone", zone, hint=nearest_zones(zone))
    return zone


def _zones(value: Any) -> str | tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        return _zone(value)
    found = []
    for key, one in value.items():
        try:
            found.append((key, text(one) if key == "by" else _zone(one)))
        except Misfit as error:
            raise error.inside(key) from None
    return tuple(sorted(found))


def _written_zones(value: str | tuple[tuple[str, str], ...]) -> str | dict[str, str]:
    return value if isinstance(value, str) else dict(value)


@lru_cache
def is_zone(zone: str) -> bool:
    """Whether a time zone is in the IANA database."""
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # unknown, malformed, a folder of the database
        return False
    return True


def _reach(least: int) -> Form:
    """Return the form of a number of keys, or of a length of time such as `4h`."""

    def read(value: Any) -> int | Span:
        if isinstance(value, str):
            found = Span.read(value)
            if found is None or not least * _LONGEST <= found.count <= _LONGEST:
                hint = 'Write a number of run keys, or a length of time: "90m", "4h" or "1d".'
                raise Misfit(
                    "must be a whole number or such a length of time, not {value}", value, hint=hint
                )
            return found
        if type(value) is not int and not (type(value) is float and value.is_integer()):
            raise Misfit("must be a whole number or a length of time, not {value}", value)
        if not least * MOST_KEYS <= value <= MOST_KEYS:
            end = f"most {MOST_KEYS}" if value > 0 else f"least {least * MOST_KEYS}"
            raise Misfit(f"is {{value}}, but must be at {end}", value, hint=_COUNTS)
        return int(value)

    forms = [
        {"type": "integer", "minimum": least * MOST_KEYS, "maximum": MOST_KEYS},
        {"type": "string", "pattern": "^-?[0-9]+ *[mhdw]$"},
    ]
    return Form(read, {"anyOf": forms}, lambda one: str(one) if isinstance(one, Span) else one)


def _code(pattern: re.Pattern[str], forms: str) -> Form:
    def read(value: Any) -> str:
        if not pattern.fullmatch(name := text(value)):
            raise Misfit(f"must be {forms}, not {{value}}", name)
        return name

    return Form(read, TEXT)


def _time_format(value: Any) -> str:
    """Return a format whose texts sort as their times, and are all of one length."""
    form = text(value)
    parts = _DIRECTIVES.findall(form)
    if parts != list(_DESCENDING[: len(parts)]) or len(parts) < _DATE or "%%" in form:
        raise Misfit(
            "must sort like time, not {value}",
            form,
            hint="Write year, month, day and so on in this order, such as %Y-%m-%d %H:%M:%S; for "
            "another format add a column of type TIMESTAMP.",
        )
    return form


def _properties(value: Any) -> dict[str, str]:
    """Return Spark's properties: `sql.shuffle.partitions = 4` is `spark.sql.shuffle.partitions`."""
    if not isinstance(value, Mapping):
        raise Misfit("must be a table, not {value}", value)
    found = {}
    todo = list(value.items())
    while todo:
        name, one = todo.pop()
        if isinstance(one, Mapping):
            todo += [(f"{name}.{inner}", each) for inner, each in one.items()]
        elif isinstance(one, list):
            raise Misfit("must be one value, not {value}", one).inside(name)
        else:
            name = name if name.startswith("spark.") else f"spark.{name}"
            found[name] = str(one).lower() if isinstance(one, bool) else str(one)
    return dict(sorted(found.items()))


def _parameters(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Misfit("must be a table, not {value}", value)
    for name, one in value.items():
        if wrong := set(re.findall(r"{(.*?)}", str(one))) - {"key", "start", "end"}:
            raise Misfit(
                f"names {{{min(wrong)}}}, which no run has", hint="Use {key}, {start} or {end}."
            ).inside(name)
    return {name: str(one) for name, one in value.items()}


Texts = Annotated[tuple[Text, ...], ONE_OR_MORE]
#: A strftime format from the year down, at least to the day.
TimeFormat = Annotated[str, Form(_time_format, TEXT)]
#: A key at the end of a calendar: a string, or a date or local time of TOML.
Label = Annotated[str, Form(_label, TEXT)]
StaticKey = Annotated[str, Form(_static_key, {"type": ["string", "integer"]})]
StaticKeys = Annotated[tuple[StaticKey, ...], ONE_OR_MORE]
Zone = Annotated[str, Form(_zone, TEXT)]
#: One zone, or that of each key of the static dimension `by`.
Zones = Annotated[
    str | tuple[tuple[str, str], ...],
    Form(_zones, {"anyOf": [TEXT, {"type": "object", "required": ["by"]}]}, _written_zones),
]
Function = Annotated[str, _code(_FUNCTION, "`module:function`")]
Entrypoint = Annotated[
    str, _code(_ENTRYPOINT, "`module:function` or the path of a .py or .sql file")
]
SparkProperties = Annotated[Mapping[str, str], Form(_properties, {"type": "object"})]
Parameters = Annotated[Mapping[str, str], Form(_parameters, {"type": "object"})]
#: Numbers of keys: from 0, from 1, forwards and backwards, and less the running period.
Keys = Annotated[int, Bounds(0, MOST_KEYS, _COUNTS)]
SomeKeys = Annotated[int, Bounds(1, MOST_KEYS, _COUNTS)]
#: Numbers of keys or lengths of time: from 0, forwards and backwards.
Reach = Annotated[int | Span, _reach(0)]
Steps = Annotated[int | Span, _reach(-1)]
Lag = Annotated[int, Bounds(-1, MOST_KEYS, _COUNTS)]
#: Numbers of anything else: at least 0, and at least 1.
Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
