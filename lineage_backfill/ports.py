"""What the core needs from outside: small protocols that adapters implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lineage_backfill.errors import TableLogError, UsageError
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.lineage.snapshot import ObservedRun as ObservedRun  # noqa: PLC0414 (public)
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plans.notice import Notice
from lineage_backfill.plans.plan import DatasetPartitions, Plan, PlannedRun


@runtime_checkable
class LineageSource(Protocol):
    """Reads lineage; a partial answer is an error, never a smaller graph."""

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError if it cannot be read in full."""


@runtime_checkable
class FoldedSource(LineageSource, Protocol):
    """A lineage source of events, which become one lineage with those of other sources."""

    def fold(self, builder: LineageBuilder) -> list[Notice]:
        """Add all events, and return notices; raises LineageError as `read` does."""


@runtime_checkable
class BuiltSource(LineageSource, Protocol):
    """A lineage source of events that judges all of them first."""

    def built(self) -> tuple[LineageBuilder, list[Notice], datetime]:
        """Return all events, folded, with notices and the time; raises LineageError as `read`."""


@runtime_checkable
class NamingSource(LineageSource, Protocol):
    """A lineage source that names jobs and datasets as other lineage does."""

    def read_beside(self, others: LineageSnapshot) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError as `read` does."""


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
    """Location or catalog name of a table, and its format.

    `by` is the column whose value says which key a row has: its name, "time" or "key", and the
    format of its texts; None if the table is partitioned by its keys. Then each partition of the
    answers has the `first` and the `last` value of a span (None: unbounded): of times the last is
    excluded. A span of others' commits holds the rows of whole files.
    """

    location: str | None
    table: str | None = None
    format: str = "delta"
    by: tuple[str, str, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One commit, with the partitions that no later commit wrote.

    `version` is None if files of a Parquet table changed without a commit. `changed` are the
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

    `version` is None if there is no table. `old` are partitions whose last commit is no longer in
    the log, which begins at `since`; without `whole` the list may be incomplete. `file_seconds` is
    how much time a file spans, in a table by time whose files are copied to replace some rows; None
    where that was not asked for.
    """

    version: int | None
    columns: Mapping[str, str]
    commits: tuple[TableCommit, ...]
    old: tuple[TablePartition, ...]
    since: datetime | None
    whole: bool
    file_seconds: float | None = None


class TableLogs(Protocol):
    """Reads the logs of tables; an incomplete answer is an error."""

    def histories(self, tables: Sequence[TablePlace]) -> Sequence[TableHistory | TableLogError]:
        """Return the history of each table or its error; raises TableLogError for all of them."""

    def changes(
        self, table: TablePlace, *, after: int | None = None, since: datetime | None = None
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
    """Outcome of one attempt; `result` is the parsed result file, if there is one."""

    state: AttemptState
    result: Mapping[str, Any] | None = None
    error: str | None = None
    transient: bool = False


class Origin(StrEnum):
    """Who started an attempt's run in its engine, whichever executor follows it now."""

    CREATED = "created"  # this backfill
    RERUN = "re-run"  # existed before, and was started again by this backfill
    ADOPTED = "adopted"  # others; it is followed, but never stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """The run of an attempt in its engine.

    `id` is its name in the engine, None if unknown. `facts` is a document of the engine: what it
    must know to continue, on any machine.
    """

    origin: Origin
    id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def also_writes(self) -> tuple[DatasetRef, ...]:
        """The datasets that it writes outside the plan, as its facts list them."""
        return tuple(starmap(DatasetRef, self.facts.get("also_writes", ())))

    @property
    def read_since(self) -> datetime | None:
        """The start of the run that it continues: what succeeded then has read nothing later."""
        found = self.facts.get("read_since")
        return datetime.fromisoformat(found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a worker or an application of an engine, `seconds` long so far or in total.

    Starts at the same time have different `id`s. One that has failed is over, too.
    """

    what: str
    seconds: float
    id: int = 0
    is_over: bool = False
    has_failed: bool = False


def list_of(token: str) -> str:
    """Return the name of the list that a token is in, "" if it is in none.

    >>> list_of("store-0a1b.12"), list_of("store-0a1b")
    ('store-0a1b', '')
    """
    return token.rpartition(".")[0]


@runtime_checkable
class Engine(Protocol):
    """Runs attempts elsewhere; `token` makes a submission idempotent.

    Subclass it for the defaults: an engine that cannot undo and only knows its own attempts.
    """

    #: Whether attempts support `undo` in the run spec; otherwise they would run the job again.
    can_undo: bool = False
    #: Whether every machine can determine the outcome of an attempt, not only the one that began
    #: it.
    is_shared: bool = False
    #: Whether it does run specs with `runs`: a list of run specs, one after the other.
    lists: bool = False

    def takes_list(self, job: JobRef) -> bool:
        """Whether runs of this job may be in a list with those of others."""
        return self.lists

    def live(self, job: JobRef) -> KeySet | None:
        """Return the run keys of active runs from outside; None if the engine does not know them.

        Raises EngineError if it should know them but fails.
        """
        return None

    def open(self) -> None:
        """Prepare for submissions; raises EnvironmentMissingError; may be repeated."""
        return

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Raise UnfitRunError if one of these runs cannot run here, before any has begun.

        Raises GuardRailError if one would run more than is planned. `spec_of` makes a run spec that
        is never submitted.
        """
        return

    def waits(self) -> Mapping[str, Collection[str]]:
        """Return the runs that the last checked ones wait for besides their upstream, by run id."""
        return {}

    def also_writes(self) -> Mapping[str, Collection[DatasetRef]]:
        """Return what the last checked runs write outside the plan, by run id."""
        return {}

    def remember(
        self, known: Mapping[str, EngineRun], keep: Callable[[str, int, EngineRun], None]
    ) -> None:
        """Take what the run store knows of the plan's runs by id, and the way to write into it.

        `keep(run_id, attempt, run)` may be called from any thread, before acting on the engine. It
        raises ConflictError once another executor has taken over, StoreError.
        """
        return

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener(handle)`, from any thread, whenever an attempt has ended.

        It is also called when the answer of `identify` has changed since `submit` or `find`.
        """

    def submit(self, spec_path: Path, token: str) -> str:
        """Submit the run spec and return a handle; a token never starts two attempts."""

    def submit_list(self, specs: Mapping[str, Path]) -> list[str]:
        """Submit run specs, by their tokens, as one list and return their handles.

        `create_engine` does this for an engine with `lists`.
        """
        return [self.submit(path, token) for token, path in specs.items()]

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of the attempt with this token, None if it never began.

        The listener is notified when it ends, whichever process submitted it. After None, a later
        submission with this token starts nothing: a replaced executor may still try.
        """

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        """Return the outcome that an attempt of another machine left where this one can read it."""
        return None

    def can_tell(self, spec_path: Path, token: str) -> bool:
        """Whether this machine can determine the outcome of an attempt that another one began."""
        return self.is_shared or self.left(spec_path, token) is not None

    def poll(self, handle: str) -> Outcome:
        """Return the current outcome of the attempt."""

    def starts(self) -> Sequence[Start]:
        """Return the starts that attempts wait for, and those that ended since the last call."""
        return ()

    def identify(self, handle: str) -> EngineRun | None:
        """Return the run of the attempt in the engine, None if there is none yet."""
        return EngineRun(origin=Origin.CREATED)

    def cancel(self, handle: str) -> None:
        """Stop the attempt; no-op once it has ended.

        An adopted run is left running: the attempt ends as cancelled, and its error says so.
        """

    def close(self) -> None:
        """Close processes and connections; running attempts continue, and can be found again."""


class ControlRequest(StrEnum):
    """A user's request to a running backfill; later ones are stronger."""

    PAUSE = "pause"  # submit no more runs, let the running ones end; `resume` continues
    CANCEL = "cancel"  # submit no more runs, let the running ones end, cancel the rest
    KILL = "kill"  # cancel, and also stop the running ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a backfill runs; stored with it for every executor that resumes it.

    Without `cutoff` every planned run runs, even if its inputs are unchanged. Without `tail`, keys
    that become complete meanwhile are listed at the end, but not run. `max_parallel` None means the
    project's own limit. It was submitted from `project` and `target`.
    """

    cutoff: bool = True
    tail: bool = True
    max_parallel: int | None = None
    project: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is stored with a new backfill, in addition to its plan; instants are aware, in UTC.

    It begins at `scheduled_for`. `parameters` are given to every job. `undo_of` is
    the backfill that this one undoes. Without a `title` the executor makes one from the plan.
    """

    title: str = ""
    submitted_by: str = ""
    description: str = ""
    reason: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    code_version: str = ""
    settings: Settings = field(default_factory=Settings)
    scheduled_for: datetime | None = None
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
    """The record of one backfill in the run store, without its plan; instants are aware, in UTC.

    `changed` is the first dataset or job that changed, with its keys in short. `left` holds the
    jobs with the keys that became complete while it ran and were not run, as documents. `undone_by`
    is the backfill that undoes this one.
    """

    id: str
    plan_id: str
    state: BackfillState
    submitted_at: datetime
    updated_at: datetime
    changed: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    control: ControlRequest | None = None
    deleted: bool = False
    left: Sequence[Mapping[str, Any]] = ()
    undone_by: str | None = None


#: The maximum lengths of the title and the description of a backfill.
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
        """Return the record of a planned run; it is pending unless `stands` gives another state."""
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
    """One try at a run; `result` is the parsed result file, if there is one."""

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
    """Duration of a past run, in seconds: of the work itself, without waiting for a worker."""

    job: JobRef
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
    """What the last attempt for some run keys of a job read and wrote.

    `contents` is a document of the executor, None if unknown: the attempt has not succeeded, or has
    no fingerprints. The store adds the backfill, the time of the submission unless the end gives
    another `since`, the end of an attempt that succeeded, and a `number` that grows from attempt
    to attempt.
    """

    job: JobRef
    keys: KeySet
    contents: Mapping[str, Any] | None = None
    backfill_id: str = ""
    since: datetime | None = None
    ended_at: datetime | None = None
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A run enters a state, and its attempt enters `attempt_state` if that is given.

    A move to SUBMITTED opens the attempt and needs its `token` and `machine`; a `trace` starts as
    unknown then, and is completed by the move to SUCCEEDED. `cut_off` are the planned keys that are
    left out. If `handle` or `engine_run` is None, the recorded one is kept.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a backfill's lease, and when the lease ends without a renewal."""

    owner: str
    until: datetime


class Claim(NamedTuple):
    """A backfill, the holder of its lease, and how often the lease was taken."""

    record: BackfillRecord
    holder: Holder | None
    fence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A process that drives backfills of a project and target; alive `until` its next heartbeat."""

    owner: str
    until: datetime
    project: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCursor:
    """Up to which event of a backfill a hook is served.

    The next delivery is due at `due_at`, after so many failed `tries`.
    """

    hook: str
    backfill_id: str
    event: int
    due_at: datetime
    tries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act on the backfills of a project, done or refused.

    `door` is where it came in, `address` the client's, empty on this machine. `plan_id` is that of
    what was started. `refused` says why it was not done. Of two acts with one `key` the first
    holds: a request that is sent twice is done once. `digest` is that of the request's body.
    """

    key: str
    at: datetime
    who: str
    door: str
    verb: str
    backfill_id: str = ""
    plan_id: str = ""
    address: str = ""
    reason: str = ""
    refused: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token that logs a program or a browser in; only its hash is kept."""

    prefix: str
    name: str
    hash: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it logs in."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan that waits to be approved, and to be run as `backfill_id`, or that was discarded.

    `plan` is its document, whose hash is `id`; `submission` is what else was asked for.
    """

    id: str
    plan: Mapping[str, Any]
    submission: Mapping[str, Any]
    author: str
    saved_at: datetime
    approved_by: str = ""
    approved_at: datetime | None = None
    backfill_id: str = ""
    discarded: bool = False


class RunStore(Protocol):
    """The record of backfills, written before every action.

    Methods that take a lease raise ConflictError once another executor has taken it over.
    """

    #: Names this store among all stores; part of every token.
    id: str

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[PlannedRun]
    ) -> None:
        """Write a new backfill, its plan document and its runs, all pending.

        An undo marks the backfill that it undoes; raises ConflictError while an executor drives
        that one, or if it is undone already.
        """

    def backfill(self, backfill_id: str) -> BackfillRecord:
        """Return one backfill; raises UnknownNameError."""

    def backfills(self, *, deleted: bool = False) -> tuple[BackfillRecord, ...]:
        """Return the backfills, newest first; those that are deleted only if asked for."""

    def plan(self, backfill_id: str) -> Mapping[str, Any]:
        """Return the plan document of a backfill; raises UnknownNameError."""

    def tails(self, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
        """Return the plan documents that extended a backfill, oldest first."""

    def runs(
        self, backfill_id: str, *, only: Collection[str] | None = None
    ) -> tuple[RunRecord, ...]:
        """Return the runs of a backfill, or those with these ids, in the order of its plans."""

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        """Count the runs of each backfill by state; absent states are left out."""

    def attempts(self, backfill_id: str) -> tuple[AttemptRecord, ...]:
        """Return the attempts of a backfill, oldest first."""

    def events(self, backfill_id: str, *, after: int = 0) -> tuple[EventRecord, ...]:
        """Return the events after the one with this id, oldest first."""

    def last_event(self, backfill_id: str) -> int:
        """Return the id of the newest event of a backfill; raises UnknownNameError."""

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        """Return the traces of a job over keys that may overlap these, newest first.

        For each set of keys these are the last attempt that succeeded, and a later one.
        Traces of deleted backfills are included: their data is still in the tables.
        """

    def past_runs(self, limit: int) -> tuple[PastRun, ...]:
        """Return durations of succeeded runs, the newest `limit` of each job, without undoes."""

    def time(self, local: datetime) -> datetime:
        """Return the time of the leases' clock: the database's, or `local` if it has none."""

    def acquire(
        self,
        backfill_id: str,
        owner: str,
        *,
        now: datetime,
        ttl: timedelta,
        is_dead: Callable[[str], bool] | None = None,
        hooks: Collection[str] = (),
    ) -> Lease:
        """Take the lease; raises ConflictError while another live owner holds it.

        From here on, events of the backfill are for these hooks, see `hook_cursors`.
        """

    def keep_to(self, target: str) -> None:
        """Reserve the store for the first target; raises UsageError for another one.

        Records about a table in one target do not apply to that table in another.
        """

    def claim(self, backfill_id: str) -> Claim:
        """Return a backfill with its lease, read at once; raises UnknownNameError."""

    def open_claims(self) -> tuple[Claim, ...]:
        """Return the active backfills with their leases, oldest first."""

    def announce(self, driver: Driver) -> None:
        """Record a driver, or that it is still alive."""

    def withdraw(self, owner: str) -> None:
        """Remove a driver; no-op if it is not recorded."""

    def drivers(self) -> tuple[Driver, ...]:
        """Return the recorded drivers, including expired ones."""

    def renew(self, lease: Lease, *, now: datetime, ttl: timedelta) -> ControlRequest | None:
        """Extend the lease, and return the pending control request."""

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
    ) -> None:
        """Write moves, all or none; raises StoreError for a move not allowed."""

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
    ) -> None:
        """Write the state of the backfill and the keys that it leaves; RUNNING sets its start once.

        The `error` that led to it is kept as an event. Raises StoreError for a move that is not
        among BACKFILL_MOVES.
        """

    def request_control(
        self, backfill_id: str, control: ControlRequest | None, *, now: datetime
    ) -> None:
        """Leave a request for the executor of the backfill; None withdraws it.

        One that is weaker than the request before changes nothing: a pause takes back no cancel.
        """

    def delete(self, backfill_id: str, *, now: datetime) -> None:
        """Mark a backfill as deleted; raises ConflictError while an executor drives it.

        An undo that has begun no run no longer counts for the backfill that it was to undo.
        """

    def hook_cursors(self, hook: str, *, now: datetime) -> tuple[HookCursor, ...]:
        """Return the cursors of a hook that are due."""

    def move_cursor(self, cursor: HookCursor, to: HookCursor | None) -> bool:
        """Replace or remove a cursor; False if another process was faster."""

    def begin_act(self, act: Act) -> Act | None:
        """Add an act to the audit; if its key is taken, change nothing and return that act."""

    def end_act(self, act: Act) -> None:
        """Write how an act ended, also one that was not added before."""

    def acts(self, limit: int, *, backfill_id: str | None = None) -> tuple[Act, ...]:
        """Return the acts of the audit, or those on one backfill, newest first."""

    def jobs(self, backfill_id: str | None = None) -> Mapping[str, frozenset[JobRef]]:
        """Return the jobs of every backfill, or of one; without those that do not exist."""

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, newest first."""

    def put_token(self, token: Token) -> None:
        """Write a token, in place of the one with its prefix."""

    def saved_plans(self) -> tuple[SavedPlan, ...]:
        """Return the saved plans that were neither run nor discarded, newest first."""

    def save_plan(self, saved: SavedPlan) -> None:
        """Save a plan; raises ConflictError if it is saved."""

    def change_plan(self, before: SavedPlan, after: SavedPlan) -> None:
        """Approve, run or discard a saved plan; raises ConflictError if it changed meanwhile."""

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
        """Called about once a second while attempts wait for a start, and when it ends."""

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        """Called after the store has recorded the submission."""

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        """Called after the store has recorded the final state."""

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        """Called after an attempt failed that is retried after `delay`."""

    def stopping(self, running: int, *, hard: bool) -> None:
        """Called when no more runs are submitted; with `hard`, running ones are stopped too."""

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        """Called after the store has recorded the end."""
