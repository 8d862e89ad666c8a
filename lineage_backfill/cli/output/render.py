"""The preview of a plan, and the style of all tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.grid import Grid, table
from lineage_backfill.cli.terminal import moment
from lineage_backfill.model import listed
from lineage_backfill.plans.plan import Plan, PlannedJob
from lineage_backfill.show.names import Names, keys_in_short, keys_in_words
from lineage_backfill.show.plans import (
    GROUPED_ABOVE,
    NOTHING,
    SHOWN_NAMES,
    PlanFacts,
    Row,
    Rows,
    not_run,
    summary,
)
from lineage_backfill.show.text import counted, safe, shortened
from lineage_backfill.show.words import age, in_short, in_words, of_project

#: From this width on owners have a column.
_WIDE = 100
#: The colours of the lines of a summary.
_BRIEF = {"Target": "magenta", "Changed": "cyan", "Will run": "green", "Needs you": "yellow"}
_SHOWN_WARNINGS, _LONGEST_WARNING = 5, 300
#: Most jobs that are named for one reason.
_SHOWN_ALIKE = 3
#: Sign and colour for each status of a job.
MARKS = {
    "planned": ("~", "green"),
    "skipped": ("=", "dim"),
    "blocked": ("!", "red"),
    "left_stale": ("!", "yellow"),
}


SHORT, NO_FACTS = ListOptions(), PlanFacts()


def preview(
    plan: Plan, *, width: int, facts: PlanFacts = NO_FACTS, listing: ListOptions = SHORT
) -> RenderableType:
    """Return the preview: a summary, what runs, and what does not.

    `width` is in columns.
    """
    names = Names.of(plan, facts.untouched)
    rows, others = Rows(plan, facts, names), not_run(plan, names, each=listing.every)
    parts: list[RenderableType] = [in_brief(plan, facts, names, listing)]
    if rows:
        parts.append(_planned(rows, names, facts, width, listing))
    if others:
        parts.append(_not_run(others, names, facts, listing))
    parts.append(footer(plan, facts, names))
    if plan.warnings:
        parts.append(_warnings(plan.warnings, listing))
    return Group(*apart(parts))


def in_groups(rows: Rows, listing: ListOptions) -> bool:
    """Whether the jobs are shown in groups."""
    return len(rows) > GROUPED_ABOVE and not listing.every


def first(listing: ListOptions, most: int) -> int | None:
    """Return how many items of a list are shown; None for all."""
    return None if listing.every else most


def in_brief(plan: Plan, facts: PlanFacts, names: Names, listing: ListOptions) -> Table:
    """Return the summary: what changed, what runs, and what does not."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for label, text in summary(plan, facts, names, every=listing.every).items():
        grid.add_row(label, Text(text, style="" if text == NOTHING else _BRIEF[label]))
    return grid


def _planned(rows: Rows, names: Names, facts: PlanFacts, width: int, listing: ListOptions) -> Grid:
    """Return one line for each job, or each group of jobs."""
    if in_groups(rows, listing):
        return _groups(rows, names)
    cells = [_planned_row(row, names, facts, listing) for row in rows.each()]
    if width < _WIDE and not listing.every:
        cells = [(*cell[:4], Text(), *cell[5:]) for cell in cells]
    headings = ("Wave", "Job", "Partitions", "Runs", "Owner", "Why")
    return table(*headings, rows=cells, right=(0, 3))


def _planned_row(
    row: Row, names: Names, facts: PlanFacts, listing: ListOptions
) -> tuple[str | Text, ...]:
    job = row.jobs[0]
    keys, why = keys_in_short(job.partitions), in_short(job.reason, names)
    if listing.every:
        keys, why = keys_in_words(job.partitions), in_words(job.reason, names, job.partitions)
    owner = Text(facts.owner(job.job), style="dim")
    return row.wave, Text(row.name, "bold"), keys, row.runs_in_words, owner, Text(why, "dim")


def _groups(rows: Rows, names: Names) -> Grid:
    heading, groups = rows.grouped()
    cells = (
        (
            row.wave,
            row.name,
            f"{len(row.jobs):,}",
            f"{row.count:,}",
            row.runs_in_words,
            names(row.jobs[0].job),
        )
        for row in groups
    )
    headings = ("Wave", heading, "Jobs", "Partitions", "Runs", "Such as")
    grid = table(*headings, rows=cells, right=(0, 2, 3, 4))
    return replace(grid, below=Text(f"{len(rows):,} jobs in groups; --all lists each.", "dim"))


def _not_run(
    others: Sequence[tuple[str, Sequence[PlannedJob]]],
    names: Names,
    facts: PlanFacts,
    listing: ListOptions,
) -> Grid:
    """Return each reason not to run, or to run in part, with its jobs."""
    limit = first(listing, SHOWN_NAMES)

    def row(why: str, jobs: Sequence[PlannedJob]) -> tuple[str | Text, ...]:
        mark = Text(*MARKS["left_stale" if jobs[0].status == "planned" else jobs[0].status])
        reason, name = Text(why), names(jobs[0].job)
        if len(jobs) > 1:
            name, most = f"{len(jobs):,} jobs", limit and _SHOWN_ALIKE
            alike = listed(jobs, most or len(jobs), lambda job: names(job.job))
            reason.append(f"\n{alike}", style="dim")
        owners = dict.fromkeys(filter(None, (facts.owner(job.job) for job in jobs)))
        if owners and listing.every:
            reason.append(f"\nowned by {', '.join(owners)}", style="dim")
        return mark, name, reason

    shown, more = others[:limit], len(others[limit:] if limit else ())
    rest = "; --all lists them"
    rows = (row(*one) for one in shown)
    return table("", "Not run", "Why", rows=rows, more=more, rest=rest)


def _warnings(warnings: Sequence[str], listing: ListOptions) -> Text:
    most = first(listing, _SHOWN_WARNINGS) or len(warnings)
    lines = [
        warning(one if listing.every else shortened(one, _LONGEST_WARNING))
        for one in warnings[:most]
    ]
    if len(warnings) > most:
        lines.append(
            Text(
                f"and {counted(len(warnings) - most, 'more warning')}; --all lists them",
                style="dim",
            )
        )
    return Text("\n").join(lines)


def warning(text: str) -> Text:
    """Return a warning, escaped."""
    return Text(f"warning: {safe(text)}", style="yellow")


def apart(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """Yield the parts with an empty line between each two."""
    for number, part in enumerate(parts):
        if number:
            yield Text()
        yield part


def footer(plan: Plan, facts: PlanFacts, names: Names) -> Text:
    """Return the jobs not affected, and the dates of plan and lineage."""
    text = Text()
    if facts.untouched:
        shown = listed(facts.untouched, SHOWN_NAMES, names)
        text.append(f"Not affected: {counted(len(facts.untouched), 'job')} ({shown})\n")
    text.append(f"as of {moment(plan.now)}", style="dim")
    taken = plan.lineage.get("taken_at")
    if plan.lineage.get("source") == "project":
        text.append(f"\nfrom {of_project(taken)}: no lineage is named", style="dim")
    if plan.lineage.get("source") == "snapshot" and taken:
        old = age(datetime.fromisoformat(plan.now) - datetime.fromisoformat(taken))
        text.append(f"\nfrom a lineage snapshot of {moment(taken)}, {old}", style="dim")
    return text
