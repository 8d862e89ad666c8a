"""What a person reads: the preview of a plan, the state of a backfill, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lineage_backfill.cli.terminal import safe
from lineage_backfill.cli.words import before, in_words, why_left
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plan.plan import Plan, PlannedJob

#: From this width on, reasons have a column of their own.
_WIDE = 100
_SHOWN_RANGES = 6
_SHOWN_JOBS = 200
_SHOWN_NAMES = 8
_MARKS = {
    "planned": ("~", "green"),
    "skipped": ("=", "dim"),
    "blocked": ("!", "red"),
    "left_stale": ("!", "yellow"),
}


class Names:
    """Bare names where all that is shown lies in one namespace, whole ones otherwise."""

    def __init__(self, refs: Iterable[DatasetRef | JobRef]) -> None:
        spaces = {ref.namespace for ref in refs}
        self.namespace = spaces.pop() if len(spaces) == 1 else None

    @classmethod
    def of(cls, plan: Plan) -> Names:
        """Return the names for all that the plan mentions."""
        return cls(chain((c.dataset for c in plan.changed), (job.job for job in plan.jobs)))

    def __call__(self, ref: DatasetRef | JobRef) -> str:
        return safe(ref.name if ref.namespace == self.namespace else ref)


def keys_in_words(keys: KeySet | None, *, shown: int = _SHOWN_RANGES) -> str:
    """Return a set of keys in its ranges, one per line, the tail of a long one as a number."""
    if keys is None or tuple(keys) == ("*",):
        return "whole"
    lines = [_key_in_words(one) for one in keys[:shown]]
    if len(keys) > shown:
        lines.append(f"and {len(keys) - shown:,} more")
    return "\n".join(lines)


def keys_on_a_line(keys: KeySet) -> str:
    """Return a set of keys on one line: its only range, or its first one and how many more."""
    return keys_in_words(keys, shown=1).replace("\n", " ")


def _key_in_words(key: str | Mapping[str, Any]) -> str:
    if isinstance(key, str):
        return safe(key)
    return safe("/".join(f"{name}={','.join(keys)}" for name, keys in key.items()))


def counted(number: int, what: str) -> str:
    """Return the number and the word for it.

    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def table(*headings: str) -> Table:
    """Return an empty table in the style of all; long cells are folded, never cut."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def preview(plan: Plan, *, width: int, untouched: Sequence[JobRef] = ()) -> RenderableType:
    """Return the plan as a person decides by it: what runs, why, and what is left alone.

    `width` is in columns. `untouched` are the jobs that the change does not reach.
    """
    names = Names.of(plan)
    planned = [job for job in plan.jobs if job.status == "planned"]
    others = [job for job in plan.jobs if job.status != "planned"]
    parts: list[RenderableType] = [_changed(plan, names)]
    if planned:
        parts.append(_planned(plan, planned, names, wide=width >= _WIDE))
    if others:
        parts.append(_not_run(others, names))
    if untouched:
        parts.append(_untouched(untouched, names))
    parts.append(_totals(plan))
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
    rows = table("Changed", "Partitions")
    for one in plan.changed:
        rows.add_row(Text(names(one.dataset), style="bold cyan"), Text(keys_in_words(one.keys)))
    for one in plan.request.get("jobs", ()):
        ref = JobRef(one["job"]["namespace"], one["job"]["name"])
        keys = one.get("partitions")
        rows.add_row(
            Text(f"job {names(ref)}", style="bold cyan"),
            Text(keys_in_words(None if keys is None else tuple(keys))),
        )
    return rows


def _planned(plan: Plan, planned: Sequence[PlannedJob], names: Names, *, wide: bool) -> Table:
    runs = Counter(run.job for run in plan.runs or ())
    rows = table("", "Will run", "Partitions", "Keys", "Runs", *(["Why"] if wide else []))
    for number in (3, 4):
        rows.columns[number].justify = "right"
    for guide, job in tree(planned)[:_SHOWN_JOBS]:
        why = Text(in_words(job.reason, names), style="dim")
        keys = Text(keys_in_words(job.partitions)).append_text(_left_stale(job))
        rows.add_row(
            Text(*_MARKS[job.status]),
            Text.assemble((guide, "dim"), names(job.job)),
            keys if wide else Text("\n").join([keys, why]),
            f"{job.count:,}",
            "?" if plan.runs is None else f"{runs[job.job]:,}",
            *([why] if wide else []),
        )
    _tell_more(rows, len(planned))
    return rows


def _not_run(others: Sequence[PlannedJob], names: Names) -> Table:
    rows = table("", "Will not run", "Why")
    for job in others[:_SHOWN_JOBS]:
        why = Text(in_words(job.reason, names)).append_text(_left_stale(job))
        rows.add_row(Text(*_MARKS[job.status]), names(job.job), why)
    _tell_more(rows, len(others))
    return rows


def _left_stale(job: PlannedJob) -> Text:
    if not job.left_stale:
        return Text()
    why = why_left(job.reason)
    text = f"\nleft stale: {keys_on_a_line(job.left_stale)}{f', for {why}' if why else ''}"
    return Text(text, style="yellow")


def _tell_more(rows: Table, jobs: int) -> None:
    if jobs > _SHOWN_JOBS:
        rows.add_row("", Text(f"and {jobs - _SHOWN_JOBS:,} more", style="dim"))


def _untouched(untouched: Sequence[JobRef], names: Names) -> Text:
    shown = ", ".join(names(ref) for ref in untouched[:_SHOWN_NAMES])
    more = len(untouched) - _SHOWN_NAMES
    return Text.assemble(
        ("Left alone  ", "bold"),
        f"{counted(len(untouched), 'job')} out of reach: {shown}",
        f" and {more:,} more" if more > 0 else "",
    )


def _totals(plan: Plan) -> Text:
    if not plan.totals["runs"]:
        return Text("Nothing to run.", style="bold")
    text = ", ".join(counted(plan.totals[f"{what}s"], what) for what in ("job", "partition", "run"))
    waves = max((run.wave for run in plan.runs or ()), default=0)
    in_waves = f" in {counted(waves, 'wave')}" if waves else ""
    return Text.assemble(
        ("Total  ", "bold"), text + in_waves, (f"  as of {safe(plan.now[:19])}Z", "dim")
    )


def tree(jobs: Sequence[PlannedJob]) -> list[tuple[str, PlannedJob]]:
    """Return the jobs as a tree, each with its guide.

    A job stands below the one before it on its reason's path; it may follow others too.
    """
    below: dict[JobRef | None, list[PlannedJob]] = {}
    shown = {job.job for job in jobs}
    for job in jobs:
        above = before(job)
        below.setdefault(above if above in shown else None, []).append(job)
    rows: list[tuple[str, PlannedJob]] = []
    todo = [("", "", job) for job in reversed(below.pop(None, []))]
    while todo:
        guide, indent, job = todo.pop()
        rows.append((guide, job))
        corner, side = "└ ", "  "
        for child in reversed(below.pop(job.job, [])):
            todo.append((indent + corner, indent + side, child))
            corner, side = "├ ", "│ "
    # A circle of reasons has no top; its jobs are shown all the same.
    return rows + [("", job) for job in chain.from_iterable(below.values())]
