"""From the words on the command line to a request for a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from lineage_backfill.cli import documents
from lineage_backfill.cli.options import RequestOptions
from lineage_backfill.errors import UsageError
from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.graph.names import resolve
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import parse_partitions
from lineage_backfill.plan.catalog import Catalog
from lineage_backfill.plan.declarations import Declarations
from lineage_backfill.plan.plan import KeySet
from lineage_backfill.plan.request import ChangedDataset, ChangedJob, Request

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
#: The guard rails that a request may override, as `Request.allow` names them.
_RAILS = ("protected", "not-idempotent", "expired", "max-runs")

Ref = TypeVar("Ref", DatasetRef, JobRef)


class Names:
    """Finds datasets and jobs by what a person calls them."""

    def __init__(
        self, snapshot: LineageSnapshot, declarations: Declarations, namespace: str | None = None
    ) -> None:
        catalog = Catalog(snapshot, declarations, now=datetime.now(UTC))
        self._datasets, self._jobs = catalog.all_datasets(), catalog.all_jobs()
        self._namespace = namespace
        self._home = namespace or declarations.namespace or ""

    def dataset(self, text: str) -> DatasetRef:
        """Return the dataset; raises UnknownNameError or AmbiguousNameError."""
        home = DatasetRef(self._home, text)  # what a bare name means in this project
        if home in self._datasets:
            return home
        return resolve(text, self._datasets, kind="dataset", namespace=self._namespace)

    def job(self, text: str) -> JobRef:
        """Return the job; raises UnknownNameError or AmbiguousNameError."""
        home = JobRef(self._home, text)
        if home in self._jobs:
            return home
        return resolve(text, self._jobs, kind="job", namespace=self._namespace)


def read_request(
    datasets: Sequence[str],
    options: RequestOptions,
    snapshot: LineageSnapshot,
    declarations: Declarations,
) -> Request:
    """Return the request that the arguments state; raises UsageError where they contradict."""
    named = bool(datasets or options.job or _keys_given(options))
    if options.request and named:
        raise UsageError(
            "--request names all roots and their keys by itself",
            hint="Leave out the datasets, --job and the keys, or leave out --request.",
        )
    if options.request:
        changed, jobs = _roots(options.request)
    elif datasets or options.job:
        keys = _keys(options)
        names = Names(snapshot, declarations, options.namespace)
        changed = tuple(ChangedDataset(dataset=names.dataset(one), keys=keys) for one in datasets)
        jobs = tuple(ChangedJob(job=names.job(one), keys=keys) for one in options.job or ())
    else:
        raise UsageError(
            "Nothing is named that changed",
            hint="Name a dataset, as in `lineage-backfill impact DATASET --from KEY`, or --job.",
        )
    return Request(
        changed=changed,
        jobs=jobs,
        columns=_listed(options.columns),
        select=tuple(options.select or ()),
        exclude=tuple(options.exclude or ()),
        depth=options.depth,
        exact=options.exact,
        reverse=options.reverse,
        include_former=options.include_former,
        allow=frozenset(
            rail for rail in _RAILS if getattr(options, f"allow_{rail.replace('-', '_')}")
        ),
    )


def read_instant(text: str | None) -> datetime:
    """Return the instant in UTC, that of the clock if none is given; raises UsageError."""
    if text is None:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not an instant", hint="Write it as in 2024-04-01T00:00:00Z."
        ) from error
    if instant.tzinfo is None:
        raise UsageError(f"{text!r} has no offset from UTC", hint=f"As in {instant:%FT%TZ}.")
    return instant.astimezone(UTC)


def read_duration(text: str | None) -> timedelta | None:
    """Return the length of time, as `90s`, `30m`, `2h` or `1d`; raises UsageError."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a length of time", hint="Write it as 90s, 30m or 2h.")
    return timedelta(**{_UNITS[found[2]]: float(found[1])})


def _keys_given(options: RequestOptions) -> bool:
    return any(one is not None for one in (options.from_, options.to, options.partitions))


def _keys(options: RequestOptions) -> KeySet | None:
    if options.partitions is not None:
        if options.from_ is not None or options.to is not None:
            raise UsageError(
                "--partitions and --from/--to both name the keys", hint="Keep one of them."
            )
        if options.partitions.startswith("@"):
            return _key_set(documents.load(Path(options.partitions[1:])), "The set of keys")
        return parse_partitions(options.partitions)
    if options.from_ is None and options.to is not None:
        raise UsageError("--to needs --from", hint="Add --from with the first key.")
    return None if options.from_ is None else (f"{options.from_}..{options.to or ''}",)


def _roots(file: Path) -> tuple[tuple[ChangedDataset, ...], tuple[ChangedJob, ...]]:
    document = documents.load(file)
    if not isinstance(document, dict) or not document or document.keys() - {"changed", "jobs"}:
        raise UsageError(
            f"{file} is not a request",
            hint='It holds {"changed": [{"dataset": …, "partitions": […]}], "jobs": […]}.',
        )
    changed = tuple(
        ChangedDataset(dataset=ref, keys=keys)
        for ref, keys in _each(document, "changed", "dataset", DatasetRef, file)
    )
    jobs = tuple(
        ChangedJob(job=ref, keys=keys) for ref, keys in _each(document, "jobs", "job", JobRef, file)
    )
    return changed, jobs


def _each(
    document: Mapping[str, Any], member: str, kind: str, make: Callable[[str, str], Ref], file: Path
) -> list[tuple[Ref, KeySet | None]]:
    found = []
    for number, one in enumerate(document.get(member, [])):
        place = f"{file}: {member}[{number}]"
        name = one.get(kind) if isinstance(one, dict) else None
        if not isinstance(name, dict) or not all(
            isinstance(name.get(part), str) for part in ("namespace", "name")
        ):
            raise UsageError(
                f"{place} names no {kind}",
                hint=f'Write {{"{kind}": {{"namespace": …, "name": …}}, "partitions": […]}}.',
            )
        keys = one.get("partitions")
        found.append(
            (make(name["namespace"], name["name"]), None if keys is None else _key_set(keys, place))
        )
    return found


def _key_set(value: Any, place: str) -> KeySet:
    if not isinstance(value, list) or not all(isinstance(one, str | dict) for one in value):
        raise UsageError(
            f"{place} is not a list of keys, ranges and boxes",
            hint='As in ["2024-06-01..2024-06-03"] or [{"day": ["2024-06-01"], "region": ["eu"]}].',
        )
    return tuple(value)


def _listed(values: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(
        name.strip() for value in values or () for name in value.split(",") if name.strip()
    )
