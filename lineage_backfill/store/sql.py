"""The run store in a database: SQLite for one machine, PostgreSQL for teams."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from lineage_backfill.errors import BackfillError, ConflictError, StoreError, StoreUnreachableError
from lineage_backfill.files import private, private_folder
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plans.plan import DatasetPartitions, PlannedRun
from lineage_backfill.ports import (
    Act,
    AttemptRecord,
    AttemptState,
    BackfillRecord,
    Claim,
    ControlRequest,
    Driver,
    EngineRun,
    EventRecord,
    Holder,
    HookCursor,
    Lease,
    Move,
    Origin,
    PastRun,
    RunRecord,
    RunStore,
    SavedPlan,
    Settings,
    Token,
    Trace,
)
from lineage_backfill.redaction import redacted, remember, secrets_of
from lineage_backfill.store.rules import (
    BACKFILL_SOURCES,
    SOURCES,
    already_undone,
    lease_held,
    lease_lost,
    other_target,
    overlap,
    partitions_locked,
    refused_move,
    refused_state,
    span,
    unknown_backfill,
)
from lineage_backfill.store.schema import (
    REVISIONS,
    VERSION_TABLE,
    acts,
    attempts,
    backfills,
    cursors,
    drivers,
    events,
    leases,
    locks,
    meta,
    runs,
    saved_plans,
    tails,
    tokens,
    traces,
)
from lineage_backfill.store.transitions import MoveRefused, write_moves
from lineage_backfill.store.upgrade import upgrade

#: The address of a store in memory, which ends with its object.
IN_MEMORY = "sqlite://"

_ADDRESSES = "Use sqlite:///FILE, or postgresql+psycopg://… with the extra `postgres`."
#: Seconds that a writer waits for another one.
BUSY_TIMEOUT = 30.0

#: After about half a minute, a vanished server counts as not answering. Options of libpq, in
#: seconds except the last one; those of the address take precedence.
_LIMITS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,  # milliseconds
}

#: The advisory lock for creating the tables: any number that others do not use.
_MIGRATION = 5_622_016_142

#: Readers do not block the writer; a commit is on disk when it returns; large backfills fit into
#: the cache (in KiB), and the log is checkpointed in larger steps (in pages).
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "cache_size = -65536",
    "wal_autocheckpoint = 4000",
)

#: What SQLite says of a file that it cannot read as a database.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_RECORD = [column for column in backfills.c if column.name != "plan"]
_CLAIMS = sa.select(
    *_RECORD, leases.c.owner, leases.c.fence, leases.c.expires_at.label("lease_until")
).select_from(backfills.outerjoin(leases, leases.c.backfill_id == backfills.c.id))


class SqlRunStore(RunStore):
    """Stores backfills in the database at `url`; creates or upgrades its tables on opening.

    Raises StoreError if it cannot be opened, or its schema is unknown to this program.
    """

    def __init__(self, url: str) -> None:
        self._engine = _connect(url)
        self._writer = self._engine.execution_options(lb_writes=True)
        self._is_shared = isinstance(self._engine.pool, sa.StaticPool)
        self._turn: AbstractContextManager[object] = (
            threading.RLock() if self._is_shared else nullcontext()
        )
        self._is_gone = False
        try:
            with self._read() as connection:
                version = _version(connection)
            if version != REVISIONS[-1]:
                self._migrate()
            with self._read() as connection:
                store_id = sa.select(meta.c.value).where(meta.c.name == "store_id")
                self.id: str = connection.execute(store_id).scalar_one()
        except BaseException:
            self.close()
            raise

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs_: Sequence[PlannedRun]
    ) -> None:
        row = {column.name: getattr(record, column.name) for column in _RECORD}
        row["settings"] = asdict(record.settings)
        row["left"] = list(record.left) or None
        with self._write() as connection:
            if record.undo_of is not None:
                _mark_undone(connection, record, record.undo_of)
            connection.execute(sa.insert(backfills).values(row | {"plan": plan}))
            _add_runs(connection, record.id, runs_)
            _log(connection, record.id, record.submitted_at, "created", {})

    def backfill(self, backfill_id: str) -> BackfillRecord:
        query = sa.select(*_RECORD).where(backfills.c.id == backfill_id)
        (row,) = self._rows(query, backfill_id)
        return _backfill(row)

    def backfills(self, *, deleted: bool = False) -> tuple[BackfillRecord, ...]:
        query = sa.select(*_RECORD)
        query = query if deleted else query.where(~backfills.c.deleted)
        rows = self._rows(query.order_by(backfills.c.submitted_at.desc()))
        return tuple(map(_backfill, rows))

    def plan(self, backfill_id: str) -> Mapping[str, Any]:
        query = sa.select(backfills.c.plan).where(backfills.c.id == backfill_id)
        ((plan,),) = self._rows(query, backfill_id)
        return cast(Mapping[str, Any], plan)

    def tails(self, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
        query = sa.select(tails.c.plan).where(tails.c.backfill_id == backfill_id)
        rows = self._rows(query.order_by(tails.c.number), backfill_id)
        return tuple(row.plan for row in rows)

    def runs(
        self, backfill_id: str, *, only: Collection[str] | None = None
    ) -> tuple[RunRecord, ...]:
        latest = sa.and_(
            attempts.c.backfill_id == runs.c.backfill_id,
            attempts.c.run_id == runs.c.run_id,
            attempts.c.attempt == runs.c.attempt,
        )
        query = (
            sa.select(runs, *(attempts.c[name] for name in _LATEST))
            .select_from(runs.outerjoin(attempts, latest))
            .where(runs.c.backfill_id == backfill_id)
            .order_by(runs.c.position)
        )
        if only is not None:
            query = query.where(runs.c.run_id.in_(only))
        return tuple(_run(row) for row in self._rows(query, backfill_id))

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        query = (
            sa.select(runs.c.backfill_id, runs.c.state, sa.func.count().label("number"))
            .where(runs.c.backfill_id.in_(backfills))
            .group_by(runs.c.backfill_id, runs.c.state)
        )
        found: dict[str, dict[RunState, int]] = {one: {} for one in backfills}
        for row in self._rows(query):
            found[row.backfill_id][RunState(row.state)] = row.number
        return found

    def attempts(self, backfill_id: str) -> tuple[AttemptRecord, ...]:
        query = (
            sa.select(attempts)
            .where(attempts.c.backfill_id == backfill_id)
            .order_by(attempts.c.submitted_at, attempts.c.run_id, attempts.c.attempt)
        )
        return tuple(_attempt(row) for row in self._rows(query, backfill_id))

    def events(self, backfill_id: str, *, after: int = 0) -> tuple[EventRecord, ...]:
        query = (
            sa.select(events)
            .where(events.c.backfill_id == backfill_id, events.c.id > after)
            .order_by(events.c.id)
        )
        return tuple(
            EventRecord(id=row.id, run_id=row.run_id, at=row.at, kind=row.kind, detail=row.detail)
            for row in self._rows(query, backfill_id)
        )

    def last_event(self, backfill_id: str) -> int:
        query = sa.select(events.c.id).where(events.c.backfill_id == backfill_id)
        rows = self._rows(query.order_by(events.c.id.desc()).limit(1), backfill_id)
        return int(rows[0].id) if rows else 0

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        first, last = span(keys)
        query = (
            sa.select(traces)
            .where(
                traces.c.job_namespace == job.namespace,
                traces.c.job_name == job.name,
                traces.c.first <= last,
                traces.c.last >= first,
            )
            .order_by(traces.c.id.desc())
        )
        return tuple(
            Trace(
                job=job,
                keys=tuple(row._mapping["keys"]),
                contents=row.contents,
                backfill_id=row.backfill_id,
                since=row.since,
                ended_at=row.ended_at,
                number=row.id,
            )
            for row in self._rows(query)
        )

    def past_runs(self, limit: int) -> tuple[PastRun, ...]:
        job = (runs.c.job_namespace, runs.c.job_name)
        place = sa.func.row_number().over(partition_by=job, order_by=runs.c.ended_at.desc())
        key = ("backfill_id", "run_id", "attempt")
        same = (attempts.c[one] == runs.c[one] for one in key)
        ended = (
            sa.select(*job, runs.c.started_at, runs.c.ended_at)
            .add_columns(attempts.c.result["started_at"].as_string().label("begin"))
            .add_columns(attempts.c.result["ended_at"].as_string().label("end"))
            .add_columns(place.label("place"))
            .join(backfills, backfills.c.id == runs.c.backfill_id)
            .outerjoin(attempts, sa.and_(*same))
            .where(runs.c.state == RunState.SUCCEEDED, backfills.c.undo_of.is_(None))
            .subquery()
        )
        query = sa.select(ended).where(ended.c.place <= limit).order_by(ended.c.place)
        return tuple(
            PastRun(job=JobRef(row.job_namespace, row.job_name), seconds=_own_seconds(row))
            for row in self._rows(query)
        )

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
        with self._write() as connection:
            held = _lease(connection, backfill_id, now, is_dead)
            fence = held.fence + 1 if held else 1
            change: sa.Insert | sa.Update
            if held:
                change = sa.update(leases).where(leases.c.backfill_id == backfill_id)
            elif connection.execute(_exists(backfill_id)).one_or_none():
                change = sa.insert(leases).values(backfill_id=backfill_id)
            else:
                raise _unknown(connection, backfill_id)
            expires_at = now + ttl
            connection.execute(change.values(owner=owner, fence=fence, expires_at=expires_at))
            _follow(connection, backfill_id, hooks, now)
            _log(connection, backfill_id, now, "leased", {"owner": owner, "fence": fence})
            return Lease(backfill_id=backfill_id, owner=owner, fence=fence)

    def keep_to(self, target: str) -> None:
        query = sa.select(meta.c.value).where(meta.c.name == "target")
        with self._read() as connection:
            known = connection.execute(query).scalar_one_or_none()
        if known is None:
            with self._write() as connection:
                row = {"name": "target", "value": target}
                connection.execute(
                    _dialect(connection).insert(meta).on_conflict_do_nothing(), [row]
                )
                known = connection.execute(query).scalar_one()
        if known != target:
            raise other_target(known, target)

    def claim(self, backfill_id: str) -> Claim:
        (row,) = self._rows(_CLAIMS.where(backfills.c.id == backfill_id), backfill_id)
        return _claim(row)

    def open_claims(self) -> tuple[Claim, ...]:
        is_open = backfills.c.state.in_([one for one in BackfillState if one.is_under_way])
        query = _CLAIMS.where(is_open, ~backfills.c.deleted).order_by(backfills.c.submitted_at)
        return tuple(map(_claim, self._rows(query)))

    def announce(self, driver: Driver) -> None:
        with self._write() as connection:
            insert = _dialect(connection).insert(drivers).values(asdict(driver))
            update = insert.on_conflict_do_update(
                index_elements=["owner"], set_={"until": driver.until}
            )
            connection.execute(update)

    def withdraw(self, owner: str) -> None:
        with self._write() as connection:
            connection.execute(sa.delete(drivers).where(drivers.c.owner == owner))

    def drivers(self) -> tuple[Driver, ...]:
        return tuple(Driver(**row._mapping) for row in self._rows(sa.select(drivers)))

    def renew(self, lease: Lease, *, now: datetime, ttl: timedelta) -> ControlRequest | None:
        with self._write(lease) as connection:
            connection.execute(_held(lease).values(expires_at=now + ttl))
            query = sa.select(backfills.c.control).where(backfills.c.id == lease.backfill_id)
            control = connection.execute(query).scalar_one()
        return control and ControlRequest(control)

    def release(self, lease: Lease) -> None:
        with self._write() as connection:
            if connection.execute(_held(lease).values(owner=None)).rowcount:
                connection.execute(sa.delete(locks).where(locks.c.backfill_id == lease.backfill_id))

    def lock(self, lease: Lease, writes: Sequence[DatasetPartitions]) -> None:
        wanted = {write.dataset: write.keys for write in writes}
        with self._write(lease) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text("LOCK TABLE lb_locks IN SHARE ROW EXCLUSIVE MODE"))
            others = sa.select(locks).where(locks.c.backfill_id != lease.backfill_id)
            for row in connection.execute(others):
                dataset = DatasetRef(row.namespace, row.name)
                shared: KeySet = ()
                if dataset in wanted:
                    shared = overlap(wanted[dataset], row.partitions and tuple(row.partitions))
                if shared:
                    raise partitions_locked(row.backfill_id, dataset, shared)
            connection.execute(sa.delete(locks).where(locks.c.backfill_id == lease.backfill_id))
            if wanted:
                rows = [
                    {
                        "backfill_id": lease.backfill_id,
                        "namespace": dataset.namespace,
                        "name": dataset.name,
                        "partitions": keys,
                    }
                    for dataset, keys in wanted.items()
                ]
                connection.execute(sa.insert(locks), rows)

    def record(
        self,
        lease: Lease,
        moves: Sequence[Move],
        *,
        now: datetime,
    ) -> None:
        if not moves:
            return
        try:
            with self._write(lease) as connection:
                write_moves(connection, lease.backfill_id, moves, now)
        except MoveRefused:
            raise self._refusal(lease.backfill_id, moves) from None

    def extend(
        self, lease: Lease, plan: Mapping[str, Any], runs_: Sequence[PlannedRun], *, now: datetime
    ) -> None:
        same = tails.c.backfill_id == lease.backfill_id
        with self._write(lease) as connection:
            count = sa.select(sa.func.count()).select_from(tails).where(same)
            number = connection.execute(count).scalar_one() + 1
            row = {"backfill_id": lease.backfill_id, "number": number, "plan": plan}
            connection.execute(sa.insert(tails).values(row))
            _add_runs(connection, lease.backfill_id, runs_)
            _log(connection, lease.backfill_id, now, "extended", {"runs": len(runs_)})

    def enter(
        self,
        lease: Lease,
        state: BackfillState,
        *,
        now: datetime,
        left: Sequence[Mapping[str, Any]] = (),
        error: str = "",
    ) -> None:
        is_running = state is BackfillState.RUNNING
        values: dict[str, Any] = {
            "state": state,
            "updated_at": now,
            "ended_at": None if state.is_under_way else now,
            "left": list(left) or None,
        }
        if is_running:
            first = sa.literal(now, type_=backfills.c.started_at.type)
            values["started_at"] = sa.func.coalesce(backfills.c.started_at, first)
        stands = sa.select(backfills.c.state).where(backfills.c.id == lease.backfill_id)
        with self._write(lease) as connection:
            old = BackfillState(connection.execute(stands).scalar_one())
            if old not in BACKFILL_SOURCES[state]:
                raise refused_state(lease.backfill_id, old, state)
            _change(connection, lease.backfill_id, values)
            _log(connection, lease.backfill_id, now, state, {"error": error} if error else {})

    def request_control(
        self, backfill_id: str, control: ControlRequest | None, *, now: datetime
    ) -> None:
        every = list(ControlRequest)
        stronger = every[every.index(control) + 1 :] if control else []
        held = backfills.c.control
        kept = sa.case((held.in_(stronger), held), else_=control)
        with self._write() as connection:
            _change(connection, backfill_id, {"control": kept, "updated_at": now})
            _log(connection, backfill_id, now, "control_requested", {"control": control})

    def delete(self, backfill_id: str, *, now: datetime) -> None:
        with self._write() as connection:
            _lease(connection, backfill_id, now)
            _change(connection, backfill_id, {"deleted": True, "updated_at": now})
            begun = sa.select(runs).where(runs.c.backfill_id == backfill_id, runs.c.attempt > 0)
            if not connection.execute(begun.limit(1)).all():  # it has undone nothing
                undone = sa.update(backfills).where(backfills.c.undone_by == backfill_id)
                connection.execute(undone.values(undone_by=None))
            _log(connection, backfill_id, now, "deleted", {})

    def hook_cursors(self, hook: str, *, now: datetime) -> tuple[HookCursor, ...]:
        due = sa.select(cursors).where(cursors.c.hook == hook, cursors.c.due_at <= now)
        rows = self._rows(due.order_by(cursors.c.due_at))
        return tuple(HookCursor(**row._mapping) for row in rows)

    def move_cursor(self, cursor: HookCursor, to: HookCursor | None) -> bool:
        same = sa.and_(*(cursors.c[name] == value for name, value in asdict(cursor).items()))
        change: sa.Update | sa.Delete = sa.delete(cursors).where(same)
        if to is not None:
            change = sa.update(cursors).where(same).values(asdict(to))
        with self._write() as connection:
            return connection.execute(change).rowcount == 1

    def begin_act(self, act: Act) -> Act | None:
        with self._write() as connection:
            insert = _dialect(connection).insert(acts).values(asdict(act))
            connection.execute(insert.on_conflict_do_nothing())
            known = sa.select(acts).where(acts.c.key == act.key)
            kept = Act(**connection.execute(known).one()._mapping)
        return None if kept == act else kept

    def end_act(self, act: Act) -> None:
        values = asdict(act)
        with self._write() as connection:
            insert = _dialect(connection).insert(acts).values(values)
            connection.execute(insert.on_conflict_do_update(index_elements=["key"], set_=values))

    def acts(self, limit: int, *, backfill_id: str | None = None) -> tuple[Act, ...]:
        query = sa.select(acts).order_by(acts.c.at.desc(), acts.c.key).limit(limit)
        if backfill_id is not None:
            query = query.where(acts.c.backfill_id == backfill_id)
        return tuple(Act(**row._mapping) for row in self._rows(query))

    def jobs(self, backfill_id: str | None = None) -> Mapping[str, frozenset[JobRef]]:
        found = defaultdict[str, set[JobRef]](set)
        query = sa.select(runs.c.backfill_id, runs.c.job_namespace, runs.c.job_name).distinct()
        if backfill_id is not None:
            query = query.where(runs.c.backfill_id == backfill_id)
        for row in self._rows(query):
            found[row.backfill_id].add(JobRef(row.job_namespace, row.job_name))
        return {backfill: frozenset(jobs) for backfill, jobs in found.items()}

    def tokens(self) -> tuple[Token, ...]:
        query = sa.select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.prefix)
        return tuple(Token(**row._mapping) for row in self._rows(query))

    def put_token(self, token: Token) -> None:
        values = asdict(token)
        with self._write() as connection:
            insert = _dialect(connection).insert(tokens).values(values)
            connection.execute(insert.on_conflict_do_update(index_elements=["prefix"], set_=values))

    def saved_plans(self) -> tuple[SavedPlan, ...]:
        waits = sa.and_(saved_plans.c.backfill_id == "", ~saved_plans.c.discarded)
        newest = (saved_plans.c.saved_at.desc(), saved_plans.c.id)
        rows = self._rows(sa.select(saved_plans).where(waits).order_by(*newest))
        return tuple(SavedPlan(**row._mapping) for row in rows)

    def save_plan(self, saved: SavedPlan) -> None:
        values = {one.name: getattr(saved, one.name) for one in fields(saved)}
        with self._write() as connection:
            insert = _dialect(connection).insert(saved_plans).values(values)
            new = insert.on_conflict_do_nothing().returning(saved_plans.c.id)
            if not connection.execute(new).all():
                raise ConflictError("this plan was saved before", hint="Make a new one.")

    def change_plan(self, before: SavedPlan, after: SavedPlan) -> None:
        names = ("approved_by", "backfill_id", "discarded")
        same = [saved_plans.c[name] == getattr(before, name) for name in names]
        values = {name: getattr(after, name) for name in (*names, "approved_at")}
        change = sa.update(saved_plans).where(saved_plans.c.id == before.id, *same).values(values)
        with self._write() as connection:
            if not connection.execute(change).rowcount:
                raise ConflictError(
                    "another user approved, ran or discarded this plan just now",
                    hint="Look at it again.",
                )

    def time(self, local: datetime) -> datetime:
        if self._engine.dialect.name == "sqlite":
            return local
        with self._read() as connection:
            now = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return cast(datetime, now).astimezone(UTC)

    def close(self) -> None:
        with self._turn:  # SQLite crashes where a connection is closed in mid-use
            self._engine.dispose()
            self._is_gone = self._is_shared

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for threads that use the same connection; raises StoreError if it was closed."""
        with self._turn:
            if self._is_gone:
                raise StoreError("the run store in memory was closed", hint="Make a new one.")
            yield

    def _rows(self, query: sa.Select[Any], backfill_id: str | None = None) -> Sequence[sa.Row[Any]]:
        """Return the rows of a query; if there are none, the backfill must exist."""
        with self._read() as connection:
            rows = connection.execute(query).all()
            if rows or backfill_id is None or connection.execute(_exists(backfill_id)).all():
                return rows
            raise _unknown(connection, backfill_id)

    def _refusal(self, backfill_id: str, moves: Sequence[Move]) -> BackfillError:
        query = sa.select(runs.c.run_id, runs.c.state).where(runs.c.backfill_id == backfill_id)
        states = {row.run_id: RunState(row.state) for row in self._rows(query, backfill_id)}
        for move in moves:
            if states.get(move.run_id) not in SOURCES[move.state]:
                break
            states[move.run_id] = move.state
        return refused_move(move.run_id, states.get(move.run_id), move.state)

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._alone(), _translated(self._engine.url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self, lease: Lease | None = None) -> Iterator[sa.Connection]:
        """Open a write transaction; with a lease, only if that was not taken over."""
        with (
            self._alone(),
            _translated(self._engine.url),
            self._writer.connect() as connection,
            connection.begin(),
        ):
            # An update rather than a read: it also waits for an executor that is taking over.
            if lease and not connection.execute(_held(lease).values(owner=lease.owner)).rowcount:
                raise lease_lost(lease.backfill_id)
            yield connection

    def _migrate(self) -> None:
        with self._write() as connection:
            if connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
                connection.execute(sa.func.pg_advisory_xact_lock(_MIGRATION).select())
            if _version(connection) != REVISIONS[-1]:  # no other process was faster
                upgrade(connection)


def _decoded(text: str) -> Any:
    """Return a JSON value as `json.loads` does, but in a third of the time."""
    try:
        return msgspec.json.decode(text)
    except (
        msgspec.MsgspecError
    ):  # half of a surrogate pair, NaN and infinity: texts and numbers of Python
        return json.loads(text)


def _connect(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise StoreError(
                f"a run store is SQLite or PostgreSQL, and {redacted(url)} is neither",
                hint=_ADDRESSES,
            )
        dialect = parsed.get_dialect()
        dialect.import_dbapi()
        if dialect.is_async:
            raise ValueError(f"{dialect.driver} works only with asyncio")
        if parsed.get_backend_name() != "sqlite":
            own = {name: value for name, value in _LIMITS.items() if name not in parsed.query}
            return sa.create_engine(parsed, json_deserializer=_decoded, connect_args=own)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise StoreError(
            f"the run store {redacted(url)} cannot be opened: {error}", hint=_ADDRESSES
        ) from error
    if parsed.database and parsed.database != ":memory:":
        try:
            file = Path(parsed.database).absolute()
            private_folder(file.parent)
            if not file.exists() and not parsed.database.startswith("file:"):
                open(
                    file, "ab", opener=private
                ).close()  # otherwise all users may read SQLite's files
        except OSError as error:
            raise _unusable(parsed, error) from error
        engine = sa.create_engine(
            parsed, json_deserializer=_decoded, connect_args={"timeout": BUSY_TIMEOUT}
        )
    else:  # one connection, used by one thread at a time
        engine = sa.create_engine(
            parsed,
            json_deserializer=_decoded,
            poolclass=sa.StaticPool,
            connect_args={"check_same_thread": False},
        )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins the transactions
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer waits at the start, where waiting is possible, not in the middle.
    writes = connection.get_execution_options().get("lb_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _version(connection: sa.Connection) -> str | None:
    """Return the revision of the schema, None for an empty database; refuse unknown ones."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    table = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
    version: str = connection.execute(sa.select(table.c.version_num)).scalar_one()
    if version not in REVISIONS:
        url = connection.engine.url
        what = url.database if url.get_backend_name() == "sqlite" else "its tables lb_*"
        raise StoreError(
            f"the run store {url.render_as_string(hide_password=True)} was made by another version"
            f" of lineage-backfill (schema {version}; this one has {REVISIONS[-1]})",
            hint="Use that version; or finish or cancel its backfills with it, then move or remove"
            f" {what}: a new run store is made on the next run.",
        )
    return version


@contextmanager
def _translated(url: sa.URL) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise _unusable(url, getattr(error, "orig", None) or error) from error


def _unusable(url: sa.URL, cause: BaseException) -> BackfillError:
    if url.get_backend_name() != "sqlite" and _is_outage(cause):
        return StoreUnreachableError(
            f"the run store {url.render_as_string(hide_password=True)} does not answer: {cause}",
            hint="Check that the database is up; records are kept, and `resume` continues.",
        )
    hint = "Check `[store] url`, and that its folder is writable and has free space."
    if getattr(cause, "sqlite_errorcode", None) in _DAMAGED:
        hint = (
            "Restore a copy of the file, or move it away: a new run store is made on the next run."
        )
    return StoreError(
        f"the run store {url.render_as_string(hide_password=True)} cannot be used: {cause}",
        hint=hint,
    )


def _is_outage(cause: BaseException) -> bool:
    """Whether a driver's error means that its server is unavailable (DB-API 2.0, PEP 249)."""
    kinds = {kind.__name__ for kind in type(cause).__mro__}  # psycopg has a subclass for each cause
    return not kinds.isdisjoint(("OperationalError", "InterfaceError"))


def _own_seconds(row: Any) -> float:
    """Return the duration of a run by its own result, else as the run store saw it."""
    begin, end = row.started_at, row.ended_at
    if row.begin and row.end:
        begin, end = datetime.fromisoformat(row.begin), datetime.fromisoformat(row.end)
    return float((end - begin).total_seconds())


def _exists(backfill_id: str) -> sa.Select[Any]:
    return sa.select(backfills.c.id).where(backfills.c.id == backfill_id)


def _unknown(connection: sa.Connection, backfill_id: str) -> BackfillError:
    known = connection.execute(sa.select(backfills.c.id).where(~backfills.c.deleted)).scalars()
    return unknown_backfill(backfill_id, known)


def _lease(
    connection: sa.Connection,
    backfill_id: str,
    now: datetime,
    is_dead: Callable[[str], bool] | None = None,
) -> sa.Row[Any] | None:
    """Return the row of a free lease; raises ConflictError for any other."""
    query = sa.select(leases).where(leases.c.backfill_id == backfill_id).with_for_update()
    row = connection.execute(query).one_or_none()
    held = row is not None and row.owner and now < row.expires_at
    if row is not None and held and not (is_dead and is_dead(row.owner)):
        raise lease_held(backfill_id, row.owner, row.expires_at)
    return row


def _held(lease: Lease) -> sa.Update:
    return sa.update(leases).where(
        leases.c.backfill_id == lease.backfill_id, leases.c.fence == lease.fence
    )


def _mark_undone(connection: sa.Connection, undo: BackfillRecord, backfill_id: str) -> None:
    _lease(connection, backfill_id, undo.submitted_at)
    query = sa.select(backfills.c.undone_by).where(backfills.c.id == backfill_id)
    row = connection.execute(query).one_or_none()
    if row is not None and row.undone_by is not None:
        raise already_undone(backfill_id, row.undone_by)
    _change(connection, backfill_id, {"undone_by": undo.id, "updated_at": undo.submitted_at})
    _log(connection, backfill_id, undo.submitted_at, "undone", {"by": undo.id})


def _add_runs(connection: sa.Connection, backfill_id: str, added: Sequence[PlannedRun]) -> None:
    """Add runs after those that the backfill has."""
    same = runs.c.backfill_id == backfill_id
    count = sa.select(sa.func.count()).select_from(runs).where(same)
    first = connection.execute(count).scalar_one()
    rows = [
        {
            "backfill_id": backfill_id,
            "run_id": run.id,
            "position": position,
            "job_namespace": run.job.namespace,
            "job_name": run.job.name,
            "partitions": run.partitions,
            "count": run.count,
            "wave": run.wave,
            "engine": run.engine,
            "state": RunState.PENDING,
            "attempt": 0,
        }
        for position, run in enumerate(added, start=first)
    ]
    if rows:
        connection.execute(sa.insert(runs), rows)


def _follow(
    connection: sa.Connection, backfill_id: str, hooks: Collection[str], now: datetime
) -> None:
    """Serve hooks from the newest event on, or from where they were left."""
    last = sa.select(sa.func.max(events.c.id)).where(events.c.backfill_id == backfill_id)
    event = connection.execute(last).scalar_one() or 0 if hooks else 0
    for hook in hooks:
        row = HookCursor(hook=hook, backfill_id=backfill_id, event=event, due_at=now)
        insert = _dialect(connection).insert(cursors).values(asdict(row))
        # Another due time: a process that found the backfill at its end removes nothing.
        keys = ["hook", "backfill_id"]
        connection.execute(insert.on_conflict_do_update(index_elements=keys, set_={"due_at": now}))


def _dialect(connection: sa.Connection) -> Any:
    """Return SQLAlchemy's constructs for this database; those of PostgreSQL load slowly."""
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}")


def _change(connection: sa.Connection, backfill_id: str, values: dict[str, Any]) -> None:
    update = sa.update(backfills).where(backfills.c.id == backfill_id).values(values)
    if connection.execute(update).rowcount != 1:
        raise _unknown(connection, backfill_id)


def _log(
    connection: sa.Connection, backfill_id: str, at: datetime, kind: str, detail: dict[str, Any]
) -> None:
    row = {"backfill_id": backfill_id, "at": at, "kind": kind, "detail": detail}
    connection.execute(sa.insert(events).values(row))


def _claim(row: sa.Row[Any]) -> Claim:
    held = row.owner is not None
    holder = Holder(owner=row.owner, until=row.lease_until) if held else None
    return Claim(_backfill(row), holder, row.fence or 0)


def _backfill(row: sa.Row[Any]) -> BackfillRecord:
    found = row._mapping
    values = {column.name: found[column.name] for column in _RECORD}
    control = values["control"]
    remember(secrets_of(values["parameters"] or {}))
    values["state"] = BackfillState(values["state"])
    values["control"] = control and ControlRequest(control)
    values["left"] = tuple(values["left"] or ())
    values["settings"] = Settings(**values["settings"] or {})
    return BackfillRecord(**values)


def _run(row: sa.Row[Any]) -> RunRecord:
    found = row._mapping
    values = {name: found[name] for name in _RUN}
    values["job"] = JobRef(found["job_namespace"], found["job_name"])
    values["partitions"] = tuple(found["partitions"])
    values["state"] = RunState(found["state"])
    values["cut_off"] = tuple(found["cut_off"] or ())
    values["engine_run"] = _engine_run(found)
    return RunRecord(**values)


def _attempt(row: sa.Row[Any]) -> AttemptRecord:
    found = row._mapping
    values = {name: found[name] for name in _ATTEMPT}
    values["state"] = AttemptState(found["state"])
    values["engine_run"] = _engine_run(found)
    return AttemptRecord(**values)


def _engine_run(found: sa.RowMapping) -> EngineRun | None:
    if found["origin"] is None:
        return None
    facts = found["engine_facts"] or {}
    return EngineRun(origin=Origin(found["origin"]), id=found["engine_run"], facts=facts)


_RUN = [one.name for one in fields(RunRecord) if one.name != "job"]
_ATTEMPT = [one.name for one in fields(AttemptRecord)]
#: The members of the latest attempt in the record of a run.
_LATEST = ("token", "handle", "machine", "origin", "engine_run", "engine_facts")
