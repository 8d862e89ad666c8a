"""The steps of the demo: break the feed, fix it, preview, run, prove."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from examples.demo.folder import prepare
from examples.demo.period import MARCH, YEAR, Period
from examples.demo.proof import Values, Verdict, latest_version, verdict
from lineage_backfill.cli.output.grid import table
from lineage_backfill.cli.output.plan_forms import show
from lineage_backfill.cli.output.progress import progress
from lineage_backfill.cli.output.tables import report_table
from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import BackfillState, DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet, expand, parse
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.project import FILE_NAME, Project
from lineage_backfill.show.text import counted
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace

#: The UTC hours in which the feed is wrong: a morning in New York after the clocks went forward.
FAULT = ("2013-03-10T10", "2013-03-10T11", "2013-03-10T12")
#: Another hour, for the user to try.
NEXT_HOUR = "2013-03-20T14"


def run_demo(folder: Path, *, year: bool, console: Console) -> int:
    """Run the demo in an emptied `folder`; return 0 only if both checks pass.

    Raises UsageError for a folder that is not the demo's, EnvironmentMissingError without Spark.
    """
    began = time.monotonic()
    period = YEAR if year else MARCH
    project = open_project(prepare(folder, period) / FILE_NAME)
    with Workspace(project).open_engines() as engines:
        engine = engines["local"]
        assert isinstance(engine, SparkEngine)
        demo = Demo(project, engine, period, console)
        holds = demo.build() and demo.fix()
    console.print()
    if holds:
        console.print(_next_steps(project.root), soft_wrap=True)
    else:
        console.print("The demo failed.", style="bold red")
    console.print(f"{time.monotonic() - began:.0f} seconds in all.", style="dim")
    return 0 if holds else 1


class Demo:
    """One run of the demo; each step returns whether it passed."""

    def __init__(
        self, project: Project, engine: SparkEngine, period: Period, console: Console
    ) -> None:
        self._project = project
        self._engine = engine
        self._period = period
        self._console = console
        self._namespace = project.declarations.namespace or ""
        self._tables = {
            self._dataset(table.name): project.root / table.location
            for table in project.declarations.datasets
            if table.location is not None
        }

    def build(self) -> bool:
        """Write the feed with its fault, and build every table from it."""
        first, last = self._period.hours
        self._chapter(f"The feed, with a fault: flights and weather, {first} to {last} UTC")
        with self._working("Starting Spark"):
            self._engine.open()
        with self._working("Writing the feed"):
            rows = self._call("feed:deliver", first=first, last=last, spoiled=FAULT)
        for name, count in rows.items():
            self._console.print(f"  {name}: {counted(count, 'row')}")
        self._console.print(
            f"  The fault: {FAULT[0]} to {FAULT[-1]} give delays in seconds, not in minutes."
        )
        self._chapter("The history: every table, built by the executor of backfills")
        # Lineage comes from the jobs' declarations: no run has sent any yet.
        workspace = Workspace(self._project, read=self._declared_lineage)
        feed: list[tuple[DatasetRef, KeySet | None]] = [
            (self._dataset("flights_hourly"), (f"{first}..{last}",)),
            (self._dataset("weather_hourly"), (f"{first}..{last}",)),
            (self._dataset("airlines"), None),
        ]
        return self._run(self._plan(workspace, feed), workspace)

    def fix(self) -> bool:
        """Fix the feed's table, show what that makes stale, run it, and check the outcome."""
        self._chapter("The fix: the correct hours of flights_hourly are delivered again")
        with self._working("Delivering"):
            flights = self._call("feed:repair", hours=FAULT)
        self._console.print(f"  {counted(flights, 'flight')} corrected")
        versions = {ref: latest_version(path) for ref, path in self._tables.items()}

        arguments = f"flights_hourly --from {FAULT[0]} --to {FAULT[-1]}"
        self._chapter(f"$ lineage-backfill impact {arguments}")
        workspace = Workspace(self._project)
        fixed = self._dataset("flights_hourly")
        plan = self._plan(workspace, [(fixed, (f"{FAULT[0]}..{FAULT[-1]}",))])
        show(plan, self._console, workspace=workspace)

        self._chapter(f"$ lineage-backfill run {arguments}")
        succeeded = self._run(plan, workspace)
        self._chapter("$ lineage-backfill report")
        self._console.print(report_table(Backfills(workspace).report()))
        is_right = self._check_tables()
        is_exact = self._check_logs(versions, self._planned(workspace, plan))
        return succeeded and is_right and is_exact

    def _check_tables(self) -> bool:
        self._chapter("Check 1: every table equals a recomputation from scratch")
        with self._working("Recomputing"):
            differences = self._call("check:differences")
        for name, rows in differences.items():
            if rows:
                self._console.print(f"  {name}: {counted(rows, 'row')} differ", style="red")
        equal = sum(not rows for rows in differences.values())
        self._say(equal == len(differences), f"{equal} of {len(differences)} tables are equal")
        return equal == len(differences)

    def _check_logs(
        self, versions: Mapping[DatasetRef, int], planned: Mapping[DatasetRef, Collection[Values]]
    ) -> bool:
        self._chapter("Check 2: the Delta logs since the fix name exactly the planned partitions")
        verdicts = {
            ref: verdict(path, versions[ref], planned[ref]) for ref, path in self._tables.items()
        }
        self._console.print(_verdict_table(verdicts))
        rewritten = sum(len(one.rewritten) for one in verdicts.values())
        holds = all(one.holds for one in verdicts.values())
        self._say(holds, f"{counted(rewritten, 'partition')} rewritten")
        return holds

    def _plan(self, workspace: Workspace, changed: list[tuple[DatasetRef, KeySet | None]]) -> Plan:
        roots = tuple(ChangedDataset(dataset=ref, keys=keys) for ref, keys in changed)
        return Planning(workspace).plan(Request(changed=roots))

    def _run(self, plan: Plan, workspace: Workspace) -> bool:
        reporter = progress(self._console)
        options = DriveOptions(engines={"local": self._engine})
        with reporter.showing():
            outcome = Runner(workspace, reporter, options).start(plan)
        return outcome.state is BackfillState.SUCCEEDED

    def _declared_lineage(self) -> LineageSnapshot:
        edges = self._call("declared:edges")
        return LineageSnapshot.of(
            JobNode(
                ref=JobRef(self._namespace, job),
                reads=tuple(map(self._dataset, datasets["reads"])),
                writes=tuple(map(self._dataset, datasets["writes"])),
            )
            for job, datasets in edges.items()
        )

    def _planned(self, workspace: Workspace, plan: Plan) -> dict[DatasetRef, set[Values]]:
        """Return the partitions that the plan writes; here a label is its value."""
        planned: dict[DatasetRef, set[Values]] = {ref: set() for ref in self._tables}
        for write in (write for run in plan.runs or () for write in run.writes):
            calendar = workspace.resolver.calendar(write.dataset)
            assert calendar is not None, "every table of the example is declared"
            keys = expand(calendar, parse(calendar, write.keys))
            planned[write.dataset] |= {() if calendar.is_whole else (str(k.label),) for k in keys}
        return planned

    def _dataset(self, name: str) -> DatasetRef:
        return DatasetRef(self._namespace, name)

    def _call(self, function: str, **arguments: Any) -> Any:
        """Call a function of the pipeline's folder in the warm Spark worker."""
        return self._engine.call(
            f"pipeline.{function}", {"root": str(self._project.root), **arguments}
        )

    def _chapter(self, title: str) -> None:
        self._console.print()
        self._console.print(title, style="bold", highlight=False)

    def _say(self, holds: bool, text: str) -> None:
        mark, style = ("✓", "green") if holds else ("✗", "red")
        self._console.print(f"  {mark} {text}", style=style)

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """Show what is being done, then how long it took."""
        began = time.monotonic()
        with self._console.status(what):
            yield
        self._console.print(f"  {what}: {time.monotonic() - began:.1f} s", style="dim")


def _verdict_table(verdicts: Mapping[DatasetRef, Verdict]) -> RenderableType:
    def row(ref: DatasetRef, one: Verdict) -> list[Text]:
        counts = (one.commits, len(one.planned), len(one.rewritten))
        style = "" if one.planned else "dim"
        mark = Text("✓", style="green") if one.holds else Text("✗", style="red")
        return [mark, *(Text(cell, style) for cell in (ref.name, *(f"{n:,}" for n in counts)))]

    headings = ("", "Table", "New versions", "Planned", "Rewritten")
    return table(*headings, rows=starmap(row, verdicts.items()), right=(2, 3, 4))


def _next_steps(root: Path) -> RenderableType:
    """Return what to try next, as commands that work when pasted."""
    folder = shlex.quote(str(root))
    scripts = Path(sys.executable).parent
    # PATH does not help: `scripts/demo` sets it for itself only.
    activated = os.environ.get("VIRTUAL_ENV") == sys.prefix
    installed = sys.prefix == sys.base_prefix and shutil.which("lineage-backfill") is not None
    commands = [
        f"cd {folder}",
        *([] if activated or installed else [f"export PATH={shlex.quote(str(scripts))}:$PATH"]),
        f"python -m pipeline.feed spoil {NEXT_HOUR}",
        f"lineage-backfill impact flights_hourly --from {NEXT_HOUR} --to {NEXT_HOUR}",
        f"lineage-backfill run flights_hourly --from {NEXT_HOUR} --to {NEXT_HOUR} --yes",
        "lineage-backfill report",
        "python -m pipeline.check",
    ]
    return Text("\n").join(
        [Text("Next, by hand: change an hour of the feed and repair what follows.", style="bold")]
        + [Text(f"  {command}") for command in commands]
    )
