"""Tables that one job creates empty, and another one fills."""

from __future__ import annotations

import re
from dataclasses import replace

from msgspec import structs

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot

#: The action of CREATE TABLE without AS SELECT, as Spark's listener names it.
_CREATING = re.compile(r"create_(?:data_source_)?table(?:_command)?", re.ASCII)


def without_creations(snapshot: LineageSnapshot) -> LineageSnapshot:
    """Return the lineage without the creation of tables that other actions or jobs write."""
    creating = {ref for ref, node in snapshot.jobs.items() if _only_creates(node)}
    if not creating:
        return snapshot
    filled = {data for data, jobs in snapshot.writers.items() if not creating.issuperset(jobs)}
    jobs = dict(snapshot.jobs)
    for ref in creating:
        node = jobs[ref]
        now, former = (set(one) - filled for one in (node.writes, node.former_writes))
        jobs[ref] = structs.replace(
            node, writes=tuple(sorted(now)), former_writes=tuple(sorted(former))
        )
    return replace(snapshot, jobs=jobs)


def _only_creates(node: JobNode) -> bool:
    return (
        node.is_action
        and not (node.reads or node.former_reads)
        and any(_CREATING.fullmatch(part) for part in node.ref.name.split("."))
    )
