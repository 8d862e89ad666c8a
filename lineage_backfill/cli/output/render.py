"""The preview of a plan, and the style of all tables."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.terminal import moment
from lineage_backfill.model import listed
from lineage_backfill.plans.plan import Plan, PlannedJob
from lineage_backfill.show import backfills
from lineage_backfill.show.names import Names, keys_in_short, keys_in_words
from lineage_backfill.show.plans import (
    GROUPED_ABOVE,
    NOTHING,
    SHOWN_GROUPS,
    SHOWN_NAMES,
    PlanFacts,
    Row,
    Rows,
    not_run,
    summary,
)
from lineage_backfill.show.text import counted, fitting, safe, shortened
from lineage_backfill.show.words import age, in_short, in_words

#: From this width on owners have a column.
_WIDE = 100
#: Below this width the numbers of a job stand below its name.
_NARROW = 60
#: Gap between two columns, and the narrowest column of reasons.
_GAP, _LEAST_WHY = 2, 16
_RIGHT = frozenset({"Wave", "Jobs", "Runs"})
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


def table(
    *headings: str | Text,
    rows: Iterable[Iterable[RenderableType]] = (),
    right: Container[int] = (),
    more: int = 0,
    rest: str = "; --json has all",
) -> Table:
    """Return a table in the common style; long cells are folded, never cut.

    The columns numbered in `right` are right-aligned. A last row says how many `more` rows there
    are, if any, and where the `rest` is.
    """
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        grid.add_column(heading, overflow="fold", justify="right" if number in right else "left")
    for row in rows:
        grid.add_row(*row)
    if more > 0:
        grid.add_row("", Text(f"and {more:,} more{rest}", style="dim"))
    return grid


def mark(holds: bool | None) -> Text:
    """Return the coloured sign for true, false or unknown (None)."""
    return Text(backfills.mark(holds), style=backfills.colour(holds))


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
        parts.append(_not_run(others, names, facts, width, listing))
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


def _planned(
    rows: Rows, names: Names, facts: PlanFacts, width: int, listing: ListOptions
) -> RenderableType:
    if in_groups(rows, listing):
        heading, groups = rows.grouped()
        return _groups(heading, groups, names, width, listing)
    if listing.every or width < _NARROW:
        return Text("\n").join(_block(row, names, facts, listing) for row in rows.each())
    return _lines(rows.each(), names, facts, width)


def _lines(rows: Sequence[Row], names: Names, facts: PlanFacts, width: int) -> Table:
    """Return one line for each job, with its reason as far as there is room."""
    keys = [keys_in_short(row.jobs[0].partitions) for row in rows]
    columns = {
        "Wave": [row.wave for row in rows],
        "Job": [row.name for row in rows],
        "Partitions": keys,
        "Runs": [row.runs_in_words for row in rows],
    }
    if width >= _WIDE and any(facts.owner(row.jobs[0].job) for row in rows):
        columns["Owner"] = [facts.owner(row.jobs[0].job) for row in rows]
    used = sum(max(map(len, [heading, *cells])) + _GAP for heading, cells in columns.items())
    room = width - used
    if room >= _LEAST_WHY:
        columns["Why"] = [shortened(in_short(row.jobs[0].reason, names), room) for row in rows]
    styles = {"Job": "bold", "Why": "dim", "Owner": "dim"}
    return table(
        *columns,
        rows=zip(
            *(
                [Text(one, style=styles.get(what, "")) for one in cells]
                for what, cells in columns.items()
            ),
            strict=True,
        ),
        right=[number for number, what in enumerate(columns) if what in _RIGHT],
    )


def _block(row: Row, names: Names, facts: PlanFacts, listing: ListOptions) -> Text:
    """Return a job as a block of lines, with its full reason if all are requested."""
    job = row.jobs[0]
    keys = (
        keys_in_words(job.partitions).replace("\n", ", ")
        if listing.every
        else (keys_in_short(job.partitions))
    )
    numbers = [
        keys,
        f"wave {row.wave}",
        f"{row.runs_in_words} {'run' if row.runs == 1 else 'runs'}",
    ]
    lines = [", ".join(filter(None, numbers))]
    if listing.every:
        lines.append(in_words(job.reason, names, job.partitions))
        if owner := facts.owner(job.job):
            lines.append(f"owned by {owner}")
    text = Text(row.name, style="bold")
    for line in lines:
        text.append(f"\n    {line}", style="not bold dim")
    return text


def _groups(
    heading: str, groups: Sequence[Row], names: Names, width: int, listing: ListOptions
) -> RenderableType:
    shown = groups[: first(listing, SHOWN_GROUPS)]
    columns = {
        "Wave": [row.wave for row in shown],
        **({heading: [row.name for row in shown]} if heading else {}),
        "Jobs": [f"{len(row.jobs):,}" for row in shown],
        "Partitions": [f"{row.count:,}" for row in shown],
        "Runs": [row.runs_in_words for row in shown],
    }
    if width < _NARROW:
        columns.pop("Partitions")
    if (room := width - _used(columns)) >= _LEAST_WHY:
        columns["Such as"] = [fitting([names(job.job) for job in row.jobs], room) for row in shown]
    right = [n for n, what in enumerate(columns) if what in _RIGHT or what == "Partitions"]
    rows = (map(Text, row) for row in zip(*columns.values(), strict=True))
    grid = table(*columns, rows=rows, right=right)
    hidden = len(groups) - len(shown)
    more = f"and {counted(hidden, 'more group')}. " if hidden > 0 else ""
    jobs = sum(len(row.jobs) for row in groups)
    return Group(
        grid,
        Text(
            f"{more}{jobs:,} jobs in groups; --all lists each with its reason.",
            style="dim",
        ),
    )


def _used(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, [what, *cells])) + _GAP for what, cells in columns.items())


def _not_run(
    others: Sequence[tuple[str, Sequence[PlannedJob]]],
    names: Names,
    facts: PlanFacts,
    width: int,
    listing: ListOptions,
) -> Table:
    """Return each reason not to run, or to run in part, with its jobs.

    Jobs and reasons stand in two columns if no two share one and there is room, else below.
    """
    limit = first(listing, SHOWN_NAMES)
    shown = others[:limit]
    longest = max(len(names(jobs[0].job)) for _, jobs in shown)
    in_columns = all(len(jobs) == 1 for _, jobs in shown) and longest <= width * 2 // 5

    def row(why: str, jobs: Sequence[PlannedJob]) -> tuple[Text, ...]:
        told = [names(job.job) for job in jobs]
        reason = Text(why)
        owners = dict.fromkeys(filter(None, (facts.owner(job.job) for job in jobs)))
        if owners and listing.every:
            reason.append(f"\nowned by {', '.join(owners)}", style="dim")
        mark = Text(*MARKS["left_stale" if jobs[0].status == "planned" else jobs[0].status])
        if in_columns:
            return mark, Text(told[0]), reason
        if len(jobs) == 1:
            return mark, Text.assemble(told[0], ": ", reason)
        several = listed(told, (limit and _SHOWN_ALIKE) or len(told))
        return mark, Text.assemble(f"{len(jobs):,} jobs: ", reason, "\n", (several, "dim"))

    headings = ("", "Not run", "Why") if in_columns else ("", "Not run")
    return table(
        *headings,
        rows=(row(*one) for one in shown),
        more=len(others) - len(shown),
        rest="; --all lists them",
    )


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
        told = listed(facts.untouched, SHOWN_NAMES, names)
        text.append(f"Not affected: {counted(len(facts.untouched), 'job')} ({told})\n")
    text.append(f"as of {moment(plan.now)}", style="dim")
    taken = plan.lineage.get("taken_at")
    if plan.lineage.get("source") == "project":
        text.append("\nfrom the project file alone: no lineage is named", style="dim")
    if plan.lineage.get("source") == "snapshot" and taken:
        old = age(datetime.fromisoformat(plan.now) - datetime.fromisoformat(taken))
        text.append(f"\nfrom a lineage snapshot of {moment(taken)}, {old}", style="dim")
    return text
