"""What `status`, `report`, `history` and `plan diff` show of their documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.render import apart, table
from lineage_backfill.model import DatasetRef, JobRef, RunState
from lineage_backfill.presentation.backfills import (
    ended,
    left_stale,
    names_in,
    particulars,
    seconds,
    to_the_second,
    together,
    took,
    who_and_when,
)
from lineage_backfill.presentation.names import Names, keys_in_words, keys_on_a_line
from lineage_backfill.presentation.text import counted, safe
from lineage_backfill.presentation.words import in_words

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
#: What a report says of single partitions.
_NOTED = {
    "missing": "yellow",
    "unexpected": "yellow",
    "emptied": "yellow",
    "appeared": "green",
    "vanished": "yellow",
    "cut_off": "dim",
}
_CHANGES = {"added": ("+", "green"), "removed": ("-", "red")}
#: How many runs, jobs and names are listed one by one; `--json` has all.
_SHOWN_RUNS = 100
_SHOWN_JOBS = 200
_SHOWN_NAMES = 8

Document = Mapping[str, Any]


def history_table(document: Document) -> RenderableType:
    """Return the list of backfills."""
    if not document["backfills"]:
        return Text("No backfill has been run here yet.")
    rows = table("Backfill", "State", "Started", "Ended")
    for one in document["backfills"]:
        rows.add_row(
            safe(one["id"]), state(one["state"]), to_the_second(one["submitted_at"]), ended(one)
        )
    return rows


def status_table(document: Document) -> RenderableType:
    """Return where a backfill stands: its totals, and its runs, the unfinished ones first."""
    return Group(*apart([_heading(document), _runs(document)]))


def state(text: str) -> Text:
    """Return a state in its colour."""
    return Text(safe(text), style=_STYLES.get(text, ""))


def _heading(document: Document) -> Text:
    totals = document["totals"]
    parts = ", ".join(f"{totals[one]:,} {one}" for one in RunState if totals[one])
    return Text.assemble(
        _title(document),
        f"\n{counted(totals['runs'], 'run')}{': ' if parts else ''}{parts}",
        f"\nsubmitted {to_the_second(document['submitted_at'])}"
        f"{' by ' if document['submitted_by'] else ''}{safe(document['submitted_by'])}",
        f"\nstarted {to_the_second(document['started_at'])}, ended {ended(document)}",
        *(f"\n{words} {safe(told)}" for words, told in particulars(document) if told),
    )


def _runs(document: Document) -> RenderableType:
    names = Names(JobRef(**run["job"]) for run in document["runs"])
    rows = table("State", "Job", "Partitions", "Tries", "Took")
    for number in (3, 4):
        rows.columns[number].justify = "right"
    groups = together(document["runs"])
    for run in groups[:_SHOWN_RUNS]:
        keys = Text(keys_on_a_line(tuple(run["partitions"])))
        if run["error"]:
            keys.append(f"\n{safe(run['error'])}", style=_STYLES.get(run["state"], ""))
        elif run["cut_off"]:
            keys.append(f"\nwithout {keys_on_a_line(tuple(run['cut_off']))}", style="dim")
        rows.add_row(
            state(run["state"]),
            Text(names(JobRef(**run["job"]))),
            keys,
            str(run["attempt"] or ""),
            took(run),
        )
    more = len(groups) - _SHOWN_RUNS
    if more > 0:
        rows.add_row("", Text(f"and {more:,} more; --json lists all", style="dim"))
    return rows


def report_table(document: Document) -> RenderableType:
    """Return what was touched beside what was planned, and what did not succeed."""
    names = names_in(document)
    took = {JobRef(**one["job"]): one["seconds"] for one in document["times"]}
    rows = table(
        "", "Dataset", "Planned", "Touched", "Changed", "Rows before", "Rows after", "Took"
    )
    notes = Text()
    for number in range(2, 8):
        rows.columns[number].justify = "right"
    for one in document["outputs"]:
        dataset = names(DatasetRef(**one["dataset"]))
        rows.add_row(
            Text("✓", style="green") if one["exact"] else Text("✗", style="red"),
            Text(dataset),
            *(f"{one[what]['count']:,}" for what in ("planned", "touched", "changed")),
            *(f"{one[what]:,}" for what in ("rows_before", "rows")),
            seconds(took.get(JobRef(**one["job"]))),
        )
        for what, style in _NOTED.items():
            if one[what]["count"]:
                keys = keys_on_a_line(tuple(one[what]["partitions"]))
                words = what.replace("_", " ")
                notes.append(f"\n{dataset}: {one[what]['count']:,} {words}, {keys}", style=style)
    verdict = (
        Text("Touched is what was planned.", style="green")
        if document["touched_is_planned"]
        else Text("Touched is not what was planned.", style="red")
    )
    title = _title(document).append(f"\n{who_and_when(document)}")
    if document["reason"]:
        title.append(f"\nwhy: {safe(document['reason'])}")
    parts: list[RenderableType] = [title, rows, verdict.append_text(notes)]
    if document["not_succeeded"]:
        parts.append(_not_succeeded(document["not_succeeded"], names))
    if document["not_planned"]:
        parts.append(_not_planned(document["not_planned"], names))
    return Group(*apart(parts))


def difference_table(document: Document) -> RenderableType:
    """Return what differs between two plans, and what moved below them."""
    if not document["differ"]:
        return Text("The two plans would run the same.", style="green")
    parts: list[RenderableType] = []
    if document["jobs"]:
        parts.append(_differing(document["jobs"]))
    if document["lineage_moved"]:
        parts.append(_moved(document["moved"]))
    return Group(*apart(parts))


def _differing(jobs: Sequence[Document]) -> RenderableType:
    names = Names(JobRef(**one["job"]) for one in jobs)
    rows = table("", "Job", "Before", "After")
    for one in jobs[:_SHOWN_JOBS]:
        cells = (_planned_as(one[side], one["changes"], names) for side in ("before", "after"))
        rows.add_row(_mark(one), Text(names(JobRef(**one["job"]))), *cells)
    more = len(jobs) - _SHOWN_JOBS
    if more > 0:
        rows.add_row("", Text(f"and {more:,} more; --json lists all", style="dim"))
    return rows


def _mark(job: Document) -> Text:
    return Text(*_CHANGES.get(job["changes"][0], ("~", "yellow")))


def _planned_as(job: Document | None, changes: Sequence[str], names: Names) -> Text:
    """Return what a plan says of a job, as far as it matters to the difference."""
    if job is None:
        return Text("-", style="dim")
    parts = []
    if job["status"] != "planned" or "status" in changes:
        parts.append(job["status"].replace("_", " "))
    if job["partitions"]:
        parts.append(keys_in_words(tuple(job["partitions"]), shown=3))
    if job["left_stale"]:
        parts.append(f"left stale: {keys_on_a_line(tuple(job['left_stale']))}")
    if "reason" in changes:
        parts.append(in_words(job["reason"], names))
    return Text("\n".join(parts))


def _moved(names: Sequence[str]) -> Text:
    more = len(names) - _SHOWN_NAMES
    return Text.assemble(
        ("Moved  ", "bold"),
        "other edges or declarations hold for ",
        ", ".join(safe(name) for name in names[:_SHOWN_NAMES]) or "what the plans rest on",
        f" and {more:,} more" if more > 0 else "",
    )


def _not_succeeded(groups: Iterable[Document], names: Names) -> RenderableType:
    rows = table("Did not succeed", "State", "Runs", "Why")
    for one in groups:
        job = Text(names(JobRef(**one["job"])))
        rows.add_row(job, state(one["state"]), f"{one['runs']:,}", safe(one["error"] or ""))
    return rows


def _not_planned(jobs: Iterable[Document], names: Names) -> RenderableType:
    rows = table("Was not planned", "Left stale", "Why")
    for one in jobs:
        job = Text(names(JobRef(**one["job"])))
        rows.add_row(job, left_stale(one), in_words(one["reason"], names))
    return rows


def _title(document: Document) -> Text:
    title = Text.assemble(
        ("Backfill ", "bold"), f"{safe(document['id'])}  ", state(document["state"])
    )
    for what, words in (("undo_of", "the undo of"), ("undone_by", "undone by")):
        if document[what]:
            title.append(f", {words} {safe(document[what])}")
    return title
