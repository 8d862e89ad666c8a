"""A request as a document: what `--request` reads, and what a saved plan says was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.request import ChangedDataset, ChangedJob, LogRange, Request

Ref = TypeVar("Ref", DatasetRef, JobRef)


def request_from_dict(document: Any, place: str) -> Request:
    """Return the request of a document; raises UsageError naming `place` and the member."""
    if not isinstance(document, Mapping):
        raise UsageError(
            f"{place} is not a request",
            hint='It holds {"changed": [{"dataset": …, "partitions": […]}], "jobs": […]}.',
        )
    settings = {key: value for key, value in document.items() if key not in ("changed", "jobs")}
    for key, value in settings.items():
        if key not in _SETTINGS or not _SETTINGS[key](value):
            raise UsageError(
                f"{place}: {key!r} is no setting of a request, or not of its kind",
                hint=f"There are changed, jobs, {', '.join(_SETTINGS)}.",
            )
        if isinstance(value, list):
            settings[key] = tuple(value)
    return Request(
        changed=tuple(
            ChangedDataset(dataset=ref, keys=keys, log=_log(one.get("log"), place))
            for ref, keys, one in _roots(document, "changed", "dataset", DatasetRef, place)
        ),
        jobs=tuple(
            ChangedJob(job=ref, keys=keys, exact=one.get("exact") is True)
            for ref, keys, one in _roots(document, "jobs", "job", JobRef, place)
        ),
        **{**settings, "allow": frozenset(settings.get("allow", ()))},
    )


def request_to_dict(request: Request) -> dict[str, Any]:
    """Return the document of a request, which `request_from_dict` reads."""
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
    for name in ("columns", "select", "exclude"):
        if getattr(request, name):
            document[name] = list(getattr(request, name))
    for name in ("depth", "exact", "reverse", "include_former", "author", "reason", "as_of"):
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
    if isinstance(value, list) and all(isinstance(one, str | dict) for one in value):
        return tuple(value)
    raise UsageError(
        f"{place} is not a list of keys, ranges and boxes",
        hint='As in ["2024-06-01..2024-06-03"] or [{"day": ["2024-06-01"], "region": ["eu"]}].',
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _depth(value: Any) -> bool:
    return type(value) is int and value >= 1


#: What a request may say beside its roots, and how that is recognised.
_SETTINGS: Mapping[str, Callable[[Any], bool]] = {
    "columns": _texts,
    "select": _texts,
    "exclude": _texts,
    "depth": _depth,
    "exact": _flag,
    "reverse": _flag,
    "include_former": _flag,
    "allow": _texts,
    "author": _text,
    "reason": _text,
    "as_of": _flag,
}


def _roots(
    document: Mapping[str, Any],
    member: str,
    kind: str,
    make: Callable[[str, str], Ref],
    place: str,
) -> list[tuple[Ref, KeySet | None, Mapping[str, Any]]]:
    roots = document.get(member, [])
    found = []
    for number, one in enumerate(roots if isinstance(roots, list) else [roots]):
        here = f"{place}: {member}[{number}]"
        ref = one.get(kind) if isinstance(one, Mapping) else None
        if not isinstance(ref, Mapping) or not _texts([ref.get("namespace"), ref.get("name")]):
            raise UsageError(
                f"{here} names no {kind}",
                hint=f'Write {{"{kind}": {{"namespace": …, "name": …}}, "partitions": […]}}.',
            )
        keys = one.get("partitions")
        found.append(
            (
                make(ref["namespace"], ref["name"]),
                None if keys is None else key_set_from_list(keys, here),
                one,
            )
        )
    return found


def _log(value: Any, place: str) -> LogRange | None:
    if value is None:
        return None
    try:
        after, until, ignored = value["after"], value["until"], value.get("ignored", [])
        if type(after) is int and type(until) is int and _texts(ignored):
            return LogRange(after=after, until=until, ignored=tuple(ignored))
    except (KeyError, TypeError, AttributeError):
        pass
    raise UsageError(
        f"{place}: {value!r} is no part of a table's log",
        hint='Write {"after": 12, "until": 15}, or leave it out.',
    )
