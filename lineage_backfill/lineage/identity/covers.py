"""Readers of a folder, glob or wildcard: edges to the written tables that such a name contains.

The names stay datasets of their own. Storage is compared by its form; see `project.locations`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from typing import Final

from msgspec import structs

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.plans.notice import Notice
from lineage_backfill.project.locations import dataset_storage

_GLOB: Final = re.compile(r"[*?\[{]")
_ROOT: Final = re.compile(r"[^/]+://[^/]*/")
#: The namespace of tables that a wildcard of their names reads.
_WITH_WILDCARDS: Final = "bigquery"


def with_covered(
    snapshot: LineageSnapshot, is_counted: Callable[[DatasetRef], object] | None = None
) -> LineageSnapshot:
    """Return the lineage with an edge from each written table to the readers of a name around it.

    A name that nothing writes also reads the table whose folder it lies in. Written names are those
    that are `counted`, or all.
    """
    found = _found(snapshot, is_counted)
    if not found:
        return snapshot
    jobs, left = dict(snapshot.jobs), set[DatasetRef]()
    for node in snapshot.jobs.values():
        if any(one in found for one in _read(node)):
            below = _made_from(node, snapshot)
            jobs[node.ref] = _covering(node, found, below)
            left |= below.difference(node.writes).intersection(
                one for ref in node.reads for one in found.get(ref, ())
            )
    text = " is read by a folder or glob, but made from what its reader writes; left out"
    notices = (Notice(text, str(one), leaves_out=True) for one in sorted(left))
    return replace(snapshot, jobs=jobs, notices=(*snapshot.notices, *notices))


def _made_from(node: JobNode, snapshot: LineageSnapshot) -> set[DatasetRef]:
    """Return what a job writes, and all that is made from it: to read it would be a cycle."""
    found, front = set(node.writes), [*node.writes]
    while front:
        for job in snapshot.readers.get(front.pop(), ()):
            new = set(snapshot.jobs[job].writes) - found
            found |= new
            front += new
    return found


def _found(
    snapshot: LineageSnapshot, is_counted: Callable[[DatasetRef], object] | None
) -> Mapping[DatasetRef, tuple[DatasetRef, ...]]:
    """Return the written tables that each name around them, or within them, means."""
    written = _forms(snapshot, filter(is_counted, snapshot.writers))
    read = dict.fromkeys(ref for node in snapshot.jobs.values() for ref in _read(node))
    ordered = sorted(written)
    found: dict[DatasetRef, tuple[DatasetRef, ...]] = {}
    for form, refs in _forms(snapshot, read).items() if written else ():
        inside = {one for place in _inside(form, ordered) for one in written[place]}
        for ref in refs:
            around = set[DatasetRef]()
            if ref not in snapshot.writers:
                around = {one for place in _around(form) for one in written.get(place, ())}
            if more := (inside | around) - {ref}:
                found[ref] = tuple(sorted({*found.get(ref, ()), *more}))
    return found


def _read(node: JobNode) -> Iterable[DatasetRef]:
    return (*node.reads, *node.former_reads)


def _covering(
    node: JobNode,
    found: Mapping[DatasetRef, tuple[DatasetRef, ...]],
    below: AbstractSet[DatasetRef],
) -> JobNode:
    """Return the job with what the names that it reads contain, except what is made `below` it."""
    own = {*node.reads, *below}
    covers = {one: ref for ref in node.reads for one in found.get(ref, ()) if one not in own}
    reads = {*node.reads, *covers}
    former = {one for ref in node.former_reads for one in found.get(ref, ())}
    former = {*node.former_reads, *former} - reads - set(node.writes)
    return structs.replace(
        node,
        reads=tuple(sorted(reads)),
        former_reads=tuple(sorted(former)),
        covers=tuple(sorted({*node.covers, *((ref, one) for one, ref in covers.items())})),
    )


def _forms(snapshot: LineageSnapshot, refs: Iterable[DatasetRef]) -> dict[str, list[DatasetRef]]:
    """Return the datasets at each place that a name of theirs means."""
    found: dict[str, list[DatasetRef]] = {}
    for ref in refs:
        node = snapshot.datasets.get(ref)
        for name in (ref, *(node.aliases if node else ())):
            form = _form(name)
            if form:
                found.setdefault(form, []).append(ref)
    return found


def _form(name: DatasetRef) -> str | None:
    if name.namespace.rstrip(":/") == _WITH_WILDCARDS:
        return f"{_WITH_WILDCARDS}:///{name.name}"
    return dataset_storage(*name[:2])


def _inside(form: str, ordered: list[str]) -> Iterator[str]:
    """Yield the places of a sorted list that a folder or glob contains."""
    glob = _GLOB.search(form)
    if glob is None and form.startswith(f"{_WITH_WILDCARDS}:"):
        return
    begin = form[: glob.start()] if glob else f"{form.rstrip('/')}/"
    for place in ordered[bisect_left(ordered, begin) :]:
        if not place.startswith(begin):
            return
        if glob is None or _pattern(form).match(place):
            yield place


def _around(form: str) -> Iterator[str]:
    """Yield the folders around a place, the nearest first, or around what a glob matches."""
    glob = _GLOB.search(form)
    form = f"{form[: glob.start()]}*" if glob else form
    while not _ROOT.fullmatch(form):
        form = form.rpartition("/")[0]
        form = f"{form}/" if _ROOT.fullmatch(f"{form}/") else form
        yield form


@lru_cache(maxsize=4096)
def _pattern(form: str) -> re.Pattern[str]:
    """Return what a glob of Hadoop matches, and everything below that.

    >>> bool(_pattern("s3://b/raw/{eu,us}/o*").match("s3://b/raw/us/orders/dt=1"))
    True
    """
    text, depth = "", 0
    for one in re.findall(r"\*\*|\[[^]]+\]|.", form, re.DOTALL):
        if one == "{":
            text, depth = text + "(?:", depth + 1
        elif one == "}" and depth:
            text, depth = text + ")", depth - 1
        elif one == "," and depth:
            text += "|"
        elif one.startswith("[") and len(one) > 1:
            text += "[^" + re.escape(one[2:-1]) + "]" if one[1] in "^!" else one
        else:
            text += {"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(one, re.escape(one))
    try:
        return re.compile(f"{text}{')' * depth}(?:/|$)", re.DOTALL)
    except re.error:
        return re.compile(re.escape(form))
