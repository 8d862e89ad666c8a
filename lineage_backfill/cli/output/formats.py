"""A plan as a tree and as Markdown for incidents and pull requests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.render import (
    MARKS,
    SHORT,
    apart,
    first,
    footer,
    in_brief,
    in_groups,
)
from lineage_backfill.model import listed
from lineage_backfill.plans.plan import Plan, PlannedJob
from lineage_backfill.show.draw import mermaid
from lineage_backfill.show.names import Names, keys_in_short
from lineage_backfill.show.plans import (
    SHOWN_JOBS,
    SHOWN_NAMES,
    PlanFacts,
    Row,
    Rows,
    drawing,
    not_run,
    roots,
    summary,
    tree,
    whole_or_keys,
)
from lineage_backfill.show.text import counted, safe
from lineage_backfill.show.words import in_a_word, in_words

_BACKTICKS = re.compile("`+")
#: Characters with a meaning in Markdown.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")


#: Most characters of a pull-request comment, and most jobs of a drawing in it.
_LONGEST, _DRAWN = 65_000, 60
_CUT = "\n\n(Cut at 65,000 characters, the limit of a comment; `--json` has all.)\n"


def plan_tree(
    plan: Plan, facts: PlanFacts, width: int, listing: ListOptions = SHORT
) -> RenderableType:
    """Return the plan as a tree: each job below the one it follows.

    Where guides would take more than a quarter of the `width`, a job's depth is a number.
    """
    names = Names.of(plan, facts.untouched)
    runs = Counter(run.job for run in plan.runs or ())
    rows = tree(plan.jobs)
    shown = rows[: first(listing, SHOWN_JOBS)]
    lines = [*_changes(plan, names)]
    for guide, job in shown:
        lead = guide if len(guide) <= width // 4 else f"({len(guide) // 2}) "
        lines.append(_branch(plan, job, lead, names, facts, runs[job.job], listing))
    if len(rows) > len(shown):
        lines.append(
            Text(
                f"and {counted(len(rows) - len(shown), 'more job')}; --all shows them", style="dim"
            )
        )
    brief = in_brief(plan, facts, names, listing)
    return Group(*apart([brief, Text("\n").join(lines), footer(plan, facts, names)]))


def _changes(plan: Plan, names: Names) -> Iterator[Text]:
    for ref, keys in roots(plan):
        yield Text.assemble((names(ref), "bold cyan"), f"  {whole_or_keys(keys)}")


def _branch(
    plan: Plan,
    job: PlannedJob,
    guide: str,
    names: Names,
    facts: PlanFacts,
    runs: int,
    listing: ListOptions,
) -> Text:
    mark, style = MARKS[job.status]
    line = Text.assemble((guide, "dim"), (f"{mark} ", style), (names(job.job), "bold"))
    if job.partitions:
        line.append(f"  {keys_in_short(job.partitions)}")
        line.append(f"  {counted(runs, 'run')}" if plan.runs is not None else "", style="dim")
    if job.left_stale:
        line.append(f"  stays stale: {keys_in_short(job.left_stale)}", style="yellow")
    if owner := facts.owner(job.job):
        line.append(f"  {owner}", style="magenta")
    if job.status != "planned":
        line.append(f"  {in_a_word(job.reason)}", style=style)
    if listing.every:
        reason = in_words(job.reason, names, job.partitions)
        line.append(f"\n{' ' * len(guide)}  {reason}", style="dim")
    return line


def markdown(plan: Plan, facts: PlanFacts, listing: ListOptions = SHORT) -> str:
    """Return the plan as Markdown, for an incident or a pull request; names do not mention anyone.

    It holds at most 65,000 characters, and says what it leaves out.
    """
    names = Names.of(plan, facts.untouched)
    lines = summary(plan, facts, names, every=listing.every)
    parts = [
        "### Backfill",
        "\n".join(f"- **{label}**: {plain(text)}" for label, text in lines.items()),
    ]
    rows = Rows(plan, facts, names)
    if rows:
        parts += _rows(rows, names, facts, listing)
    if others := not_run(plan, names, each=listing.every):
        parts += _others(others, names, listing)
    parts.append("  \n".join(map(plain, footer(plan, facts, names).plain.splitlines())))
    parts += [f"> {plain(warning)}" for warning in plan.warnings]
    if len(plan.jobs) <= _DRAWN:
        parts.append(f"```mermaid\n{mermaid(drawing(plan))}```")
    else:
        parts.append(f"{len(plan.jobs):,} jobs are too many to draw here: use `--format mermaid`.")
    parts.append(f"Plan {code(plan.id)}")
    return _fitting("\n\n".join(parts) + "\n")


def _rows(rows: Rows, names: Names, facts: PlanFacts, listing: ListOptions) -> list[str]:
    """Return the planned jobs as a table, in groups if there are many."""
    if not in_groups(rows, listing):
        return [_table(rows.each(), "Job", code, lambda row: _why(row, names, facts))]
    heading, groups = rows.grouped()

    def such_as(row: Row) -> list[str]:
        shown = listed(row.jobs, 3, lambda job: names(job.job))
        return [f"{len(row.jobs):,}", plain(shown)]

    grid = _table(groups, heading, plain, such_as, more="Jobs|Such as")
    return [grid, f"{len(rows):,} jobs in groups; `--all` lists each."]


def _why(row: Row, names: Names, facts: PlanFacts) -> list[str]:
    job = row.jobs[0]
    return [plain(facts.owner(job.job)), plain(in_words(job.reason, names, job.partitions))]


def _table(
    rows: Sequence[Row],
    heading: str,
    name: Callable[[str], str],
    rest: Callable[[Row], list[str]],
    more: str = "Owner|Why",
) -> str:
    """Return rows with their wave, name, partitions and runs, and the cells of `rest`."""

    def cells(row: Row) -> list[str]:
        keys = code(keys_in_short(row.jobs[0].partitions)) if len(row.jobs) == 1 else ""
        keys = keys if more == "Owner|Why" else f"{row.count:,}"
        named = [name(row.name)] if heading else []
        return [row.wave, *named, keys, row.runs_in_words, *rest(row)]

    named = f"{heading}|" if heading else ""
    headings = f"Wave|{named}Partitions|Runs|{more}"
    rules = f"-:|{'-|' if heading else ''}-|-:|{'-:' if more[0] == 'J' else '-'}|-"
    return markdown_table(headings, rules, map(cells, rows))


def _others(
    others: Sequence[tuple[str, Sequence[PlannedJob]]], names: Names, listing: ListOptions
) -> list[str]:
    shown = others[: first(listing, SHOWN_NAMES)]
    cells = (
        (listed([code(names(job.job)) for job in jobs], SHOWN_NAMES), plain(why))
        for why, jobs in shown
    )
    parts = ["**Not run**", markdown_table("Job|Why", "-|-", cells)]
    if len(others) > len(shown):
        parts.append(f"and {counted(len(others) - len(shown), 'more reason')}; `--all` lists them.")
    return parts


def _fitting(text: str) -> str:
    """Return the text, or its first lines and a note that it was cut."""
    if len(text) <= _LONGEST:
        return text
    return text[: text.rindex("\n", 0, _LONGEST - len(_CUT))] + _CUT


def markdown_table(heading: str, rule: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already."""
    lines = [f"|{heading}|", f"|{rule}|", *(f"|{'|'.join(cells)}|" for cells in rows)]
    return "\n".join(lines)


def code(text: str) -> str:
    """Return the text as inline code, safe within a table."""
    text = safe(text)
    longest = max((len(found) for found in _BACKTICKS.findall(text)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{room}{text.replace('|', chr(92) + '|')}{room}{fence}"


def plain(text: str) -> str:
    """Return the text with Markdown's own characters escaped."""
    # A comment inside it stops a mention; a backslash would not.
    return _MARKDOWN.sub(r"\\\1", safe(text)).replace("@", "@<!-- -->")
