"""Writes many moves of runs at once with a few statements, each compiled once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from lineage_backfill.model import RunState
from lineage_backfill.ports import AttemptState, Move, Trace
from lineage_backfill.store.rules import SOURCES, set_id, span
from lineage_backfill.store.schema import Instant, attempts, events, runs, traces

_Row = Mapping[str, Any]


class MoveRefused(Exception):
    """A run is not in a state that allows its move."""


def write_moves(
    connection: sa.Connection, backfill_id: str, moves: Iterable[Move], now: datetime
) -> None:
    """Write moves of the runs of a backfill, in their order; raises MoveRefused."""
    events_: list[_Row] = []
    for (state, is_tried), group in groupby(moves, key=_kind):
        together = list(group)
        rows = [_row(backfill_id, move, now) for move in together]
        if _to(state).execute(connection, rows) != len(rows):
            raise MoveRefused
        if state is RunState.SUBMITTED:
            _OPEN.execute(connection, rows)
        elif is_tried:
            _TRIED.execute(connection, rows)
        _write_traces(connection, state, together, rows)
        events_ += rows
    _LOG.execute(connection, events_)


def _kind(move: Move) -> tuple[RunState, bool]:
    return move.state, move.attempt_state is not None


def _row(backfill_id: str, move: Move, now: datetime) -> _Row:
    """Return the parameters of a move for all statements, by name."""
    tried, found = move.attempt_state, move.engine_run
    return {
        "b_backfill_id": backfill_id,
        "b_run_id": move.run_id,
        "b_attempt": move.attempt,
        "b_now": now,
        "b_state": move.state,
        "b_ended_at": now if move.state.is_final else None,
        "b_error": move.error,
        "b_cut_off": move.cut_off or None,
        "b_token": move.token,
        "b_tried": AttemptState.QUEUED if tried is None else tried,
        "b_handle": move.handle,
        "b_machine": move.machine,
        "b_tried_ended": now if tried is not None and tried.is_final else None,
        "b_result": move.result,
        "b_origin": found and found.origin,
        "b_engine_run": found and found.id,
        "b_engine_facts": (found and dict(found.facts)) or None,
        "b_detail": move.detail,
    }


def _write_traces(
    connection: sa.Connection, state: RunState, moves: Sequence[Move], rows: Sequence[_Row]
) -> None:
    """Begin the traces of opened attempts; complete those of successful ones."""
    if state is not RunState.SUBMITTED and state is not RunState.SUCCEEDED:
        return
    traced = [
        {**row, **_trace_row(move.trace)}
        for move, row in zip(moves, rows, strict=True)
        if move.trace is not None
    ]
    if state is RunState.SUBMITTED:
        _FORGET_OPEN.execute(connection, traced)
        _BEGIN.execute(connection, traced)
    else:
        _FORGET_ENDED.execute(connection, traced)
        _COMPLETE.execute(connection, traced)


def _trace_row(trace: Trace) -> _Row:
    first, last = span(trace.keys)
    return {
        "b_job_namespace": trace.job.namespace,
        "b_job_name": trace.job.name,
        "b_keys_id": set_id(trace.keys),
        "b_keys": trace.keys,
        "b_first": first,
        "b_last": last,
        "b_contents": trace.contents,
        "b_since": trace.since,
    }


class _Statement:
    """A statement for many rows, compiled once for each kind of database.

    SQLAlchemy recomputes the parameters for every row, which takes longer than the write itself.
    """

    def __init__(self, statement: sa.Insert | sa.Update | sa.Delete) -> None:
        self._statement = statement
        self._compiled = lru_cache(self._compile)

    def _compile(self, dialect: sa.Dialect) -> tuple[str, Sequence[str], Mapping[str, Any], bool]:
        """Return the text, the names of its parameters and their converters."""
        compiled = self._statement.compile(dialect=dialect)
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        turned = {}
        for name, bind in compiled.binds.items():
            turn = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if turn is not None:  # instants are those of the transaction, equal in every row
                turned[name] = lru_cache(4)(turn) if isinstance(bind.type, Instant) else turn
        names = compiled.positiontup or list(compiled.binds)
        return str(compiled), names, turned, compiled.positional

    def execute(self, connection: sa.Connection, rows: Sequence[_Row]) -> int:
        """Execute it for each row; return the number of written database rows."""
        if not rows:
            return 0
        text, names, turned, is_positional = self._compiled(connection.dialect)
        values = [
            [turned[name](row[name]) if name in turned else row[name] for name in names]
            for row in rows
        ]
        given: Any = (
            [tuple(one) for one in values]
            if is_positional
            else [dict(zip(names, one, strict=True)) for one in values]
        )
        return connection.exec_driver_sql(text, given).rowcount


def _bind(column: sa.Column[Any], name: str = "") -> sa.BindParameter[Any]:
    return sa.bindparam(f"b_{name or column.name}", type_=column.type)


def _binds(table: sa.Table, *columns: str, **others: str) -> dict[str, sa.BindParameter[Any]]:
    """Return the parameters of columns, by their own names, and of `others` by the given names."""
    return {name: _bind(table.c[name], others.get(name, "")) for name in (*columns, *others)}


def _same(table: sa.Table, *columns: str) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == _bind(table.c[name]) for name in columns))


def _insert(table: sa.Table, *columns: str, **others: str) -> _Statement:
    return _Statement(sa.insert(table).values(_binds(table, *columns, **others)).inline())


_ATTEMPT = ("backfill_id", "run_id", "attempt")
_KEYS = ("job_namespace", "job_name", "keys_id")
_OPEN = _insert(attempts, *_ATTEMPT, "token", "machine", state="tried", submitted_at="now")
_LOG = _insert(events, "backfill_id", "run_id", "detail", at="now", kind="state")
_BEGIN = _insert(traces, *_ATTEMPT, *_KEYS, "keys", "first", "last", since="now")
_FORGET_OPEN = _Statement(
    sa.delete(traces).where(_same(traces, *_KEYS), traces.c.ended_at.is_(None))
)
_FORGET_ENDED = _Statement(
    sa.delete(traces).where(_same(traces, *_KEYS), traces.c.ended_at.is_not(None))
)
_COMPLETE = _Statement(
    sa.update(traces)
    .where(_same(traces, *_KEYS, *_ATTEMPT))
    .values(
        contents=_bind(traces.c.contents),
        ended_at=_bind(traces.c.ended_at, "now"),
        since=sa.func.coalesce(_bind(traces.c.since), traces.c.since),
    )
)
_TRIED = _Statement(
    sa.update(attempts)
    .where(_same(attempts, *_ATTEMPT))
    .values(
        _binds(attempts, "result", "error", state="tried", ended_at="tried_ended")
        | {
            name: sa.func.coalesce(_bind(attempts.c[name]), attempts.c[name])
            for name in ("handle", "origin", "engine_run", "engine_facts")
        }
    )
)


@lru_cache
def _to(state: RunState) -> _Statement:
    """Return the statement that moves a run to a state from an allowed one."""
    values = _binds(runs, "state", "ended_at", "error")
    if state in (RunState.SUBMITTED, RunState.SKIPPED):
        values |= _binds(runs, "cut_off")
    if state is RunState.SUBMITTED:
        values |= _binds(runs, "attempt", started_at="now")
    allowed = (runs.c.state == sa.literal_column(f"'{one}'") for one in SOURCES[state])
    return _Statement(
        sa.update(runs).where(_same(runs, "backfill_id", "run_id"), sa.or_(*allowed)).values(values)
    )
