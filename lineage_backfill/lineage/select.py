"""Selectors such as `daily_*+2` or `tag:finance`, which choose jobs of a graph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.model import DatasetRef, JobRef, did_you_mean

if TYPE_CHECKING:
    import networkx as nx

Ref: TypeAlias = DatasetRef | JobRef
Graph: TypeAlias = "nx.DiGraph[Ref]"

_SELECTOR = re.compile(r"(?:(\d{0,9})(\+))?(.*?)(?:(\+)(\d{0,9}))?", re.ASCII)


def within(graph: Graph, starts: Iterable[Ref], depth: int | None) -> set[Ref]:
    """Return what is reachable from `starts`, including them, over at most `depth` jobs.

    The outputs of the last jobs are included.
    """
    import networkx as nx  # slow to import, and most plans select nothing

    known = [ref for ref in starts if ref in graph]
    found: set[Ref] = set(starts)
    for kind in (DatasetRef, JobRef):
        most = len(graph) if depth is None else min(2 * depth + 1 + (kind is JobRef), len(graph))
        layers = nx.bfs_layers(graph, [ref for ref in known if isinstance(ref, kind)])
        found.update(chain.from_iterable(islice(layers, most)))
    return found


def select(texts: Iterable[str], graph: Graph) -> set[JobRef]:
    """Return the jobs that any of the selectors matches.

    `name` or a glob names jobs, or the jobs that write datasets of that name; `tag:` and `owner:`
    match jobs or their outputs by the lineage, `ns:` by the namespace. `x+` adds
    everything downstream, `x+2` two jobs deep, `+x` upstream; from a dataset that no job writes,
    its readers are the first. Raises UnknownNameError for a selector without a match, UsageError
    for an empty one.
    """
    chosen: set[Ref] = set()
    for text in texts:
        match = _SELECTOR.fullmatch(text.strip())
        if match is None or not match[3]:
            raise UsageError(f"cannot read the selector {text!r}", hint="Write it like daily_*+2.")
        base = _base(match[3], graph)
        sources = _unwritten(match[3], graph) if match[4] else set()
        if not base and not sources:
            raise UnknownNameError(
                f"the selector {text!r} matches no job", hint=_hint(match[3], graph)
            )
        chosen |= base
        if match[4]:
            chosen |= within(graph, base | sources, int(match[5]) if match[5] else None)
        if match[2]:
            upstream = graph.reverse(copy=False)
            chosen |= within(upstream, base, int(match[1]) if match[1] else None)
    return {ref for ref in chosen if isinstance(ref, JobRef)}


def _base(text: str, graph: Graph) -> set[Ref]:
    """Return the jobs that a selector without `+` means."""
    kind, colon, value = text.partition(":")
    if colon and kind == "ns":
        return {
            ref for ref in graph if isinstance(ref, JobRef) and fnmatchcase(ref.namespace, value)
        }
    if colon and kind in ("tag", "owner"):
        tags = graph.nodes(data=f"{kind}s", default=())
        found = {ref for ref, words in tags if any(fnmatchcase(word, value) for word in words)}
    else:
        found = {ref for ref in graph if _named(ref, text)}
    data = {ref for ref in found if isinstance(ref, DatasetRef)}
    return (found - data).union(*(graph.predecessors(ref) for ref in data))


def _hint(text: str, graph: Graph) -> str:
    """Return what to write instead of a selector that matches no job, here without its `+`."""
    if _unwritten(text, graph):
        return f"No job writes it. Its readers, and all downstream, are {text}+"
    kind, colon, value = text.partition(":")
    if colon and kind == "ns":
        words = {ref.namespace for ref in graph if isinstance(ref, JobRef)}
    elif colon and kind in ("tag", "owner"):
        known = graph.nodes(data=f"{kind}s", default=())
        matched = [tags for ref, tags in known if isinstance(ref, JobRef) or graph.in_degree[ref]]
        words = set(chain.from_iterable(matched))
    else:
        kind, colon, value = "", "", text
        words = {ref.name for ref in graph}
    near = did_you_mean(value, words, lambda word: kind + colon + word)
    return near or "`lineage-backfill lineage show` lists all names. Quote a glob."


def _unwritten(text: str, graph: Graph) -> set[Ref]:
    """Return the datasets of that name that jobs read and no job writes."""
    return {
        ref
        for ref, written in graph.in_degree()
        if not written and isinstance(ref, DatasetRef) and graph[ref] and _named(ref, text)
    }


def _named(ref: Ref, text: str) -> bool:
    # Compared literally first: a name may itself contain glob characters.
    return text in (ref.name, str(ref)) or any(
        fnmatchcase(name, text) for name in (ref.name, str(ref))
    )
