"""What a person reads: the preview of a plan, the state of a backfill, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.plan import Plan, PlannedJob
from lineage_backfill.presentation import backfills
from lineage_backfill.presentation.names import Names, keys_in_words, keys_on_a_line
from lineage_backfill.presentation.plans import amount, how_long, roots, tree
from lineage_backfill.presentation.text import counted, safe
from lineage_backfill.presentation.words import age, in_words, lasting, why_left
from lineage_backfill.runs.simulate import Estimate

#: From this width on, reasons (and owners, if any are known) have a column of their own.
_WIDE, _WIDE_WITH_OWNERS = 100, 120
#: Below this width all that is said of a job stands below its name.
_NARROW = 60
_SHOWN_RANGES = 6
_SHOWN_NAMES = 8
#: Of more jobs, a person is told only how many there are.
SHOWN_JOBS = 200
#: Sign and colour of what becomes of a job.
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
    """Return a table in the style of all; long cells are folded, never cut.

    The numbers of columns in `right` are aligned there. A last row says how many `more` there are,
    if any, and where the `rest` is.
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
    """Return the sign of what holds or not, in its colour; None: it is unknown."""
    return Text(backfills.mark(holds), style=backfills.colour(holds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is known beside a plan: jobs that the change does not reach, owners, how long it takes.

    `estimate` is None where nobody has asked how long, or no runs are listed.
    """

    untouched: Sequence[JobRef] = ()
    owners: Mapping[JobRef, Sequence[str]] = field(default_factory=dict)
    estimate: Estimate | None = None

    @classmethod
    def of(cls, plan: Plan, snapshot: LineageSnapshot, estimate: Estimate | None = None) -> Beside:
        """Return what the lineage tells of the jobs of a plan, and of those that are not in it."""
        reached = {job.job for job in plan.jobs}
        return cls(
            untouched=[ref for ref in snapshot.jobs if ref not in reached],
            owners={ref: node.owners for ref, node in snapshot.jobs.items() if node.owners},
            estimate=estimate,
        )

    def owner(self, job: JobRef) -> str:
        """Return who owns a job, as text; empty where nobody is named."""
        return safe(", ".join(self.owners.get(job, ())))

    @property
    def times(self) -> Mapping[JobRef, str]:
        """How long the runs of each job take, one after the other; empty where none is known."""
        if self.estimate is None or self.estimate.makespan is None:
            return {}
        return {
            one.job: "unknown" if one.busy is None else lasting(one.busy.p50)
            for one in self.estimate.jobs
        }


NOTHING_BESIDE = Beside()


def preview(plan: Plan, *, width: int, beside: Beside = NOTHING_BESIDE) -> RenderableType:
    """Return the plan as a person decides by it: what runs, why, and what is left alone.

    `width` is in columns.
    """
    names = Names.of(plan, beside.untouched)
    planned = [job for job in plan.jobs if job.status == "planned"]
    others = [job for job in plan.jobs if job.status != "planned"]
    parts: list[RenderableType] = [_changed(plan, names)]
    if planned:
        parts.append(_planned(plan, planned, names, beside, width))
    if others:
        parts.append(_not_run(others, names, beside))
    if beside.untouched:
        parts.append(untouched(beside.untouched, names))
    parts.append(totals(plan, beside))
    if plan.warnings:
        parts.append(Text("\n").join(warning(one) for one in plan.warnings))
    return Group(*apart(parts))


def warning(text: str) -> Text:
    """Return a warning, escaped."""
    return Text(f"warning: {safe(text)}", style="yellow")


def apart(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """Yield the parts with an empty line between each two."""
    for number, part in enumerate(parts):
        if number:
            yield Text()
        yield part


def _changed(plan: Plan, names: Names) -> Table:
    def row(ref: DatasetRef | JobRef, keys: KeySet | None) -> tuple[Text, Text]:
        kind = "job " if isinstance(ref, JobRef) else ""
        return Text(kind + names(ref), style="bold cyan"), Text(keys_in_words(keys))

    return table("Changed", "Partitions", rows=(row(ref, keys) for ref, keys in roots(plan)))


def _planned(
    plan: Plan, planned: Sequence[PlannedJob], names: Names, beside: Beside, width: int
) -> Table:
    runs = Counter(run.job for run in plan.runs or ())
    owned = any(beside.owner(job.job) for job in planned)
    wide = width >= (_WIDE_WITH_OWNERS if owned else _WIDE)
    owned = owned and wide
    times = beside.times
    counts = ["Keys", "Runs", *(["Takes"] if times else [])]

    def row(guide: str, job: PlannedJob) -> list[RenderableType]:
        owner = beside.owner(job.job)
        why = Text(in_words(job.reason, names), style="dim")
        keys = Text(keys_in_words(job.partitions)).append_text(_left_stale(job))
        if not wide:
            keys = Text("\n").join([keys, why])
            keys.append(f"\nowned by {owner}" if owner else "", style="dim")
        numbers = [f"{job.count:,}", "?" if plan.runs is None else f"{runs[job.job]:,}"]
        numbers += [times[job.job]] if times else []
        sign, name = Text(*MARKS[job.status]), Text.assemble((guide, "dim"), names(job.job))
        if width >= _NARROW:
            return [sign, name, keys, *numbers, *[owner] * owned, *[why] * wide]
        pairs = zip(counts, numbers, strict=True)
        text = ", ".join(f"{what.lower()} {number}" for what, number in pairs)
        return [sign, Text("\n").join([name, keys, Text(text, style="dim")])]

    headings = ["Partitions", *counts, *["Owner"] * owned, *["Why"] * wide]
    return table(
        "",
        "Will run",
        *(headings if width >= _NARROW else ()),
        rows=(row(guide, job) for guide, job in tree(planned)[:SHOWN_JOBS]),
        right=range(3, 3 + len(counts)),
        more=len(planned) - SHOWN_JOBS,
        rest="",
    )


def _not_run(others: Sequence[PlannedJob], names: Names, beside: Beside) -> Table:
    def row(job: PlannedJob) -> tuple[RenderableType, ...]:
        why = Text(in_words(job.reason, names)).append_text(_left_stale(job))
        owner = beside.owner(job.job)
        why.append(f"\nowned by {owner}" if owner else "", style="dim")
        return Text(*MARKS[job.status]), names(job.job), why

    shown, more = map(row, others[:SHOWN_JOBS]), len(others) - SHOWN_JOBS
    return table("", "Will not run", "Why", rows=shown, more=more, rest="")


def _left_stale(job: PlannedJob) -> Text:
    if not job.left_stale:
        return Text()
    why = why_left(job.reason)
    text = f"\nleft stale: {keys_on_a_line(job.left_stale)}{f', for {why}' if why else ''}"
    return Text(text, style="yellow")


def untouched(jobs: Sequence[JobRef], names: Names) -> Text:
    """Return the line that says which jobs the change does not reach."""
    shown = ", ".join(names(ref) for ref in jobs[:_SHOWN_NAMES])
    more = len(jobs) - _SHOWN_NAMES
    return Text.assemble(
        ("Left alone  ", "bold"),
        f"{counted(len(jobs), 'job')} out of reach: {shown}",
        f" and {more:,} more" if more > 0 else "",
    )


def totals(plan: Plan, beside: Beside) -> Text:
    """Return what says how much would run, as of when, and how long that takes.

    And how old the lineage is, where it is a snapshot.
    """
    text = Text("Nothing to run.", style="bold")
    if plan.totals["runs"]:
        as_of = (f"  as of {safe(plan.now[:19])}Z", "dim")
        text = Text.assemble(("Total  ", "bold"), amount(plan), as_of)
        if beside.estimate is not None:
            text.append("\nTime   ", style="bold").append(how_long(beside.estimate))
    taken = plan.lineage.get("taken_at")
    if plan.lineage.get("source") == "snapshot" and taken:
        old = age(datetime.fromisoformat(plan.now) - datetime.fromisoformat(taken))
        text.append(f"\nfrom a lineage snapshot of {safe(taken[:19])}Z, {old}", style="dim")
    return text
