"""Finds the datasets and jobs that people name."""

from __future__ import annotations

import shlex
from contextlib import suppress

from lineage_backfill.errors import AmbiguousNameError, UnknownNameError, UsageError
from lineage_backfill.lineage.identity.folding import Folding
from lineage_backfill.lineage.identity.places import Places
from lineage_backfill.lineage.names import resolve, unknown
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.request import ChangedDataset

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

    def is_job(self, text: str) -> bool:
        """Whether a job has this name."""
        return any(text in (ref.name, str(ref)) for ref in self._jobs)

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


def _either(text: str, own: KeySet | None, given: KeySet | None) -> KeySet | None:
    """Return the keys of a partition's name or those given; raises UsageError for both."""
    if own is not None and given is not None:
        raise UsageError(
            f"{text!r} is already one partition",
            hint="Leave out the keys, or name the dataset.",
        )
    return given if own is None else own
