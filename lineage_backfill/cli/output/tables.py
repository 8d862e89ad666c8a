"""Tables of `status`, `report` and `history`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.grid import Grid, mark, table
from lineage_backfill.cli.output.render import SHORT, apart
from lineage_backfill.cli.terminal import moment
from lineage_backfill.model import JobRef, RunState
from lineage_backfill.partitions.text import in_short
from lineage_backfill.show import backfills
from lineage_backfill.show.names import Names, keys_in_short, keys_on_a_line
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
#: The order in which runs are listed.
_ORDER = {
    state: place
    for place, state in enumerate(
        (
            "failed",
            "running",
            "submitted",
            "blocked",
            "cancelled",
            "pending",
            "skipped",
            "succeeded",
        )
    )
}
#: Sign and colour of a note on partitions.
_ODD = ("!", "yellow")
_NOTES = {"cut_off": ("=", "dim"), "appeared": ("+", "green")}
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


def status_table(document: Document, listing: ListOptions = SHORT) -> RenderableType:
    """Return the state of a backfill: a summary, then runs, failed ones first."""
    runs = _runs(document, listing) if document["runs"] else Text("No run matches.", style="dim")
    return Group(*apart([_heading(document), runs]))


def state(text: str) -> Text:
    """Return a state in its colour."""
    return Text(safe(text), style=_STYLES.get(text, ""))


def _heading(document: Document) -> Text:
    totals = document["totals"]
    parts = ", ".join(f"{totals[one]:,} {one}" for one in RunState if totals[one])
    return Text.assemble(
        _title(document),
        f"\n{counted(totals['runs'], 'run')}{': ' if parts else ''}{parts}",
        f"\n{backfills.who_and_when(document, moment)}",
        *(
            f"\n{words} {safe(text)}"
            for words, text in backfills.particulars(document, moment)
            if text
        ),
    )


def _runs(document: Document, listing: ListOptions) -> Grid:
    names = Names(JobRef(**run["job"]) for run in document["runs"])

    def row(run: Document) -> tuple[str | Text, ...]:
        keys = Text(keys_in_short(tuple(run["partitions"])))
        if run["origin"] == "adopted":
            keys.append(f"\n{backfills.in_engine(run)}", style="dim")
        why = Text(safe(run["error"] or ""), _STYLES.get(run["state"], ""))
        if run["cut_off"] and not run["error"]:
            why = Text(f"not needed: {keys_on_a_line(tuple(run['cut_off']))}", style="dim")
        job, took = names(JobRef(**run["job"])), backfills.took(run)
        tries = str(run["attempt"]) if run["attempt"] > 1 else ""
        return state(run["state"]), job, keys, tries, took, why

    groups = backfills.together(document["runs"], each=listing.every)
    groups.sort(key=lambda run: _ORDER[run["state"]])
    headings = ("State", "Job", "Partitions", "Tries", "Took", "Why")
    return table(*headings, rows=map(row, groups), right=(3, 4), listing=listing)


def report_table(document: Document, listing: ListOptions = SHORT) -> RenderableType:
    """Return a summary, what did not succeed, and partitions planned and rewritten."""
    names = backfills.names_in(document)
    exactness = (False, None, True)
    outputs = list(backfills.outputs(document, names))
    outputs.sort(key=lambda one: exactness.index(one[0]["exact"]))
    title = _title(document).append(f"\n{backfills.who_and_when(document, moment)}\n")
    sentences = dict.fromkeys((backfills.repaired(document), backfills.verdict(document)))
    title.append("\n".join(sentences), backfills.colour(document["touched_is_planned"]))
    if document["reason"]:
        title.append(f"\nreason: {safe(document['reason'])}")
    found = sorted(backfills.not_succeeded(document, names), key=lambda row: _ORDER[row[1]])
    rows: Iterable[list[str | Text]]
    rows = ([mark(one["exact"]), name, *cells] for one, name, cells in outputs)
    notes = (
        (Text(*_NOTES.get(what, _ODD)), name, keys, number)
        for one, name, _ in outputs
        for what, number, keys in backfills.notes(one)
    )
    odd = Text(*_ODD)
    parts: list[tuple[tuple[str, ...], Iterable[Iterable[str | Text]], Container[int]]] = [
        (
            ("State", "Not succeeded", "Runs", "Why"),
            ((state(s), j, *r) for j, s, *r in found),
            (2,),
        ),
        (("", "Dataset", *backfills.OUTPUTS), rows, range(2, 8)),
        (("", "Note on", "Partitions", "Note"), notes, ()),
        (
            ("", "Missing for", "Input", "Partitions", "Why"),
            ((odd, *row) for row in backfills.missing_inputs(document, names)),
            (),
        ),
        (
            ("", "Not planned", "Left stale", "Why"),
            ((odd, *row) for row in backfills.not_planned(document, names)),
            (),
        ),
    ]
    parts[3:3] = [
        (("", heading, *columns[1:]), (("=", *line) for line in lines), ())
        for heading, columns, lines in backfills.started_by_others(document, names)
    ]
    tables = (table(*one, rows=rows, right=right, listing=listing) for one, rows, right in parts)
    return Group(*apart([title, *(one for one in tables if one.has_rows)]))


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


def _title(document: Document) -> Text:
    title = Text.assemble(
        (safe(document["title"] or "Backfill"), "bold"), "  ", state(document["state"])
    )
    changed = safe(document.get("changed") or "")
    if changed and changed != document["title"]:
        title.append(f"\nchanged {changed}")
    title.append(f"\n{safe(document['id'])}", style="dim")
    for what, words in (("undo_of", "the undo of"), ("undone_by", "undone by")):
        if document[what]:
            title.append(f", {words} {safe(document[what])}")
    return title
