"""A plan in other forms than the table: a tree, a drawing, and Markdown for an incident's page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from lineage_backfill.cli.render import MARKS, Beside, apart, totals, untouched
from lineage_backfill.planning.plan import Plan, PlannedJob
from lineage_backfill.presentation.draw import mermaid
from lineage_backfill.presentation.names import Names, keys_on_a_line
from lineage_backfill.presentation.plans import (
    amount,
    drawing,
    how_long,
    roots,
    tree,
    whole_or_keys,
)
from lineage_backfill.presentation.text import counted, safe
from lineage_backfill.presentation.words import in_words, why_left

_BACKTICKS = re.compile("`+")
#: What Markdown reads as its own.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plan_tree(plan: Plan, beside: Beside) -> RenderableType:
    """Return the plan as a tree: below what changed, each job below the one it follows."""
    names = Names.of(plan, beside.untouched)
    runs = Counter(run.job for run in plan.runs or ())
    parts: list[RenderableType] = []
    root = Tree(Text("\n").join(_changes(plan, names)), guide_style="dim")
    levels = [root]
    for guide, job in tree(plan.jobs):
        depth = len(guide) // 2
        line = _branch(plan, job, names, beside, runs[job.job])
        del levels[depth + 1 :]
        levels.append(levels[depth].add(line))
    parts.append(root)
    if beside.untouched:
        parts.append(untouched(beside.untouched, names))
    parts.append(totals(plan, beside))
    return Group(*apart(parts))


def _changes(plan: Plan, names: Names) -> Iterator[Text]:
    for ref, keys in roots(plan):
        yield Text.assemble((names(ref), "bold cyan"), f"  {whole_or_keys(keys)}")


def _branch(plan: Plan, job: PlannedJob, names: Names, beside: Beside, runs: int) -> Text:
    mark, style = MARKS[job.status]
    line = Text.assemble((f"{mark} ", style), (names(job.job), "bold"))
    if job.partitions:
        line.append(f"  {keys_on_a_line(job.partitions)}")
        line.append(f"  {counted(runs, 'run')}" if plan.runs is not None else "", style="dim")
        line.append(f"  {times[job.job]}" if (times := beside.times) else "", style="dim")
    if job.left_stale:
        line.append(f"  left stale: {keys_on_a_line(job.left_stale)}", style="yellow")
    if owner := beside.owner(job.job):
        line.append(f"  {owner}", style="magenta")
    return line.append(f"\n{in_words(job.reason, names)}", style="dim")


def markdown(plan: Plan, beside: Beside) -> str:
    """Return the plan as Markdown, for an incident or a pull request; names mention nobody."""
    names = Names.of(plan, beside.untouched)
    runs = Counter(run.job for run in plan.runs or ())
    changed = ", ".join(
        f"{code(names(ref))} {code(whole_or_keys(keys))}" for ref, keys in roots(plan)
    )
    planned = [job for _, job in tree([job for job in plan.jobs if job.status == "planned"])]
    others = [job for job in plan.jobs if job.status != "planned"]
    parts = [
        f"### Backfill of what {changed} made stale",
        f"{amount(plan)}, as of {safe(plan.now)}.",
    ]
    if beside.estimate is not None:
        parts.append(f"Time: {how_long(beside.estimate)}.")
    if planned:
        times = beside.times
        rows = (
            (
                code(names(job.job)),
                code(keys_on_a_line(job.partitions)),
                f"{job.count:,}",
                f"{runs[job.job]:,}" if plan.runs is not None else "?",
                *([times[job.job]] if times else []),
                plain(beside.owner(job.job)),
                plain(in_words(job.reason, names)),
            )
            for job in planned
        )
        takes, rule = ("Takes|", "-:|") if times else ("", "")
        heading = f"Job|Partitions|Keys|Runs|{takes}Owner|Why"
        parts.append(markdown_table(heading, f"-|-|-:|-:|{rule}-|-", rows))
    if others:
        cells = ((code(names(job.job)), plain(_why_not(job, names))) for job in others)
        parts += ["**Will not run**", markdown_table("Job|Why", "-|-", cells)]
    if beside.untouched:
        parts.append(plain(untouched(beside.untouched, names).plain))
    parts += [f"> {plain(warning)}" for warning in plan.warnings]
    parts += [f"```mermaid\n{mermaid(drawing(plan))}```", f"Plan {code(plan.id)}"]
    return "\n\n".join(parts) + "\n"


def markdown_table(heading: str, rule: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [f"|{heading}|", f"|{rule}|", *(f"|{'|'.join(cells)}|" for cells in rows)]
    return "\n".join(lines)


def _why_not(job: PlannedJob, names: Names) -> str:
    left = f"left stale: {keys_on_a_line(job.left_stale)}" if job.left_stale else ""
    return "; ".join(filter(None, (in_words(job.reason, names), left, why_left(job.reason))))


def code(text: str) -> str:
    """Return the text as Markdown shows it letter by letter, also within a table."""
    text = safe(text)
    longest = max((len(found) for found in _BACKTICKS.findall(text)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{room}{text.replace('|', chr(92) + '|')}{room}{fence}"


def plain(text: str) -> str:
    """Return the text so that Markdown reads none of it as its own."""
    # A comment within a mention makes it none: a backslash would not.
    return _MARKDOWN.sub(r"\\\1", safe(text)).replace("@", "@<!-- -->")
