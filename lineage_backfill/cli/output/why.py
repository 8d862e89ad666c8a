"""Explains why a job is planned or not, step by step back to the change."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.output.grid import Grid, table
from lineage_backfill.cli.output.render import apart
from lineage_backfill.critic.explain import Explanation, Hop
from lineage_backfill.critic.why_not import End
from lineage_backfill.show.names import Names, keys_in_words, keys_on_a_line
from lineage_backfill.show.text import counted, safe
from lineage_backfill.show.words import mapping_in_words

_VERDICTS = {
    "planned": ("is planned", "green"),
    "left_stale": ("is left stale", "yellow"),
    "blocked": ("is blocked", "red"),
    "up_to_date": ("is not planned", ""),
    "not_reached": ("is not planned", ""),
}
#: Of a longer path, only the steps at both ends are shown.
_SHOWN_HOPS = 24


def explained(explanation: Explanation) -> RenderableType:
    """Return the verdict, the path from the job back to the change, and the change."""
    changed = explanation.changed or {}
    hops = explanation.hops
    datasets = [hop.dataset for hop in hops if hop.dataset is not None]
    datasets += [end.dataset for end in explanation.ends if end.dataset is not None]
    jobs = [*(hop.job for hop in hops), *(end.job for end in explanation.ends)]
    names = Names([explanation.job, *jobs, *datasets, *changed])
    parts: list[RenderableType] = [_verdict(explanation, names)]
    if hops:
        parts.append(_way_back(explanation, names))
    if explanation.ends:
        parts.append(_ends(explanation.ends, names))
    if explanation.planned:
        planned = keys_on_a_line(explanation.planned)
        parts.append(Text.assemble(("Planned keys  ", "bold"), planned))
    if changed:
        rows = (
            (Text(names(dataset), style="bold cyan"), Text(keys_in_words(keys)))
            for dataset, keys in changed.items()
        )
        parts.append(table("Changed", "Partitions", rows=rows))
    name = shlex.quote(names(explanation.job))
    parts.append(Text(f"What holds for it: lineage-backfill config show {name}", style="dim"))
    return Group(*apart(parts))


def _verdict(explanation: Explanation, names: Names) -> Text:
    words, style = _VERDICTS[explanation.verdict]
    keys = f" {keys_on_a_line(explanation.keys)}" if explanation.keys else ""
    return Text.assemble(
        (f"{names(explanation.job)}{keys} ", "bold"),
        (words, style),
        f": {safe(explanation.sentence)}.",
        f"\n  {safe(explanation.hint)}" if explanation.hint else "",
    )


def _ends(ends: Sequence[End], names: Names) -> Grid:
    """Return rows that say where the paths from the change stop, and why."""

    def row(end: End) -> tuple[Text, Text, Text]:
        stale = Text()
        if end.dataset is not None:
            stale.append(f"{names(end.dataset)} {keys_on_a_line(end.stale)}".rstrip())
        why = Text(safe(end.sentence))
        if end.needs:
            why.append(f"\nit reads {keys_on_a_line(end.needs)}", style="dim")
        why.append(f"\n{safe(end.hint)}" if end.hint else "", style="dim")
        return Text(names(end.job)), stale, why

    return table("Path stops at", "Stale there", "Reason", rows=map(row, ends))


def _way_back(explanation: Explanation, names: Names) -> Grid:
    hops = explanation.hops
    half = _SHOWN_HOPS // 2
    more = len(hops) - 2 * half
    rows = [_row(hop, names) for hop in (hops[:half] if more > 0 else hops)]
    if hops[0].keys != explanation.keys:
        keys = Text(keys_on_a_line(explanation.keys))
        own = Text("its own output, made stale by an earlier key")
        rows.insert(0, (Text(names(explanation.job)), keys, own))
    if more > 0:
        steps = f"and {counted(more, 'step')} more; --json has all"
        rows.append((Text(), Text(), Text(steps, style="dim")))
        rows += [_row(hop, names) for hop in hops[-half:]]
    return table("Job", "Run key", "Reads stale", rows=rows)


def _row(hop: Hop, names: Names) -> tuple[Text, Text, Text]:
    read = Text("named in the request" if not hop.lookback else "another key is named")
    if hop.dataset is not None:
        read = Text.assemble(
            f"{names(hop.dataset)} {keys_on_a_line(hop.stale)}",
            (f"\nit reads {mapping_in_words(hop.mapping)}", "dim"),
        )
    if hop.lookback:
        keys = "key" if hop.lookback == 1 else f"{hop.lookback} keys"
        read.append(f"\nby its lookback: the {keys} after it read it, too", "dim")
    return Text(names(hop.job)), Text(keys_in_words(hop.keys)), read
