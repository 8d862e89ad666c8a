"""Which runs give a job its edges: the last one, or for a loader all of a span of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeVar

from msgspec import structs

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.project.run_rules import LAST_RUN, read_length

T = TypeVar("T")
#: The span of a loader, as `edges_of` writes it, and its length.
DEFAULT_SPAN: Final = "30d"
DEFAULT_LENGTH: Final = timedelta(days=30)
#: A job with so many different sets of inputs reads other ones each time.
_LEAST_SETS: Final = 3


def with_recent_reads(
    snapshot: LineageSnapshot, edges_of: Callable[[JobRef], str | None]
) -> LineageSnapshot:
    """Return the lineage with all inputs of a span before the last run, for loaders.

    `edges_of` gives what is declared for a job: the last run, a span, or None for the rule. A
    loader's completed runs have three different sets of inputs, or one came back after another.
    """
    jobs = {
        ref: _recent(node, edges_of(ref)) if node.past_reads else node
        for ref, node in snapshot.jobs.items()
    }
    return replace(snapshot, jobs=jobs)


def _recent(node: JobNode, declared: str | None) -> JobNode:
    sets = [(when, frozenset(reads)) for when, reads in node.past_reads if reads]
    span = declared or (DEFAULT_SPAN if varies([reads for _, reads in sets]) else LAST_RUN)
    if not sets or span == LAST_RUN:
        return node
    length = read_length(span)
    assert length is not None, "the project file was checked"
    since = max(when for when, _ in sets) - length
    more = {ref for when, reads in sets if when > since for ref in reads} - set(node.reads)
    if not more:
        return node
    return structs.replace(
        node,
        reads=tuple(sorted({*node.reads, *more})),
        former_reads=tuple(ref for ref in node.former_reads if ref not in more),
        edges_of=span,
    )


def varies(sets: Sequence[frozenset[T]]) -> bool:
    """Whether runs in order read other inputs each time, and not one instead of another."""
    if len(set(sets)) >= _LEAST_SETS:
        return True
    changes = [one for place, one in enumerate(sets) if place == 0 or sets[place - 1] != one]
    return len(changes) > len(set(changes))
