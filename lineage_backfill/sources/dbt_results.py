"""The runs of the last dbt command, from the `run_results.json` beside a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from lineage_backfill.errors import LineageError
from lineage_backfill.files import read_file, reason
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.sources.parsing import parse

#: Commands that write tables; `compile` and others have results as well.
_COMMANDS = ("build", "retry", "run", "snapshot")
_STATES = {"success": "COMPLETE", "error": "FAIL", "fail": "FAIL", "runtime error": "FAIL"}


def read_results(file: Path, jobs: Mapping[str, JobRef]) -> tuple[ObservedRun, ...]:
    """Return the runs of jobs by dbt's ids; none without a file. Raises LineageError.

    A run of several batches is one of each batch, which share its time equally.
    """
    try:
        document = parse(read_file(file))
        command = document["args"]
        if command["which"] not in _COMMANDS or command.get("empty") or command.get("sample"):
            return ()
        command_id = str(document["metadata"]["invocation_id"])
        return tuple(
            run
            for one in document["results"]
            if (job := jobs.get(one["unique_id"])) is not None
            for run in _runs(one, job, command_id)
        )
    except FileNotFoundError:
        return ()
    except (OSError, RecursionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise LineageError(
            f"{file}: not the results of a dbt command: {reason(error)}",
            hint="Remove the file, or run dbt again: it writes the file at its end.",
        ) from error


def _runs(result: Mapping[str, Any], job: JobRef, command: str) -> Iterator[ObservedRun]:
    whole = next((one for one in result["timing"] if one["name"] == "execute"), None)
    if whole is None:  # skipped
        return
    start, end = _time(whole["started_at"]), _time(whole["completed_at"])
    batches = result.get("batch_results") or {}
    done = [
        (_time(first), _time(last), state)
        for name, state in (("successful", "COMPLETE"), ("failed", "FAIL"))
        for first, last in batches.get(name) or ()
    ]
    if not done and (state := _STATES.get(result["status"])):
        yield ObservedRun(job=job, run_id=command, state=state, started_at=start, ended_at=end)
    for number, (first, last, state) in enumerate(sorted(done)):
        yield ObservedRun(
            job=job,
            run_id=f"{command}/{first.isoformat()}",
            state=state,
            started_at=start + (end - start) * number / len(done),
            ended_at=start + (end - start) * (number + 1) / len(done),
            nominal_start=first,
            nominal_end=last,
        )


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time
