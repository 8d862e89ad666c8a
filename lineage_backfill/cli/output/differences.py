"""Documents and tables of `lineage diff`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.output.render import apart, table
from lineage_backfill.lineage.compare import Difference
from lineage_backfill.lineage.reach import changed_downstream, changed_readers
from lineage_backfill.lineage.snapshot import ColumnEdge, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.show.lineage import origin
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import counted, safe

Document = Mapping[str, Any]

_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_SHOWN = 200
_JOBS_SHOWN = 5


def document(before: LineageSnapshot, after: LineageSnapshot, found: Difference) -> dict[str, Any]:
    """Return a difference as a document."""
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
        "downstream": [
            {"job": named(one.ref), "jobs": _both(map(named, one.added), map(named, one.removed))}
            for one in changed_downstream(before, after)
        ],
        "readers": [
            {
                "dataset": named(one.ref),
                "jobs": _both(map(named, one.added), map(named, one.removed)),
            }
            for one in changed_readers(before, after)
        ],
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
    """Return the difference as tables: jobs first, then datasets, each with its changes."""
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
    edges = table("", "", "Name", "What differs", rows=rows, more=len(lines) - _SHOWN)
    return Group(*apart([edges, *_reaches(document)]))


def _reaches(document: Document) -> Iterator[RenderableType]:
    """Yield tables of the jobs with another downstream, and of the datasets with other readers."""
    for kind, make, title in (("downstream", JobRef, "Job"), ("readers", DatasetRef, "Dataset")):
        found = [(make(**one[title.lower()]), one["jobs"]) for one in document[kind]]
        if found:
            jobs = (
                JobRef(**ref) for _, both in found for ref in (*both["added"], *both["removed"])
            )
            names = Names([*(ref for ref, _ in found), *jobs])
            rows = (
                (Text(names(ref)), *_more_and_fewer(both, names)) for ref, both in found[:_SHOWN]
            )
            more, fewer = f"{kind.capitalize()} added", f"{kind.capitalize()} removed"
            yield table(title, more, fewer, rows=rows, more=len(found) - _SHOWN)


def _more_and_fewer(both: Document, names: Names) -> Iterator[Text]:
    for refs in (both["added"], both["removed"]):
        shown = [names(JobRef(**ref)) for ref in refs[:_JOBS_SHOWN]]
        left = len(refs) - len(shown)
        yield Text("\n".join([*shown, *([f"and {left:,} more"] if left else ())]))


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
    yield from (f"{name.replace('_', ' ')} changed" for name in one["said"])
