"""A plan as a heatmap: one row for each job, one column for each period."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.output.render import MARKS, table
from lineage_backfill.model import JobRef
from lineage_backfill.planning.timeline import Spans
from lineage_backfill.plans.plan import Plan, PlannedJob
from lineage_backfill.show.names import Names
from lineage_backfill.show.periods import Periods
from lineage_backfill.show.plans import SHOWN_JOBS

#: How much of a period the keys cover: none, up to a third, up to two thirds, more, all.
_SHADES = ("·░▒▓█", ".-+*#")
_WIDEST_CELL = 4
_SIDES = 10  # columns beside map and names: marks and gaps
_LONGEST_NAME = 40


def heatmap(
    plan: Plan,
    spans: Mapping[JobRef, Spans],
    *,
    zone: str,
    width: int,
    plain: bool = False,
    most: int | None = SHOWN_JOBS,
) -> RenderableType:
    """Return the heatmap, `width` columns wide; `plain` uses ASCII only.

    Periods follow `zone`; only the first `most` jobs are shown.
    """
    names = Names.of(plan)
    jobs = [job for job in plan.jobs if job.job in spans]
    both = [span for one in spans.values() for span in (*one.planned, *one.left)]
    if not both:
        return Text("The plan has no time partitions.")
    label = max((len(names(job.job)) for job in jobs), default=0)
    room = max(10, width - min(label, _LONGEST_NAME) - _SIDES)
    periods = Periods.covering(both, zone, most=room)
    cell = max(1, min(_WIDEST_CELL, room // len(periods)))
    shades = _SHADES[plain]

    def row(job: PlannedJob) -> tuple[Text, ...]:
        sign, style = MARKS[job.status]
        cells = _cells(periods, spans[job.job], shades, style, cell)
        return Text(sign, style), Text(names(job.job)), cells

    listed, more = map(row, jobs[:most]), len(jobs) - (most or len(jobs))
    heading, rest = _heading(periods, cell), "; --all shows them"
    grid = table("", "", heading, rows=listed, more=more, rest=rest)
    return Group(grid, Text(), _legend(periods, shades, cell))


def _heading(periods: Periods, cell: int) -> Text:
    """Return the first and the last period, at the left and the right end."""
    first, last = periods.label(0), periods.label(-1)
    width = cell * len(periods)
    if len(periods) == 1 or width < len(first) + len(last) + 1:
        return Text(first if first == last else f"{first}..{last}", no_wrap=True)
    return Text(f"{first}{last:>{width - len(first)}}", no_wrap=True)


def _cells(periods: Periods, found: Spans, shades: str, style: str, cell: int) -> Text:
    """Return the row of a job, shaded by the share of each period that its keys cover.

    Keys left stale are shaded only where nothing runs.
    """
    planned, left = periods.levels(found.planned), periods.levels(found.left)
    text = Text(no_wrap=True)
    for one, other in zip(planned, left, strict=True):
        colour = style if one else MARKS["left_stale"][1] if other else "dim"
        text.append(shades[one or other] * cell, colour)
    return text


def _legend(periods: Periods, shades: str, cell: int) -> Text:
    """Return the legend: what a column and a shade mean."""
    some, all_of_it = shades[1:-1], shades[-1]
    width = f"{cell} columns are" if cell > 1 else "a column is"
    return Text(
        f"{width} one {periods.unit} in {periods.zone}; {some} a part of it, {all_of_it} all of it",
        style="dim",
    )
