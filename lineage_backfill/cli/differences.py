"""What `lineage diff` shows and prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lineage_backfill.cli.render import table
from lineage_backfill.lineage.compare import DatasetChange, Difference, JobChange
from lineage_backfill.lineage.snapshot import ColumnEdge, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.presentation.lineage import origin
from lineage_backfill.presentation.names import Names
from lineage_backfill.presentation.text import counted, safe

_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_SHOWN = 200


def difference_table(found: Difference) -> RenderableType:
    """Return what a person reads: jobs first, then datasets, each with what differs about it."""
    if not found:
        return Text("Nothing differs.", style="green")
    names = Names(_all(found))
    rows = table("", "", "Name", "What differs")
    lines = list(_lines(found, names))
    for what, kind, name, says in lines[:_SHOWN]:
        rows.add_row(
            Text(*_MARKS[what]), Text(kind, style="dim"), Text(name), Text("\n".join(says))
        )
    if len(lines) > _SHOWN:
        rows.add_row("", "", Text(f"and {len(lines) - _SHOWN:,} more; --json has all", style="dim"))
    return rows


def document(before: LineageSnapshot, after: LineageSnapshot, found: Difference) -> dict[str, Any]:
    """Return the document of a difference."""
    return {
        "schema_version": 1,
        "kind": "lineage_diff",
        "before": origin(before),
        "after": origin(after),
        "differ": bool(found),
        "jobs": {
            "added": [named(ref) for ref in found.jobs_added],
            "removed": [named(ref) for ref in found.jobs_removed],
            "changed": [_job(one) for one in found.jobs_changed],
        },
        "datasets": {
            "added": [named(ref) for ref in found.datasets_added],
            "removed": [named(ref) for ref in found.datasets_removed],
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


def _job(one: JobChange) -> dict[str, Any]:
    return {
        "job": named(one.job),
        "reads": _both(map(named, one.reads_added), map(named, one.reads_removed)),
        "writes": _both(map(named, one.writes_added), map(named, one.writes_removed)),
        "columns": _both(map(_column, one.columns_added), map(_column, one.columns_removed)),
        "said": list(one.said),
    }


def _both(added: Iterable[Any], removed: Iterable[Any]) -> dict[str, Any]:
    return {"added": list(added), "removed": list(removed)}


def _column(edge: ColumnEdge) -> dict[str, Any]:
    return {
        "input": {"dataset": named(edge.input), "column": edge.input_column},
        "output": {"dataset": named(edge.output), "column": edge.output_column},
        "direct": edge.direct,
    }


def _all(found: Difference) -> Iterator[DatasetRef | JobRef]:
    jobs = [*found.jobs_added, *found.jobs_removed, *(one.job for one in found.jobs_changed)]
    yield from jobs
    datasets = [*found.datasets_added, *found.datasets_removed]
    datasets += [one.dataset for one in found.datasets_changed]
    for job in found.jobs_changed:
        datasets += [*job.reads_added, *job.reads_removed, *job.writes_added, *job.writes_removed]
    yield from datasets


def _lines(found: Difference, names: Names) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield (what became of it, kind, name, what differs about it)."""
    for job in found.jobs_added:
        yield "added", "job", names(job), []
    for job in found.jobs_removed:
        yield "removed", "job", names(job), []
    for one in found.jobs_changed:
        yield "changed", "job", names(one.job), list(_about_job(one, names))
    for dataset in found.datasets_added:
        yield "added", "dataset", names(dataset), []
    for dataset in found.datasets_removed:
        yield "removed", "dataset", names(dataset), []
    for other in found.datasets_changed:
        yield "changed", "dataset", names(other.dataset), list(_about_dataset(other))


def _about_job(one: JobChange, names: Names) -> Iterator[str]:
    yield from (f"reads {names(ref)}" for ref in one.reads_added)
    yield from (f"no longer reads {names(ref)}" for ref in one.reads_removed)
    yield from (f"writes {names(ref)}" for ref in one.writes_added)
    yield from (f"no longer writes {names(ref)}" for ref in one.writes_removed)
    for number, word in ((len(one.columns_added), "more"), (len(one.columns_removed), "fewer")):
        if number:
            yield f"{counted(number, 'column edge')} {word}"
    yield from _said(one.said)


def _about_dataset(one: DatasetChange) -> Iterator[str]:
    yield from (f"column {safe(name)}" for name in one.columns_added)
    yield from (f"no column {safe(name)}" for name in one.columns_removed)
    yield from _said(one.said)


def _said(names: Iterable[str]) -> Iterator[str]:
    yield from (f"another {name.replace('_', ' ')}" for name in names)
