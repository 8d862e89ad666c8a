"""`stale` and `catchup`: partitions missing or older than their inputs, and their repair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.commands.backfill import carry_out
from lineage_backfill.cli.options import (
    JsonOption,
    ListOptions,
    PlanOptions,
    RunOptions,
    SourceOptions,
    takes_options,
)
from lineage_backfill.cli.output.grid import Grid, table
from lineage_backfill.cli.output.render import SHORT, apart
from lineage_backfill.cli.planning import PlannedRequest
from lineage_backfill.cli.requests import limits_of
from lineage_backfill.cli.values import read_moment, read_now
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import render
from lineage_backfill.plans.document import plan_members
from lineage_backfill.plans.request import Request
from lineage_backfill.show import documents
from lineage_backfill.show.names import Names, keys_in_words
from lineage_backfill.show.plans import amount
from lineage_backfill.show.text import counted, safe
from lineage_backfill.staleness.staleness import MissingInput, Staleness
from lineage_backfill.workspace.catchup import Stale, find_stale, keys_of

_SinceOption = Annotated[
    str | None,
    typer.Option(help="Only keys that end after this: 30d, a date or a time.", metavar="T"),
]


@takes_options
def stale(
    options: PlanOptions,
    source: SourceOptions,
    listing: ListOptions,
    since: _SinceOption = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 if anything is stale.")
    ] = False,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(help="Save the plan that repairs it, for `run`.", metavar="FILE")
    ] = None,
) -> None:
    """List partitions that are missing or older than their inputs."""
    found = _find(options, source, since)
    if out and found.plan is not None:
        documents.save(plan_members(found.plan), out)
    if as_json:
        documents.emit(found.to_dict())
    else:
        terminal.out().print(stale_tables(found, listing))
    if detailed_exitcode and any(one.stale for one in found.jobs):
        raise typer.Exit(2)
    raise typer.Exit(3 if found.is_unknown else 0)  # nothing could be judged


@takes_options
def catchup(
    options: PlanOptions,
    source: SourceOptions,
    how: RunOptions,
    listing: ListOptions,
    since: _SinceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan and run what `stale` lists and everything downstream; nothing else."""
    found = _find(options, source, since)
    # The plan lists what can run.
    terminal.talk().print(stale_tables(found, listing, with_stale=found.plan is None))
    if found.plan is not None:
        how = replace(how, title=how.title or _title(found.jobs))
        planned = PlannedRequest(plan=found.plan, workspace=found.workspace)
        carry_out(planned, how, source=source, listing=listing, as_json=as_json)
    elif found.is_unknown or any(one.waiting for one in found.jobs):
        raise typer.Exit(3)


def _find(options: PlanOptions, source: SourceOptions, since: str | None) -> Stale:
    now = read_now(options.now)
    request = limits_of(options, Request(as_of=options.now is not None))
    return find_stale(source.open(as_of=now), request, since=read_moment(since, now))


# --- for a person -------------------------------------------------------------------------------


def _title(jobs: Iterable[Staleness]) -> str:
    """Return what a catch-up does, in a few words."""
    running = [one for one in jobs if one.runnable]
    fill = sum(len(one.missing & one.runnable) for one in running)
    older = sum(len(one.runnable) for one in running) - fill
    parts = [f"fill {counted(fill, 'partition')}"] * bool(fill)
    parts += [f"refresh {counted(older, 'partition')}"] * bool(older)
    return f"Catch up {counted(len(running), 'job')}: {', '.join(parts)}"


def stale_tables(
    found: Stale, listing: ListOptions = SHORT, *, with_stale: bool = True
) -> RenderableType:
    """Return the tables of what is stale; without `with_stale` those that a plan does not show."""
    names = Names(_named(found))
    parts: list[RenderableType] = [_in_all(found)]
    rows = (row for one in found.jobs for row in _reasons(one, names))
    if shown := [row for row in rows if with_stale or row[1] in "=!"]:
        parts.append(_table("Stale", shown, names, listing))
    if lost := [(one, lost) for one in found.jobs for lost in one.missing_inputs]:
        parts.append(_lost(lost, names, listing))
    doubtful = [one for one in found.jobs if one.why]
    if doubtful:
        unknown = ((one, "?", "yellow", one.unjudged, safe("; ".join(one.why))) for one in doubtful)
        parts.append(_table("Unknown", unknown, names, listing))
    if found.silent:
        parts.append(_silent(found.silent, names, listing))
    return Group(*apart(parts))


def _named(found: Stale) -> Iterator[DatasetRef | JobRef]:
    yield from found.silent
    for one in found.jobs:
        yield one.job
        yield from (older.dataset for older in one.older)
        yield from (lost.dataset for lost in one.missing_inputs)


def _in_all(found: Stale) -> Text:
    number = sum(len(one.stale) for one in found.jobs)
    waiting = sum(len(one.waiting) for one in found.jobs)
    if found.plan is not None:
        return Text.assemble(
            ("Stale  ", "bold"),
            counted(number, "partition"),
            f", {waiting:,} of them cannot be run yet" if waiting else "",
            f"; with everything downstream, {amount(found.plan)} would run",
        )
    if waiting:
        return Text("Nothing can run until the inputs are written.")
    is_doubtful = any(one.why for one in found.jobs)
    return Text("Nothing is known to be stale." if is_doubtful else "Nothing is stale.")


_Row = tuple[Staleness, str, str, Any, str]  # a job, mark, style, keys and why


def _table(heading: str, found: Iterable[_Row], names: Names, listing: ListOptions) -> Grid:
    def row(one: Staleness, mark: str, style: str, keys: Any, why: str) -> tuple[Text, ...]:
        words = keys_in_words(tuple(keys_of(one, keys))) if keys else ""
        return Text(mark, style), Text(names(one.job)), Text(words), Text(why, "dim")

    rows = (row(*one) for one in found)
    return table("", heading, "Partitions", "Why", rows=rows, listing=listing)


def _reasons(one: Staleness, names: Names) -> Iterator[_Row]:
    if one.missing:
        yield one, "+", "green", one.missing, "never written"
    for older in one.older:
        version = f", version {older.version}" if older.version is not None else ""
        at = terminal.moment(older.at)
        why = f"{names(older.dataset)} changed since, at {at}{version}"
        yield one, "~", "green", older.keys, why
    if one.running:
        yield one, "=", "dim", one.running, "a run is writing it"
    if one.waiting:
        yield one, "!", "yellow", one.waiting, "not run: an input was never written"


def _lost(
    found: Iterable[tuple[Staleness, MissingInput]], names: Names, listing: ListOptions
) -> Grid:
    rows = (
        (
            Text("!", "yellow"),
            Text(names(one.job)),
            Text(names(lost.dataset)),
            Text(keys_in_words(render(lost.calendar, lost.keys))),
        )
        for one, lost in found
    )
    return table("", "Missing for", "Input", "Never written", rows=rows, listing=listing)


def _silent(silent: Mapping[DatasetRef, str], names: Names, listing: ListOptions) -> Grid:
    rows = (
        (Text("?", "yellow"), Text(names(dataset)), Text(safe(why), "dim"))
        for dataset, why in sorted(silent.items())
    )
    return table("", "No log of", "Why", rows=rows, listing=listing)
