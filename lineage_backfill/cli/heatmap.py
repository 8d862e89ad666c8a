"""The keys of a plan as a map: one row for each job, one column for each period of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.render import MARKS, SHOWN_JOBS, table, tell_more
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.grid import Grid, grain_grid
from lineage_backfill.plan.plan import Plan
from lineage_backfill.plan.timeline import Span, Spans
from lineage_backfill.telling.names import Names
from lineage_backfill.telling.plans import tree

_UNITS = ("hour", "day", "week", "month", "quarter", "year")
#: How much of a period the keys cover: none, up to a third, up to two thirds, more, all.
_SHADES = ("·░▒▓█", ".-+*#")
_WIDEST_CELL = 4
_SIDES = 10  # columns beside map and names: marks and gaps
_LONGEST_NAME = 40


def heatmap(
    plan: Plan, spans: Mapping[JobRef, Spans], *, zone: str, width: int, plain: bool = False
) -> RenderableType:
    """Return the map, `width` columns wide; `plain` keeps to ASCII.

    Periods begin where they do in `zone`.
    """
    names = Names.of(plan)
    rows = [row for row in tree(plan.jobs) if row[1].job in spans]
    both = [span for one in spans.values() for span in (*one.planned, *one.left)]
    if not both:
        return Text("The plan has no keys in time.")
    label = max((len(guide + names(job.job)) for guide, job in rows), default=0)
    room = max(10, width - min(label, _LONGEST_NAME) - _SIDES)
    axis = _Axis.fitting(both, zone, room)
    shades = _SHADES[plain]
    made = table("", "", axis.heading())
    for guide, job in rows[:SHOWN_JOBS]:
        mark, style = MARKS[job.status]
        cells = axis.cells(spans[job.job], shades, style)
        made.add_row(Text(mark, style), Text.assemble((guide, "dim"), names(job.job)), cells)
    tell_more(made, len(rows))
    return Group(made, Text(), axis.legend(shades))


class _Axis:
    """The periods that the map's columns stand for."""

    def __init__(self, grid: Grid, first: int, last: int, room: int) -> None:
        self._grid = grid
        self._ordinals = range(first, last + 1)
        self._cell = max(1, min(_WIDEST_CELL, room // len(self._ordinals)))

    @classmethod
    def fitting(cls, spans: Sequence[Span], zone: str, room: int) -> _Axis:
        """Return the axis with the shortest periods that fit into so many columns."""
        start, end = min(one for one, _ in spans), max(one for _, one in spans)
        for unit in _UNITS:
            grid = grain_grid(unit, zone)
            first, last = grid.at(start), grid.at(end - 1)
            if last - first < room:
                break
        return cls(grid, first, last, room)

    def heading(self) -> Text:
        """Return the first and the last period at the two ends."""
        first, last = (self._grid.label(one) for one in (self._ordinals[0], self._ordinals[-1]))
        width = self._cell * len(self._ordinals)
        if len(self._ordinals) == 1 or width < len(first) + len(last) + 1:
            return Text(first if first == last else f"{first}..{last}", no_wrap=True)
        return Text(f"{first}{last:>{width - len(first)}}", no_wrap=True)

    def cells(self, found: Spans, shades: str, style: str) -> Text:
        """Return the row of a job, shaded by how much of each period its keys cover.

        What is left stale is shaded where nothing runs.
        """
        planned, left = self._levels(found.planned), self._levels(found.left)
        text = Text(no_wrap=True)
        for one, other in zip(planned, left, strict=True):
            colour = style if one else MARKS["left_stale"][1] if other else "dim"
            text.append(shades[one or other] * self._cell, colour)
        return text

    def _levels(self, spans: Sequence[Span]) -> list[int]:
        """Return for each period how much of it is covered: 0 none, 1 to 3 thirds, 4 all."""
        covered = dict.fromkeys(self._ordinals, 0)
        for start, end in spans:
            for one in range(self._grid.at(start), self._grid.at(end - 1) + 1):
                begin, stop = self._grid.start(one), self._grid.start(one + 1)
                covered[one] += min(end, stop) - max(start, begin)
        lengths = (self._grid.start(one + 1) - self._grid.start(one) for one in covered)
        return [
            4 if seconds >= length else -(-3 * seconds // length)
            for seconds, length in zip(covered.values(), lengths, strict=True)
        ]

    def legend(self, shades: str) -> Text:
        """Return what a column and a shade stand for."""
        unit, zone = self._grid.family[0], self._grid.zone.name
        some, all_of_it = shades[1:-1], shades[-1]
        width = f"{self._cell} columns are" if self._cell > 1 else "a column is"
        return Text(
            f"{width} one {unit} in {zone}; {some} a part of it, {all_of_it} all of it", style="dim"
        )
