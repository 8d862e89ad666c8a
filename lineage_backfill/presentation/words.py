"""The reasons of a plan in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.plan import PlannedJob
from lineage_backfill.presentation.text import safe

Namer = Callable[[DatasetRef | JobRef], str]

_SHOWN_INPUTS = 3
_PLAIN = {
    "identity": "the same keys",
    "overlap": "what overlaps in time",
    "all": "all of it",
    "map": "the keys of its table",
}
_MAPPING = re.compile(r"(window|offset|product)\((.*)\)")


def in_words(reason: Mapping[str, Any], names: Namer) -> str:
    """Return why a job runs or does not, as one line."""
    if "inputs" not in reason or reason.get("text"):
        return safe("; ".join(filter(None, (reason.get("text"), reason.get("hint")))))
    parts = ["asked for"] if reason.get("asked") else []
    if reason["inputs"]:
        parts.append("reads " + ", ".join(_inputs(reason["inputs"], names)))
    if reason.get("self_dependent"):
        parts.append("runs on, for it reads its own output")
    if reason.get("lookback"):
        parts.append(f"widened by its lookback of {reason['lookback']}")
    if reason.get("inferred"):
        parts.append(f"partitioning inferred: {safe(reason['inferred'])}")
    return "; ".join(parts)


def age(length: timedelta) -> str:
    """Return how old something is, in its largest whole unit.

    >>> age(timedelta(hours=50)), age(timedelta(minutes=1)), age(timedelta(seconds=20))
    ('2 days old', '1 minute old', 'new')
    """
    seconds = length.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number:,} {unit}{'' if number == 1 else 's'} old"
    return "new"


def lasting(seconds: float) -> str:
    """Return how long something takes, in the unit that says it shortly.

    >>> lasting(0.4), lasting(59.6), lasting(150), lasting(5400), lasting(200_000)
    ('1 s', '1 min', '2.5 min', '1.5 h', '2.3 days')
    """
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    for unit, size, most in (("min", 60, 90), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds / 86_400:.1f}".removesuffix(".0") + " days"


def why_left(reason: Mapping[str, Any]) -> str:
    """Return why stale keys are left, as one line; empty where none are."""
    return safe("; ".join(reason.get("left", ())))


def before(job: PlannedJob) -> JobRef | None:
    """Return the job that comes before it on the way from the change, None for the first one."""
    path = job.reason.get("path", ())
    if len(path) < 2 or "job" not in path[-2]:
        return None
    return JobRef(path[-2]["job"]["namespace"], path[-2]["job"]["name"])


def mapping_in_words(mapping: str) -> str:
    """Return which keys of an input a run key reads.

    >>> mapping_in_words("window(6, 0)"), mapping_in_words("offset(-1)")
    ('6 keys back up to its own', 'the key before')
    """
    found = _MAPPING.fullmatch(mapping)
    if found is None:
        return _PLAIN.get(mapping, safe(mapping))
    kind, inner = found.groups()
    if kind == "product":
        return f"{mapping_in_words(inner)}, each dimension by itself"
    numbers = [int(number) for number in inner.split(",")]
    return _window(*numbers) if kind == "window" else _offset(*numbers)


def _window(back: int, ahead: int) -> str:
    first = f"{_keys(back)} back" if back else "its own"
    return f"{first} up to {f'{_keys(ahead)} ahead' if ahead else 'its own'}"


def _offset(by: int) -> str:
    if abs(by) == 1:
        return "the key before" if by < 0 else "the key after"
    return f"the key {abs(by)} {'before' if by < 0 else 'after'}"


def _keys(number: int) -> str:
    return "1 key" if number == 1 else f"{number} keys"


def _inputs(inputs: list[Mapping[str, Any]], names: Namer) -> list[str]:
    listed = [
        f"{names(DatasetRef(**one['dataset']))} ({mapping_in_words(one['mapping'])})"
        for one in inputs[:_SHOWN_INPUTS]
    ]
    more = len(inputs) - _SHOWN_INPUTS
    return [*listed, f"and {more} more"] if more > 0 else listed
