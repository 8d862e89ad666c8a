"""The report of a backfill as Markdown, for an incident's page; names in it stay text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lineage_backfill.cli.formats import code, markdown_table, plain
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.presentation.backfills import left_stale, names_in, seconds, who_and_when
from lineage_backfill.presentation.names import Names, keys_on_a_line
from lineage_backfill.presentation.words import in_words

Document = Mapping[str, Any]

_NOTED = ("missing", "unexpected", "emptied", "appeared", "vanished", "cut_off")


def report_markdown(document: Document) -> str:
    """Return what a report document says: the verdict, what was touched, what was not, and why."""
    names = names_in(document)
    return "\n\n".join(_parts(document, names)) + "\n"


def _parts(document: Document, names: Names) -> Iterator[str]:
    yield f"### Backfill {code(document['id'])}: {plain(document['state'])}"
    yield f"Run {plain(who_and_when(document))}. Plan {code(document['plan'])}."
    for one, words in (("undo_of", "It takes back"), ("undone_by", "It was taken back by")):
        if document[one]:
            yield f"{words} {code(document[one])}."
    if document["reason"]:
        yield f"> {plain(document['reason'])}"
    is_exact = document["touched_is_planned"]
    yield f"**Touched is {'' if is_exact else 'not '}what was planned.**"
    if document["outputs"]:
        heading = "Dataset|Planned|Touched|Changed|Rows before|Rows after|Took"
        yield markdown_table(heading, "-|-:|-:|-:|-:|-:|-:", _outputs(document, names))
    notes = [
        f"- {code(names(DatasetRef(**one['dataset'])))}: {one[what]['count']:,}"
        f" {what.replace('_', ' ')}, {code(keys_on_a_line(tuple(one[what]['partitions'])))}"
        for one in document["outputs"]
        for what in _NOTED
        if one[what]["count"]
    ]
    if notes:
        yield "\n".join(notes)
    if document["not_succeeded"]:
        cells = (
            (
                code(names(JobRef(**one["job"]))),
                plain(one["state"]),
                f"{one['runs']:,}",
                plain(one["error"] or ""),
            )
            for one in document["not_succeeded"]
        )
        yield "**Did not succeed**"
        yield markdown_table("Job|State|Runs|Why", "-|-|-:|-", cells)
    if document["not_planned"]:
        rows = (
            (
                code(names(JobRef(**one["job"]))),
                code(left_stale(one)) if one["left_stale"] else "",
                plain(in_words(one["reason"], names)),
            )
            for one in document["not_planned"]
        )
        yield "**Was not planned**"
        yield markdown_table("Job|Left stale|Why", "-|-|-", rows)


def _outputs(document: Document, names: Names) -> Iterator[tuple[str, ...]]:
    took = {JobRef(**one["job"]): one["seconds"] for one in document["times"]}
    for one in document["outputs"]:
        yield (
            code(names(DatasetRef(**one["dataset"]))),
            *(f"{one[what]['count']:,}" for what in ("planned", "touched", "changed")),
            *(f"{one[what]:,}" for what in ("rows_before", "rows")),
            seconds(took.get(JobRef(**one["job"]))),
        )
