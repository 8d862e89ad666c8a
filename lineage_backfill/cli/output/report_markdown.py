"""The report of a backfill as Markdown, for an incident page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lineage_backfill.cli.output.formats import code, markdown_table, plain
from lineage_backfill.cli.terminal import moment
from lineage_backfill.show import backfills

Document = Mapping[str, Any]


def report_markdown(document: Document) -> str:
    """Return a report as Markdown: verdict, partitions rewritten, partitions not, and why."""
    return "\n\n".join(_parts(document)) + "\n"


def _parts(document: Document) -> Iterator[str]:
    names = backfills.names_in(document)
    yield f"### {plain(document['title'] or 'Backfill')}: {plain(document['state'])}"
    run = f"Backfill {code(document['id'])}, run {plain(backfills.who_and_when(document, moment))}"
    yield f"{run}. Plan {code(document['plan'])}."
    for one, words in (("undo_of", "It undoes"), ("undone_by", "It was undone by")):
        if document[one]:
            yield f"{words} {code(document[one])}."
    if document["reason"]:
        yield f"> {plain(document['reason'])}"
    sentences = dict.fromkeys((backfills.repaired(document), backfills.verdict(document)))
    yield f"**{' '.join(sentences)}**"
    outputs = list(backfills.outputs(document, names))
    if outputs:
        rows = ((code(dataset), *cells) for _, dataset, cells in outputs)
        heading = "|".join(("Dataset", *backfills.OUTPUTS))
        yield markdown_table(heading, "-" + "|-:" * len(backfills.OUTPUTS), rows)
    noted = [
        f"- {code(dataset)}: {number}, {code(keys)}"
        for one, dataset, _ in outputs
        for _, number, keys in backfills.notes(one)
    ]
    if noted:
        yield "\n".join(noted)
    lost = [
        (code(job), code(dataset), code(keys), plain(why))
        for job, dataset, keys, why in backfills.missing_inputs(document, names)
    ]
    if lost:
        yield "**Missing inputs**"
        yield markdown_table("Job|Input|Partitions|Why", "-|-|-|-", lost)
    if document["not_succeeded"]:
        failed = (
            (code(job), plain(state), runs, plain(error))
            for job, state, runs, error in backfills.not_succeeded(document, names)
        )
        yield "**Did not succeed**"
        yield markdown_table("Job|State|Runs|Why", "-|-|-:|-", failed)
    for title, columns, lines in backfills.started_by_others(document, names):
        yield f"**{plain(title)}**"
        shown = (tuple(map(code, line)) for line in lines[: backfills.SHOWN])
        yield markdown_table("|".join(columns), "|".join("-" * len(columns)), shown)
        if (more := len(lines) - backfills.SHOWN) > 0:
            yield f"and {more:,} more"
    if document["not_planned"]:
        left = (
            (code(job), code(keys) if keys else "", plain(why))
            for job, keys, why in backfills.not_planned(document, names)
        )
        yield "**Not planned**"
        yield markdown_table("Job|Left stale|Why", "-|-|-", left)
