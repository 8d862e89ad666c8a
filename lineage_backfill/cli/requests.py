"""Turns command-line arguments into a request for a plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lineage_backfill.cli.options import PlanOptions, RequestOptions
from lineage_backfill.errors import UsageError
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.text import KeySet, parse_partitions
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.request import (
    RAILS,
    ChangedJob,
    Request,
    key_set_from_list,
    request_from_dict,
)
from lineage_backfill.show import documents
from lineage_backfill.workspace.environment import account
from lineage_backfill.workspace.named import NameLookup


def job_and_keys(names: NameLookup, text: str) -> tuple[JobRef, KeySet | None]:
    """Return the job and keys of JOB or JOB@SET; a name with an @ of its own is not split."""
    for cut in (found.start() for found in reversed([*re.finditer("@|$", text)])):
        if names.is_job(text[:cut]):
            keys = read_keys(text[cut + 1 :]) if cut < len(text) else None
            return names.job(text[:cut]), keys
    return names.job(text.partition("@")[0]), None  # raises, with similar names


def load_request(datasets: Sequence[str], options: RequestOptions) -> Request | None:
    """Return the request in the file of `--request`, None without one; raises UsageError."""
    if not options.request:
        return None
    named = bool(datasets or options.job or _keys_given(options) or asks_logs(options))
    if named:
        raise UsageError(
            "--request cannot be combined with datasets, --job or keys",
            hint="Put all changed datasets, jobs and keys into the file, or leave out --request.",
        )
    return request_from_dict(documents.load(options.request, unique=True), str(options.request))


def read_request(
    datasets: Sequence[str],
    options: RequestOptions,
    resolver: Resolver,
    loaded: Request | None = None,
) -> Request:
    """Return the request; `loaded` is the one in the file of `--request`.

    Raises UsageError if the arguments contradict each other.
    """
    names = NameLookup(resolver, options.namespace)
    if loaded is not None:
        request = replace(loaded, changed=tuple(map(names.folded, loaded.changed)))
    else:
        keys = _keys(options)
        request = Request(
            changed=tuple(names.changed(n, keys) for n in datasets),
            jobs=tuple(ChangedJob(job=names.job(n), keys=keys) for n in options.job or ()),
        )
    if not (request.changed or request.jobs):
        raise UsageError(
            "no changed dataset or job is named",
            hint="Name a dataset, as in `lineage-backfill impact DATASET --from KEY`, or --job.",
        )
    return replace(
        limits_of(options, request),
        columns=_columns(options.columns) or request.columns,
        depth=options.depth or request.depth,
        exact=options.exact or request.exact,
        include_former=options.include_former or request.include_former,
    )


def limits_of(options: PlanOptions, request: Request) -> Request:
    """Return the request with scope, author and reason from the options."""
    return replace(
        request,
        select=tuple(options.select or request.select),
        exclude=tuple(options.exclude or request.exclude),
        reverse=options.reverse or request.reverse,
        author=request.author or account(),
        reason=options.reason or request.reason,
        as_of=options.now is not None or request.as_of,
        allow=request.allow
        | {rail for rail in RAILS if getattr(options, f"allow_{rail.replace('-', '_')}")},
    )


def asks_logs(options: RequestOptions) -> bool:
    """Whether the keys come from the logs of the tables."""
    return options.since_version is not None or options.changed_since is not None


def read_keys(text: str) -> KeySet:
    """Return the keys of `--partitions`, given directly or as @FILE; raises UsageError."""
    if text.startswith("@"):
        file = Path(text[1:])
        return key_set_from_list(documents.load(file, unique=True), str(file))
    return parse_partitions(text)


def _keys_given(options: RequestOptions) -> bool:
    return any(one is not None for one in (options.from_, options.to, options.partitions))


def _keys(options: RequestOptions) -> KeySet | None:
    if asks_logs(options):
        both = options.since_version is not None and options.changed_since is not None
        if both or _keys_given(options) or options.job:
            raise UsageError(
                "--since-version and --changed-since find the keys of datasets themselves",
                hint="Use one of the two, without --job and keys.",
            )
    if options.partitions is not None:
        if options.from_ is not None or options.to is not None:
            raise UsageError(
                "--partitions and --from/--to both set the keys", hint="Drop one of them."
            )
        return read_keys(options.partitions)
    if options.from_ is None and options.to is not None:
        raise UsageError("--to needs --from", hint="Add --from with the first key.")
    return None if options.from_ is None else (f"{options.from_}..{options.to or ''}",)


def _columns(values: Sequence[str] | None) -> tuple[str, ...]:
    names = [name.strip() for value in values or () for name in value.split(",")]
    if not all(names):
        raise UsageError(
            "--columns holds an empty name",
            hint="Write it like price,vat, or leave it out if any column may have changed.",
        )
    return tuple(names)
