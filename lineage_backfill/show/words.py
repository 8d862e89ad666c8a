"""Turns the reasons of a plan into text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from lineage_backfill.errors import with_hint
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plans.plan import PlannedJob
from lineage_backfill.runs.estimate import ENOUGH
from lineage_backfill.show.text import counted, safe

Namer = Callable[[DatasetRef | JobRef], str]

_SHOWN_INPUTS = 3
_PLAIN = {
    "identity": "the same keys",
    "overlap": "overlapping keys",
    "all": "all of it",
    "last": "its newest key",
    "as_of": "the key valid at its start",
    "map": "keys from a declared map",
}
_UNITS = tuple(
    (unit, re.compile(form))
    for unit, form in (
        ("hour", r"\d{4}-\d\d-\d\dT\d\d"),
        ("day", r"\d{4}-\d\d-\d\d"),
        ("week", r"\d{4}-W\d\d"),
        ("month", r"\d{4}-\d\d"),
        ("quarter", r"\d{4}-Q\d"),
        ("year", r"\d{4}"),
    )
)
_MAPPING = re.compile(r"(window|offset|product)\((.*)\)")


def in_words(reason: Mapping[str, Any], names: Namer, keys: KeySet = ()) -> str:
    """Return why a job runs or does not, on one line; `keys` show the unit of a key."""
    if "inputs" not in reason or reason.get("text"):
        return safe(with_hint(reason.get("text", ""), reason.get("hint", "")))
    parts = ["requested"] if reason.get("asked") else []
    if reason["inputs"]:
        parts.append("reads " + ", ".join(_inputs(reason["inputs"], names, unit_of(keys))))
    if reason.get("self_dependent"):
        parts.append("continues to the latest partition: it reads its own previous one")
    if reason.get("lookback"):
        parts.append(f"widened by its lookback of {reason['lookback']}")
    if reason.get("inferred"):
        parts.append(f"partitioning inferred: {safe(reason['inferred'])}")
    return "; ".join(parts)


def in_short(reason: Mapping[str, Any], names: Namer) -> str:
    """Return why a job runs in a few words, with the first input only."""
    parts = ["requested"] if reason.get("asked") else []
    inputs = reason.get("inputs", ())
    if inputs:
        first, more = inputs[0], f" +{len(inputs) - 1}" if len(inputs) > 1 else ""
        found = _MAPPING.fullmatch(first["mapping"])
        before = found[2].split(",")[0] if found and found[1] == "window" else "0"
        window = f" and {before} before" if before != "0" else ""
        known = _known_by(first, names)
        parts.append(f"reads {names(DatasetRef(**first['dataset']))}{window}{known}{more}")
    if reason.get("self_dependent"):
        parts.append("continues")
    if reason.get("inferred"):
        parts.append("inferred")
    return ", ".join(parts)


def of_project(taken_at: object) -> str:
    """Return where the lineage of a project without a source is from; its runs have a time."""
    return f"the project {'and its own runs' if taken_at else 'file alone'}"


def in_a_word(reason: Mapping[str, Any]) -> str:
    """Return the kind of reason why a job does not run."""
    kind = str(reason.get("kind", ""))
    return {"unknown": "declaration missing"}.get(kind, safe(kind.replace("_", " ")))


def unit_of(keys: KeySet) -> str:
    """Return the unit of these keys, by their form.

    >>> unit_of(("2024-03-01T00..2024-03-01T05",)), unit_of(("2024-W01",)), unit_of(("eu",))
    ('hour', 'week', 'key')
    """
    first = keys[0] if keys else ""
    text = first.partition("..")[0] if isinstance(first, str) else ""
    return next((unit for unit, form in _UNITS if form.fullmatch(text)), "key")


def age(length: timedelta) -> str:
    """Return an age in its largest whole unit.

    >>> age(timedelta(hours=50)), age(timedelta(minutes=1)), age(timedelta(seconds=20))
    ('2 days old', '1 minute old', 'new')
    """
    seconds = length.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number:,} {unit}{'' if number == 1 else 's'} old"
    return "new"


def measured(seconds: float) -> str:
    """Return a measured duration, below a minute to the tenth of a second.

    >>> measured(0.42), measured(300)
    ('0.4 s', '5 min')
    """
    return f"{seconds:.1f} s" if seconds < 60 else lasting(seconds)


def lasting(seconds: float) -> str:
    """Return a duration in its shortest form.

    >>> lasting(0.4), lasting(59.6), lasting(150), lasting(5400), lasting(46_000)
    ('1 s', '1 min', '2.5 min', '1.5 h', '13 h')
    """
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    units = (("min", 60, 90), ("h", 3600, 48), ("days", 86_400, math.inf))
    unit, size = next((unit, size) for unit, size, most in units if seconds < size * most)
    number = seconds / size
    text = f"{number:,.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")
    return f"{text} {unit}"


def time_in_words(seconds: float | None, unknown: int, more: str = "") -> str:
    """Return an estimated time with `more`, and how many jobs it leaves out.

    >>> time_in_words(240, 5, " left")
    '~4 min left; 5 jobs not estimated (fewer than 3 past runs)'
    >>> time_in_words(None, 1)
    'time not estimated (fewer than 3 past runs)'
    """
    few = f"(fewer than {ENOUGH} past runs)"
    if seconds is None:
        return f"time not estimated {few}" if unknown else ""
    rest = f"; {counted(unknown, 'job')} not estimated {few}" if unknown else ""
    return f"~{lasting(seconds)}{more}{rest}"


def ago(length: timedelta) -> str:
    """Return how long ago an event was, in its largest whole unit.

    >>> ago(timedelta(hours=50)), ago(timedelta(minutes=1)), ago(timedelta(seconds=20))
    ('2 days ago', '1 minute ago', 'just now')
    """
    old = age(length)
    return "just now" if old == "new" else old.removesuffix("old") + "ago"


def why_left(reason: Mapping[str, Any]) -> str:
    """Return why keys are left stale, on one line; empty if there are none."""
    return safe("; ".join(reason.get("left", ())))


def before(job: PlannedJob) -> JobRef | None:
    """Return the previous job on the path from the change; None for the first."""
    path = job.reason.get("path", ())
    if len(path) < 2 or "job" not in path[-2]:
        return None
    return JobRef(path[-2]["job"]["namespace"], path[-2]["job"]["name"])


def mapping_in_words(mapping: str, unit: str = "key") -> str:
    """Return which keys of an input a run key reads; `unit` is the unit of a key.

    >>> mapping_in_words("window(6, 0)", "day"), mapping_in_words("offset(-1)")
    ('this day and the 6 before it', 'the key before')
    >>> mapping_in_words("window(0, 4h)", "day"), mapping_in_words("offset(-1d)", "hour")
    ('this day and the 4h after it', 'its hour, 1d before')
    """
    found = _MAPPING.fullmatch(mapping)
    if found is None:
        return _PLAIN.get(mapping, safe(mapping))
    kind, inner = found.groups()
    if kind == "product":
        return f"{mapping_in_words(inner, unit)}, each dimension by itself"
    numbers = inner.split(", ")
    return _window(*numbers, unit=unit) if kind == "window" else _offset(*numbers, unit=unit)


def _window(back: str, ahead: str, *, unit: str) -> str:
    sides = ((back, "before"), (ahead, "after"))
    around = " and ".join(f"the {number} {side} it" for number, side in sides if number != "0")
    return f"this {unit} and {around}" if around else f"this {unit}"


def _offset(by: str, *, unit: str) -> str:
    side, size = "before" if by.startswith("-") else "after", by.removeprefix("-")
    if not size.isdigit():
        return f"its {unit}, {size} {side}"
    return f"the {unit} {side}" if size == "1" else f"{size} {unit}s {side}"


def _known_by(edge: Mapping[str, Any], names: Namer) -> str:
    """Return what tells an edge that the events' inputs do not name."""
    if edge.get("from_columns"):
        return ", from columns"
    if edge.get("inferred"):
        return ", inferred: no run is recorded"
    return f", by {names(DatasetRef(**edge['within']))}" if "within" in edge else ""


def _inputs(inputs: list[Mapping[str, Any]], names: Namer, unit: str) -> list[str]:
    listed = [
        f"{names(DatasetRef(**one['dataset']))} ({mapping_in_words(one['mapping'], unit)}"
        f"{_known_by(one, names)})"
        for one in inputs[:_SHOWN_INPUTS]
    ]
    more = len(inputs) - _SHOWN_INPUTS
    return [*listed, f"and {more} more"] if more > 0 else listed
