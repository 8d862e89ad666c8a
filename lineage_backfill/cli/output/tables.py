"""Tables of `status`, `report` and `history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.output.render import apart, mark, table
from lineage_backfill.cli.terminal import moment
from lineage_backfill.model import JobRef, RunState
from lineage_backfill.partitions.text import in_short
from lineage_backfill.show import backfills
from lineage_backfill.show.names import Names, keys_on_a_line
from lineage_backfill.show.text import UNKNOWN, counted, safe
from lineage_backfill.show.words import ago

_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "submitted": "cyan",
    "pending": "dim",
    "skipped": "dim",
    "failed": "red",
    "blocked": "yellow",
    "cancelled": "yellow",
    "scheduled": "cyan",
    "paused": "yellow",
    "interrupted": "yellow",
}
#: Most runs, jobs and names that are listed one by one; `--json` has all.
_SHOWN_RUNS = 100
Document = Mapping[str, Any]


def history_table(document: Document, *, now: datetime | None = None) -> RenderableType:
    """Return the table of backfills; `now` is the current time."""
    at = now or datetime.now(UTC)
    more = ""
    if hidden := document["hidden"]:
        more = f"{counted(hidden, 'backfill')} deleted: --all shows them."
    if not document["backfills"]:
        return Text(more or "No backfills yet.")
    rows = (
        (
            # The id is a line of its own, so that a title fits a narrow terminal unbroken.
            Text.assemble(
                (safe(one["title"]), "bold"),
                f"\n{safe(one['changed'])}" if one["changed"] not in ("", one["title"]) else "",
                (f"\n{safe(one['id'])}", "dim"),
            ),
            state(one["state"]),
            Text(ago(at - datetime.fromisoformat(one["submitted_at"]))),
            Text(safe(one["submitted_by"]) or UNKNOWN),
        )
        for one in document["backfills"]
    )
    shown = table("Backfill", "State", "Submitted", "By", rows=rows)
    return Group(shown, Text(more, "dim")) if more else shown


def status_table(document: Document) -> RenderableType:
    """Return the state of a backfill: totals, then runs, unfinished ones first."""
    return Group(*apart([_heading(document), _runs(document)]))


def state(text: str) -> Text:
    """Return a state in its colour."""
    return Text(safe(text), style=_STYLES.get(text, ""))


def _heading(document: Document) -> Text:
    totals = document["totals"]
    parts = ", ".join(f"{totals[one]:,} {one}" for one in RunState if totals[one])
    return Text.assemble(
        _title(document),
        _changed(document),
        f"\n{counted(totals['runs'], 'run')}{': ' if parts else ''}{parts}",
        f"\nsubmitted {moment(document['submitted_at'])}"
        f"{' by ' if document['submitted_by'] else ''}{safe(document['submitted_by'])}",
        f"\nstarted {moment(document['started_at'])}, ended {moment(document['ended_at'])}",
        *(
            f"\n{words} {safe(text)}"
            for words, text in backfills.particulars(document, moment)
            if text
        ),
    )


def _runs(document: Document) -> RenderableType:
    names = Names(JobRef(**run["job"]) for run in document["runs"])

    def row(run: Document) -> tuple[RenderableType, ...]:
        keys = Text(keys_on_a_line(tuple(run["partitions"])))
        if run["origin"] == "adopted":
            keys.append(f"\n{backfills.in_engine(run)}", style="dim")
        if run["error"]:
            keys.append(f"\n{safe(run['error'])}", style=_STYLES.get(run["state"], ""))
        elif run["cut_off"]:
            keys.append(f"\nnot needed: {keys_on_a_line(tuple(run['cut_off']))}", style="dim")
        job, took = Text(names(JobRef(**run["job"]))), backfills.took(run)
        return state(run["state"]), job, keys, str(run["attempt"] or ""), took

    groups = backfills.together(document["runs"])
    return table(
        *("State", "Job", "Partitions", "Tries", "Took"),
        rows=map(row, groups[:_SHOWN_RUNS]),
        right=(3, 4),
        more=len(groups) - _SHOWN_RUNS,
        rest="; --json lists all",
    )


def report_table(document: Document) -> RenderableType:
    """Return partitions planned and rewritten, and what did not succeed."""
    names = backfills.names_in(document)
    outputs = list(backfills.outputs(document, names))
    rows: Iterator[tuple[RenderableType, ...]] = (
        (mark(one["exact"]), Text(dataset), *cells) for one, dataset, cells in outputs
    )
    touched = table("", "Dataset", *backfills.OUTPUTS, rows=rows, right=range(2, 8))
    style = backfills.colour(document["touched_is_planned"])
    sentences = dict.fromkeys((backfills.repaired(document), backfills.verdict(document)))
    verdict = Text("\n".join(sentences), style=style)
    for one, dataset, _ in outputs:
        for what, number, keys in backfills.notes(one):
            style = {"cut_off": "dim", "appeared": "green"}.get(what, "yellow")
            verdict.append(f"\n{dataset}: {number}, {keys}", style=style)
    title = (
        _title(document)
        .append(_changed(document))
        .append(f"\n{backfills.who_and_when(document, moment)}")
    )
    if document["reason"]:
        title.append(f"\nreason: {safe(document['reason'])}")
    parts: list[RenderableType] = [title, touched, verdict]
    if lost := list(backfills.missing_inputs(document, names)):
        parts.append(table("Missing for", "Input", "Partitions", "Why", rows=lost))
    if document["not_succeeded"]:
        found = backfills.not_succeeded(document, names)
        failed = ((job, state(text), runs, why) for job, text, runs, why in found)
        parts.append(table("Not succeeded", "State", "Runs", "Why", rows=failed))
    for heading, columns, lines in backfills.started_by_others(document, names):
        most = backfills.SHOWN
        parts.append(table(heading, *columns[1:], rows=lines[:most], more=len(lines) - most))
    if document["not_planned"]:
        left = backfills.not_planned(document, names)
        parts.append(table("Not planned", "Left stale", "Why", rows=left))
    return Group(*apart(parts))


def rows_table(document: Document) -> RenderableType:
    """Return the rows that a backfill or a dry run added, removed and changed in each output."""
    parts: list[RenderableType] = []
    if run := document["dry_run"]:
        job = f"{run['job']['name']} {in_short(run['partitions'])}"
        head = Text.assemble(
            (safe(job), "bold"), "  ran on clones of its tables; the tables are unchanged."
        )
        if first := run["rewritten_first"]:
            head.append(
                f"\nThe plan rewrites {', '.join(safe(one['name']) for one in first)} first; here"
                " they were read as they are now."
            )
        parts.append(head)
    for one in document["outputs"]:
        name = f"{one['dataset']['name']} {in_short(one['partitions'])}"
        versions = ""
        if one["version"] is not None:
            before = UNKNOWN if one["version_before"] is None else one["version_before"]
            versions = f"  version {before} to {one['version']}"
        parts.append(_rows(Text.assemble((safe(name), "bold"), f"{versions}\n"), one))
    return Group(*apart(parts))


def _rows(head: Text, document: Document) -> RenderableType:
    """Return a heading, counts of differing rows, sums, and sample rows."""
    sides = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
    key = document["row_key"]
    how = f"matched by {', '.join(key)}" if key else "compared whole"
    if not document["key_is_unique"]:
        how = "compared whole: the declared row_key is not unique"
    head.append(
        f"{counted(document['rows_before'], 'row')} before, {document['rows_after']:,} after: "
        + ", ".join(
            f"{document[what]['count']:,} {what}" for what in sides if key or what != "changed"
        )
        + f" ({safe(how)})",
        "",
    )
    parts: list[RenderableType] = [head]
    if document["sums"]:
        sums = (
            [safe(one["column"]), one["before"] or UNKNOWN, one["after"] or UNKNOWN]
            for one in document["sums"]
        )
        parts.append(
            table("Sum of", "Before", "After", rows=(map(Text, one) for one in sums), right=(1, 2))
        )
    cells = (
        (Text(mark_, style), Text(safe(_row_in_words(row))))
        for what, (mark_, style) in sides.items()
        for row in document[what]["rows"]
    )
    hidden = sum(document[what]["count"] - len(document[what]["rows"]) for what in sides)
    if any(document[what]["rows"] for what in sides):
        parts.append(table("", "Rows", rows=cells, more=hidden, rest=""))
    return Group(*apart(parts))


def _row_in_words(row: Mapping[str, Any]) -> str:
    return "  ".join(
        f"{name}: {value['before'] or UNKNOWN} → {value['after'] or UNKNOWN}"
        if isinstance(value, dict)
        else f"{name}: {value}"
        for name, value in row.items()
    )


def _changed(document: Document) -> str:
    """Return the line that says what changed, unless the title is that already."""
    changed = safe(document["changed"])
    return f"\nchanged {changed}" if changed and document["title"] != document["changed"] else ""


def _title(document: Document) -> Text:
    title = Text.assemble(
        (safe(document["title"] or "Backfill"), "bold"), "  ", state(document["state"])
    )
    title.append(f"\n{safe(document['id'])}", style="dim")
    for what, words in (("undo_of", "the undo of"), ("undone_by", "undone by")):
        if document[what]:
            title.append(f", {words} {safe(document[what])}")
    return title
