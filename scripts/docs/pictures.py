"""Pictures of how partitions depend on each other, drawn from what the planner makes of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI

from lineage_backfill.cli.output.tables import status_table
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.lineage.view import whole
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import parse
from lineage_backfill.planning.planner import Planner
from lineage_backfill.plans.document import plan_to_dict
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import BackfillRecord, RunRecord
from lineage_backfill.project import FILE_NAME
from lineage_backfill.project import reader as declare
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.runs import reports
from lineage_backfill.show.views import drawing
from lineage_backfill.web.svg import svg
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.workspace import Workspace

_NOW = datetime(2024, 7, 1, tzinfo=UTC)
_SPACE = "pictures"
_WIDTH, _LEFT, _ROW, _GAP = 720, 96, 30, 64
_STYLE = """
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #57606a }
.label { text-anchor: middle; font-size: 9px } .box { fill: #f6f8fa; stroke: #8c959f }
.changed { fill: #54aeff } .stale { fill: #4ac26b } .line { stroke: #8c959f; stroke-width: 1 }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4 } .box { fill: #30363d } }"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One job that reads `up` and writes `down`; the picture shows first..last of both."""

    declared: str
    changed: str = "2024-06-05"
    first: str = "2024-06-01"
    last: str = "2024-06-14"
    own: bool = False  # it reads its own output too


_DAYS = """
[[dataset]]
name = "*"
grain = "day"
end = "2024-06-14"
[[job]]
name = "job"
"""
_HOURS = """
[[dataset]]
name = "up"
grain = "hour"
[[dataset]]
name = "down"
"""
_SHOP = """
[[dataset]]
name = "*orders"
grain = "hour"
[[dataset]]
name = "*"
grain = "day"
end = "2024-03-31"
[[dataset]]
name = "report"
grain = "week"
[[job]]
name = "rolling_week"
reads = [{ dataset = "sales", mapping = "window", before = 6 }]
[[job]]
name = "running_total"
reads = [{ dataset = "total", mapping = "offset", by = -1 }]
"""
_CASES: Mapping[str, _Case] = {
    "overlap": _Case(
        declared=f'{_HOURS}grain = "day"',
        changed="2024-06-04T22..2024-06-05T01",
        first="2024-06-04T00",
        last="2024-06-05T23",
    ),
    "shifted": _Case(
        declared=f'{_HOURS}cron = "30 * * * *"',
        changed="2024-06-05T05",
        first="2024-06-05T00",
        last="2024-06-05T11",
    ),
    "window": _Case(
        declared=f'{_DAYS}reads = [{{ dataset = "up", mapping = "window", before = 6 }}]'
    ),
    "lookback": _Case(
        declared=f'{_DAYS}writes = [{{ dataset = "down", lookback = 2 }}]', changed="2024-06-07"
    ),
    "own": _Case(
        declared=f'{_DAYS}reads = [{{ dataset = "down", mapping = "offset", by = -1 }}]', own=True
    ),
}


def pictures() -> dict[str, str]:
    """Return each picture by its file's name."""
    drawn = {f"{name}.svg": _Picture(case).svg() for name, case in _CASES.items()}
    return {**drawn, "shop.svg": _shop(), "half-done.svg": _half_done()}


def _shop() -> str:
    """Return the lineage of the example that the pages use."""
    project = open_project(Path(__file__).parents[2] / "docs" / "examples" / "shop" / FILE_NAME)
    return svg(replace(drawing(whole(Workspace(project).graph)), title="The shop"))


def _half_done() -> str:
    """Return `status` in a terminal: a day of a window failed, a running total is half done."""
    nodes = [
        JobNode(
            ref=JobRef(_SPACE, job),
            reads=tuple(DatasetRef(_SPACE, name) for name in reads),
            writes=(DatasetRef(_SPACE, output),),
        )
        for job, reads, output in (
            ("clean_orders", ["raw_orders"], "orders"),
            ("daily_sales", ["orders"], "sales"),
            ("rolling_week", ["sales"], "rolling"),
            ("weekly_report", ["rolling"], "report"),
            ("running_total", ["sales", "total"], "total"),
        )
    ]
    raw, keys = DatasetRef(_SPACE, "raw_orders"), ("2024-03-10T22..2024-03-11T00",)
    asked = Request(changed=(ChangedDataset(dataset=raw, keys=keys),))
    plan = Planner(LineageSnapshot.of(nodes), _declared(_SHOP), now=_NOW).plan(asked)
    runs = [_run(run, begun=_NOW) for run in plan.runs or ()]
    record = BackfillRecord(
        id="b-20240701-090000-c0ffee",
        plan_id=plan.id,
        state=BackfillState.RUNNING,
        submitted_at=_NOW,
        updated_at=_NOW,
        submitted_by="ana",
        title="VAT fix, INC-812",
        changed="raw_orders 2024-03-10T22..03-11T00",
    )
    console = Console(record=True, width=90, file=StringIO())
    console.print(status_table(reports.status(record, plan_to_dict(plan), runs)))
    drawn = console.export_svg(title="lineage-backfill status", theme=MONOKAI, unique_id="half")
    drawn = re.sub(r"@font-face {.*?}\s*", "", drawn, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def _run(run: PlannedRun, begun: datetime) -> RunRecord:
    """Return how far a run is in that picture."""
    job, day, error = run.job.name, run.partitions[0], None
    state = RunState.SUCCEEDED
    if (job, day) == ("rolling_week", "2024-03-13"):
        state, error = RunState.FAILED, "ValueError: revenue is negative in store 7"
    elif job == "weekly_report" and day == "2024-W11":
        state, error = RunState.BLOCKED, "pictures:rolling_week 2024-03-13 did not succeed"
    elif job == "running_total" and day > "2024-03-19":
        state = RunState.RUNNING if day == "2024-03-20" else RunState.PENDING
    has_ended = state in (RunState.SUCCEEDED, RunState.FAILED)
    has_begun = has_ended or state is RunState.RUNNING
    return RunRecord.of(
        run,
        state=state,
        attempt=int(has_begun),
        started_at=begun if has_begun else None,
        ended_at=begun + timedelta(seconds=14) if has_ended else None,
        error=error,
    )


class _Picture:
    def __init__(self, case: _Case) -> None:
        up, down = DatasetRef(_SPACE, "up"), DatasetRef(_SPACE, "down")
        reads = (down, up) if case.own else (up,)
        node = JobNode(ref=JobRef(_SPACE, "job"), reads=reads, writes=(down,))
        asked = Request(changed=(ChangedDataset(dataset=up, keys=(case.changed,)),))
        lineage = LineageSnapshot.of([node])
        planning = Planner(lineage, _declared(case.declared), now=_NOW).session(asked)
        resolver = planning.resolver
        self._up, self._down = _known(resolver.calendar(up)), _known(resolver.calendar(down))
        self._changed = parse(self._up, (case.changed,))
        facts = resolver.job(node.ref)
        self._stale = planning.propagation.results[facts].planned
        self._lookback = facts.lookback
        self._reads = {edge.dataset: edge.mapping for edge in facts.inputs}
        shown = parse(self._up, (f"{case.first}..{case.last}",)).ordinals
        grid = self._grid(self._up)
        self._start, self._end = grid.start(shown.lo), grid.start(shown.hi + 1)

    @staticmethod
    def _grid(calendar: Calendar) -> Any:
        assert calendar.time is not None
        return calendar.time.grid

    def svg(self) -> str:
        """Return the picture: the input above, the output below, and who reads whom."""
        height = 2 * _ROW + _GAP + 40
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<text x="0" y="{20 + _ROW / 2:.0f}">it reads</text>',
            f'<text x="0" y="{20 + _ROW * 1.5 + _GAP:.0f}">it writes</text>',
            *self._lines(),
            *self._row(self._up, self._changed, "changed", 16),
            *self._row(self._down, self._stale, "stale", 16 + _ROW + _GAP),
        ]
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _row(self, calendar: Calendar, marked: PartitionSet, mark: str, y: float) -> Iterator[str]:
        grid = self._grid(calendar)
        first, last = grid.at(self._start), grid.at(self._end - 1)
        wide = (self._x(grid.start(first + 1)) - self._x(grid.start(first))) > 30
        for one in range(first, last + 1):
            left, right = (
                self._x(max(self._start, min(self._end, grid.start(n)))) for n in (one, one + 1)
            )
            kind = f"box {mark}" if one in marked.ordinals else "box"
            yield (
                f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{right - left:.1f}"'
                f' height="{_ROW}"/>'
            )
            if wide:
                label = grid.label(one).partition("-")[2]
                yield (
                    f'<text class="label" x="{(left + right) / 2:.1f}" y="{y + _ROW / 2 + 3}">'
                    f"{label}</text>"
                )

    def _lines(self) -> Iterator[str]:
        """Yield a line from each stale partition to each changed one that it is made from."""
        mapping = next(one for ref, one in self._reads.items() if ref.name == "up")
        assert mapping is not None
        up, down = self._grid(self._up), self._grid(self._down)
        for key in self._stale.ordinals:
            for one in (mapping.required(self._deliveries(key)) & self._changed).ordinals:
                yield _line(self._middle(up, one), 16 + _ROW, self._middle(down, key), _ROW + _GAP)
        own = next((one for ref, one in self._reads.items() if ref.name == "down"), None)
        for key in self._stale.ordinals if own else ():
            yield from self._arcs(own, down, key)

    def _arcs(self, own: EdgeMapping | None, grid: Any, key: int) -> Iterator[str]:
        assert own is not None
        y = 16 + _ROW + _GAP
        for one in (own.required(_single(key)) & self._stale).ordinals:
            left, right = self._middle(grid, one), self._middle(grid, key)
            yield (
                f'<path class="line" fill="none" d="M{left:.1f} {y}Q{(left + right) / 2:.1f}'
                f' {y - 20} {right:.1f} {y}"/>'
            )

    def _deliveries(self, key: int) -> PartitionSet:
        """Return the run keys that make a partition: its own, and with lookback later ones."""
        return PartitionSet.of([(OrdinalSet.range(key, key + self._lookback), 1)])

    def _middle(self, grid: Any, one: int) -> float:
        start, end = max(self._start, grid.start(one)), min(self._end, grid.start(one + 1))
        return (self._x(start) + self._x(end)) / 2

    def _x(self, instant: int) -> float:
        share = (instant - self._start) / (self._end - self._start)
        return _LEFT + share * (_WIDTH - _LEFT - 4)


def _single(key: int) -> PartitionSet:
    return PartitionSet.of([(OrdinalSet.range(key, key), 1)])


def _line(x1: float, y1: float, x2: float, gap: float) -> str:
    return f'<path class="line" d="M{x1:.1f} {y1}L{x2:.1f} {16 + gap}"/>'


def _known(calendar: Calendar | None) -> Calendar:
    assert calendar is not None
    return calendar


def _declared(text: str) -> Declarations:
    table = tomllib.loads(text)
    return Declarations(
        namespace=_SPACE,
        datasets=declare.datasets(table.get("dataset"), "picture", Path("/")),
        jobs=declare.jobs(table.get("job"), "picture", engines=(), pools=()),
    )
