"""Folds datasets with one name per partition into the declared dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lineage_backfill.errors import AmbiguousNameError
from lineage_backfill.lineage.identity.covers import with_covered
from lineage_backfill.lineage.identity.merge import merge_datasets
from lineage_backfill.lineage.identity.naming import same_space, ways_to_write
from lineage_backfill.lineage.inference.windows import Slot, add_windows
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import EVERY
from lineage_backfill.partitions.patterns import NamePattern
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.project.declarations import DatasetDeclaration, Declarations
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import Matcher
from lineage_backfill.project.patterns import completed


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The dataset and key that the name of one partition means.

    `slot` is its position in time, if the calendar has whole hours, days and so on.
    """

    dataset: DatasetRef
    keys: KeySet
    slot: Slot | None


class Folding:
    """The patterns of a project; if several match a name, the first one counts.

    A name that is declared itself is never folded.
    """

    def __init__(self, declarations: Declarations) -> None:
        self._home = declarations.namespace
        plain = [one for one in declarations.datasets if one.pattern is None]
        self._declared = Matcher(plain, self._home, lambda one: one.name)
        self._patterns = [
            (NamePattern(one.pattern), completed(one))
            for one in declarations.datasets
            if one.pattern is not None
        ]

    def _space(self, declared: DatasetDeclaration) -> str | None:
        return declared.namespace or self._home

    def find(self, ref: DatasetRef) -> Part | None:
        """Return what a name means; None if it does not name a partition."""
        if not self._patterns or self._is_exact(ref):
            return None
        names, here = ways_to_write(ref), same_space(ref.namespace)
        for pattern, declared in self._patterns:
            space = self._space(declared) or ref.namespace
            if same_space(space) == here:
                keys = (pattern.match(name, _time(declared)[1]) for name in names)
                if key := next(filter(None, keys), None):
                    return _part(DatasetRef(space, declared.name), declared, key)
        return None

    def _is_exact(self, ref: DatasetRef) -> bool:
        declared = self._declared.find(ref)
        return declared is not None and not is_glob(declared.name)

    def named(self, text: str, known: Iterable[DatasetRef]) -> Part | None:
        """Return the partition that a text names, bare or with a namespace of `known` datasets.

        Raises AmbiguousNameError if it can be a partition of several.
        """
        known = set(known) if self._patterns else set()
        found = {}
        for space in {ref.namespace for ref in known}:
            for name in (text, text.removeprefix(f"{space}:")):
                part = self.find(DatasetRef(space, name))
                if part is not None and part.dataset in known:
                    found[part.dataset] = part
        if len(found) > 1:
            raise AmbiguousNameError(
                f"{text!r} is a partition of {len(found)} datasets",
                hint="Name one of them: "
                + " or ".join(f"{ref.namespace}:{text}" for ref in sorted(found)),
            )
        return next(iter(found.values()), None)

    def fold(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        """Return the lineage with one dataset for all names that a pattern matches."""
        if not self._patterns:
            return snapshot
        names = set(snapshot.datasets)
        for job in snapshot.jobs.values():
            names.update(job.former_reads, job.former_writes)
        found: dict[DatasetRef, Part] = {}
        for ref in names:
            aliases = snapshot.datasets[ref].aliases if ref in snapshot.datasets else ()
            parts = {name: part for name in (ref, *aliases) if (part := self.find(name))}
            if parts:
                found |= {ref: next(iter(parts.values())), **parts}
        # Readers of a folder or glob around such names, which the dataset's own name does not tell.
        snapshot = with_covered(snapshot, found.__contains__)
        newest_last = sorted(found, key=lambda ref: (str(found[ref].keys), ref))
        folded = merge_datasets(snapshot, {ref: found[ref].dataset for ref in newest_last})
        slots = {ref: part.slot for ref, part in found.items() if part.slot is not None}
        return add_windows(folded, snapshot, slots)


def _time(declared: DatasetDeclaration) -> tuple[str, str | None]:
    """Return the name of the time dimension ("" for plain keys) and its grain, if any."""
    calendars = {one.name: one.calendar for one in declared.dimensions}
    if declared.calendar is not None:
        calendars[""] = declared.calendar
    times = ((name, one.grain) for name, one in calendars.items() if one.keys is None)
    return next(times, ("", None))


def _part(dataset: DatasetRef, declared: DatasetDeclaration, key: Mapping[str, str]) -> Part:
    time, grain = _time(declared)
    keys: KeySet = tuple(key.values())
    if declared.dimensions:
        keys = ({one.name: [key.get(one.name, EVERY)] for one in declared.dimensions},)
    slot = None
    if grain is not None:
        label = key[time] if time else next(iter(key.values()))
        slot = Slot(dataset=dataset, grain=grain, label=label, dimension=time)
    return Part(dataset=dataset, keys=keys, slot=slot)
