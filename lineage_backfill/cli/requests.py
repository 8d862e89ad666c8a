"""Turns command-line arguments into a request for a plan."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lineage_backfill.cli.options import PlanOptions, RequestOptions
from lineage_backfill.errors import AmbiguousNameError, UnknownNameError, UsageError
from lineage_backfill.lineage.identity.folding import Folding
from lineage_backfill.lineage.identity.places import Places
from lineage_backfill.lineage.names import resolve, unknown
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.text import KeySet, parse_partitions
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.request import (
    RAILS,
    ChangedDataset,
    ChangedJob,
    Request,
    key_set_from_list,
    request_from_dict,
)
from lineage_backfill.show import documents
from lineage_backfill.workspace.environment import account

#: Endings of file names that users give in place of a dataset.
_FILES = (".json", ".ndjson", ".toml", ".gz")


class NameLookup:
    """Finds datasets and jobs by the names that users type.

    `namespace` narrows the search of bare names; one that is only `preferred` does not.
    """

    def __init__(
        self, resolver: Resolver, namespace: str | None = None, *, preferred: str | None = None
    ) -> None:
        self._snapshot, self._folding = resolver.snapshot, Folding(resolver.declarations)
        self._places = Places(resolver.declarations)
        self._edges = resolver.edges
        self._datasets, self._jobs = self._edges.datasets, self._edges.jobs
        self._namespace = namespace
        self._home = namespace or preferred or resolver.declarations.namespace or ""

    def dataset(self, text: str) -> DatasetRef:
        """Return the dataset, also if one of its partitions is named.

        Raises UnknownNameError or AmbiguousNameError.
        """
        return self._find(text)[0]

    def changed(self, text: str, keys: KeySet | None) -> ChangedDataset:
        """Return the change: keys of a dataset, or the partition that is named."""
        dataset, own = self._find(text)
        return ChangedDataset(dataset=dataset, keys=_either(text, own, keys))

    def folded(self, changed: ChangedDataset) -> ChangedDataset:
        """Return the same change; a name of a partition becomes its dataset."""
        part = self._folding.find(changed.dataset)
        if part is None or changed.dataset in self._datasets:
            return changed
        keys = _either(str(changed.dataset), part.keys, changed.keys)
        return ChangedDataset(dataset=part.dataset, keys=keys)

    def _find(self, text: str) -> tuple[DatasetRef, KeySet | None]:
        home = DatasetRef(self._home, text)  # what a bare name means in this project
        if home in self._datasets:
            return home, None
        try:
            return resolve(text, self._datasets, kind="dataset", namespace=self._namespace), None
        except UnknownNameError:
            nodes = self._snapshot.datasets.values()
            aliases = {alias: node.ref for node in nodes for alias in node.aliases}
            with suppress(UnknownNameError):
                alias = resolve(text, aliases, kind="dataset", namespace=self._namespace)
                return aliases[alias], None
            known = [ref for ref in self._datasets if self._namespace in (None, ref.namespace)]
            part = self._folding.named(text, known)
            if part is not None:
                return part.dataset, part.keys
            named = {ref: ref for ref in known} | aliases
            located = self._places.located(text, named)
            if located is not None:
                return located, None
            if text.endswith(_FILES):
                raise UnknownNameError(
                    f"{text!r} is neither a file nor a dataset",
                    hint="Check the path. `impact … --out PLAN.json` saves a plan.",
                ) from None
            if any(text in (ref.name, str(ref)) for ref in self._jobs):
                raise UnknownNameError(
                    f"{text!r} is a job; a dataset is expected here",
                    hint=f"To re-run it and everything downstream: --job {shlex.quote(text)}",
                ) from None
            raise

    def job(self, text: str) -> JobRef:
        """Return the job; raises UnknownNameError or AmbiguousNameError."""
        home = JobRef(self._home, text)
        if home in self._jobs:
            return home
        try:
            return resolve(text, self._jobs, kind="job", namespace=self._namespace)
        except UnknownNameError as error:
            for node in self._snapshot.jobs.values():
                if any(text in (part.name, str(part)) for part in node.parts):
                    raise UnknownNameError(
                        f"job {text!r} is part of {node.ref}",
                        hint=f"Name {node.ref.name}: it runs as a whole. [lineage] fold = false"
                        " keeps the actions of Spark applications apart.",
                    ) from error
            meant = [one for one in self._datasets if text in (one.name, str(one))]
            writers = [str(ref) for one in meant for ref in self._edges.writers.get(one, ())]
            if meant:
                hint = f"It is written by {listed(writers, 3)}." if writers else ""
                raise UnknownNameError(
                    f"{text!r} is a dataset; a job is expected here",
                    hint=hint or "For all that reads it, write it without --job.",
                ) from error
            raise

    def dataset_or_job(self, text: str) -> DatasetRef | JobRef:
        """Return the dataset or the job; raises AmbiguousNameError if it can be either."""
        found: list[DatasetRef | JobRef] = []
        for find in (self.dataset, self.job):
            with suppress(UnknownNameError):
                found.append(find(text))
        if len(found) == 2:
            raise AmbiguousNameError(
                f"{text!r} names a dataset and a job", hint=f"Write dataset:{text} or job:{text}."
            )
        for prefix, find in (("dataset:", self.dataset), ("job:", self.job)):
            if not found and text.startswith(prefix):
                found.append(find(text.removeprefix(prefix)))
        if found:
            return found[0]
        raise unknown(text, [*self._datasets, *self._jobs], kind="dataset or job")

    def job_and_keys(self, text: str) -> tuple[JobRef, KeySet | None]:
        """Return the job and keys of JOB or JOB@SET; a name with an @ of its own is not split."""
        known = {name for ref in self._jobs for name in (ref.name, str(ref))}
        for cut in (found.start() for found in reversed([*re.finditer("@|$", text)])):
            if text[:cut] in known:
                keys = read_keys(text[cut + 1 :]) if cut < len(text) else None
                return self.job(text[:cut]), keys
        return self.job(text.partition("@")[0]), None  # raises, with similar names


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


def _either(text: str, own: KeySet | None, given: KeySet | None) -> KeySet | None:
    """Return the keys of a partition's name or those given; raises UsageError for both."""
    if own is not None and given is not None:
        raise UsageError(
            f"{text!r} is already one partition",
            hint="Leave out the keys, or name the dataset.",
        )
    return given if own is None else own


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
