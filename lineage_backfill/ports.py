"""What the outside must offer to the core: small protocols that adapters fulfil."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lineage_backfill.errors import TableLogError, UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import BackfillState, JobRef, RunState
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.plan import DatasetPartitions, Plan, PlannedRun


class LineageSource(Protocol):
    """Reads lineage from somewhere; a partial answer is an error, never a smaller graph."""

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError where that cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The partitions of a table that commits after one version, up to another, have changed.

    `columns` names its partition columns and their types; a partition holds a text, or None for
    NULL, of each.
    """

    after: int
    until: int
    columns: Mapping[str, str]
    partitions: tuple[Mapping[str, str | None], ...]


#: A partition of a table: a text, or None for NULL, of each partition column.
TablePartition = Mapping[str, str | None]


class TablePlace(NamedTuple):
    """Where a table is, by its location or its name in the catalog, and how it is stored."""

    location: str | None
    table: str | None = None
    format: str = "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One commit, as far as no later one came over its partitions.

    `version` is None where it was none of the table's own: others changed files of a Parquet table.
    `changed` are those whose contents it changed, `made` those that it wrote, also with the same
    contents or with none. `job` says that it made them, of versions of its inputs that it `read`,
    each where it is known.
    """

    version: int | None
    at: datetime
    changed: tuple[TablePartition, ...]
    made: tuple[TablePartition, ...]
    job: str | None
    read: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """When each partition of a table changed last, and how it was made.

    `version` is None where there is no table. `old` are partitions whose last commit is no longer
    in the log, which begins at `since`; without `whole` there may be more of those.
    """

    version: int | None
    columns: Mapping[str, str]
    commits: tuple[TableCommit, ...]
    old: tuple[TablePartition, ...]
    since: datetime | None
    whole: bool


class TableLogs(Protocol):
    """Tells what changed in tables; a part of the changes is an error, never an answer."""

    def histories(self, tables: Sequence[TablePlace]) -> Sequence[TableHistory | TableLogError]:
        """Return the history of each table, or the error.

        Raises TableLogError where nothing can be read at all.
        """

    def blockers(self, tables: Sequence[TablePlace]) -> Sequence[tuple[str, ...] | TableLogError]:
        """Return what would keep what is written to each table from being undone, or the error.

        Raises TableLogError where nothing can be read at all.
        """

    def changes(
        self,
        *,
        location: str | None,
        table: str | None,
        after: int | None = None,
        since: datetime | None = None,
    ) -> TableChanges:
        """Return what changed in a table, named by its place or in the catalog.

        Exactly one of a version and an instant is given. Raises TableLogError.
        """


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""


class AttemptState(StrEnum):
    """What an engine says of one attempt."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # the engine does not know it (any more)

    @property
    def is_final(self) -> bool:
        """Whether the attempt has ended."""
        return self not in (AttemptState.QUEUED, AttemptState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one attempt; `result` is the result file of FORMATS, where there is one."""

    state: AttemptState
    result: Mapping[str, Any] | None = None
    error: str | None = None
    transient: bool = False


@runtime_checkable
class Engine(Protocol):
    """Runs attempts elsewhere; `token` makes a submission idempotent.

    Subclass it for the defaults: an engine that cannot undo and knows of its own attempts only.
    """

    #: Whether attempts heed `undo` in the run spec; those of any other engine run the job again.
    can_undo: bool = False

    def live(self, job: JobRef) -> KeySet | None:
        """Return the run keys that runs from outside work on; None where it cannot know.

        Raises EngineError where it should know and cannot tell.
        """
        return None

    def open(self) -> None:
        """Make ready to submit; raises EnvironmentMissingError, and does no harm when repeated."""
        return

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener(handle)`, from any thread, whenever an attempt has ended."""

    def submit(self, spec_path: Path, token: str) -> str:
        """Hand over the run spec and return a handle; the same token never starts a second one."""

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of the attempt with this token, None if the engine has none.

        The listener is notified when it ends, whichever process submitted it. None gives the
        attempt up: a later submission with its token, by an executor that was overtaken while it
        slept, starts nothing.
        """

    def poll(self, handle: str) -> Outcome:
        """Return what is known of the attempt now."""

    def cancel(self, handle: str) -> None:
        """Stop the attempt; no-op once it has ended."""

    def logs(self, handle: str) -> str:
        """Return what the attempt has printed so far."""

    def close(self) -> None:
        """Let go of processes and connections; what still runs is stopped."""


class ControlRequest(StrEnum):
    """What a person asks of a backfill while an executor drives it."""

    PAUSE = "pause"  # submit no more, let the running ones end; `resume` goes on
    CANCEL = "cancel"  # submit no more, let the running ones end, cancel the rest
    KILL = "kill"  # cancel, and stop the running ones too


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a backfill is to be run, whoever goes on with it; kept with it in the run store.

    `cutoff` False: all that is planned runs, also where nothing that it reads has changed. `tail`
    False: keys that became complete meanwhile are listed in the end, and not run. `max_parallel`
    None stands for what the project says.
    """

    cutoff: bool = True
    tail: bool = True
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is kept with a new backfill beside its plan; instants are aware, in UTC.

    It begins at `scheduled_for`, and starts nothing from `expires_at` on. `parameters` are given to
    every job. `undo_of` is the backfill that this one takes back.
    """

    submitted_by: str = ""
    description: str = ""
    reason: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    code_version: str = ""
    settings: Settings = field(default_factory=Settings)
    scheduled_for: datetime | None = None
    expires_at: datetime | None = None
    undo_of: str | None = None

    def __post_init__(self) -> None:
        if len(self.description) > MAX_DESCRIPTION:
            raise UsageError(
                f"the description has {len(self.description)} characters",
                hint=f"Use at most {MAX_DESCRIPTION}.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRecord(Submission):
    """What the run store holds of one backfill, without its plan; instants are aware, in UTC.

    `left` holds the jobs with the keys that became complete while it ran and were not run, as
    documents. `undone_by` is the backfill that takes this one back.
    """

    id: str
    plan_id: str
    state: BackfillState
    submitted_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    control: ControlRequest | None = None
    deleted: bool = False
    left: Sequence[Mapping[str, Any]] = ()
    undone_by: str | None = None


#: How many characters the description of a backfill may have.
MAX_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Where one run of a backfill stands; `attempt` is 0 before its first one.

    `token` and `handle` are those of the latest attempt. `cut_off` are the planned keys that need
    not run, for what they read is what they have read before.
    """

    run_id: str
    job: JobRef
    partitions: KeySet
    count: int
    wave: int
    engine: str | None
    state: RunState
    attempt: int = 0
    token: str | None = None
    handle: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    cut_off: KeySet = ()

    @classmethod
    def of(cls, run: PlannedRun, **stands: Any) -> RunRecord:
        """Return the record of a planned run, pending unless something else is said of it."""
        return cls(
            run_id=run.id,
            job=run.job,
            partitions=run.partitions,
            count=run.count,
            wave=run.wave,
            engine=run.engine,
            **{"state": RunState.PENDING, **stands},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One try at a run; `result` is the result file of FORMATS, where there is one."""

    run_id: str
    attempt: int
    token: str
    state: AttemptState
    submitted_at: datetime
    handle: str | None = None
    ended_at: datetime | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """How long a run of a job took, in seconds, over how many keys; None where that is open."""

    job: JobRef
    count: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something that happened to a backfill (`run_id` None) or to one of its runs."""

    id: int
    run_id: str | None
    at: datetime
    kind: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the last attempt over some run keys of a job has read and written.

    `contents` is a document of the executor's, None where that is not known: the attempt has not
    succeeded, or not yet, or it left no fingerprints. The store adds whose attempt it was, when
    that was submitted, and a `number` that grows from attempt to attempt.
    """

    job: JobRef
    keys: KeySet
    contents: Mapping[str, Any] | None = None
    backfill_id: str = ""
    since: datetime | None = None
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A run enters a state; with `attempt_state` its attempt does so too.

    A move to SUBMITTED opens the attempt and needs its `token`. With a `trace` it also begins that
    trace anew, as unknown; a move to SUCCEEDED completes it. `cut_off` are the planned keys that
    are left out.
    """

    run_id: str
    state: RunState
    attempt: int = 0
    attempt_state: AttemptState | None = None
    token: str | None = None
    handle: str | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    trace: Trace | None = None
    cut_off: KeySet = ()

    @property
    def detail(self) -> dict[str, Any]:
        """What the event that stands for this move says."""
        said = {"attempt": self.attempt, "error": self.error, "cut_off": list(self.cut_off)}
        return {name: value for name, value in said.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to drive one backfill; writes under a `fence` that was overtaken are refused."""

    backfill_id: str
    owner: str
    fence: int


class Use(NamedTuple):
    """How many runs a backfill has under way, and how many it would have if nothing capped them."""

    active: int = 0
    wanted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lease of a backfill, and until when without another sign of life."""

    owner: str
    until: datetime


class RunStore(Protocol):
    """The record of backfills; it holds what was decided before anything is done about it.

    Whatever takes a lease raises ConflictError once somebody else has taken the lease over.
    """

    #: Names this store among all stores; part of every token.
    id: str

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[PlannedRun]
    ) -> None:
        """Write a new backfill, its plan document and its runs, all pending.

        One that undoes another marks that as undone; raises ConflictError while that is driven, or
        where it was undone before.
        """

    def backfill(self, backfill_id: str) -> BackfillRecord:
        """Return one backfill; raises UnknownNameError."""

    def backfills(self) -> tuple[BackfillRecord, ...]:
        """Return all that are not deleted, the newest first."""

    def plan(self, backfill_id: str) -> Mapping[str, Any]:
        """Return the plan document of a backfill; raises UnknownNameError."""

    def tails(self, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
        """Return the plan documents by which a backfill was extended, the oldest first."""

    def runs(self, backfill_id: str) -> tuple[RunRecord, ...]:
        """Return the runs of a backfill in the order of its plans."""

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        """Return how many runs of each backfill are in each state; only states that occur."""

    def attempts(self, backfill_id: str) -> tuple[AttemptRecord, ...]:
        """Return the attempts of a backfill, the oldest first."""

    def events(self, backfill_id: str, *, after: int = 0) -> tuple[EventRecord, ...]:
        """Return what happened after the event with that id, the oldest first."""

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        """Return the traces of a job over keys that may meet these, the newest first.

        Those of deleted backfills are among them: they say what the tables hold.
        """

    def past_runs(self, limit: int) -> tuple[PastRun, ...]:
        """Return how long runs took that succeeded: the newest of each job, at most `limit`.

        What was cut off does not count among their keys. Undoes are not among them.
        """

    def acquire(
        self,
        backfill_id: str,
        owner: str,
        *,
        now: datetime,
        ttl: timedelta,
        is_dead: Callable[[str], bool] | None = None,
    ) -> Lease:
        """Take the lease; raises ConflictError while another owner, not dead, holds it."""

    def holder(self, backfill_id: str) -> Holder | None:
        """Return who took the lease last; None if it was given back, or never taken.

        Raises UnknownNameError.
        """

    def renew(self, lease: Lease, *, now: datetime, ttl: timedelta) -> ControlRequest | None:
        """Hold the lease for longer, and return what a person has asked for meanwhile."""

    def share(
        self, lease: Lease, uses: Mapping[str, Use], *, now: datetime
    ) -> tuple[Mapping[str, Use], ...]:
        """Tell what of each pool this backfill uses; return what others, driven now, have told."""

    def release(self, lease: Lease) -> None:
        """Give the lease and the partition locks back; no error if it was taken over."""

    def lock(self, lease: Lease, writes: Sequence[DatasetPartitions]) -> None:
        """Lock partitions; raises ConflictError naming another backfill that has some of them."""

    def record(self, lease: Lease, moves: Sequence[Move], *, now: datetime) -> None:
        """Write moves, all or none; raises StoreError for one that is not allowed."""

    def extend(
        self, lease: Lease, plan: Mapping[str, Any], runs: Sequence[PlannedRun], *, now: datetime
    ) -> None:
        """Add a tail: its plan document and its runs, all pending."""

    def enter(
        self,
        lease: Lease,
        state: BackfillState,
        *,
        now: datetime,
        left: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the state of the backfill and what it leaves; RUNNING starts it the first time.

        Raises StoreError for a move that is not among BACKFILL_MOVES.
        """

    def request_control(
        self, backfill_id: str, control: ControlRequest | None, *, now: datetime
    ) -> None:
        """Leave a request for the executor of the backfill; None takes it back."""

    def delete(self, backfill_id: str, *, now: datetime) -> None:
        """Mark a backfill as deleted; raises ConflictError while somebody drives it."""

    def close(self) -> None:
        """Let go of connections."""


class Reporter:
    """Told what happens while a backfill runs; every hook does nothing by default."""

    def backfill_started(self, backfill_id: str, plan: Plan) -> None:
        """Called once the backfill stands in the run store."""

    def waiting(self, what: str) -> None:
        """Called when a backfill has to wait before it begins or goes on, with what for."""

    def backfill_extended(self, plan: Plan) -> None:
        """Called once the runs of a tail stand in the run store."""

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        """Called after the store has recorded the submission."""

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        """Called after the store has recorded the final state."""

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        """Called after an attempt failed that is tried again after `delay`."""

    def stopping(self, running: int, *, hard: bool) -> None:
        """Called when no more runs are submitted; `hard`: the running ones are stopped too."""

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        """Called after the store has recorded the end."""
