"""The state of each partition of a dataset, by the staleness of the jobs that write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.resolve.resolver import Output, expired
from lineage_backfill.staleness.record import Change, TableRecord
from lineage_backfill.staleness.staleness import Older, Staleness


class PartitionState(StrEnum):
    """The state of a partition; of several that hold, the first one counts."""

    EXPIRED = "expired"  # past the retention of its dataset
    RUNNING = "running"  # a run is writing it
    MISSING = "missing"  # never written
    STALE = "stale"  # older than an input
    UNKNOWN = "unknown"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStates:
    """The partitions of a dataset by state; no two states share one.

    `older` says which inputs changed since, with partitions of this dataset. `why` explains what is
    unknown. `table` has its last writes, None if they are unknown.
    """

    dataset: DatasetRef
    calendar: Calendar | None
    states: Mapping[PartitionState, PartitionSet] = field(default_factory=dict)
    older: tuple[Older, ...] = ()
    why: tuple[str, ...] = ()
    table: TableRecord | None = None

    def newest(self, number: int) -> Sequence[Change]:
        """Return the newest writes that no later one has replaced in full, newest first."""
        return self.table.changes[: -number - 1 : -1] if self.table is not None else ()


def partition_states(
    resolver: Resolver,
    dataset: DatasetRef,
    jobs: Mapping[JobRef, Staleness],
    tables: Mapping[DatasetRef, TableRecord],
) -> PartitionStates:
    """Return the state of each partition of a dataset; `jobs` has the staleness of its writers."""
    data, table = resolver.dataset(dataset), tables.get(dataset)
    calendar, writers = data.calendar, resolver.edges.writers.get(dataset, ())
    if calendar is None:
        return PartitionStates(dataset=dataset, calendar=None, why=(data.unknown[0],), table=table)
    found = [_by_writer(resolver, dataset, ref, jobs.get(ref)) for ref in writers]
    if not writers:
        found = [_of_source(table, calendar, is_sparse=data.is_sparse)]
    written = table.written if table is not None else NOTHING
    named = {
        state: PartitionSet.union(one.states.get(state, NOTHING) for one in found)
        for state in PartitionState
    }
    # Where only another output of its run is missing, a partition is to be written again.
    again = named[PartitionState.MISSING] & written
    named[PartitionState.MISSING] -= again
    named[PartitionState.STALE] |= again
    named[PartitionState.EXPIRED] = expired(data)
    left = _existing(calendar, PartitionSet.union([written, *named.values()]))
    if any(one.calendar is None for one in found):
        named[PartitionState.UNKNOWN] = left
    named[PartitionState.FRESH] = left
    states = {}
    for state, keys in named.items():
        if held := keys & left:
            states[state] = held
            left -= held
    stale = states.get(PartitionState.STALE, NOTHING)
    return PartitionStates(
        dataset=dataset,
        calendar=calendar,
        states=states,
        older=tuple(
            replace(one, keys=keys)
            for each in found
            for one in each.older
            if (keys := one.keys & stale)
        ),
        why=tuple(dict.fromkeys(text for one in found for text in one.why)),
        table=table,
    )


def _existing(calendar: Calendar, known: PartitionSet) -> PartitionSet:
    """Return the existing partitions: of a calendar without a start, from the first known one."""
    time = calendar.time
    if time is None or time.first is not None:
        return calendar.existing
    known = calendar.clip(known)
    return calendar.existing.map_time(
        lambda held: held.clip(known.ordinals.lo if known else time.last + 1, time.last)
    )


def _by_writer(
    resolver: Resolver, dataset: DatasetRef, job: JobRef, stands: Staleness | None
) -> PartitionStates:
    """Return what the staleness of one writer says; without a calendar nothing is known."""
    outputs = (one for one in resolver.job(job).outputs if one.dataset == dataset)
    output: Output | None = next(outputs, None)
    why = stands.why if stands is not None else (f"{job} was not judged",)
    if stands is None or stands.is_unknown or output is None or output.mapping is None:
        return PartitionStates(dataset=dataset, calendar=None, why=why)
    return PartitionStates(
        dataset=dataset,
        calendar=stands.calendar,
        states={
            PartitionState.RUNNING: _written(output, stands.running),
            PartitionState.MISSING: _written(output, stands.missing),
            PartitionState.STALE: _written(output, PartitionSet.union(_keys(stands.older))),
            PartitionState.UNKNOWN: _written(output, stands.unjudged),
        },
        older=tuple(replace(one, keys=_written(output, one.keys)) for one in stands.older),
        why=why,
    )


def _written(output: Output, keys: PartitionSet) -> PartitionSet:
    assert output.mapping is not None
    return output.mapping.required(keys) if keys else NOTHING


def _keys(older: Iterable[Older]) -> Iterable[PartitionSet]:
    return (one.keys for one in older)


def _of_source(
    table: TableRecord | None, calendar: Calendar, *, is_sparse: bool
) -> PartitionStates:
    """Return what the log of a table that no job writes says: there is nothing to be older than."""
    dataset = DatasetRef("", "")
    if table is None:
        why = ("no job writes it, and no log of its table was read",)
        return PartitionStates(dataset=dataset, calendar=None, why=why)
    lacking = NOTHING if is_sparse else _existing(calendar, table.written) - table.written
    if table.is_whole or not lacking:
        states = {PartitionState.MISSING: lacking}
        return PartitionStates(dataset=dataset, calendar=calendar, states=states)
    states = {PartitionState.UNKNOWN: lacking}
    why = ("the log of its table is incomplete" if table.written else "there is no table",)
    return PartitionStates(dataset=dataset, calendar=calendar, states=states, why=why)
