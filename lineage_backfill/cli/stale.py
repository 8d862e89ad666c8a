"""`stale` and `catchup`: what is missing or older than what it is made from, and its repair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lineage_backfill.cli.options import (
    JsonOption,
    PlanOptions,
    RunOptions,
    SourceOptions,
    takes_options,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.model import DatasetRef, JobRef
    from lineage_backfill.planning.plan import Plan
    from lineage_backfill.planning.staleness import Staleness
    from lineage_backfill.presentation.names import Names
    from lineage_backfill.project import Project

_SinceOption = Annotated[
    str | None,
    typer.Option(help="Only keys that end after this: 30d or an instant.", metavar="T"),
]
_SHOWN_SILENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is stale, and the plan that repairs it (None where nothing is)."""

    project: Project
    snapshot: LineageSnapshot
    now: datetime
    jobs: tuple[Staleness, ...]
    silent: Mapping[DatasetRef, str]
    plan: Plan | None


@takes_options
def stale(
    options: PlanOptions,
    source: SourceOptions,
    since: _SinceOption = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where anything is stale.")
    ] = False,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(help="Save the plan that repairs it, for `run`.", metavar="FILE")
    ] = None,
) -> None:
    """Show what is missing, or older than what it is made from, partition by partition."""
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation import documents

    found = _find(options, source, since)
    if out and found.plan is not None:
        from lineage_backfill.planning.document import plan_to_dict

        documents.save(plan_to_dict(found.plan), out)
    if as_json:
        documents.emit(_document(found))
    else:
        terminal.out().print(_shown(found))
    if detailed_exitcode and found.plan is not None:
        raise typer.Exit(2)


@takes_options
def catchup(
    options: PlanOptions,
    source: SourceOptions,
    how: RunOptions,
    since: _SinceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan and run what `stale` shows, and what follows from it; nothing else."""
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.backfill import carry_out
    from lineage_backfill.cli.planning import Made

    found = _find(options, source, since)
    terminal.talk().print(_shown(found))
    if found.plan is None:
        return
    made = Made(plan=found.plan, project=found.project, snapshot=found.snapshot)
    carry_out(made, how, source=source, as_json=as_json)


def _find(options: PlanOptions, source: SourceOptions, since: str | None) -> _Found:
    from lineage_backfill import workspace as app
    from lineage_backfill.cli.requests import limits_of
    from lineage_backfill.cli.values import read_instant, read_moment
    from lineage_backfill.planning.request import Request

    now = read_instant(options.now)
    project = source.open()
    snapshot = app.read_lineage(project)
    jobs, silent = app.find_stale(
        project,
        snapshot,
        now=now,
        select=options.select or (),
        exclude=options.exclude or (),
        since=read_moment(since, now),
    )
    asked = tuple(one.asked() for one in jobs if one.stale)
    plan = None
    if asked:
        request = limits_of(options, Request(jobs=asked, as_of=options.now is not None))
        plan = app.make_plan(project, snapshot, request, now=now)
    return _Found(project=project, snapshot=snapshot, now=now, jobs=jobs, silent=silent, plan=plan)


# --- as a document ------------------------------------------------------------------------------


def _document(found: _Found) -> dict[str, Any]:
    from lineage_backfill.model import named
    from lineage_backfill.runs.reports import instant

    totals = (
        found.plan.totals if found.plan is not None else {"jobs": 0, "partitions": 0, "runs": 0}
    )
    return {
        "schema_version": 1,
        "kind": "stale",
        "now": instant(found.now),
        "jobs": [
            {
                "job": named(one.job),
                "missing": _keys(one, one.missing),
                "older": [
                    {
                        "dataset": named(older.dataset),
                        "partitions": _keys(one, older.keys),
                        "changed_at": instant(older.at),
                        "version": older.version,
                    }
                    for older in one.older
                ],
                "running": _keys(one, one.running),
                "unjudged": _keys(one, one.unjudged),
                "why": list(one.why),
            }
            for one in found.jobs
        ],
        "silent": [
            {"dataset": named(dataset), "why": why} for dataset, why in sorted(found.silent.items())
        ],
        "stale": sum(len(one.stale) for one in found.jobs),
        "to_run": dict(totals),
    }


def _keys(one: Staleness, keys: Any) -> list[Any]:
    from lineage_backfill.partitions.text import render

    return list(render(one.calendar, keys)) if one.calendar is not None and keys else []


# --- for a person -------------------------------------------------------------------------------


def _shown(found: _Found) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from lineage_backfill.cli.render import apart
    from lineage_backfill.presentation.names import Names
    from lineage_backfill.presentation.plans import amount
    from lineage_backfill.presentation.text import counted

    shown: list[DatasetRef | JobRef] = [*found.silent]
    for one in found.jobs:
        shown += [one.job, *(older.dataset for older in one.older)]
    names = Names(shown)
    parts: list[RenderableType] = []
    stale_jobs = [one for one in found.jobs if one.stale or one.running]
    if stale_jobs:
        parts.append(_stale_table(stale_jobs, names))
    doubtful = [one for one in found.jobs if one.why]
    if doubtful:
        parts.append(_doubts(doubtful, names))
    if found.silent:
        parts.append(_silent(found.silent, names))
    if found.plan is None:
        parts.append(Text("Nothing is stale." if not doubtful else "Nothing else is stale."))
    else:
        number = sum(len(one.stale) for one in found.jobs)
        parts.append(
            Text.assemble(
                ("Stale  ", "bold"),
                f"{counted(number, 'partition')}; with what follows from them"
                f" {amount(found.plan)} would run",
            )
        )
    return Group(*apart(parts))


def _stale_table(jobs: Iterable[Staleness], names: Names) -> Table:
    from rich.text import Text

    from lineage_backfill.cli.render import table
    from lineage_backfill.presentation.names import keys_in_words

    rows = table("", "Stale", "Partitions", "Why")
    for one in jobs:
        for mark, style, keys, why in _reasons(one, names):
            shown = keys_in_words(tuple(_keys(one, keys)))
            rows.add_row(Text(mark, style), Text(names(one.job)), Text(shown), Text(why, "dim"))
    return rows


def _reasons(one: Staleness, names: Names) -> Iterable[tuple[str, str, Any, str]]:
    if one.missing:
        yield "+", "green", one.missing, "never made"
    for older in one.older:
        version = f", version {older.version}" if older.version is not None else ""
        at = f"{older.at:%Y-%m-%d %H:%M}Z"
        yield "~", "green", older.keys, f"{names(older.dataset)} changed since, at {at}{version}"
    if one.running:
        yield "=", "dim", one.running, "being made by a run"


def _doubts(jobs: Sequence[Staleness], names: Names) -> Table:
    from rich.text import Text

    from lineage_backfill.cli.render import table
    from lineage_backfill.presentation.names import keys_in_words
    from lineage_backfill.presentation.text import safe

    rows = table("", "Not known", "Partitions", "Why")
    for one in jobs:
        keys = keys_in_words(tuple(_keys(one, one.unjudged))) if one.unjudged else ""
        why = safe("; ".join(one.why))
        rows.add_row(Text("?", "yellow"), Text(names(one.job)), Text(keys), Text(why, "dim"))
    return rows


def _silent(silent: Mapping[DatasetRef, str], names: Names) -> Table:
    from rich.text import Text

    from lineage_backfill.cli.render import table
    from lineage_backfill.presentation.text import safe

    rows = table("", "No log of", "Why")
    shown = sorted(silent.items())[:_SHOWN_SILENT]
    for dataset, why in shown:
        rows.add_row(Text("?", "yellow"), Text(names(dataset)), Text(safe(why), "dim"))
    if len(silent) > len(shown):
        rows.add_row("", Text(f"and {len(silent) - len(shown):,} more; --json has all", "dim"), "")
    return rows
