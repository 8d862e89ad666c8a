"""Progress of a backfill: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import Reporter, Start
from lineage_backfill.runs.estimate import Estimate, time_left
from lineage_backfill.show.names import Names, keys_on_a_line
from lineage_backfill.show.text import counted, safe
from lineage_backfill.show.words import lasting, measured, time_in_words

_MARKS = {
    RunState.SUCCEEDED: ("✓", "green"),
    RunState.FAILED: ("✗", "red"),
    RunState.CANCELLED: ("-", "yellow"),
    RunState.BLOCKED: ("!", "yellow"),
    RunState.SKIPPED: ("=", "dim"),
}


class PlainProgress(Reporter):
    """Prints one line for each event; `console` is usually that of stderr.

    With an `estimate` of the plan the lines contain the time left.
    """

    def __init__(self, console: Console, estimate: Estimate | None = None) -> None:
        self.console = console
        self._estimate = estimate
        self._left: Counter[JobRef] = Counter(estimate.runs if estimate else ())
        self._starts: dict[int, tuple[Start, float]] = {}  # under way, each with its report's time
        self._names = Names(())
        self._total = self._ended = 0
        self._started: dict[str, float] = {}
        self._alike: Counter[tuple[RunState, JobRef, str]] = Counter()

    def showing(self) -> AbstractContextManager[Any]:
        """Return the context within which progress is shown."""
        return nullcontext()

    def backfill_started(self, backfill_id: str, plan: Plan, title: str) -> None:
        self._names = Names.of(plan)
        self._total = len(plan.runs or ())
        self._line(f"{safe(title or plan.title)} ({backfill_id}): {counted(self._total, 'run')}")

    def waiting(self, what: str) -> None:
        self._line(f"  waiting: {safe(what)}", style="yellow")

    def engine_starting(self, start: Start) -> None:
        is_first = not start.is_over and not self._starts
        self._starts.pop(start.id, None)
        if not start.is_over:
            self._starts[start.id] = (start, time.monotonic())
        elif not start.has_failed:
            self._line(f"  started {start.what} in {lasting(start.seconds)}")
        if is_first:
            self._first_starting()

    def _first_starting(self) -> None:
        what = "".join(one.what for one, _ in self._starts.values())
        self._line(f"  starting {what}; this usually takes 10 to 60 s")

    def _goes_on(self) -> str:
        """Return what is starting, if anything is, and the time left."""
        now, left = time.monotonic(), self._time_left()
        starts = [(one.seconds + now - at, one.what) for one, at in self._starts.values()]
        if not starts:
            return left
        seconds, what = max(starts)
        return f"starting {what} ({lasting(seconds)}){f', {left}' if left else ''}"

    def backfill_extended(self, plan: Plan) -> None:
        more = len(plan.runs or ())
        self._total += more
        self._left.update(run.job for run in plan.runs or ())
        self._line(f"keys became complete meanwhile: {counted(more, 'more run')}")

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        self._started[run.id] = time.monotonic()
        self._begun(run, f" (attempt {attempt})" if attempt > 1 else "")

    def _begun(self, run: PlannedRun, again: str) -> None:
        self._line(f"  started {self._run(run)}{again}")

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        self._ended += 1
        self._left[run.job] -= 1
        if state in (RunState.BLOCKED, RunState.SKIPPED):
            self._alike[state, run.job, detail] += 1
            return
        self._tell_alike()
        mark, style = _MARKS.get(state, (" ", ""))
        self._line(
            f"{mark} {state} {self._run(run)}{self._took(run)} [{self._stands()}]", style=style
        )
        if detail:
            self._line(f"    {safe(detail)}", style=style)

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        self._line(
            f"  again in {measured(delay.total_seconds())}: {self._run(run)}: {safe(detail)}",
            style="yellow",
        )

    def stopping(self, running: int, *, hard: bool) -> None:
        how = "stopping" if hard else "waiting for"
        self._line(f"Stopping: no new runs; {how} {counted(running, 'run')}.", style="yellow")

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        self._tell_alike()
        self._line(f"backfill {backfill_id}: {state}")

    def _tell_alike(self) -> None:
        """Print the runs that one failure blocked, or that are not needed, as one line."""
        for (state, job, detail), runs in self._alike.items():
            mark, style = _MARKS[state]
            self._line(
                f"{mark} {state} {self._names(job)}: {counted(runs, 'run')}, because"
                f" {safe(detail)}",
                style=style,
            )
        self._alike.clear()

    def _stands(self) -> str:
        left = self._time_left()
        return f"{self._ended}/{self._total}{f', {left}' if left else ''}"

    def _time_left(self) -> str:
        """Return the time left of the jobs with enough past runs; empty if there are none."""
        if self._estimate is None:
            return ""
        found = time_left(self._left, self._estimate.usual, self._estimate.parallel)
        return "" if found.seconds is None else time_in_words(found.seconds, 0, " left")

    def _run(self, run: PlannedRun) -> str:
        return f"{self._names(run.job)} {keys_on_a_line(run.partitions)}"

    def _took(self, run: PlannedRun) -> str:
        started = self._started.pop(run.id, None)
        return "" if started is None else f" in {measured(time.monotonic() - started)}"

    def _line(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)


class LiveProgress(PlainProgress):
    """Shows a bar for the backfill and one for each running job; ended runs stay as lines."""

    def __init__(self, console: Console, estimate: Estimate | None = None) -> None:
        super().__init__(console, estimate)
        self._bars = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=console,
            transient=True,
        )
        self._whole = self._bars.add_task("runs", total=None, left="")
        self._to_run: Counter[JobRef] = Counter()
        self._tasks: dict[JobRef, Any] = {}

    def showing(self) -> AbstractContextManager[Any]:
        return self._bars

    def backfill_started(self, backfill_id: str, plan: Plan, title: str) -> None:
        super().backfill_started(backfill_id, plan, title)
        self._to_run = Counter(run.job for run in plan.runs or ())
        self._bars.update(self._whole, total=self._total, left=self._goes_on())

    def engine_starting(self, start: Start) -> None:
        super().engine_starting(start)
        self._bars.update(self._whole, left=self._goes_on())

    def _first_starting(self) -> None:
        """Print no line, as the bar shows it."""

    def backfill_extended(self, plan: Plan) -> None:
        super().backfill_extended(plan)
        self._to_run.update(run.job for run in plan.runs or ())
        self._bars.update(self._whole, total=self._total)

    def _begun(self, run: PlannedRun, again: str) -> None:
        if again:
            super()._begun(run, again)
        if run.job not in self._tasks:
            self._tasks[run.job] = self._bars.add_task(
                self._names(run.job), total=self._to_run[run.job], left=""
            )

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        super().run_finished(run, state, detail)
        self._bars.update(self._whole, advance=1, left=self._goes_on())
        self._to_run[run.job] -= 1
        if run.job in self._tasks:
            self._bars.advance(self._tasks[run.job])
            if self._to_run[run.job] <= 0:
                self._bars.remove_task(self._tasks.pop(run.job))


def progress(console: Console, estimate: Estimate | None = None) -> PlainProgress:
    """Return the progress for the console: live bars only on a terminal."""
    lives = console.is_terminal and not console.quiet
    return (LiveProgress if lives else PlainProgress)(console, estimate)
