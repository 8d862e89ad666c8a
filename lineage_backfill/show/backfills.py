"""Sentences and columns for the documents of `status`, `report` and `history`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.show.names import Names, keys_on_a_line
from lineage_backfill.show.plans import GROUPED_ABOVE
from lineage_backfill.show.text import UNKNOWN, Moment, counted, safe
from lineage_backfill.show.words import in_words, measured, time_in_words

Document = Mapping[str, Any]
#: The columns of a report's outputs, after their names.
OUTPUTS = ("Planned", "Rewritten", "Changed", "Rows before", "Rows after", "Took")
#: Words for notes on partitions whose names do not explain them.
_NOTES = {
    "cut_off": "not needed (inputs unchanged)",
    "meanwhile": "changed meanwhile, by this backfill or others",
}
#: Words for who started the run in the engine.
_ORIGINS = {
    "created": "started by this backfill",
    "re-run": "started again by this backfill",
    "adopted": "started by someone else",
}
Row = tuple[str, ...]
#: States in which runs of one job are shown as one row.
_GOOD = (RunState.SUCCEEDED, RunState.SKIPPED)
_ALIKE = (RunState.PENDING, RunState.SKIPPED, RunState.BLOCKED)


def particulars(document: Document, moment: Moment) -> Iterator[tuple[str, str]]:
    """Yield the details of a backfill besides its runs, each with its label."""
    yield "what", document["description"]
    yield "reason", document["reason"]
    for name, value in document["parameters"].items():
        yield "with", f"{name} = {json.dumps(value)}"
    yield "code", document["code_version"]
    yield "starts at", moment(document["scheduled_for"]) if document["scheduled_for"] else ""
    if left := document["time_left"]:
        yield "time", time_in_words(left["seconds"], left["not_estimated"], " left")
    yield "deleted", "yes" if document["deleted"] else ""
    yield "driven by", document["driver"]["owner"] if document["driver"] else ""


def together(runs: Sequence[Document], *, each: bool = False) -> list[Document]:
    """Return the runs in order; runs of one job that wait for the same thing are one row.

    Where there are many, all runs of one job in one state are, unless `each` is wanted.
    """
    are_many = len(runs) > GROUPED_ABOVE and not each
    groups: dict[object, dict[str, Any]] = {}
    for run in runs:
        waits = are_many or (run["state"] in _ALIKE and not run["attempt"])
        group = (run["state"], *run["job"].values(), run["error"]) if waits else run["id"]
        if group in groups:
            groups[group]["partitions"] += run["partitions"]
            groups[group]["ended_at"] = None  # several runs, not one that took so long
        else:
            groups[group] = {**run, "partitions": list(run["partitions"])}
    return list(groups.values())


def outputs(document: Document, names: Names) -> Iterator[tuple[Document, str, tuple[str, ...]]]:
    """Yield each output of a report, its name and the cells of its row, as OUTPUTS names them."""
    took = {JobRef(**one["job"]): one["seconds"] for one in document["times"]}
    for one in document["outputs"]:
        seen = bool(one["touched"]["count"]) and not one["by_log"]
        taken = took.get(JobRef(**one["job"]))
        cells = (
            f"{one['planned']['count']:,}",
            *(_at_least(one[what]["count"], known=one["known"]) for what in ("touched", "changed")),
            *(f"{one[what]:,}" if seen else UNKNOWN for what in ("rows_before", "rows")),
            "" if taken is None else measured(taken),
        )
        yield one, names(DatasetRef(**one["dataset"])), cells


def _at_least(count: int, *, known: bool) -> str:
    if known:
        return f"{count:,}"
    return f"≥ {count:,}" if count else UNKNOWN


def notes(output: Document) -> Iterator[tuple[str, str, str]]:
    """Yield a report's notes on partitions of an output: label, number, keys."""
    for what in (
        "missing",
        "unexpected",
        "emptied",
        "appeared",
        "vanished",
        "cut_off",
        "meanwhile",
    ):
        if output[what]["count"]:
            keys = keys_on_a_line(tuple(output[what]["partitions"]))
            yield what, f"{output[what]['count']:,} {_NOTES.get(what, what)}", keys


def not_succeeded(document: Document, names: Names) -> Iterator[tuple[str, str, str, str]]:
    """Yield the runs that did not succeed: job, state, number and error."""
    for one in document["not_succeeded"]:
        job = names(JobRef(**one["job"]))
        yield job, safe(one["state"]), f"{one['runs']:,}", safe(one["error"] or "")


def not_planned(document: Document, names: Names) -> Iterator[tuple[str, str, str]]:
    """Yield the jobs that a plan left out: name, keys left stale, and why."""
    for one in document["not_planned"]:
        keys = keys_on_a_line(tuple(one["left_stale"])) if one["left_stale"] else ""
        yield names(JobRef(**one["job"])), keys, in_words(one["reason"], names)


def started_by_others(document: Document, names: Names) -> Iterator[tuple[str, Row, list[Row]]]:
    """Yield tables of runs of others, and of runs that wrote more: title, columns and rows."""
    if document["adopted"]:
        adopted: list[Row] = [
            (
                names(JobRef(**one["job"])),
                keys_on_a_line(tuple(one["partitions"])),
                safe(one["state"]),
                safe(one["engine_run"] or ""),
            )
            for one in document["adopted"]
        ]
        columns = ("Job", "Partitions", "State", "Name in the engine")
        yield "Started by someone else", columns, adopted
    if document["also_written"]:
        also: list[Row] = [
            (
                names(JobRef(**one["job"])),
                keys_on_a_line(tuple(one["partitions"])),
                ", ".join(names(DatasetRef(**dataset)) for dataset in one["datasets"]),
                safe(one["engine_run"] or ""),
            )
            for one in document["also_written"]
        ]
        columns = ("Job", "Partitions", "Datasets", "Name in the engine")
        yield "Also written, outside the plan", columns, also


def in_engine(attempt: Document) -> str:
    """Return what an attempt runs as in its engine, as text; empty if unknown."""
    name = safe(attempt["engine_run"] or "")
    return ": ".join(part for part in (_ORIGINS.get(attempt["origin"], ""), name) if part)


def missing_inputs(document: Document, names: Names) -> Iterator[tuple[str, str, str, str]]:
    """Yield missing input partitions: job, input, keys, and what is known of them."""
    for one in document.get("missing_inputs", ()):
        for what, means in (
            ("missing", "never written"),
            ("unknown", "empty; the log does not go back far enough to say why"),
        ):
            if one[what]:
                job, dataset = names(JobRef(**one["job"])), names(DatasetRef(**one["dataset"]))
                yield job, dataset, keys_on_a_line(tuple(one[what])), means


def verdict(document: Document) -> str:
    """Return whether a backfill rewrote what it had planned, as a sentence."""
    match document["touched_is_planned"]:
        case None:
            if document["also_written"]:
                return "Its runs also wrote datasets outside the plan, which are not checked."
            if any(one["touched"]["count"] for one in document["outputs"]):
                return (
                    "Rewritten partitions are not all known: jobs succeeded without a result file."
                )
            return "Rewritten partitions are unknown: jobs succeeded without a result file."
        case True:
            if any(one["cut_off"]["count"] for one in document["outputs"]):
                return (
                    "Every planned partition was rewritten or not needed; no other was rewritten."
                )
            return "Every planned partition was rewritten, and no other."
    return "The rewritten partitions differ from those planned."


def outcome(status: Document, report: Document | None = None) -> str:
    """Return the outcome of a backfill in one sentence; `report` adds what it rewrote."""
    runs = counted(status["totals"]["runs"], "run")
    if status["state"] == BackfillState.SUCCEEDED:
        return f"Done: {runs} succeeded or were not needed." if report is None else repaired(report)
    failed = status["totals"].get("failed", 0)
    done = sum(status["totals"].get(state, 0) for state in _GOOD)
    stale = sum(run["count"] for run in status["runs"] if run["state"] not in _GOOD)
    what = f"{failed:,} of {runs} failed" if failed else f"{done:,} of {runs} done"
    return f"Stopped: {what}; {_still_stale(stale)}."


def first_failure(status: Document) -> str:
    """Return the first failed run and its error; empty if none failed."""
    failed = (run for run in status["runs"] if run["state"] == RunState.FAILED)
    for run in failed:
        return f"{run['job']['name']} {keys_on_a_line(tuple(run['partitions']))}: {run['error']}"
    return ""


def repaired(report: Document) -> str:
    """Return what a backfill repaired in one sentence, from its report alone."""
    outputs = report["outputs"]
    if report["state"] != BackfillState.SUCCEEDED:
        lost = (one["runs"] for one in report["not_succeeded"] if one["state"] == RunState.FAILED)
        stale = sum(one["missing"]["count"] for one in outputs)
        return f"Stopped: {counted(sum(lost), 'run')} failed; {_still_stale(stale)}."
    if not report["touched_is_planned"]:
        return verdict(report)
    rewritten = [one for one in outputs if one["touched"]["count"]]
    skipped = {
        tuple(one["job"].values())
        for one in outputs
        if one["cut_off"]["count"] and not one["touched"]["count"]
    }
    if skipped and not any(one["changed"]["count"] for one in outputs):
        jobs, were = counted(len(skipped), "downstream job"), "was" if len(skipped) == 1 else "were"
        same = "what was rewritten came out as before"
        return f"Your fix changed nothing: {same}; {jobs} {were} not needed."
    partitions = sum(one["touched"]["count"] for one in rewritten)
    much = f"{counted(len(rewritten), 'table')}, {counted(partitions, 'partition')}"
    verb = "Restored" if report["undo_of"] else "Repaired"
    return f"{verb}: {much} rewritten exactly as planned."


def _still_stale(number: int) -> str:
    return f"{counted(number, 'partition')} {'is' if number == 1 else 'are'} still stale"


def mark(holds: bool | None) -> str:
    """Return the sign for true, false or unknown (None)."""
    return "?" if holds is None else "✓" if holds else "✗"


def colour(holds: bool | None) -> str:
    """Return the colour for true, false or unknown (None)."""
    return "yellow" if holds is None else "green" if holds else "red"


def names_in(document: Document) -> Names:
    """Return the function that shortens names in a report."""
    inputs = document.get("missing_inputs", ())
    parts = ("outputs", "not_succeeded", "not_planned", "adopted")
    jobs = (*(one for part in parts for one in document[part]), *inputs)
    written = [one for run in document["also_written"] for one in run["datasets"]]
    seen = [one["dataset"] for one in (*document["outputs"], *inputs)]
    datasets = (DatasetRef(**one) for one in (*seen, *written))
    return Names((*datasets, *(JobRef(**one["job"]) for one in jobs)))


def who_and_when(document: Document, moment: Moment) -> str:
    """Return who ran a backfill, and its start and end."""
    by = f"by {safe(document['submitted_by'])}, " if document["submitted_by"] else ""
    return f"{by}from {moment(document['submitted_at'])} to {moment(document['ended_at'])}"


def took(run: Mapping[str, Any]) -> str:
    """Return the duration of a run's last attempt; empty while it runs."""
    if run["started_at"] is None or run["ended_at"] is None:
        return ""
    ended, started = (datetime.fromisoformat(run[one]) for one in ("ended_at", "started_at"))
    return measured((ended - started).total_seconds())
