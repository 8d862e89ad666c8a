"""Finds datasets whose names look like partitions of one, with a pattern for them.

The edges of a job are those of its last run, which names one such partition: readers of older ones
are lost, unless all of them are known to be one dataset.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final
from urllib.parse import unquote

from lineage_backfill.lineage.snapshot import LineageSnapshot
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
#: Possible keys that do not look like dates: numbers, instants, ids.
_WORD: Final = r"(?:(?<![A-Za-z])[A-Za-z]{1,3})?\d[0-9A-Za-z]*"
_KEY: Final = re.compile(
    rf"[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}|{_WORD}(?:[-_.:]{_WORD})*", re.ASCII
)
#: Versions rather than keys, unless there is other evidence.
_VERSION: Final = re.compile(r"[vV]\d{1,3}(?:[-_.:]\d{1,3})*|\d{1,3}(?:\.\d{1,3})+", re.ASCII)
#: Least number of such names in older runs of a job that its last run does not have: a name with
#: as many digits as a date is not a version.
_LEAST_FORMER, _LONG = 2, 6
#: Marks the time placeholder until the finest part of the date is known.
_TIME: Final = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Names of one namespace that one pattern matches, sorted.

    `dataset` is what they would be folded into; `others` match as well, but are not members.
    """

    pattern: str
    dataset: DatasetRef
    members: tuple[DatasetRef, ...]
    others: tuple[DatasetRef, ...] = ()

    def is_called(self, text: str) -> bool:
        """Return whether a text names the family, or a partition of it, bare or in full."""
        space = f"{self.dataset.namespace}:"
        names = (text, text.removeprefix(space))
        return self.dataset.name in names or any(map(NamePattern(self.pattern).match, names))

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of a project file that declare the family."""
        named = NamePattern(self.pattern).stem == self.dataset.name
        return (
            "[[dataset]]",
            f"namespace = {_quoted(self.dataset.namespace)}",
            *([] if named else [f"name = {_quoted(self.dataset.name)}"]),
            f"pattern = {_quoted(self.pattern)}",
            *(
                line  # a declared name is not a partition
                for ref in self.others
                for line in (
                    "[[dataset]]",
                    f"namespace = {_quoted(ref.namespace)}",
                    f"name = {_quoted(ref.name)}",
                )
            ),
        )


def find_families(
    snapshot: LineageSnapshot,
    is_declared: Callable[[DatasetRef], bool] = lambda _: False,
    is_matched: Callable[[DatasetRef], bool] = lambda _: False,
) -> tuple[Family, ...]:
    """Return the families among undeclared names, by namespace and pattern.

    Names whose calendar a glob or the lineage itself declares (`is_matched`) are a family only if
    different runs of a job named different ones.
    """
    groups: dict[tuple[str, str], list[DatasetRef]] = {}
    rest = []
    for ref in _names(snapshot):
        template = _template(ref.name)
        if is_declared(ref):
            continue
        if template is None:
            rest.append(ref)
        else:
            groups.setdefault((ref.namespace, template), []).append(ref)
    varying = _varying(snapshot)
    found = []
    for (namespace, template), names in sorted(groups.items()):
        members = names
        if varying.isdisjoint(names):
            members = [ref for ref in names if not is_matched(ref)]
            rest += [ref for ref in names if is_matched(ref)]
        if not members:
            continue
        pattern = _padded(template, members)
        least = _LEAST
        if set(pattern.placeholders.values()) <= {"month", "year"} and varying.isdisjoint(members):
            least = _LEAST_OF_COARSE
        if len(members) >= least:
            name = pattern.stem or "partitioned"
            dataset = DatasetRef(namespace, name)
            found.append(Family(pattern=pattern.text, dataset=dataset, members=tuple(members)))
        else:
            rest += members
    return (*found, *_by_their_runs(snapshot, rest))


def _by_their_runs(snapshot: LineageSnapshot, names: Collection[DatasetRef]) -> Iterator[Family]:
    """Yield families of names that differ in each run of a job."""
    known, ordered = set(names), sorted(names)
    shapes: set[tuple[str, str]] = set()
    for job in snapshot.jobs.values():
        for former in (job.former_reads, job.former_writes):
            for shape, found in _by_shape(known.intersection(former)).items():
                is_long = sum(map(str.isdecimal, found[0].name)) >= _LONG
                # A short key alone, such as t1, would match any name.
                if is_long or (len(found) >= _LEAST_FORMER and shape[1] != "\0"):
                    shapes.add(shape)
    for shape, members in sorted(_by_shape(names).items()) if shapes else ():
        if shape not in shapes or len(members) < _LEAST or _are_versions(members):
            continue
        namespace, own = members[0].namespace, set(members)
        pattern = NamePattern(_keyed([ref.name for ref in members]))
        begin = DatasetRef(namespace, _KEY.split(members[0].name, maxsplit=1)[0])
        others = (ref for ref in _beginning(ordered, begin) if ref not in own)
        yield Family(
            pattern=pattern.text,
            dataset=DatasetRef(namespace, pattern.stem or "partitioned"),
            members=tuple(members),
            others=tuple(ref for ref in others if pattern.match(ref.name)),
        )


def _are_versions(members: Collection[DatasetRef]) -> bool:
    """Return whether names of one shape differ only in a version: each replaces the last."""
    columns = map(set, zip(*(_KEY.findall(ref.name) for ref in members), strict=True))
    return all(map(_VERSION.fullmatch, chain.from_iterable(c for c in columns if len(c) > 1)))


def _beginning(ordered: Sequence[DatasetRef], begin: DatasetRef) -> Sequence[DatasetRef]:
    """Return the sorted names with this prefix; only they can match its pattern."""

    def is_beyond(ref: DatasetRef) -> bool:
        return ref.namespace != begin.namespace or not ref.name.startswith(begin.name)

    first = bisect_left(ordered, begin)
    return ordered[first : bisect_left(ordered, True, lo=first, key=is_beyond)]


def _by_shape(names: Iterable[DatasetRef]) -> dict[tuple[str, str], list[DatasetRef]]:
    """Return the names that may contain a key, by namespace and surrounding text."""
    found: dict[tuple[str, str], list[DatasetRef]] = {}
    for ref in names:
        around, keys = _KEY.subn("\0", ref.name)
        if keys:
            found.setdefault((ref.namespace, around), []).append(ref)
    return found


def _keyed(names: Sequence[str]) -> str:
    """Return the pattern of names of one shape: a placeholder where they differ.

    >>> _keyed(["s3.orders_20240601143000", "s3.orders_20240602143000"])
    's3.orders_{key}'
    """
    plain = _KEY.split(names[0])
    keys = [set(column) for column in zip(*map(_KEY.findall, names), strict=True)]
    pattern, number = escaped(plain[0]), 0
    for texts, behind in zip(keys, plain[1:], strict=True):
        number += len(texts) > 1
        placeholder = f"{{key{number if number > 1 else ''}}}"
        pattern += placeholder if len(texts) > 1 else escaped(*texts)
        pattern += escaped(behind)
    return pattern


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
    template = _template(path)
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
    template = _template(path)
    date = NamePattern(template).match(path) if template else None
    if date is None:
        return dict(columns)
    return {**date, **{name: value for name, value in columns.items() if name not in names}}


def _names(snapshot: LineageSnapshot) -> list[DatasetRef]:
    names = set(snapshot.datasets)
    for job in snapshot.jobs.values():
        names.update(job.former_reads, job.former_writes)
    return sorted(names)


def _varying(snapshot: LineageSnapshot) -> set[DatasetRef]:
    """Return the datasets that a job named in one run and not in another."""
    jobs = snapshot.jobs.values()
    return {ref for job in jobs for ref in (*job.former_reads, *job.former_writes)}


def _template(name: str) -> str | None:
    """Return the pattern that a name suggests; None for a name without a key.

    >>> _template("public.orders_2021_06_04")
    'public.orders_{day:%Y_%m_%d}'
    >>> _template("/data/orders/ds=2024-06-01/region=eu")
    '/data/orders/ds={day:%Y-%m-%d}/region={region}'
    >>> _template("moved_2021-06-01_2021-06-07") is None
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
