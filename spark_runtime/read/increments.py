"""Finds what is new in an input since the job last ran, from the logs of its tables."""

from __future__ import annotations

import logging
from datetime import datetime

from lineage_backfill.runspec.values import InputSpec, RunSpec
from spark_runtime.errors import TableError
from spark_runtime.tables.commits import is_of
from spark_runtime.tables.state import Commit, TableLog, TableState, undo_token
from spark_runtime.tables.tables import Tables
from spark_runtime.tables.values import Values

_log = logging.getLogger(__name__)


def last_read(run: RunSpec, read: InputSpec, tables: Tables) -> int | None:
    """Return the version of an input that this job's last run read; None if unknown.

    That run wrote every output. A run that was undone does not count, nor a later one that did not
    see the undo.
    """
    versions = []
    created = None if read.version is None else _created(tables.log(read))
    outputs = [output for output in run.outputs if output.scope]
    for output in outputs:
        if tables.latest_version(output) is None:
            return None
        log = tables.log(output)
        state = log.state()
        last = _last(run, log, state)
        if last is None and log.deepen():
            last = _last(run, log, log.state(state.version))
        known = {} if last is None else dict(last.metadata.get("inputs") or ())
        began = None if last is None else last.metadata.get("started_at")
        if created is not None and began is not None and created > datetime.fromisoformat(began):
            known = {}  # of an earlier table with the same name
        versions.append(known.get(str(read.dataset)))
    found = [int(version) for version in versions if version is not None]
    if len(found) < len(outputs):
        _log.warning("no earlier run of %s is known: all of %s is new", run.job.name, read.dataset)
        return None
    return min(found)


def changed_since(log: TableLog, after: int, until: int) -> list[Values] | None:
    """Return the partitions changed by commits in (after, until]; None if unknown."""
    touched: set[Values] = set()
    try:
        if after > until:
            raise TableError(f"{log.location} was rebuilt")
        if log.state(until).by is not None:
            raise TableError(f"{log.location} is not partitioned by its keys")
        for commit in log.commits(after, until):
            if commit.repartitioned:
                raise TableError(f"{commit} of {log.location} changed its partition columns")
            touched |= commit.touched
    except TableError as error:
        _log.warning("%s: all of it is new", error)
        return None
    held = log.state(until).partitions
    return [values for values in touched if values in held]


def _created(log: TableLog) -> datetime | None:
    """Return when a table was created, None if its log does not show it."""
    try:
        first = next(log.commits(-1, 0), None)
    except TableError:
        return None
    return None if first is None else first.at


def _last(run: RunSpec, log: TableLog, state: TableState) -> Commit | None:
    undone = [
        (version, state.tokens[undo_token(token)])
        for token, version in state.tokens.items()
        if undo_token(token) in state.tokens
    ]
    for version in range(state.version, state.first_read - 1, -1):
        (commit,) = log.commits(version - 1, version)
        if commit.metadata.get("job") != str(run.job.name) or is_of(commit, run):
            continue
        # What an undone run read is new again, for runs from before the undo.
        if not any(first <= version < last for first, last in undone):
            return commit
    return None
