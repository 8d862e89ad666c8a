"""What `status`, `report` and `history` show of their documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.render import Names, apart, counted, keys_on_a_line, table
from lineage_backfill.cli.terminal import safe
from lineage_backfill.model import DatasetRef, JobRef, RunState

_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "submitted": "cyan",
    "pending": "dim",
    "failed": "red",
    "blocked": "yellow",
    "cancelled": "yellow",
    "interrupted": "yellow",
}
#: How many runs are listed one by one; `--json` has all.
_SHOWN_RUNS = 100

Document = Mapping[str, Any]


def history_table(document: Document) -> RenderableType:
    """Return the list of backfills."""
    if not document["backfills"]:
        return Text("No backfill has been run here yet.")
    rows = table("Backfill", "State", "Started", "Ended")
    for one in document["backfills"]:
        rows.add_row(
            safe(one["id"]), state(one["state"]), _instant(one["submitted_at"]), _ended(one)
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
        f"\nstarted {_instant(document['submitted_at'])}, ended {_ended(document)}",
    )


def _runs(document: Document) -> RenderableType:
    names = Names(job_ref(run["job"]) for run in document["runs"])
    rows = table("State", "Job", "Partitions", "Tries", "Took")
    for number in (3, 4):
        rows.columns[number].justify = "right"
    for run in document["runs"][:_SHOWN_RUNS]:
        keys = Text(keys_on_a_line(tuple(run["partitions"])))
        if run["error"]:
            keys.append(f"\n{safe(run['error'])}", style=_STYLES.get(run["state"], ""))
        rows.add_row(
            state(run["state"]),
            Text(names(job_ref(run["job"]))),
            keys,
            str(run["attempt"] or ""),
            _took(run),
        )
    more = len(document["runs"]) - _SHOWN_RUNS
    if more > 0:
        rows.add_row("", Text(f"and {more:,} more; --json lists all", style="dim"))
    return rows


def report_table(document: Document) -> RenderableType:
    """Return what was touched beside what was planned, and what did not succeed."""
    names = Names(
        [DatasetRef(**one["dataset"]) for one in document["outputs"]]
        + [job_ref(one["job"]) for one in document["outputs"]]
    )
    rows = table("", "Dataset", "Planned", "Touched", "Changed", "Rows before", "Rows after")
    for number in range(2, 7):
        rows.columns[number].justify = "right"
    for one in document["outputs"]:
        exact = not one["missing"] and not one["unexpected"]
        rows.add_row(
            Text("✓", style="green") if exact else Text("✗", style="red"),
            Text(names(DatasetRef(**one["dataset"]))),
            *(f"{one[what]:,}" for what in ("planned", "touched", "changed")),
            *(f"{one[what]:,}" for what in ("rows_before", "rows")),
        )
        for what, keys in _differences(one):
            rows.add_row("", Text(f"  {what} {keys_on_a_line(tuple(keys))}", style="yellow"))
    verdict = (
        Text("Touched is what was planned.", style="green")
        if document["touched_is_planned"]
        else Text("Touched is not what was planned.", style="red")
    )
    parts: list[RenderableType] = [_title(document), rows, verdict]
    if document["runs_not_succeeded"]:
        parts.append(_not_succeeded(document["runs_not_succeeded"]))
    return Group(*apart(parts))


def _differences(output: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    for what in ("missing", "unexpected", "emptied"):
        if output[what]:
            yield what, output[what]


def _not_succeeded(runs: Iterable[Mapping[str, Any]]) -> RenderableType:
    runs = list(runs)
    names = Names(job_ref(run["job"]) for run in runs)
    rows = table("Did not succeed", "Partitions")
    for run in runs[:_SHOWN_RUNS]:
        why = f"\n{safe(run['error'])}" if run["error"] else ""
        rows.add_row(
            Text.assemble(names(job_ref(run["job"])), "  ", state(run["state"])),
            Text.assemble(keys_on_a_line(tuple(run["partitions"])), (why, "dim")),
        )
    return rows


def _title(document: Document) -> Text:
    return Text.assemble(
        ("Backfill ", "bold"), f"{safe(document['id'])}  ", state(document["state"])
    )


def job_ref(document: Mapping[str, str]) -> JobRef:
    """Return the job that a document names."""
    return JobRef(document["namespace"], document["name"])


def _instant(text: str | None) -> str:
    """Return an instant to the second, in UTC."""
    return "-" if text is None else f"{text[:19]}Z"


def _ended(document: Document) -> str:
    return _instant(document["ended_at"])


def _took(run: Mapping[str, Any]) -> str:
    if run["started_at"] is None or run["ended_at"] is None:
        return ""
    ended, started = (datetime.fromisoformat(run[one]) for one in ("ended_at", "started_at"))
    return f"{(ended - started).total_seconds():,.1f} s"
