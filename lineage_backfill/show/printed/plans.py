"""Documents of plans: `impact --json` and `impact --why --json`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from lineage_backfill.show.printed.common import (
    Count,
    DatasetKeys,
    Hash,
    Keys,
    Moment,
    Name,
    OneOrMore,
    Part,
)

JobStatus: TypeAlias = Literal["planned", "blocked", "left_stale", "skipped"]


class LogPart(TypedDict):
    """The versions of a table, in (after, until], that name the changed keys."""

    after: Count
    until: Count
    ignored: NotRequired[Annotated[list[str], "Changed partitions that do not exist as keys."]]
    by_files: NotRequired[
        Annotated[Literal[True], "The keys of all rows in changed files, perhaps too many."]
    ]


class ChangedPart(TypedDict):
    """A dataset that changed; without `partitions`, all of it."""

    dataset: Name
    partitions: NotRequired[Keys | None]
    log: NotRequired[LogPart]


class AskedJob(TypedDict):
    """A job to re-run; `exact` keys are not widened by its lookback."""

    job: Name
    partitions: NotRequired[Keys | None]
    exact: NotRequired[Literal[True]]


class PlanRequest(TypedDict):
    """What a plan was made for."""

    changed: NotRequired[list[ChangedPart]]
    jobs: NotRequired[list[AskedJob]]
    columns: NotRequired[list[str]]
    select: NotRequired[list[str]]
    exclude: NotRequired[list[str]]
    depth: NotRequired[OneOrMore]
    exact: NotRequired[bool]
    reverse: NotRequired[bool]
    include_former: NotRequired[bool]
    allow: NotRequired[list[str]]
    target: NotRequired[Annotated[str, "The target of the project file."]]
    ignored_runs: NotRequired[Annotated[list[str], "Runs left out of the lineage (`ignore_runs`)."]]
    author: NotRequired[str]
    reason: NotRequired[str]
    as_of: NotRequired[Annotated[Literal[True], "Made with --now."]]
    withheld: NotRequired[Annotated[list[Name], "Jobs that its author may not run."]]


class PlanLineage(TypedDict):
    """The lineage of a plan; `parts` has a short hash of each job and dataset it rests on.

    `calendars` has the keys of each dataset in words.
    """

    source: str
    hash: Hash
    taken_at: Moment | None
    parts: NotRequired[dict[str, str]]
    calendars: NotRequired[dict[str, str]]


class PathStep(TypedDict):
    """A step from the change to a job, or the number of steps that are `elided`."""

    dataset: NotRequired[Name]
    mapping: NotRequired[str]
    job: NotRequired[Name]
    elided: NotRequired[Count]


class StaleInput(TypedDict):
    """A stale input of a job, and how its keys map to those of the job."""

    dataset: Name
    mapping: str
    inferred: NotRequired[Annotated[bool, "No record tells that all of its runs read it."]]
    from_columns: NotRequired[Annotated[bool, "Only its column lineage names it."]]
    within: NotRequired[Annotated[Name, "The folder or glob by which the job reads it."]]


class Reason(TypedDict):
    """Why a job runs or does not."""

    kind: str
    text: NotRequired[str]
    hint: NotRequired[str]
    by_choice: NotRequired[Literal[True]]
    left: NotRequired[list[str]]
    pruned: NotRequired[list[Name]]
    asked: NotRequired[bool]
    path: NotRequired[list[PathStep]]
    inputs: NotRequired[list[StaleInput]]
    lookback: NotRequired[Count]
    self_dependent: NotRequired[bool]
    inferred: NotRequired[str]


class Job(TypedDict):
    """A job that the change can reach."""

    job: Name
    status: JobStatus
    level: OneOrMore
    partitions: Keys
    count: Count
    left_stale: Keys
    reason: Reason


class PlannedRun(TypedDict):
    """A run of a plan."""

    id: str
    job: Name
    partitions: Keys
    count: Count
    wave: OneOrMore
    upstream: list[str]
    engine: str | None
    reads: list[Part]
    writes: list[Part]


class PlanTotals(TypedDict):
    """How much would run."""

    jobs: Count
    runs: Count
    partitions: Count


class Limits(TypedDict):
    """The guard rails under which a plan was made."""

    max_runs: NotRequired[Count]


class Decision(TypedDict):
    """What needs a decision; `run` refuses a plan with one that is `refused` and not allowed."""

    kind: str
    text: str
    refused: bool


class Plan(TypedDict):
    """A plan: what `impact --json` prints and `run plan.json` executes."""

    schema_version: Literal[1]
    kind: Literal["plan"]
    id: Hash
    now: Moment
    request: PlanRequest
    lineage: PlanLineage
    changed: list[Part]
    jobs: list[Job]
    runs: NotRequired[Annotated[list[PlannedRun], "Absent above the limit `max_runs`."]]
    totals: PlanTotals
    limits: NotRequired[Limits]
    warnings: list[str]
    decisions: NotRequired[list[Decision]]


class Hop(TypedDict):
    """A step from the job back to the change; `dataset` is null if the keys were requested."""

    job: Name
    partitions: Keys
    dataset: Name | None
    mapping: str
    stale: Keys
    lookback: NotRequired[
        Annotated[Count, "That of the job where only it relates the keys; else 0."]
    ]


class PathEnd(TypedDict):
    """Where a path from the change stops; `dataset` is null if the job itself does not run."""

    kind: Literal["reference", "columns", "keys", "calendar", "cut"]
    job: Name
    dataset: Name | None
    sentence: str
    stale: Annotated[Keys, "The stale partitions of that input."]
    needs: Annotated[Keys, "Those that the key in question reads."]
    hint: str


class Explanation(TypedDict):
    """Why a key of a job is planned or not: what `impact --why JOB[@KEY] --json` prints."""

    schema_version: Literal[1]
    kind: Literal["explanation"]
    job: Name
    partitions: Keys
    verdict: Literal["planned", "left_stale", "blocked", "up_to_date", "not_reached"]
    sentence: str
    hint: str
    hops: list[Hop]
    changed: list[DatasetKeys]
    planned: NotRequired[Annotated[Keys, "Other keys of the job, which are planned."]]
    ends: NotRequired[Annotated[list[PathEnd], "Where the paths stop, the nearest first."]]
