"""The last change of each partition of a table, and how it was made.

For a Delta table from its log; for a Parquet table from the times of its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from spark_runtime.errors import TableError
from spark_runtime.logs.changes import in_order
from spark_runtime.tables.by_value import document_columns, document_partitions, overlap
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.parquet.log import ParquetFolder
from spark_runtime.tables.state import Commit, mean_seconds, undone_by
from spark_runtime.tables.values import PartitionColumn, Values

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One commit, with the partitions that no later commit wrote.

    `version` is None for a Parquet table, which has none.
    `changed` are the partitions whose contents it changed, `made` those that it wrote, also with
    equal contents or none. `job` is the job that made them, with the versions of its inputs in
    `read`; unknown for other writers.
    """

    version: int | None
    at: datetime
    changed: tuple[Values, ...]
    made: tuple[Values, ...]
    job: str | None = None
    read: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last commits of each partition, oldest first.

    `version` is None if there is no table. `old` are partitions with data whose last commit is no
    longer in the log, which begins at `since`; without `whole` there may be more of them.
    `file_seconds` is how much time a file spans, on average over the rows, in a table by time whose
    files are copied to replace some of their rows.
    """

    location: str
    version: int | None = None
    columns: tuple[PartitionColumn, ...] = ()
    events: tuple[Event, ...] = ()
    old: tuple[Values, ...] = ()
    since: datetime | None = None
    whole: bool = True
    file_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `python -m spark_runtime history` prints of a table."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "table_history",
            "location": self.location,
            "version": self.version,
            "columns": document_columns(self.columns),
            "commits": [
                {
                    "version": event.version,
                    "at": event.at.isoformat(),
                    "changed": document_partitions(self.columns, event.changed),
                    "made": document_partitions(self.columns, event.made),
                    "job": event.job,
                    "read": dict(event.read),
                }
                for event in self.events
            ],
            "old": document_partitions(self.columns, self.old),
            "since": None if self.since is None else self.since.isoformat(),
            "whole": self.whole,
            "file_seconds": self.file_seconds,
        }


def history(log: DeltaLog, *, spans: bool = False) -> History:
    """Return the history of each partition in the log; raises TableError if it is unreadable.

    The cost grows with the commits in the log, and doubles with `spans`, without which
    `file_seconds` is None. If the first ones have been cleaned up, a checkpoint
    shows which partitions there were. By value, `changed` holds what may have changed, and `made`
    the first commit of others over each span: a later one may have copied its rows.
    """
    newest = log.latest_version()
    if newest is None:
        return History(location=log.location)
    first = log.oldest_commit(newest)
    if first > newest:
        raise TableError(
            f"the log of {log.location} has no commits left",
            hint="Write to it once, for instance with the job that writes it.",
        )
    times = log.times(first, newest)
    is_by_value = log.layout(newest).by is not None
    known = _Known(is_by_value)
    for found in log.commits(first - 1, newest):
        commit = found
        if commit.repartitioned:
            # Everything from before is gone; the commit does not say what there is now.
            known, first = _Known(is_by_value), 0
            commit = replace(commit, touched=frozenset(log.state(commit.version).partitions))
        known.take(commit)
    state = log.state(newest) if first else None
    layout = log.layout(newest)
    spans &= is_by_value and layout.configuration.get("delta.enableDeletionVectors") != "true"
    if spans and not first:
        log.deepen()  # the commits are at hand: no checkpoint is read, which Spark may have to do
    held = state.partitions if state is not None else {}
    return History(
        location=log.location,
        version=newest,
        columns=layout.columns,
        events=tuple(known.events(times)),
        old=tuple(sorted(set(held) - known.made.keys(), key=in_order)),
        since=times[first] if first else None,
        whole=state is None or state.complete,
        file_seconds=mean_seconds(log.state(newest)) if spans else None,
    )


def parquet_history(folder: ParquetFolder) -> History:
    """Return when the newest file of each partition changed; raises TableError."""
    newest = folder.latest_version()
    if newest is None:
        return History(location=folder.location)
    changed: dict[datetime, list[Values]] = {}
    for values, at in folder.touched_at().items():
        changed.setdefault(at, []).append(values)
    return History(
        location=folder.location,
        version=newest,
        columns=folder.state(newest).columns,
        events=tuple(
            Event(version=None, at=at, changed=tuple(found), made=tuple(found))
            for at in sorted(changed)
            for found in [sorted(changed[at], key=in_order)]
        ),
    )


class _Known:
    """The last commits over each partition."""

    def __init__(self, is_by_value: bool) -> None:
        self._is_by_value = is_by_value
        self._changed: dict[Values, Commit] = {}
        self._made: dict[Values, list[Commit]] = {}
        self._contents: dict[Values, str] = {}
        self._undone: dict[tuple[int | None, Values], list[Commit]] = {}

    @property
    def made(self) -> dict[Values, Commit]:
        """The commit that made the contents of each partition."""
        return {values: commits[-1] for values, commits in self._made.items() if commits}

    def take(self, commit: Commit) -> None:
        """Add a later commit."""
        recorded = {values: fingerprint for values, (_, fingerprint) in commit.recorded.items()}
        taken_back = commit.metadata.get("taken_back")
        undone = {*undone_by(commit.metadata), taken_back} - {None}
        for values in commit.touched | recorded.keys():
            fingerprint = recorded.get(values)
            same = fingerprint is not None and self._contents.get(values) == fingerprint
            if values in commit.touched and not same:
                self._changed[values] = commit
            for other in self._overlapped(values):
                del self._contents[other]
            if fingerprint is not None:
                self._contents[values] = fingerprint
            before = self._made.setdefault(values, [])
            if self._is_by_value and before and values not in recorded:
                continue  # it may have copied these rows
            if undone:
                # It has the contents of the commit before that one again.
                names = [{one.metadata.get("token"), one.version} for one in before]
                at = next((n for n, name in enumerate(names) if name & undone), len(before))
                self._undone[commit.version, values] = before[at:]
                del before[at:]
                # An undo that is reverted itself changes nothing.
                before += self._undone.pop((taken_back, values), [])
            else:
                before.append(commit)

    def _overlapped(self, values: Values) -> list[Values]:
        """Return the partitions whose contents are no longer known after a commit over one."""
        if self._is_by_value:
            return [known for known in self._contents if overlap(known, values)]
        return [values] if values in self._contents else []

    def events(self, times: Mapping[int, datetime]) -> Iterable[Event]:
        """Yield the commits that are the last of some partition, oldest first."""
        last = self.made
        changed, made = _by_version(self._changed), _by_version(last)
        commits = {one.version: one for one in (*self._changed.values(), *last.values())}
        for version in sorted(commits):
            metadata = commits[version].metadata
            yield Event(
                version=version,
                at=times[version],
                changed=tuple(sorted(changed.get(version, ()), key=in_order)),
                made=tuple(sorted(made.get(version, ()), key=in_order)),
                job=metadata.get("job"),
                read={name: read for name, read in metadata.get("inputs", ()) if read is not None},
            )


def _by_version(commits: Mapping[Values, Commit]) -> dict[int, list[Values]]:
    found: dict[int, list[Values]] = {}
    for values, commit in commits.items():
        found.setdefault(commit.version, []).append(values)
    return found
