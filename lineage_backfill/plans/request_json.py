"""A request as a document: read by `--request`, and stored in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plans.request import (
    RAILS,
    TORN_EVENTS,
    ChangedDataset,
    ChangedJob,
    LogRange,
    Request,
)
from lineage_backfill.project.table import Table
from lineage_backfill.typed import near_misses

#: Versions of a table: the one before all, and the largest.
_BEFORE_ALL, _LAST = -1, 2**63 - 1
_SHAPE: Final = 'A request is {"changed": [{"dataset": …, "partitions": […]}], "jobs": […]}.'


def request_from_dict(document: Any, place: str) -> Request:
    """Return the request of a document; raises UsageError naming `place` and the member."""
    if not isinstance(document, Mapping):
        raise UsageError(f"{place} is not a request", hint=_SHAPE)
    table = Table(document, place, UsageError)
    try:
        request = Request(
            changed=tuple(map(_changed, _entries(table, "changed"))),
            jobs=tuple(map(_job, _entries(table, "jobs"))),
            columns=_names(table, "columns"),
            select=_names(table, "select"),
            exclude=_names(table, "exclude"),
            depth=table.integer("depth", None, minimum=1),
            exact=table.flag("exact", False),
            reverse=table.flag("reverse", False),
            include_former=table.flag("include_former", False),
            allow=_allow(table),
            author=table.text("author") or "",
            reason=table.text("reason") or "",
            as_of=table.flag("as_of", False),
            ignored_runs=_names(table, "ignored_runs"),
            target=table.text("target") or "",
        )
        table.done()
    except UsageError as error:
        error.hint = error.hint or _SHAPE
        raise
    return request


def _entries(table: Table, member: str) -> list[Table]:
    given = table.raw(member)
    entries = [] if given is None else given
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise table.error(f"`{member}` must be a list of objects")
    return [
        Table(one, f"{table.place}: {member}[{number}]", UsageError)
        for number, one in enumerate(entries)
    ]


def _changed(entry: Table) -> ChangedDataset:
    dataset = DatasetRef(*_named(entry, "dataset"))
    keys, log = _keys(entry), entry.raw("log")
    entry_log = None if log is None else _log(entry, log)
    entry.done()
    return ChangedDataset(dataset=dataset, keys=keys, log=entry_log)


def _job(entry: Table) -> ChangedJob:
    job = JobRef(*_named(entry, "job"))
    keys, exact = _keys(entry), entry.flag("exact", False)
    entry.done()
    return ChangedJob(job=job, keys=keys, exact=exact)


def _named(entry: Table, kind: str) -> tuple[str, str]:
    given = entry.raw(kind)
    name = Table(given if isinstance(given, Mapping) else {}, f"{entry.place} {kind}", UsageError)
    found = name.raw("namespace"), name.raw("name")
    if not isinstance(found[0], str) or not isinstance(found[1], str):
        raise entry.error(
            f"no {kind} is named",
            hint=f'Write {{"{kind}": {{"namespace": …, "name": …}}, "partitions": […]}}.',
        )
    name.done()
    return found[0], found[1]


def _keys(entry: Table) -> KeySet | None:
    keys = entry.raw("partitions")
    return None if keys is None else key_set_from_list(keys, entry.place)


def _log(entry: Table, given: Any) -> LogRange:
    if not isinstance(given, Mapping):
        raise entry.error(
            "`log` must be a part of a table's log",
            hint='Write {"after": 12, "until": 15}, or leave it out.',
        )
    versions = Table(given, f"{entry.place} log", UsageError)
    after = versions.integer("after", None, minimum=_BEFORE_ALL)
    until = versions.integer("until", None, minimum=_BEFORE_ALL)
    if after is None or until is None:
        raise versions.error("`after` and `until` are versions of the table, and must be there")
    if not after <= until <= _LAST:
        least = f"at least {after}, as `after` is" if until < after else f"at most {_LAST}"
        raise versions.error(f"`until` is {until}, but must be {least}")
    ignored = _texts(versions, "ignored")
    versions.done()
    return LogRange(after=after, until=until, ignored=ignored)


def _texts(table: Table, key: str) -> tuple[str, ...]:
    if isinstance(value := table.raw(key), list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if value is not None:
        raise table.error(f"`{key}` must be a list of strings")
    return ()


def _names(table: Table, key: str) -> tuple[str, ...]:
    names = _texts(table, key)
    if not all(name.strip() for name in names):
        raise table.error(f"`{key}` holds an empty string")
    return names


def _allow(table: Table) -> frozenset[str]:
    allowed = frozenset(_texts(table, "allow"))
    for name in sorted(allowed - {*RAILS, TORN_EVENTS}):
        raise table.error(
            f"`allow` names an unknown guard rail {name!r}", hint=near_misses(name, RAILS)
        )
    return allowed


def request_to_dict(request: Request) -> dict[str, Any]:
    """Return a request as a document, which `request_from_dict` reads."""
    document: dict[str, Any] = {
        "changed": [
            {"dataset": named(part.dataset), "partitions": _listed(part.keys), **_logged(part.log)}
            for part in request.changed
        ]
    }
    if request.jobs:
        document["jobs"] = [
            {
                "job": named(part.job),
                "partitions": _listed(part.keys),
                **({"exact": True} if part.exact else {}),
            }
            for part in request.jobs
        ]
    for name in ("columns", "select", "exclude", "ignored_runs"):
        if getattr(request, name):
            document[name] = list(getattr(request, name))
    flags = ("depth", "exact", "reverse", "include_former", "author", "reason", "as_of", "target")
    for name in flags:
        if getattr(request, name) not in (None, False, ""):
            document[name] = getattr(request, name)
    if request.allow:
        document["allow"] = sorted(request.allow)
    return document


def _logged(log: LogRange | None) -> dict[str, Any]:
    if log is None:
        return {}
    ignored = {"ignored": list(log.ignored)} if log.ignored else {}
    return {"log": {"after": log.after, "until": log.until, **ignored}}


def _listed(keys: KeySet | None) -> list[Any] | None:
    return None if keys is None else list(keys)


def key_set_from_list(value: Any, place: str) -> KeySet:
    """Return a set of keys as FORMATS writes it; raises UsageError naming `place`."""
    if isinstance(value, list) and all(isinstance(one, str) or _is_box(one) for one in value):
        return tuple(value)
    raise UsageError(
        f"{place} is not a list of keys, ranges and boxes",
        hint='Write ["2024-06-01..2024-06-03"] or [{"day": ["2024-06-01"], "region": ["eu"]}].',
    )


def _is_box(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(keys, str)
        or (isinstance(keys, list) and all(isinstance(key, str) for key in keys))
        for keys in value.values()
    )
