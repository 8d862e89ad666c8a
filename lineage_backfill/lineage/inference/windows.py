"""Finds the partitions a job reads around its own key, from the names in its last run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, named
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.plans.notice import Notice

_FROM_FINE_TO_COARSE: Final = ("hour", "day", "week", "month", "quarter", "year")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The partition that a name means: dataset, label and grain.

    `dimension` is the time dimension of a product key, "" where keys are plain.
    """

    dataset: DatasetRef
    grain: str
    label: str
    dimension: str = ""


def add_windows(
    folded: LineageSnapshot, named: LineageSnapshot, slots: Mapping[DatasetRef, Slot]
) -> LineageSnapshot:
    """Return the folded lineage with what each job's last run read around its own key.

    `named` is the lineage before folding; its names are keys of `slots`. A finding acts like the
    job's own facet and is reported in the warnings; that facet and the project file override it.
    Overlap in time is the default and is not recorded.
    """
    jobs, notices = dict(folded.jobs), list[Notice]()
    for ref, node in named.jobs.items():
        facet = node.partitioning or {}
        reads = [] if "reads" in facet else _reads(node, slots)
        if reads:
            facet = {**facet, "reads": [read.edge for read in reads]}
            jobs[ref] = structs.replace(jobs[ref], partitioning=facet)
            notices += [
                Notice(
                    f": its last run read {read.words} of {read.dataset};"
                    " planned like this, unless [[job.reads]] declares otherwise",
                    str(ref),
                )
                for read in reads
            ]
    return replace(folded, jobs=jobs, notices=(*folded.notices, *notices)) if notices else folded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    dataset: DatasetRef
    dimension: str
    grain: str
    mapping: Mapping[str, Any]

    @property
    def edge(self) -> dict[str, Any]:
        """The read in the form of a job's facet."""
        name = named(self.dataset)
        if self.dimension:
            return {"dataset": name, "dimensions": {self.dimension: dict(self.mapping)}}
        return {"dataset": name, **self.mapping}

    @property
    def words(self) -> str:
        return _in_words(self.mapping, self.grain)


def _reads(node: JobNode, slots: Mapping[DatasetRef, Slot]) -> list[_Read]:
    written = [slots[ref] for ref in node.writes if ref in slots]
    grains = {slot.grain for slot in written}
    if len(grains) != 1:
        return []
    grain = grains.pop()
    inputs: dict[DatasetRef, list[Slot]] = {}
    for slot in (slots[ref] for ref in node.reads if ref in slots):
        inputs.setdefault(slot.dataset, []).append(slot)
    found = []
    for dataset, read in sorted(inputs.items()):
        own = any(slot.dataset == dataset for slot in written)
        mapping = _mapping(_ordinals(read, grain), _ordinals(written, grain))
        if mapping and not (own and (mapping.get("after") or mapping.get("by", -1) > 0)):
            dimension = read[0].dimension
            found.append(_Read(dataset=dataset, dimension=dimension, grain=grain, mapping=mapping))
    return found


def _ordinals(slots: Sequence[Slot], grain: str) -> set[int]:
    """Return the periods of the grain in which the slots begin; none if those are coarser."""
    order = _FROM_FINE_TO_COARSE
    if any(order.index(slot.grain) > order.index(grain) for slot in slots):
        return set()
    # Labels are local to one zone, whichever it is: in UTC they lie as far apart.
    grid = grain_grid(grain, "UTC")
    starts = (
        own.start(own.find(slot.label))
        for slot in slots
        for own in (grain_grid(slot.grain, "UTC"),)
    )
    return set(map(grid.at, starts))


def _mapping(read: set[int], own: set[int]) -> Mapping[str, Any] | None:
    if not read or read == own:
        return None
    shift = min(read) - min(own)
    if read == {ordinal + shift for ordinal in own}:
        return {"mapping": "offset", "by": shift}
    before, after = max(0, -shift), max(0, max(read) - max(own))
    return {"mapping": "window", "before": before, "after": after} if before or after else None


def _in_words(mapping: Mapping[str, Any], grain: str) -> str:
    """Return a mapping as text.

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
