"""Several planned jobs that write one partition: their order, and what a person has to decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Final

from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.planning.lookup import ADDING, Resolver
from lineage_backfill.planning.propagate import Propagation
from lineage_backfill.plans.plan import Decision
from lineage_backfill.project.resolve.resolver import JobFacts, Output

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
Writer = tuple[JobFacts, Output]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Two planned jobs that write the same keys of a dataset, in the order in which they run.

    `refused`: both are declared to overwrite it. `asked`: how one of them writes is unknown.
    """

    dataset: DatasetRef
    first: JobFacts
    second: JobFacts
    asked: bool = False
    refused: bool = False


def meetings(propagation: Propagation, resolver: Resolver) -> tuple[Meeting, ...]:
    """Return the pairs of planned writers that meet; appends and merges do not disturb others."""
    shared = resolver.shared_outputs
    writers: dict[DatasetRef, list[Writer]] = {}
    for facts, result in propagation.results.items() if shared else ():
        for output in facts.outputs if result.planned.boxes else ():
            if output.dataset in shared and output.mapping is not None:
                writers.setdefault(output.dataset, []).append((facts, output))
    return tuple(
        meeting
        for dataset, found in writers.items()
        if len(found) > 1
        for meeting in _meetings(dataset, found, propagation, resolver)
    )


def decisions_on(found: Iterable[Meeting]) -> Iterator[Decision]:
    """Yield what a person has to decide about the writers of each dataset."""
    kinds: dict[tuple[DatasetRef, bool], dict[JobRef, None]] = {}
    for one in found:
        if one.asked or one.refused:
            jobs = kinds.setdefault((one.dataset, one.refused), {})
            jobs |= dict.fromkeys((one.first.ref, one.second.ref))
    for (dataset, refused), jobs in kinds.items():
        names = listed([ref.name for ref in jobs], 4)
        if refused:
            text = f"{names} overwrite the same partitions of {dataset.name}: declare `retired`,"
            text += " `replaces` or `shares`"
        else:
            text = f"{names} write the same partitions of {dataset.name}, in this order by their"
            text += " last runs: declare `retired`, `replaces` or a write `mode`"
        yield Decision(kind="two-writers", text=text, refused=refused)


def _meetings(
    dataset: DatasetRef, writers: Sequence[Writer], propagation: Propagation, resolver: Resolver
) -> Iterator[Meeting]:
    written = [_written(one, propagation) for one in writers]
    pairs = [
        (one, other)
        for one, other in combinations(range(len(writers)), 2)
        if written[one].meets(written[other])
    ]
    order = _in_order([facts for facts, _ in writers], resolver) if pairs else []
    for pair in pairs:
        one, other = sorted(pair, key=order.__getitem__)
        (first, output), (second, later) = writers[one], writers[other]
        if first.ref.name in _shares(second, dataset):
            yield Meeting(dataset=dataset, first=first, second=second)
        elif second.ref.name in _shares(first, dataset):
            yield Meeting(dataset=dataset, first=second, second=first)
        else:
            modes = [resolver.write_mode(f, out) for f, out in ((first, output), (second, later))]
            if not all(mode in ADDING for mode in modes):
                declared = output.policy.says_mode and later.policy.says_mode
                both = not any(mode in ADDING for mode in modes)
                yield Meeting(
                    dataset=dataset,
                    first=first,
                    second=second,
                    asked=None in modes or (both and not declared),
                    refused=both and declared,
                )


def _written(writer: Writer, propagation: Propagation) -> PartitionSet:
    facts, output = writer
    assert output.mapping is not None
    return propagation.memo.required(output.mapping, propagation.results[facts].planned)


def _shares(facts: JobFacts, dataset: DatasetRef) -> Sequence[str]:
    declared = facts.declaration
    edges = declared.writes if declared else ()
    return [name for edge in edges if edge.dataset == dataset.name for name in edge.shares]


def _in_order(writers: Sequence[JobFacts], resolver: Resolver) -> list[int]:
    """Return the place of each writer: after those whose data it reads, then by its last run."""
    below = [_downstream(one, resolver) for one in writers]
    left = sorted(
        range(len(writers)),
        key=lambda n: (resolver.last_runs.get(writers[n].ref, _NEVER), writers[n].ref),
    )
    places = [0] * len(writers)
    for place in range(len(writers)):
        ready = (n for n in left if not any(writers[n] in below[m] for m in left if m != n))
        chosen = next(ready, left[0])
        left.remove(chosen)
        places[chosen] = place
    return places


def _downstream(facts: JobFacts, resolver: Resolver) -> set[JobFacts]:
    found, front = set[JobFacts](), [facts]
    while front:
        for follower in resolver.followers[front.pop()]:
            if follower not in found:
                found.add(follower)
                front.append(follower)
    return found
