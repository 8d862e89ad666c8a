"""Which partitions a job reads beside those of its own key, told by what its runs have touched.

A run tells it by the names of its datasets, where each partition has its own, or by OpenLineage's
`subset` facets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lineage_backfill.errors import UsageError
from lineage_backfill.graph.details import Touched
from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.grid import grain_grid

_FROM_FINE_TO_COARSE: Final = ("hour", "day", "week", "month", "quarter", "year")
#: What labels look like that are those of one grain alone, unless all are first days of months.
_SHAPES: Final = {
    "hour": re.compile(r"\d{4}-\d\d-\d\dT\d\d", re.ASCII),
    "day": re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    "week": re.compile(r"\d{4}-W\d\d", re.ASCII),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The partition that one name stands for: of a dataset, by the label of a grain.

    `dimension` is the time dimension of a product key, "" where keys are plain.
    """

    dataset: DatasetRef
    grain: str
    label: str
    dimension: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one run of a job has read and written, as far as it is known by partitions."""

    job: JobRef
    reads: tuple[Slot, ...]
    writes: tuple[Slot, ...]


def by_names(snapshot: LineageSnapshot, slots: Mapping[DatasetRef, Slot]) -> list[Observation]:
    """Return what the last run of each job tells by names that are keys of `slots`."""
    return [
        Observation(
            job=node.ref,
            reads=tuple(slots[ref] for ref in node.reads if ref in slots),
            writes=tuple(slots[ref] for ref in node.writes if ref in slots),
        )
        for node in snapshot.jobs.values()
    ]


def by_subsets(
    touched: Iterable[Touched], grains: Callable[[DatasetRef], str | None]
) -> list[Observation]:
    """Return what runs tell by subset facets.

    `grains` gives the grain of a dataset that is declared; else its keys must look like one.
    """
    touched = [one for one in touched if not any("=" in key for key in one.keys)]
    keys: dict[DatasetRef, set[str]] = {}
    for one in touched:
        keys.setdefault(one.dataset, set()).update(one.keys)
    known = {ref: grains(ref) or _grain(labels) for ref, labels in keys.items()}
    runs: dict[tuple[JobRef, str], tuple[list[Slot], list[Slot]]] = {}
    for one in touched:
        grain = known[one.dataset]
        if grain in _FROM_FINE_TO_COARSE:
            sides = runs.setdefault((one.job, one.run_id), ([], []))
            sides[one.written].extend(
                Slot(dataset=one.dataset, grain=grain, label=label) for label in one.keys
            )
    return [
        Observation(job=job, reads=tuple(reads), writes=tuple(writes))
        for (job, _), (reads, writes) in runs.items()
    ]


def _grain(labels: Iterable[str]) -> str | None:
    """Return the one grain that labels are of; None for days that might be those of months."""
    labels = list(labels)
    for grain, shape in _SHAPES.items():
        if all(map(shape.fullmatch, labels)):
            months = grain == "day" and all(label.endswith("-01") for label in labels)
            return None if months else grain
    return None


def add_windows(snapshot: LineageSnapshot, observations: Iterable[Observation]) -> LineageSnapshot:
    """Return the lineage with what the runs of each job have read around their own keys.

    What is found stands where the job's own facet would tell it, is said in the warnings, and
    yields to that facet and to the project file. A mere overlap in time is the default, and needs
    no telling.
    """
    by_job: dict[JobRef, list[Observation]] = {}
    for one in observations:
        by_job.setdefault(one.job, []).append(one)
    jobs, said = dict(snapshot.jobs), []
    for ref, seen in sorted(by_job.items()):
        facet = jobs[ref].partitioning or {} if ref in jobs else {"reads": ()}
        reads = [] if "reads" in facet else _reads(seen)
        if reads:
            facet = {**facet, "reads": [read.edge for read in reads]}
            jobs[ref] = replace(jobs[ref], partitioning=facet)
            said += [
                f"{ref}: {_runs(read.runs)} it reads {read.words} of {read.dataset}; planned so"
                " unless [[job.reads]] declares it"
                for read in reads
            ]
    return replace(snapshot, jobs=jobs, warnings=(*snapshot.warnings, *said)) if said else snapshot


def _runs(number: int) -> str:
    return "by its last run" if number == 1 else f"by {number:,} of its runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    dataset: DatasetRef
    dimension: str
    grain: str
    mapping: Mapping[str, Any]
    runs: int

    @property
    def edge(self) -> dict[str, Any]:
        """The read as a job's facet tells it."""
        name = {"namespace": self.dataset.namespace, "name": self.dataset.name}
        if self.dimension:
            return {"dataset": name, "dimensions": {self.dimension: dict(self.mapping)}}
        return {"dataset": name, **self.mapping}

    @property
    def words(self) -> str:
        return _in_words(self.mapping, self.grain)


def _reads(seen: Iterable[Observation]) -> list[_Read]:
    """Return the reads of one job that overlap in time would not find."""
    found: dict[tuple[DatasetRef, str, str], list[tuple[set[int], set[int]]]] = {}
    own: set[DatasetRef] = set()
    for one in seen:
        grains = {slot.grain for slot in one.writes}
        if len(grains) != 1:
            continue
        grain = grains.pop()
        own.update(slot.dataset for slot in one.writes)
        inputs: dict[DatasetRef, list[Slot]] = {}
        for slot in one.reads:
            inputs.setdefault(slot.dataset, []).append(slot)
        written = _ordinals(one.writes, grain)
        for dataset, read in inputs.items():
            key = (dataset, read[0].dimension, grain)
            found.setdefault(key, []).append((_ordinals(read, grain), written))
    reads = []
    for (dataset, dimension, grain), pairs in sorted(found.items()):
        mapping = _mapping([(read, written) for read, written in pairs if read and written])
        ahead = mapping and (mapping.get("after") or mapping.get("by", -1) > 0)
        if mapping and not (dataset in own and ahead):
            reads.append(
                _Read(
                    dataset=dataset,
                    dimension=dimension,
                    grain=grain,
                    mapping=mapping,
                    runs=len(pairs),
                )
            )
    return reads


def _ordinals(slots: Sequence[Slot], grain: str) -> set[int]:
    """Return the periods of the grain in which the slots begin.

    None where those are coarser, or one of the labels is not of its grain.
    """
    order = _FROM_FINE_TO_COARSE
    if any(order.index(slot.grain) > order.index(grain) for slot in slots):
        return set()
    # Labels are local to one zone, whichever it is: in UTC they lie as far apart.
    grid = grain_grid(grain, "UTC")
    found = set()
    for slot in slots:
        own = grain_grid(slot.grain, "UTC")
        try:
            found.add(grid.at(own.start(own.find(slot.label))))
        except UsageError:
            return set()
    return found


def _mapping(pairs: Sequence[tuple[set[int], set[int]]]) -> Mapping[str, Any] | None:
    """Return the mapping that holds all that runs have read, none for the same keys alone."""
    shifts = {min(read) - min(own) for read, own in pairs}
    if len(shifts) == 1:
        (shift,) = shifts
        if all(read == {ordinal + shift for ordinal in own} for read, own in pairs):
            return {"mapping": "offset", "by": shift} if shift else None
    before = max((min(own) - min(read) for read, own in pairs), default=0)
    after = max((max(read) - max(own) for read, own in pairs), default=0)
    if before <= 0 and after <= 0:
        return None
    return {"mapping": "window", "before": max(before, 0), "after": max(after, 0)}


def _in_words(mapping: Mapping[str, Any], grain: str) -> str:
    """Return a mapping in words.

    >>> _in_words({"mapping": "window", "before": 6, "after": 0}, "day")
    'its own key and 6 days before'
    >>> _in_words({"mapping": "offset", "by": -1}, "hour")
    'the key 1 hour before its own'
    """
    if mapping["mapping"] == "offset":
        return f"the key {_counted(abs(mapping['by']), grain)} {_side(mapping['by'])} its own"
    sides = [
        f"{_counted(mapping[name], grain)} {name}" for name in ("before", "after") if mapping[name]
    ]
    return f"its own key and {' and '.join(sides)}"


def _side(by: int) -> str:
    return "before" if by < 0 else "after"


def _counted(number: int, grain: str) -> str:
    return f"{number} {grain}{'' if number == 1 else 's'}"
