"""Documents of backfills: `status`, `report`, `history`, runs and notifications."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from lineage_backfill.show.printed.common import (
    Count,
    EngineRun,
    Hash,
    JobKeys,
    Keys,
    Moment,
    Name,
    OneOrMore,
    Origin,
    Part,
    RunState,
)
from lineage_backfill.show.printed.plans import JobStatus, Reason

Title: TypeAlias = Annotated[str, "As given, or made from the plan of the backfill."]


class Backfill(TypedDict):
    """The record of a backfill."""

    id: str
    state: Literal[
        "scheduled", "running", "succeeded", "failed", "paused", "interrupted", "cancelled"
    ]
    plan: Hash
    title: Title
    changed: Annotated[str, "The first dataset or job that changed, with its keys in short."]
    description: str
    reason: str
    parameters: dict[str, Any]
    code_version: str
    scheduled_for: Moment | None
    max_parallel: OneOrMore | None
    deleted: bool
    submitted_by: str
    submitted_at: Moment
    started_at: Moment | None
    updated_at: Moment
    ended_at: Moment | None
    left: Annotated[
        list[JobKeys],
        "Keys that became complete while the backfill ran, and were not run.",
    ]
    undo_of: Annotated[str | None, "The backfill that this one undoes."]
    undone_by: Annotated[str | None, "The backfill that undoes this one."]


class Run(TypedDict):
    """A run of a backfill."""

    id: str
    job: Name
    partitions: Keys
    count: Count
    wave: OneOrMore
    engine: str | None
    state: RunState
    attempt: Count
    started_at: Moment | None
    ended_at: Moment | None
    error: str | None
    cut_off: Annotated[Keys, "Planned keys not run: their inputs are unchanged since the last run."]
    origin: Origin
    engine_run: EngineRun


class Driver(TypedDict):
    """The process that drives a backfill, and until when it counts without a sign of life."""

    owner: str
    until: Moment


class RunTotals(TypedDict):
    """The number of runs, in all and in each state."""

    runs: Count
    pending: Count
    submitted: Count
    running: Count
    succeeded: Count
    skipped: Count
    failed: Count
    blocked: Count
    cancelled: Count


class RestOfTime(TypedDict):
    """The estimated seconds that are left; null if no job left has enough past runs."""

    seconds: float | None
    not_estimated: Annotated[Count, "Jobs with fewer than 3 past runs."]


class Status(Backfill):
    """The state of a backfill: what `status --json` and `run --json` print."""

    schema_version: Literal[1]
    kind: Literal["status"]
    driver: Driver | None
    time_left: RestOfTime | None
    totals: RunTotals
    blocked_jobs: list[Name]
    excluded_jobs: list[Name]
    runs: list[Run]


class History(TypedDict):
    """The backfills of a run store, newest first: what `history --json` prints."""

    schema_version: Literal[1]
    kind: Literal["history"]
    backfills: list[Backfill]
    hidden: Annotated[Count, "Not listed: deleted."]


class Act(TypedDict):
    """An act on the backfills of a project, done or refused."""

    at: Moment
    who: str
    door: Annotated[str, "`command line`, `python` or `pages`."]
    address: str
    act: str
    backfill: Annotated[str, "Its id; as it was named where the act was refused."]
    plan: str
    reason: str
    refused: Annotated[str, "Why it was not done; empty if it was."]


class Audit(TypedDict):
    """The newest acts: what the page *Audit* of `serve` shows."""

    schema_version: Literal[1]
    kind: Literal["audit"]
    acts: list[Act]


class Attempt(TypedDict):
    """One try at a run."""

    attempt: OneOrMore
    state: Literal["queued", "running", "succeeded", "failed", "cancelled", "lost"]
    submitted_at: Moment
    ended_at: Moment | None
    error: str | None
    origin: Origin
    engine_run: EngineRun


class RunPage(Run):
    """One run of a backfill: what its page of `serve` shows."""

    schema_version: Literal[1]
    kind: Literal["run"]
    backfill: str
    backfill_title: str
    reads: list[Part]
    writes: list[Part]
    upstream: Annotated[list[Run], "The runs whose partitions it reads."]
    attempts: list[Attempt]


class KeySet(TypedDict):
    """Partitions and their number."""

    count: Count
    partitions: Keys


class Output(TypedDict):
    """What a backfill planned and did to a dataset."""

    dataset: Name
    job: Name
    exact: bool | None
    known: NotRequired[Annotated[bool, "Whether all runs reported their writes."]]
    by_log: NotRequired[Annotated[bool, "Read from the log of the table."]]
    meanwhile: NotRequired[Annotated[KeySet, "Not planned, and changed while such runs went on."]]
    planned: KeySet
    cut_off: KeySet
    touched: KeySet
    changed: KeySet
    emptied: KeySet
    appeared: Annotated[KeySet, "Within a planned `*`, and empty before."]
    vanished: Annotated[KeySet, "Within a planned `*`, and empty now."]
    missing: KeySet
    unexpected: KeySet
    rows_before: Count
    rows: Count
    merged: NotRequired[Annotated[dict[str, Count], "Rows inserted, updated and deleted."]]
    versions: list[int]


class NotSucceeded(TypedDict):
    """Runs of a job that did not succeed."""

    job: Name
    state: RunState
    runs: OneOrMore
    error: str | None


class JobTimes(TypedDict):
    """When a job ran; `seconds` adds up its attempts."""

    job: Name
    runs: OneOrMore
    attempts: OneOrMore
    started_at: Moment
    ended_at: Moment
    seconds: float


class AdoptedRun(TypedDict):
    """A run that follows what someone else started in the engine."""

    run: str
    job: Name
    partitions: Keys
    state: str
    engine: str | None
    engine_run: str | None


class AlsoWritten(TypedDict):
    """A run whose engine also wrote datasets outside the plan."""

    run: str
    job: Name
    partitions: Keys
    datasets: list[Name]
    engine_run: str | None


class MissingInput(TypedDict):
    """Partitions of an input that were never written, or that may not have been."""

    job: Name
    dataset: Name
    missing: Keys
    unknown: Keys


class NotPlanned(TypedDict):
    """A job that was reached and not planned, or not for all of its keys."""

    job: Name
    status: JobStatus
    left_stale: Keys
    reason: Reason


class Report(Backfill):
    """What a backfill planned and rewrote: what `report --json` prints."""

    schema_version: Literal[1]
    kind: Literal["report"]
    touched_is_planned: bool | None
    outputs: list[Output]
    not_succeeded: list[NotSucceeded]
    times: list[JobTimes]
    adopted: list[AdoptedRun]
    also_written: list[AlsoWritten]
    missing_inputs: list[MissingInput]
    not_planned: list[NotPlanned]


class FailedRun(TypedDict):
    """The first run that failed."""

    id: str
    job: Name
    partitions: Keys
    error: str


class Notification(TypedDict):
    """What a hook of [[notify]] gets: stdin of a command, body of a webhook."""

    schema_version: Literal[1]
    kind: Literal["notification"]
    id: Annotated[str, "The same each time that it is delivered."]
    event: Literal["started", "failed", "finished"]
    at: Moment
    project: str
    backfill: str
    text: str
    title: Title
    runs: NotRequired[int]
    run: NotRequired[FailedRun]
    error: NotRequired[str]
    state: NotRequired[str]


class SavedPlan(TypedDict):
    """A plan that waits to be approved or run."""

    id: Hash
    title: str
    changed: str
    reason: str
    runs: Count
    author: str
    saved_at: Moment
    needs_approval: Annotated[bool, "Whether another user has to approve it before it runs."]
    approved_by: str
    approved_at: Moment | None
    moved: Annotated[str, "What has changed since it was saved; it does not run then."]


class SavedPlans(TypedDict):
    """The saved plans that were neither run nor discarded, newest first."""

    schema_version: Literal[1]
    kind: Literal["saved_plans"]
    plans: list[SavedPlan]
