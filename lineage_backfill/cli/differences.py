"""What `lineage diff` shows and prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lineage_backfill.cli.render import table
from lineage_backfill.lineage.compare import Difference
from lineage_backfill.lineage.snapshot import ColumnEdge, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.presentation.lineage import origin
from lineage_backfill.presentation.names import Names
from lineage_backfill.presentation.text import counted, safe

Document = Mapping[str, Any]

_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_SHOWN = 200


def document(before: LineageSnapshot, after: LineageSnapshot, found: Difference) -> dict[str, Any]:
    """Return the document of a difference."""
    return {
        "schema_version": 1,
        "kind": "lineage_diff",
        "before": origin(before),
        "after": origin(after),
        "differ": bool(found),
        "jobs": {
            **_both(map(named, found.jobs_added), map(named, found.jobs_removed)),
            "changed": [
                {
                    "job": named(one.job),
                    "reads": _both(map(named, one.reads_added), map(named, one.reads_removed)),
                    "writes": _both(map(named, one.writes_added), map(named, one.writes_removed)),
                    "columns": _both(
                        map(_column, one.columns_added), map(_column, one.columns_removed)
                    ),
                    "said": list(one.said),
                }
                for one in found.jobs_changed
            ],
        },
        "datasets": {
            **_both(map(named, found.datasets_added), map(named, found.datasets_removed)),
            "changed": [
                {
                    "dataset": named(one.dataset),
                    "columns": _both(one.columns_added, one.columns_removed),
                    "said": list(one.said),
                }
                for one in found.datasets_changed
            ],
        },
    }


def _both(added: Iterable[Any], removed: Iterable[Any]) -> dict[str, Any]:
    return {"added": list(added), "removed": list(removed)}


def _column(edge: ColumnEdge) -> dict[str, Any]:
    return {
        "input": {"dataset": named(edge.input), "column": edge.input_column},
        "output": {"dataset": named(edge.output), "column": edge.output_column},
        "direct": edge.direct,
    }


def difference_table(document: Document) -> RenderableType:
    """Return what a person reads: jobs first, then datasets, each with what differs about it."""
    if not document["differ"]:
        return Text("Nothing differs.", style="green")
    lines = [
        (what, JobRef(**ref) if kind == "jobs" else DatasetRef(**ref), one)
        for kind in ("jobs", "datasets")
        for what in _MARKS
        for one in document[kind][what]
        for ref in (one[kind[:-1]] if what == "changed" else one,)
    ]
    read = (DatasetRef(**ref) for ref in _datasets(document["jobs"]["changed"]))
    names = Names([*(ref for _, ref, _ in lines), *read])
    rows = (
        (
            Text(*_MARKS[what]),
            Text(ref.kind, style="dim"),
            Text(names(ref)),
            Text("\n".join(_changes(one, names)) if what == "changed" else ""),
        )
        for what, ref, one in lines[:_SHOWN]
    )
    return table("", "", "Name", "What differs", rows=rows, more=len(lines) - _SHOWN)


def _datasets(jobs: Iterable[Document]) -> Iterator[Document]:
    for job in jobs:
        for side in ("reads", "writes"):
            yield from (*job[side]["added"], *job[side]["removed"])


def _changes(one: Document, names: Names) -> Iterator[str]:
    """Yield what differs about a job or a dataset."""
    for side in ("reads", "writes"):
        edges = one.get(side, {"added": (), "removed": ()})
        yield from (f"{side} {names(DatasetRef(**ref))}" for ref in edges["added"])
        yield from (f"no longer {side} {names(DatasetRef(**ref))}" for ref in edges["removed"])
    columns = one["columns"]
    if "job" in one:
        for number, word in ((len(columns["added"]), "more"), (len(columns["removed"]), "fewer")):
            if number:
                yield f"{counted(number, 'column edge')} {word}"
    else:
        yield from (f"column {safe(name)}" for name in columns["added"])
        yield from (f"no column {safe(name)}" for name in columns["removed"])
    yield from (f"another {name.replace('_', ' ')}" for name in one["said"])
