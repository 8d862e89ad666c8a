"""Matches declared jobs to their names with or without that of a parent job.

Events name a job as it was sent; Marquez puts the parent's name before it in its own graph. The
declared name counts for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from lineage_backfill.lineage.identity.merge import rename_jobs
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.forms import is_glob

#: Most levels of parents in a name.
_MOST_PARENTS = 8


def tie_jobs(snapshot: LineageSnapshot, declarations: Declarations) -> LineageSnapshot:
    """Return the lineage with each job under its declared name.

    An exact name of a job is that job's; a name that could mean several jobs renames none.
    """
    home = declarations.namespace
    exact = {(one.namespace or home, one.name) for one in declarations.jobs}
    borne = {
        name for ref in snapshot.jobs for name in ((ref.namespace, ref.name), (None, ref.name))
    }
    wanted = {name for name in exact - borne if not is_glob(name[1])}
    if not wanted:
        return snapshot
    found: dict[tuple[str | None, str], set[JobRef]] = {}
    for node in snapshot.jobs.values():
        if node.parent is not None:
            for name in _other_names(node, snapshot):
                for key in wanted & {(node.ref.namespace, name), (None, name)}:
                    found.setdefault(key, set()).add(node.ref)
    into = {
        ref: JobRef(ref.namespace, name)
        for (_, name), refs in sorted(found.items(), key=str)
        if len(refs) == 1
        for ref in refs
    }
    return rename_jobs(snapshot, into)


def _other_names(node: JobNode, snapshot: LineageSnapshot) -> Iterator[str]:
    """Yield the names of a job with and without the names of its parents."""
    name, parent = node.ref.name, node.parent
    _, found, rest = name.partition(f"{parent.name}.") if parent else ("", "", "")
    if found and rest:
        yield rest
    for _ in range(_MOST_PARENTS):
        if parent is None:
            return
        name = name if name.startswith(f"{parent.name}.") else f"{parent.name}.{name}"
        yield name
        above = snapshot.jobs.get(parent)
        parent = above.parent if above else None
