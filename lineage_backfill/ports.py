"""What the core needs from outside: small protocols that adapters implement."""

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
    """Reads lineage; a partial answer is an error, never a smaller graph."""

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError where it cannot be read in full."""


@runtime_checkable
class EventSample(Protocol):
    """A source of lineage that can show some of its events as they were sent."""

    def sample(self, most: int) -> list[Any]:
        """Return up to so many events; raises LineageError where they cannot be read."""


#: A partition of a table: a text, or None for NULL, of each partition column.
TablePartition = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """Partitions changed by commits in (after, until].

    `columns` maps each partition column to its type; a partition maps it to a text, None for NULL.
    """

    after: int
    until: int
    columns: Mapping[str, str]
    partitions: tuple[TablePartition, ...]


class TablePlace(NamedTuple):
    """Location or catalog name of a table, and its format."""

    location: str | None
    table: str | None = None
    format: str = "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One commit, with the partitions that no later commit wrote.

    `version` is None where files of a Parquet table changed without a commit. `changed` are the
    partitions whose contents it changed, `made` those that it wrote, also with equal contents or
    none. `job` and the versions of the inputs that it `read` are given where they are known.
    """

    version: int | None
    at: datetime
    changed: tuple[TablePartition, ...]
    made: tuple[TablePartition, ...]
    job: str | None
    read: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """The last change of each partition of a table, and how it was made.

    `version` is None where there is no table. `old` are partitions whose last commit is no longer
    in the log, which begins at `since`; without `whole` the list may be incomplete.
    """

    version: int | None
    columns: Mapping[str, str]
    commits: tuple[TableCommit, ...]
    old: tuple[TablePartition, ...]
    since: datetime | None
    whole: bool


class TableLogs(Protocol):
    """Reads the logs of tables; an incomplete answer is an error."""

    def histories(self, tables: Sequence[TablePlace]) -> Sequence[TableHistory | TableLogError]:
        """Return the history of each table or its error; raises TableLogError for all of them."""

    def blockers(self, tables: Sequence[TablePlace]) -> Sequence[tuple[str, ...] | TableLogError]:
        """Return what prevents an undo on each table, or its error; raises TableLogError."""

    def changes(
        self,
        *,
        location: str | None,
        table: str | None,
        after: int | None = None,
        since: datetime | None = None,
    ) -> TableChanges:
        """Return the changes after a version or since an instant; exactly one is given.

        Raises TableLogError.
        """


class Clock(Protocol):
    """The current time."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""


class AttemptState(StrEnum):
    """State of an attempt in its engine."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # unknown to the engine

    @property
    def is_final(self) -> bool:
        """Whether the attempt has ended."""
        return self not in (AttemptState.QUEUED, AttemptState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of one attempt; `result` is the parsed result file, where there is one."""

    state: AttemptState
    result: Mapping[str, Any] | None = None
    error: str | None = None
    transient: bool = False


class Origin(StrEnum):
    """Who started what an attempt runs as in its engine, whichever executor follows it now."""

    CREATED = "created"  # this backfill
    RERUN = "re-run"  # was there before, and was started again by this backfill
    ADOPTED = "adopted"  # others; it is followed, and never stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What an attempt runs as in its engine.

    `id` is the name that the engine itself gives it, None where that is unknown. `also_started` are
    those that the engine started by itself because the attempt succeeded.
    """

    origin: Origin
    id: str | None = None
    also_started: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of what an engine runs attempts in, under way or over after these `seconds`."""

    what: str
    seconds: float
    is_over: bool = False


@runtime_checkable
class Engine(Protocol):
    """Runs attempts elsewhere; `token` makes a submission idempotent.

    Subclass it for the defaults: an engine that cannot undo and knows of its own attempts only.
    """

    #: Whether attempts heed `undo` in the run spec; those of any other engine run the job again.
    can_undo: bool = False
    #: Whether any machine can tell what became of an attempt, and not only the one that began it.
    is_shared: bool = False

    def live(self, job: JobRef) -> KeySet | None:
        """Return the run keys that runs from outside work on; None where it cannot know.

        Raises EngineError where it should know and cannot tell.
        """
        return None

    def open(self) -> None:
        """Make ready to submit; raises EnvironmentMissingError, and does no harm when repeated."""
        return

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Raise EngineError where one of these runs could not run here; nothing has begun then.

        `spec_of` makes a run spec that is never handed over.
        """
        return

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener(handle)`, from any thread, whenever an attempt has ended.

        Also when `identify` has another answer than after `submit` or `find`.
        """

    def submit(self, spec_path: Path, token: str) -> str:
        """Submit the run spec and return a handle; a token never starts two attempts."""

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of the attempt with this token, None if it was never begun.

        The listener is notified when it ends, whichever process submitted it. None gives the
        attempt up: a later submission with its token, by an executor that was overtaken while it
        slept, starts nothing.
        """

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        """Return the outcome that an attempt of another machine has left where this one sees it."""
        return None

    def can_tell(self, spec_path: Path, token: str) -> bool:
        """Whether this machine can tell what became of an attempt that another one began."""
        return self.is_shared or self.left(spec_path, token) is not None

    def poll(self, handle: str) -> Outcome:
        """Return the present outcome of the attempt."""

    def starts(self) -> Sequence[Start]:
        """Return the starts that attempts wait for, and once those that are over since."""
        return ()

    def identify(self, handle: str) -> EngineRun | None:
        """Return what the attempt runs as, None as long as nothing runs for it."""
        return EngineRun(origin=Origin.CREATED)

    def cancel(self, handle: str) -> None:
        """Stop the attempt; no-op once it has ended.

        What it has adopted is left running: the attempt ends as cancelled, and its error says so.
        """

    def logs(self, handle: str) -> str:
        """Return the log of the attempt so far."""

    def pack(self, spec_path: Path) -> None:
        """Keep less of an attempt that has succeeded, once that is recorded; `find` finds it."""
        return

    def close(self) -> None:
        """Close processes and connections; running attempts go on, and `find` finds them again."""


class ControlRequest(StrEnum):
    """What a person asks of a running backfill."""

    PAUSE = "pause"  # submit no more, let the running ones end; `resume` goes on
    CANCEL = "cancel"  # submit no more, let the running ones end, cancel the rest
    KILL = "kill"  # cancel, and stop the running ones too


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a backfill runs, kept with it in the run store for every executor that resumes it.

    Without `cutoff` every planned run runs, also where its inputs are unchanged. Without `tail`,
    keys that become complete meanwhile are listed at the end and not run. `max_parallel` None is
    the project's own limit. `project` and `target` name those that it was submitted from.
    """

    cutoff: bool = True
    tail: bool = True
    max_parallel: int | None = None
    project: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is kept with a new backfill beside its plan; instants are aware, in UTC.

    It begins at `scheduled_for`, and starts nothing from `expires_at` on. `parameters` are given to
    every job. `undo_of` is the backfill that this one takes back. Without a `title` the executor
    makes one from the plan.
    """

    title: str = ""
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
        for what, text, most in (
            ("title", self.title, MAX_TITLE),
            ("description", self.description, MAX_DESCRIPTION),
        ):
            if len(text) > most:
                raise UsageError(
                    f"the {what} has {len(text)} characters", hint=f"Use at most {most}."
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


#: How many characters the title and the description of a backfill may have.
MAX_TITLE, MAX_DESCRIPTION = 200, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """State of one run of a backfill; `attempt` is 0 before the first one.

    `token`, `handle`, `engine_run` and the `machine` that submitted it are those of the latest
    attempt. `cut_off` are planned keys that need not run: their inputs are unchanged since their
    last run.
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
    machine: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    cut_off: KeySet = ()
    engine_run: EngineRun | None = None

    @classmethod
    def of(cls, run: PlannedRun, **stands: Any) -> RunRecord:
        """Return the record of a planned run, pending unless `stands` gives another state."""
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
    """One try at a run; `result` is the parsed result file, where there is one."""

    run_id: str
    attempt: int
    token: str
    state: AttemptState
    submitted_at: datetime
    handle: str | None = None
    machine: str | None = None
    ended_at: datetime | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    engine_run: EngineRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """Duration of a past run, in seconds, and its number of keys (None: unknown)."""

    job: JobRef
    count: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event of a backfill (`run_id` None) or of one of its runs."""

    id: int
    run_id: str | None
    at: datetime
    kind: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the last attempt over some run keys of a job read and wrote.

    `contents` is a document of the executor, None where it is unknown: the attempt has not
    succeeded, or left no fingerprints. The store adds the backfill, the time of the submission and
    a `number` that grows from attempt to attempt.
    """

    job: JobRef
    keys: KeySet
    contents: Mapping[str, Any] | None = None
    backfill_id: str = ""
    since: datetime | None = None
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A run enters a state, and its attempt enters `attempt_state` where that is given.

    A move to SUBMITTED opens the attempt and needs its `token` and `machine`; a `trace` starts as
    unknown then, and is completed by the move to SUCCEEDED. `cut_off` are the planned keys that are
    left out. Where `handle` and `engine_run` are None, those that are recorded stay.
    """

    run_id: str
    state: RunState
    attempt: int = 0
    attempt_state: AttemptState | None = None
    token: str | None = None
    machine: str | None = None
    handle: str | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    trace: Trace | None = None
    cut_off: KeySet = ()
    engine_run: EngineRun | None = None

    @property
    def detail(self) -> dict[str, Any]:
        """The detail of the event that records this move."""
        members = {
            "attempt": self.attempt,
            "error": self.error,
            "cut_off": list(self.cut_off),
            "origin": self.engine_run and self.engine_run.origin,
        }
        return {name: value for name, value in members.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to drive one backfill; writes under an older `fence` are refused."""

    backfill_id: str
    owner: str
    fence: int


class Use(NamedTuple):
    """Runs that a backfill has under way, and would have without a cap."""

    active: int = 0
    wanted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lease of a backfill, and until when it holds without a renewal."""

    owner: str
    until: datetime


class Claim(NamedTuple):
    """A backfill, who holds its lease, and how often that was taken."""

    record: BackfillRecord
    holder: Holder | None
    fence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A process that takes backfills of a project and target, alive `until` it says so again."""

    owner: str
    until: datetime
    project: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A JSON document that has to reach a hook; `tries` failed so far."""

    id: str
    hook: str
    body: Mapping[str, Any]
    tries: int = 0


class RunStore(Protocol):
    """The record of backfills, written before anything is done.

    Methods that take a lease raise ConflictError once another executor has taken it over.
    """

    #: Names this store among all stores; part of every token.
    id: str

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[PlannedRun]
    ) -> None:
        """Write a new backfill, its plan document and its runs, all pending.

        An undo marks the backfill that it undoes; raises ConflictError while an executor drives
        that one, or where it is undone already.
        """

    def backfill(self, backfill_id: str) -> BackfillRecord:
        """Return one backfill; raises UnknownNameError."""

    def backfills(self, *, deleted: bool = False) -> tuple[BackfillRecord, ...]:
        """Return the backfills, newest first; those that are deleted only if asked for."""

    def plan(self, backfill_id: str) -> Mapping[str, Any]:
        """Return the plan document of a backfill; raises UnknownNameError."""

    def tails(self, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
        """Return the plan documents that extended a backfill, oldest first."""

    def runs(self, backfill_id: str) -> tuple[RunRecord, ...]:
        """Return the runs of a backfill in the order of its plans."""

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        """Count the runs of each backfill by state; absent states are left out."""

    def attempts(self, backfill_id: str) -> tuple[AttemptRecord, ...]:
        """Return the attempts of a backfill, oldest first."""

    def events(self, backfill_id: str, *, after: int = 0) -> tuple[EventRecord, ...]:
        """Return the events after the one with this id, oldest first."""

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        """Return the traces of a job over keys that may overlap these, newest first.

        Traces of deleted backfills are included: their data is still in the tables.
        """

    def past_runs(self, limit: int) -> tuple[PastRun, ...]:
        """Return durations of succeeded runs, the newest `limit` of each job, without undoes."""

    def add_start(self, engine: str, seconds: float, *, now: datetime) -> None:
        """Record how long an engine took to start what it runs attempts in."""

    def past_starts(self, engine: str, limit: int) -> tuple[float, ...]:
        """Return how many seconds the newest starts of an engine took, the newest first."""

    def time(self, local: datetime) -> datetime:
        """Return the time by which leases go: the database's; `local` where that has no clock."""

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
        """Return the last holder, None if the lease is free; raises UnknownNameError."""

    def keep_to(self, target: str) -> None:
        """Keep backfills of one target only, the first one; raises UsageError for another.

        What was recorded of a table in one target says nothing of that table in another.
        """

    def claim(self, backfill_id: str) -> Claim:
        """Return a backfill with its lease, in one reading; raises UnknownNameError."""

    def open_claims(self) -> tuple[Claim, ...]:
        """Return the backfills that are under way, with their leases, oldest first."""

    def announce(self, driver: Driver) -> None:
        """Record a driver, or that it is still alive."""

    def withdraw(self, owner: str) -> None:
        """Remove a driver; no-op where it is not recorded."""

    def drivers(self) -> tuple[Driver, ...]:
        """Return the drivers that are recorded, also those whose time is over."""

    def renew(self, lease: Lease, *, now: datetime, ttl: timedelta) -> ControlRequest | None:
        """Extend the lease, and return the pending control request."""

    def share(
        self, lease: Lease, uses: Mapping[str, Use], *, now: datetime
    ) -> tuple[Mapping[str, Use], ...]:
        """Record what this backfill uses of each pool; return what other driven backfills use."""

    def release(self, lease: Lease) -> None:
        """Give up the lease and the partition locks; no-op if it was taken over."""

    def lock(self, lease: Lease, writes: Sequence[DatasetPartitions]) -> None:
        """Lock partitions; raises ConflictError naming a backfill that holds some of them."""

    def record(
        self,
        lease: Lease,
        moves: Sequence[Move],
        *,
        now: datetime,
        notices: Sequence[Notice] = (),
    ) -> None:
        """Write moves and notices, all or none; raises StoreError for a move not allowed."""

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
        error: str = "",
        notices: Sequence[Notice] = (),
    ) -> None:
        """Write the state of the backfill and the keys that it leaves; RUNNING sets its start once.

        The `error` that led to it is kept as an event. Notices are written in one transaction with
        the state. Raises StoreError for a move that is not among BACKFILL_MOVES.
        """

    def request_control(
        self, backfill_id: str, control: ControlRequest | None, *, now: datetime
    ) -> None:
        """Leave a request for the executor of the backfill; None withdraws it."""

    def delete(self, backfill_id: str, *, now: datetime) -> None:
        """Mark a backfill as deleted; raises ConflictError while an executor drives it."""

    def prune(self, backfill_id: str, *, now: datetime) -> None:
        """Remove all that is kept of a backfill, except traces and that it was there.

        Raises ConflictError while an executor drives it. Later it is a PrunedError to name it.
        """

    def pruned(self) -> Mapping[str, datetime]:
        """Return the ids of the backfills that were pruned, and when."""

    def add_notices(self, notices: Sequence[Notice], *, now: datetime) -> None:
        """Put notices into the outbox, due at once; one whose id is there stays as it is."""

    def take_notice(
        self, hooks: Collection[str], *, now: datetime, until: datetime
    ) -> Notice | None:
        """Return the first notice that is due to one of these hooks, None if there is none.

        No other process gets it before `until`, unless it is put off or dropped.
        """

    def put_off(self, notice: Notice, *, until: datetime) -> None:
        """Keep a notice that has not reached its hook until a later instant; counts as a try."""

    def drop_notice(self, notice: Notice) -> None:
        """Remove a notice from the outbox."""

    def close(self) -> None:
        """Close connections."""


class Reporter:
    """Hooks that are called while a backfill runs; each does nothing by default."""

    def backfill_started(self, backfill_id: str, plan: Plan, title: str) -> None:
        """Called once the run store holds the backfill."""

    def waiting(self, what: str) -> None:
        """Called when a backfill has to wait, with the reason."""

    def backfill_extended(self, plan: Plan) -> None:
        """Called once the run store holds the runs of a tail."""

    def engine_starting(self, start: Start) -> None:
        """Called about once a second while attempts wait for a start, and when it is over."""

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        """Called after the store has recorded the submission."""

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        """Called after the store has recorded the final state."""

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        """Called after an attempt failed that is retried after `delay`."""

    def stopping(self, running: int, *, hard: bool) -> None:
        """Called when no more runs are submitted; `hard`: the running ones are stopped too."""

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        """Called after the store has recorded the end."""
