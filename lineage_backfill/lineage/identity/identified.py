"""The lineage with every job and every table once, and with all edges that follow from names."""

from __future__ import annotations

from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.identity.column_sources import with_column_sources
from lineage_backfill.lineage.identity.covers import with_covered
from lineage_backfill.lineage.identity.creations import without_creations
from lineage_backfill.lineage.identity.folding import Folding
from lineage_backfill.lineage.identity.merge import above, fold_children
from lineage_backfill.lineage.identity.parents import tie_jobs
from lineage_backfill.lineage.identity.places import Places
from lineage_backfill.lineage.identity.same_jobs import same_jobs
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.lineage.spans import with_recent_reads
from lineage_backfill.model import JobRef
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.matching import DeclaredNames


def identified(
    snapshot: LineageSnapshot,
    declarations: Declarations,
    *,
    edges_of: str | None = None,
    applications: bool = True,
    folders: bool = True,
) -> LineageSnapshot:
    """Return the lineage as plans see it.

    `edges_of` is that of jobs without their own, `applications` says that one of Spark is a job,
    `folders` that a partition's folder is a part of the table above it. Raises DeclarationError.
    """
    jobs = DeclaredNames(declarations).jobs

    def span(ref: JobRef) -> str | None:
        declared = jobs.find(ref)
        return (declared and declared.edges_of) or edges_of

    folded = Folding(declarations).fold(tie_jobs(snapshot, declarations))
    once = same_jobs(Places(declarations, folders=folders).tie(folded), declarations)
    whole = with_covered(with_recent_reads(with_column_sources(once), span))
    return _folded(without_creations(whole), declarations, applications=applications)


def _folded(
    snapshot: LineageSnapshot, declarations: Declarations, *, applications: bool
) -> LineageSnapshot:
    """Fold children into parents that run as a whole and have no edges of their own.

    These are declared Airflow DAGs. With `applications` also Spark applications (by the facets of
    Spark's listener) and Airflow tasks (whatever they declare themselves), unless a job below them
    is declared by name.
    """
    named = {(job.namespace or declarations.namespace, job.name) for job in declarations.jobs}

    def is_declared(ref: JobRef) -> bool:
        return not named.isdisjoint({(ref.namespace, ref.name), (None, ref.name)})

    jobs = snapshot.jobs
    split = {one for ref in jobs if is_declared(ref) for one in above(ref, jobs)}

    def is_whole(parent: JobNode, node: JobNode) -> bool:
        by_facet = applications and parent.ref not in split
        is_own = is_declared(parent.ref) or (by_facet and node.is_action)
        return bool(by_facet and parent.airflow) or (is_own and not (parent.reads or parent.writes))

    parents = (
        (jobs.get(node.parent) or JobNode(ref=node.parent), node)
        for node in jobs.values()
        if node.parent
    )
    found = {parent.ref for parent, node in parents if is_whole(parent, node)}
    whole = {ref for ref in found if found.isdisjoint(above(ref, jobs))}
    if not whole:
        return snapshot
    folded = fold_children(snapshot, whole)
    for ref in jobs:
        if ref not in folded.jobs and is_declared(ref):
            raise DeclarationError(
                f"job {ref} and the parent that runs it are both declared",
                hint="Keep the [[job]] of the one to run, and remove the other one.",
            )
    return folded
