"""One job under several names: renamed, with a date in its name, or named by another command.

A stable id of its producer tells it (dbt's unique id), or the project file does: `pattern`,
`replaces`, `retired`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from lineage_backfill.lineage.identity.merge import last_completed, merge_jobs, newest_of
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.patterns import NamePattern
from lineage_backfill.project.declarations import Declarations, JobDeclaration
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import only_space


def same_jobs(snapshot: LineageSnapshot, declarations: Declarations) -> LineageSnapshot:
    """Return the lineage with each job once, without edges of retired jobs and of tests."""
    jobs, home = snapshot.jobs, declarations.namespace
    exact = {
        _ref(one, one.name, home, jobs): one for one in declarations.jobs if not is_glob(one.name)
    }
    into = _by_id(snapshot, exact) | _by_pattern(snapshot, declarations, exact)
    successors = set()
    for ref, one in exact.items():
        known = {*jobs, *into.values()}
        olds = {_old(one, name, home, known - {ref}) for name in one.replaces} & known - {ref}
        into |= dict.fromkeys(olds, ref)
        successors |= {ref} if olds else set()
    merged = merge_jobs(snapshot, into, preferred=successors)
    nodes = dict(merged.jobs)
    gone = {ref for ref, one in exact.items() if one.retired}
    tests = [ref for ref, node in nodes.items() if node.is_test and ref not in exact]
    for ref in (*tests, *(gone & nodes.keys())):
        nodes[ref] = structs.replace(
            nodes[ref], reads=(), writes=(), former_reads=(), former_writes=(), past_reads=()
        )
    columns = tuple(edge for edge in merged.column_edges if edge.job not in gone)
    return replace(merged, jobs=nodes, column_edges=columns)


def _ref(one: JobDeclaration, name: str, home: str | None, known: Iterable[JobRef]) -> JobRef:
    return JobRef(one.namespace or home or only_space(name, known), name)


def _old(one: JobDeclaration, name: str, home: str | None, known: Iterable[JobRef]) -> JobRef:
    """Return the job that another replaces, perhaps one of another namespace."""
    ref = _ref(one, name, home, known)
    others = [job for job in known if name in (job.name, str(job))]
    return others[0] if len(others) == 1 else ref


def _by_pattern(
    snapshot: LineageSnapshot, declarations: Declarations, exact: Mapping[JobRef, JobDeclaration]
) -> dict[JobRef, JobRef]:
    """Map names that a pattern matches to that of its job."""
    found: dict[JobRef, JobRef] = {}
    for one in declarations.jobs:
        if one.pattern:
            pattern, space = NamePattern(one.pattern), one.namespace or declarations.namespace
            for ref in snapshot.jobs.keys() - exact.keys() - found.keys():
                if space in (None, ref.namespace) and pattern.match(ref.name):
                    found[ref] = JobRef(ref.namespace, one.name)
    return found


def _by_id(
    snapshot: LineageSnapshot, exact: Mapping[JobRef, JobDeclaration]
) -> dict[JobRef, JobRef]:
    """Map names of one stable id to the declared one, else that of the last run.

    Jobs that write other tables are those of another database, as a developer's own.
    """
    groups: dict[tuple[str, str], dict[tuple[DatasetRef, ...], list[JobRef]]] = {}
    for ref, node in snapshot.jobs.items():
        if node.stable_id and not node.is_test:  # a test has the id of its model
            tables = groups.setdefault((ref.namespace, node.stable_id), {})
            tables.setdefault(node.writes, []).append(ref)
    several = []
    for tables in groups.values():
        if len(tables) == 2:  # one that names no table is of the only one that others name
            silent = tables.pop((), [])
            next(iter(tables.values())).extend(silent)
        several += [refs for refs in tables.values() if len(refs) > 1]
    if not several:
        return {}
    ended = last_completed(snapshot)
    found = {}
    for refs in several:
        declared = [ref for ref in refs if ref in exact]
        whole = newest_of(declared or refs, ended)
        found.update({ref: whole for ref in refs if ref not in declared and ref != whole})
    return found
