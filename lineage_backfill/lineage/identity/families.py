"""Finds dataset names that look like partitions of one dataset, with a pattern for them.

Nothing is planned by it: such names are one dataset only by a declared pattern.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.patterns import NamePattern, escaped

_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_HOUR = r"(?:[01]\d|2[0-3])"
#: A date in a name, by grain; without digits around it, and without letters around a year.
_DATE: Final = re.compile(
    rf"""(?<!\d)(?:
    (?P<hour>{_YEAR}(?P<a>[-_./]?){_MONTH}(?P=a){_DAY}(?P<b>[-_./T]?){_HOUR})
    |(?P<day>{_YEAR}(?P<c>[-_./]?){_MONTH}(?P=c){_DAY})
    |(?P<week>{_YEAR}(?P<d>[-_]?)W(?:0[1-9]|[1-4]\d|5[0-3]))
    |(?P<month>{_YEAR}(?P<e>[-_./]?){_MONTH})
    |(?<![A-Za-z])(?P<year>{_YEAR})(?![A-Za-z])
    )(?!\d)""",
    re.ASCII | re.VERBOSE,
)
_FORMS: Final = {
    "hour": "%Y{a}%m{a}%d{b}%H",
    "day": "%Y{c}%m{c}%d",
    "week": "%G{d}W%V",
    "month": "%Y{e}%m",
    "year": "%Y",
}
#: A folder of a partition, as Hive writes it.
_FOLDER: Final = re.compile(r"(\w+)=([^/]+)", re.ASCII)
#: Folders that each contain a part of a date, with its format.
_PARTS: Final = {
    "year": ("year", "%Y"),
    "month": ("month", "%-m"),
    "day": ("day", "%-d"),
    "hour": ("hour", "%-H"),
    "hr": ("hour", "%-H"),
}
_FROM_FINE_TO_COARSE: Final = ("hour", "day", "week", "month", "year")
#: Names that stand for a time in a pattern.
_TIME_NAMES: Final = frozenset({*_FROM_FINE_TO_COARSE, "quarter"})
#: Least names of a family: fewer if they contain more than a month or year.
_LEAST, _LEAST_OF_COARSE = 2, 3
#: Marks the time placeholder until the finest part of the date is known.
_TIME: Final = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Names of one namespace that one pattern matches, sorted; `dataset` would stand for them."""

    pattern: str
    dataset: DatasetRef
    members: tuple[DatasetRef, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of a project file that declare the family."""
        named = NamePattern(self.pattern).stem == self.dataset.name
        return (
            "[[dataset]]",
            f"namespace = {_quoted(self.dataset.namespace)}",
            *([] if named else [f"name = {_quoted(self.dataset.name)}"]),
            f"pattern = {_quoted(self.pattern)}",
        )


def find_families(names: Iterable[DatasetRef]) -> tuple[Family, ...]:
    """Return the families among names, by namespace and pattern."""
    groups: dict[tuple[str, str], list[DatasetRef]] = {}
    for ref in sorted(set(names)):
        template = template_of(ref.name)
        if template is not None:
            groups.setdefault((ref.namespace, template), []).append(ref)
    found = []
    for (namespace, template), members in sorted(groups.items()):
        pattern = _padded(template, members)
        is_coarse = set(pattern.placeholders.values()) <= {"month", "year"}
        if len(members) >= (_LEAST_OF_COARSE if is_coarse else _LEAST):
            dataset = DatasetRef(namespace, pattern.stem or "partitioned")
            found.append(Family(pattern=pattern.text, dataset=dataset, members=tuple(members)))
    return tuple(found)


@lru_cache(maxsize=10_000)
def label_of(text: str) -> str | None:
    """Return the label of the date in a text; None for no date, or only a year.

    >>> label_of("20240615"), label_of("2024/06/15/14"), label_of("2024"), label_of("eu")
    ('2024-06-15', '2024-06-15T14', None, None)
    """
    date = _DATE.fullmatch(text)
    if date is None or date["year"] is not None:
        return None
    found = NamePattern(_of_dates(text, []).replace(_TIME, "x")).match(text)
    return found["x"] if found else None


def folders(path: str) -> dict[str, str]:
    """Return the partition columns in the folders of a path, or the date in it.

    >>> folders("s3://b/orders/ds=2024-06-15/region=eu")
    {'ds': '2024-06-15', 'region': 'eu'}
    >>> folders("s3://b/orders/2024/06/15")
    {'day': '2024-06-15'}
    """
    named = [found for folder in path.split("/") if (found := _FOLDER.fullmatch(folder))]
    if named:
        return {found[1]: unquote(found[2]) for found in named}
    template = template_of(path)
    return dict((NamePattern(template).match(path) if template else None) or {})


def date_parts(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns, with those that contain parts of a date combined into its label.

    >>> date_parts({"day": "5", "month": "06", "region": "eu", "year": "2024"})
    {'day': '2024-06-05', 'region': 'eu'}
    >>> date_parts({"dt": "2024-06-05", "hr": "7"})
    {'hour': '2024-06-05T07'}
    """
    if "year" in columns:
        names = [name for name in _PARTS if name in columns]
    else:
        dates = [name for name, value in columns.items() if label_of(value)]
        hours = [name for name in ("hour", "hr") if name in columns]
        names = dates + hours if len(dates) == len(hours) == 1 else []
    path = "/".join(f"{name}={columns[name]}" for name in names)
    template = template_of(path)
    date = NamePattern(template).match(path) if template else None
    if date is None:
        return dict(columns)
    return {**date, **{name: value for name, value in columns.items() if name not in names}}


def template_of(name: str) -> str | None:
    """Return the pattern that a name suggests; None for a name without a key.

    >>> template_of("public.orders_2021_06_04")
    'public.orders_{day:%Y_%m_%d}'
    >>> template_of("/data/orders/ds=2024-06-01/region=eu")
    '/data/orders/ds={day:%Y-%m-%d}/region={region}'
    >>> template_of("moved_2021-06-01_2021-06-07") is None
    True
    """
    grains: list[str] = []
    folders = name.split("/")
    if any(map(_FOLDER.fullmatch, folders)):
        text = "/".join(_of_folder(folder, grains) for folder in folders)
    else:
        text = _of_dates(name, grains)
        if not grains:
            return None
    finest = next((grain for grain in _FROM_FINE_TO_COARSE if grain in grains), "")
    template = text.replace(_TIME, finest)
    # Two different dates are a span, or mean something else.
    return template if NamePattern(template).match(name) else None


def _of_folder(folder: str, grains: list[str]) -> str:
    found = _FOLDER.fullmatch(folder)
    if found is None:
        return escaped(folder)
    key, value = found.groups()
    if _DATE.fullmatch(value) and key != "year":
        return f"{key}={_of_dates(value, grains)}"
    if key in _PARTS and value.isdecimal() and (grains or key == "year"):
        grain, form = _PARTS[key]
        grains.append(grain)
        return f"{key}={{{_TIME}:{form}}}"
    return f"{key}={{{f'{key}_' if key in _TIME_NAMES else key}}}"


def _of_dates(text: str, grains: list[str]) -> str:
    template, at = "", 0
    for date in _DATE.finditer(text):
        grain = next(grain for grain in _FORMS if date[grain] is not None)
        form = _FORMS[grain].format_map(date.groupdict())
        template += f"{escaped(text[at : date.start()])}{{{_TIME}:{form}}}"
        grains.append(grain)
        at = date.end()
    return template + escaped(text[at:])


def _padded(template: str, members: Collection[DatasetRef]) -> NamePattern:
    """Return the pattern, with leading zeros where all names have them."""
    padded = NamePattern(template.replace("%-", "%"))
    if all(padded.match(ref.name) for ref in members):
        return padded
    return NamePattern(template)


def _quoted(text: str) -> str:
    """Return a TOML string."""
    return json.dumps(text, ensure_ascii=False)
