"""Writes moves of runs, many at once, as a few statements that each are compiled a single time."""

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
    told: list[_Row] = []
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
        told += rows
    _TELL.execute(connection, told)


def _kind(move: Move) -> tuple[RunState, bool]:
    return move.state, move.attempt_state is not None


def _row(backfill_id: str, move: Move, now: datetime) -> _Row:
    """Return all that the statements say of a move."""
    tried = move.attempt_state
    return {
        "b_backfill": backfill_id,
        "b_run": move.run_id,
        "b_attempt": move.attempt,
        "b_now": now,
        "b_state": move.state,
        "b_ended": now if move.state.is_final else None,
        "b_error": move.error,
        "b_cut_off": move.cut_off or None,
        "b_token": move.token,
        "b_tried": AttemptState.QUEUED if tried is None else tried,
        "b_handle": move.handle,
        "b_tried_ended": now if tried is not None and tried.is_final else None,
        "b_result": move.result,
        "b_detail": move.detail,
    }


def _write_traces(
    connection: sa.Connection, state: RunState, moves: Sequence[Move], rows: Sequence[_Row]
) -> None:
    """Begin the traces of attempts that are opened; complete those of attempts that succeeded."""
    if state is not RunState.SUBMITTED and state is not RunState.SUCCEEDED:
        return
    traced = [
        {**row, **_trace_row(move.trace)}
        for move, row in zip(moves, rows, strict=True)
        if move.trace is not None
    ]
    if state is RunState.SUBMITTED:
        _FORGET.execute(connection, traced)
        _BEGIN.execute(connection, traced)
    else:
        _COMPLETE.execute(connection, traced)


def _trace_row(trace: Trace) -> _Row:
    first, last = span(trace.keys)
    return {
        "b_namespace": trace.job.namespace,
        "b_name": trace.job.name,
        "b_keys_id": set_id(trace.keys),
        "b_keys": trace.keys,
        "b_first": first,
        "b_last": last,
        "b_contents": trace.contents,
    }


class _Statement:
    """A statement for many rows, compiled once for each kind of database.

    SQLAlchemy works out anew for every row what its parameters are, which takes longer than
    SQLite takes to write the row.
    """

    def __init__(self, statement: sa.Insert | sa.Update | sa.Delete) -> None:
        self._statement = statement
        self._compiled = lru_cache(self._compile)

    def _compile(self, dialect: sa.Dialect) -> tuple[str, Sequence[str], Mapping[str, Any], bool]:
        """Return the text, the names of its parameters and what turns some of these around."""
        compiled = self._statement.compile(dialect=dialect)
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        turned = {}
        for name, bind in compiled.binds.items():
            turn = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if turn is not None:  # instants are those of the transaction, the same in every row
                turned[name] = lru_cache(4)(turn) if isinstance(bind.type, Instant) else turn
        names = compiled.positiontup or list(compiled.binds)
        return str(compiled), names, turned, compiled.positional

    def execute(self, connection: sa.Connection, rows: Sequence[_Row]) -> int:
        """Execute it for each row, and return how many rows of the database were written."""
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


def _bind(name: str, column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(f"b_{name}", type_=column.type)


def _insert(table: sa.Table, columns: Mapping[str, str]) -> _Statement:
    """Return what inserts rows; each column is given with the name of its parameter."""
    values = {name: _bind(given, table.c[name]) for name, given in columns.items()}
    return _Statement(sa.insert(table).values(values).inline())


_OPEN = _insert(
    attempts,
    {
        "backfill_id": "backfill",
        "run_id": "run",
        "attempt": "attempt",
        "token": "token",
        "state": "tried",
        "submitted_at": "now",
    },
)
_TELL = _insert(
    events,
    {"backfill_id": "backfill", "run_id": "run", "at": "now", "kind": "state", "detail": "detail"},
)
_BEGIN = _insert(
    traces,
    {
        "job_namespace": "namespace",
        "job_name": "name",
        "keys_id": "keys_id",
        "keys": "keys",
        "first": "first",
        "last": "last",
        "backfill_id": "backfill",
        "run_id": "run",
        "attempt": "attempt",
        "since": "now",
    },
)
_SAME_KEYS = sa.and_(
    traces.c.job_namespace == _bind("namespace", traces.c.job_namespace),
    traces.c.job_name == _bind("name", traces.c.job_name),
    traces.c.keys_id == _bind("keys_id", traces.c.keys_id),
)
_FORGET = _Statement(sa.delete(traces).where(_SAME_KEYS))
_COMPLETE = _Statement(
    sa.update(traces)
    .where(
        _SAME_KEYS,
        traces.c.backfill_id == _bind("backfill", traces.c.backfill_id),
        traces.c.run_id == _bind("run", traces.c.run_id),
        traces.c.attempt == _bind("attempt", traces.c.attempt),
    )
    .values(contents=_bind("contents", traces.c.contents))
)
_TRIED = _Statement(
    sa.update(attempts)
    .where(
        attempts.c.backfill_id == _bind("backfill", attempts.c.backfill_id),
        attempts.c.run_id == _bind("run", attempts.c.run_id),
        attempts.c.attempt == _bind("attempt", attempts.c.attempt),
    )
    .values(
        state=_bind("tried", attempts.c.state),
        handle=sa.func.coalesce(_bind("handle", attempts.c.handle), attempts.c.handle),
        ended_at=_bind("tried_ended", attempts.c.ended_at),
        result=_bind("result", attempts.c.result),
        error=_bind("error", attempts.c.error),
    )
)


@lru_cache
def _to(state: RunState) -> _Statement:
    """Return what moves a run into a state from one where that is allowed."""
    values = {
        "state": _bind("state", runs.c.state),
        "ended_at": _bind("ended", runs.c.ended_at),
        "error": _bind("error", runs.c.error),
    }
    if state in (RunState.SUBMITTED, RunState.SKIPPED):
        values["cut_off"] = _bind("cut_off", runs.c.cut_off)
    if state is RunState.SUBMITTED:
        values["attempt"] = _bind("attempt", runs.c.attempt)
        values["started_at"] = _bind("now", runs.c.started_at)
    allowed = (runs.c.state == sa.literal_column(f"'{one}'") for one in SOURCES[state])
    return _Statement(
        sa.update(runs)
        .where(
            runs.c.backfill_id == _bind("backfill", runs.c.backfill_id),
            runs.c.run_id == _bind("run", runs.c.run_id),
            sa.or_(*allowed),
        )
        .values(values)
    )
