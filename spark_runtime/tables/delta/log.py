"""Reads a Delta table's log without Spark: versions, partitions, row counts and writers.

The state of a table is the result of applying its commits in order. Every state is immutable and
shares unchanged parts with the one before, so a warm process only reads new commits. If the first
commits have been cleaned up, the state starts from a checkpoint if a reader for its Parquet files
is given; otherwise it is incomplete, and unknown values are None. The format:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from spark_runtime.errors import TableError
from spark_runtime.tables.by_value import ByValue, ValueColumn, overlap
from spark_runtime.tables.places import Place, local_path, mark
from spark_runtime.tables.state import (
    NOTHING,
    UNKNOWN,
    Commit,
    Contents,
    File,
    TableState,
    note_tokens,
)
from spark_runtime.tables.values import (
    CHAR_TYPE,
    PartitionColumn,
    Pattern,
    Values,
    logged,
    partition_columns,
)

METADATA_KEY = "lineage_backfill"

#: Reads the actions in the Parquet files of a checkpoint.
CheckpointReader = Callable[[list[str]], Iterable[Mapping[str, Any]]]

_COMMIT = re.compile(r"(\d{20})\.json")
#: Classic, one of several parts, or named by a UUID (version 2 of the format).
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)
#: With these features a table keeps its newest commits elsewhere, so the log here is incomplete.
_COMMITS_ELSEWHERE = {"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"}
#: The version of readers from which a table names the features that a reader must know, and those
#: that are known here.
_FEATURES = 3
_KNOWN_TO_READERS = {
    *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview"),
    *("v2Checkpoint", "vacuumProtocolCheck", "variantType", "variantType-preview"),
    *("variantShredding", "variantShredding-preview"),
}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"

#: States kept: a run reads its table before and after, and the pinned versions of its inputs.
_STATES_KEPT = 8
#: The commits that are read at least where a checkpoint holds the table before them. Spark takes as
#: long to read one as a thousand commits take, so it is read where it saves twice as many.
_REACH = 500


class DeltaLog:
    """The log of one table; `location` is a path or a `file:` URL, unless `root` is given.

    With `by` its keys are the values of that column instead of partitions.
    """

    def __init__(
        self,
        location: str,
        *,
        checkpoint_reader: CheckpointReader | None = None,
        root: Place | None = None,
        by: ByValue | None = None,
    ) -> None:
        self.location = location
        self.root: Place = local_path(location) if root is None else root
        self._folder = self.root / "_delta_log"
        self._checkpoint_reader = checkpoint_reader
        self.same: Callable[[int, Collection[Pattern]], bool] | None = None
        self._empty = TableState(by=by)
        self._is_whole = False
        self._states: dict[int, TableState] = {}
        self._mark: tuple[int, int] | None = None
        self._reading = Lock()  # runs of one application share a log

    def latest_version(self) -> int | None:
        """Return the newest version, None if there is no table; raises TableError."""
        commits, checkpoints = self._list()
        newest = max((*commits, *checkpoints), default=None)
        if newest is None and self.root.exists() and not self._is_empty():
            raise TableError.missing(
                f"{self.location} holds files and is not a Delta table",
                hint="Name an empty folder, or convert it with CONVERT TO DELTA.",
            )
        return newest

    def _is_empty(self) -> bool:
        """Whether the place is a folder without visible files."""
        try:
            return all(entry.name.startswith(("_", ".")) for entry in self.root.iterdir())
        except NotADirectoryError:
            return False

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version (None: the newest); raises TableError if it is gone."""
        target = self.latest_version() if version is None else version
        if target is None:
            raise self._dropped()
        with self._reading:
            return self._state(target)

    def _state(self, target: int) -> TableState:
        newest = max(self._states, default=-1)
        if newest >= 0 and mark(self._path(newest)) != self._mark:
            self._states.clear()  # recreated, with other files of the same names
        if target not in self._states:
            start = max((version for version in self._states if version < target), default=-1)
            self._states[target] = self._play(self._states.get(start, self._empty), target)
            while len(self._states) > _STATES_KEPT:
                del self._states[min(self._states.keys() - {target})]
            self._mark = mark(self._path(max(self._states)))
        return self._states[target]

    def deepen(self) -> bool:
        """Read all commits from now on; return whether there are more than were read."""
        with self._reading:
            was_whole, self._is_whole = self._is_whole, True
            first = min((state.first_read for state in self._states.values()), default=0)
            if was_whole or self.oldest_commit(first) == first:
                return False
            self._states.clear()
            return True

    def ever_written(self, state: TableState) -> set[Values]:
        """Return the partitions ever written up to a version, as far as the log shows."""
        return {*state.partitions, *state.emptied}

    def commits(self, after: int, until: int) -> Iterator[Commit]:
        """Yield the commits in (after, until], oldest first; raises TableError if one is gone."""
        columns, names = _columns_of(self.layout(until))
        for version in range(after + 1, until + 1):
            actions = self._read(version)
            held = _Holders(partial(self.state, version - 1), self.location)
            commit = _commit(version, actions, columns, names, held)
            metadata = _metadata(actions)
            if metadata is not None and not self._begins_with(version):
                before = self.layout(version - 1)
                commit = replace(commit, repartitioned=_is_repartitioned(before, metadata))
            yield commit

    def _begins_with(self, version: int) -> bool:
        """Whether nothing is left of the log before a commit."""
        return not any(older < version for held in self._list() for older in held)

    def first_version_since(self, instant: datetime) -> int | None:
        """Return the first version that is as new as `instant` (aware), None if none is.

        Times are those of Delta's time travel: in the commit if the table keeps them, else of its
        file, and never earlier than those before. Raises TableError if commits that were cleaned up
        may be as new.
        """
        newest = self.latest_version()
        if newest is None:
            return None
        first = self.oldest_commit(newest)
        times = self.times(first, newest)
        found = next((version for version, at in times.items() if at >= instant), None)
        if found is not None and found == first > 0:
            raise TableError(
                f"the log of {self.location} reaches back to version {found} only: what changed "
                f"before it, since {instant.isoformat()}, is not known",
                hint="Name the partitions that changed.",
            )
        return found

    def known_since(self, until: int) -> datetime | None:
        """Return the time of the oldest commit that the log still holds, None if it holds none."""
        first = self.oldest_commit(until)
        return None if first > until else self.times(first, first)[first]

    def oldest_commit(self, until: int) -> int:
        """Return the first of the consecutive commits up to a version."""
        commits, _ = self._list()
        first = until + 1
        while first - 1 in commits:
            first -= 1
        return first

    def times(self, first: int, until: int) -> dict[int, datetime]:
        """Return the time of each of these versions; never earlier than those before.

        Times are those of Delta's time travel. Raises TableError if a commit is gone.
        """
        found: dict[int, datetime] = {}
        for version in range(first, until + 1):
            stat = mark(self._path(version))
            if stat is None:
                self._read(version)  # raises
            at = self._committed_at(version)
            if at is None and stat is not None:
                at = _instant(stat[1])
            assert at is not None
            found[version] = max(at, found.get(version - 1, at))
        return found

    def layout(self, version: int) -> TableState:
        """Return schema and partition columns at a version; its contents may be incomplete.

        Reads one small file if Delta wrote a checksum; raises TableError.
        """
        found = self._states.get(version) or self._checksum(version) or self.state(version)
        if not found.schema:
            raise TableError(
                f"the log of {self.location} holds the schema in a checkpoint only",
                hint="Only Spark can read it.",
            )
        return found

    def _committed_at(self, version: int) -> datetime | None:
        """Return the time in a commit, None if the table keeps none."""
        path = self._path(version)
        return _at(_info(_parsed(_lines(path)[:1], path)).get("inCommitTimestamp"))

    def _checksum(self, version: int) -> TableState | None:
        """Return the checksum file of a version, None if there is none."""
        try:
            text = (self._folder / f"{version:020}.crc").read_text(encoding="utf-8")
            checksum = json.loads(text)
            held = {"metaData": checksum["metadata"], "protocol": checksum.get("protocol")}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if _flaw(held) or not held["metaData"]:
            return None
        _refuse_unknown(held["protocol"] or {}, self.location)
        empty = replace(self._empty, version=version, complete=False)
        return with_metadata(empty, held["metaData"])

    def _play(self, state: TableState, target: int) -> TableState:
        commits, checkpoints = self._list()
        start = state.version + 1
        near = self._near(checkpoints, start, target)
        if near is not None or not commits.issuperset(range(start, target + 1)):
            start, state = self._from_checkpoint(commits, checkpoints, target, near or 0)
        for version in range(start, target + 1):
            actions = self._read(version)
            if version == 0:
                self._check_first(actions)
            state = _advance(state, version, actions, self.location)
        return state

    def _near(self, checkpoints: Collection[int], start: int, target: int) -> int | None:
        """Return the checkpoint that replaces the commits from `start`, None for none."""
        if self._is_whole or self._checkpoint_reader is None:
            return None
        near = max((v for v in checkpoints if v <= target - _REACH), default=0)
        return near if near > start + 2 * _REACH else None

    def _check_first(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Raise TableError unless the first commit describes the table."""
        for kind in ("protocol", "metaData"):
            if not any(action.get(kind) for action in actions):
                raise _damaged(self._path(0), f"the first commit has no `{kind}`")

    def _from_checkpoint(
        self,
        commits: set[int],
        checkpoints: Mapping[int, list[Place]],
        target: int,
        earliest: int = 0,
    ) -> tuple[int, TableState]:
        usable = [v for v in checkpoints if earliest <= v <= target]
        if not usable:
            wanted = range(target + 1)
            raise self._gone(
                next(v for v in wanted if v not in commits) if 0 in commits else target
            )
        # The oldest one that commits follow without a gap: only they say who made them.
        start = target + 1
        while start - 1 in commits:
            start -= 1
        first = min((v for v in usable if v >= start - 1), default=max(usable))
        actions = self._read_checkpoint(checkpoints[first])
        # Its own commit is played as well: no checkpoint holds what a commit says of itself.
        start = first if first in commits else first + 1
        if actions is None:
            known = self._checksum(first) or replace(self._empty, complete=False, version=first)
            return start, replace(known, first_read=start)
        empty = replace(self._empty, first_read=start)
        return start, _advance(empty, first, actions, self.location)

    def _read_checkpoint(self, files: list[Place]) -> list[Mapping[str, Any]] | None:
        """Return the actions of a checkpoint, None without a reader for its files."""
        if files[0].name.endswith(".json"):
            actions: list[Mapping[str, Any]] = list(_actions(files[0]))
        elif self._checkpoint_reader is None:
            return None
        else:
            actions = list(self._checkpoint_reader(list(map(str, files))))
        sidecars = [
            str(self._folder / "_sidecars" / unquote(action["sidecar"]["path"]))
            for action in actions
            if action.get("sidecar")
        ]
        if sidecars and self._checkpoint_reader is None:
            return None
        if sidecars and self._checkpoint_reader is not None:
            actions += self._checkpoint_reader(sidecars)
        return actions

    def _list(self) -> tuple[set[int], dict[int, list[Place]]]:
        """Return the versions of the commits, and the files of complete checkpoints by version."""
        commits: set[int] = set()
        parts: dict[tuple[int, str], list[Place]] = {}
        try:
            names = sorted(entry.name for entry in self._folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return commits, {}
        except OSError as error:  # unknown whether a table exists: that is not the same as no table
            raise TableError(
                f"the log of {self.location} cannot be read: {error}",
                hint="Grant read access to its folder; an object store also needs its file system "
                "among Spark's jars.",
            ) from error
        for name in names:
            if match := _COMMIT.fullmatch(name):
                commits.add(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(name):
                group = (int(match[1]), match[3] or name)
                parts.setdefault(group, []).append(self._folder / name)
        whole = {
            version: files
            for (version, total), files in parts.items()
            if not total.isdigit() or len(files) == int(total)
        }
        return commits, whole

    def _path(self, version: int) -> Place:
        return self._folder / f"{version:020}.json"

    def _read(self, version: int) -> list[dict[str, Any]]:
        try:
            return _actions(self._path(version))
        except FileNotFoundError as error:
            raise self._gone(version) from error

    def _dropped(self) -> TableError:
        return TableError.missing(
            f"there is no Delta table at {self.location}",
            hint="It was dropped, or its `location` is wrong.",
        )

    def _gone(self, version: int) -> TableError:
        commits, _ = self._list()
        newest = self.latest_version()
        if newest is None:
            return self._dropped()
        if any(older < version for older in commits) and version < newest:
            return _damaged(self._path(version), "it is missing between older and newer commits")
        if version > newest:
            return TableError(
                f"the log of {self.location} ends with version {newest}, a later one was asked for",
                hint="The table was rebuilt or restored from a copy since then; plan again.",
            )
        if version == newest:
            return TableError(
                f"the log of {self.location} is damaged: version {newest} is there, and neither a "
                "checkpoint nor the older commits that it builds on",
                hint="Restore the missing files from a backup; without them the table cannot be "
                "read.",
            )
        return TableError(
            f"version {version} of {self.location} is no longer in its log",
            hint="Its log was cleaned up; only newer versions can be read.",
        )


def _instant(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


def _actions(path: Place) -> list[dict[str, Any]]:
    return _parsed(_lines(path), path)


def _lines(path: Place) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TableError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="Grant read access to it, and check what it is.",
        ) from error
    return [line for line in text.split("\n") if line.strip()]


def _parsed(lines: Sequence[str], path: Place) -> list[dict[str, Any]]:
    """Return the actions on the lines of a commit; raises TableError unless each is complete."""
    try:
        actions = [json.loads(line) for line in lines]
    except (RecursionError, ValueError):
        raise _damaged(path, "it does not hold one JSON object per line") from None
    flaw = next(filter(None, map(_flaw, actions)), "" if actions else "it holds no action")
    if flaw:
        raise _damaged(path, flaw)
    return actions


def _damaged(path: Place, flaw: str) -> TableError:
    return TableError(
        f"{path} is damaged: {flaw}",
        hint="Restore this file from a backup; later versions cannot be read without it.",
    )


_ANY = (dict, type(None))
#: Members of actions that are read here, with their types; `commitInfo` may hold anything.
_MEMBERS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "add": {"path": (str,), "partitionValues": (dict,), "dataChange": (bool, type(None))},
    "remove": {"path": (str,), "partitionValues": _ANY, "dataChange": (bool, type(None))},
    "metaData": {"schemaString": (str,), "configuration": _ANY},
    "txn": {"appId": (str,), "version": (int,)},
    "protocol": {
        "minReaderVersion": (int,),
        "minWriterVersion": (int,),
        "readerFeatures": (list, type(None)),
        "writerFeatures": (list, type(None)),
    },
    "deletionVector": {"storageType": (str,), "pathOrInlineDv": (str,), "cardinality": (int,)},
}


def _flaw(action: object) -> str:
    """Return what is wrong with an action; empty if nothing is."""
    if not isinstance(action, dict) or not action:
        return "a line holds no action"
    for kind, body in action.items():
        if body is None:
            continue
        if not isinstance(body, dict):
            return f"its `{kind}` is not a JSON object"
        for name, types in _MEMBERS.get(kind, {}).items():
            if not isinstance(body.get(name), types):
                return f"its `{kind}` has no valid `{name}`"
        if kind in ("add", "remove"):
            values = (body.get("partitionValues") or {}).values()
            if not all(isinstance(value, str | None) for value in values):
                return f"its `{kind}` has no valid `partitionValues`"
            if body.get("deletionVector") is not None:
                return _flaw({"deletionVector": body["deletionVector"]})
        if kind == "metaData" and not _is_readable(body):
            return "its `metaData` has no valid schema and partition columns"
    return ""


def _is_readable(metadata: Mapping[str, Any]) -> bool:
    """Whether a `metaData` action has a schema with its partition columns."""
    try:
        _columns_of(with_metadata(TableState(), metadata))
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def _advance(
    state: TableState, version: int, actions: Sequence[Mapping[str, Any]], location: str
) -> TableState:
    """Return the table after one more commit."""
    previous = state
    for action in actions:
        _refuse_unknown(action.get("protocol") or {}, location)
    metadata = _metadata(actions)
    if metadata is not None:
        if _is_repartitioned(state, metadata):
            # This commit removes all earlier files.
            state = replace(state, partitions={}, emptied=frozenset())
            actions = [action for action in actions if not action.get("remove")]
        state = _retyped(state, with_metadata(state, metadata))
    if _clusters(actions):
        state = replace(state, clustered=True)
    columns, names = _columns_of(state)
    held = _Holders(lambda: previous, location)
    commit = _commit(version, actions, columns, names, held)

    changes: dict[Values, list[tuple[str, Mapping[str, Any]]]] = {}
    for kind in ("remove", "add"):
        for body in (action[kind] for action in actions if action.get(kind)):
            values = _values(body, columns, names, held)
            if values is not None:
                changes.setdefault(values, []).append((kind, body))
    partitions = _held_after(state, changes, commit)
    emptied = (changes.keys() | commit.recorded.keys()) - partitions.keys()
    tokens = dict(state.tokens)
    note_tokens(tokens, commit)
    txns = {a["txn"]["appId"]: a["txn"]["version"] for a in actions if a.get("txn")}
    return replace(
        state,
        version=version,
        commit_id=commit.id,
        partitions=partitions,
        keys=_kept(state, commit),
        appended=_appended(state, commit),
        emptied=state.emptied | emptied if emptied else state.emptied,
        transactions={**state.transactions, **txns} if txns else state.transactions,
        tokens=tokens,
    )


def _after(
    before: Contents, bodies: Sequence[tuple[str, Mapping[str, Any]]], *, touched: bool
) -> Contents | None:
    """Return the contents of a partition after a commit; None for nothing."""
    files = _changed(before.files, bodies)
    if files is not None and not files:
        return None
    # A checkpoint adds files without `dataChange`: their contents are unknown.
    return Contents(files, before.fingerprint if before.files and not touched else None)


def _held_after(
    state: TableState,
    changes: Mapping[Values, Sequence[tuple[str, Mapping[str, Any]]]],
    commit: Commit,
) -> dict[Values, Contents]:
    """Return the contents of all partitions after a commit that changed files of some."""
    partitions = dict(state.partitions)
    nothing = NOTHING if state.complete else UNKNOWN
    for values, bodies in changes.items():
        before = state.partitions.get(values, nothing)
        contents = _after(before, bodies, touched=values in commit.touched)
        if contents is None:
            partitions.pop(values, None)
        elif values in commit.recorded:
            partitions[values] = Contents(contents.files, commit.recorded[values][1])
        else:
            partitions[values] = contents
    return partitions


def _appended(state: TableState, commit: Commit) -> Mapping[tuple[Values, str], tuple[str, str]]:
    """Return which runs appended to which partitions after a commit."""
    if not commit.recorded:
        return state.appended
    told = commit.metadata
    if told.get("mode") != "append":
        found = state.appended.items()
        return {one: run for one, run in found if one[0] not in commit.recorded}
    run = (str(told.get("backfill_id")), str(told.get("run_id")))
    return {**state.appended, **{(key, str(told.get("job"))): run for key in commit.recorded}}


def _kept(state: TableState, commit: Commit) -> Mapping[Values, Contents]:
    """Return the recorded keys after a commit: without those that it may have changed."""
    if state.by is None:
        return {}
    keys = state.keys
    gone = {key for key in keys if any(overlap(key, span) for span in commit.touched)}
    new = {
        key: Contents({("", None): rows}, fingerprint)
        for key, (rows, fingerprint) in commit.recorded.items()
    }
    return {**{key: held for key, held in keys.items() if key not in gone}, **new}


def _clusters(actions: Iterable[Mapping[str, Any]]) -> bool:
    domains = (action.get("domainMetadata") or {} for action in actions)
    return any(one.get("domain") == "delta.clustering" for one in domains)


class _Holders:
    """The partition of each file before a commit that removes files without naming partitions."""

    def __init__(self, before: Callable[[], TableState], location: str) -> None:
        self._before, self._location = before, location
        self._found: dict[str, Values] | None = None

    def of(self, path: str) -> Values | None:
        """Return the partition of a file, None if it did not exist; raises TableError."""
        state = self._before()
        if self._found is None:
            held = state.partitions.items()
            self._found = {path: v for v, contents in held for path, _ in contents.files or ()}
        if path not in self._found and not state.complete:
            if state.by is not None:
                return None, None  # any value
            raise TableError(
                f"version {state.version + 1} of {self._location} removes a file without saying of "
                "which partition, and the log does not reach back to where it was added",
                hint="Name the partitions that changed.",
            )
        return self._found.get(path)


def _changed(
    files: Mapping[File, int | None] | None, bodies: Iterable[tuple[str, Mapping[str, Any]]]
) -> Mapping[File, int | None] | None:
    if files is None:
        return None
    changed = dict(files)
    for kind, body in bodies:
        if kind == "add":
            changed[_file(body)] = _rows(body)
        else:
            changed.pop(_file(body), None)
    return changed


def _metadata(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((a["metaData"] for a in actions if a.get("metaData")), None)


def _is_repartitioned(state: TableState, metadata: Mapping[str, Any]) -> bool:
    """Whether the table gets other partition columns; new names or types of them do not count."""
    new = with_metadata(TableState(by=state.by), metadata)
    (_, names), (_, others) = map(_columns_of, (state, new))
    return names != others


def _retyped(before: TableState, state: TableState) -> TableState:
    """Return the state with its partitions in the forms of new types, such as wider ones."""
    same = [column.type for column in before.columns] == [column.type for column in state.columns]
    if same or state.by is not None:
        return state

    def moved(values: Values) -> Values:
        return tuple(logged(c, text) for c, text in zip(state.columns, values, strict=True))

    partitions = {moved(values): held for values, held in state.partitions.items()}
    return replace(state, partitions=partitions, emptied=frozenset(map(moved, state.emptied)))


def _refuse_unknown(protocol: Mapping[str, Any], location: str) -> None:
    """Raise TableError for a table that cannot be read by its log alone, or not by this release."""
    names = [*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())]
    elsewhere = sorted(_COMMITS_ELSEWHERE.intersection(map(str, names)))
    if elsewhere:
        raise TableError(
            f"{location} has the table feature {elsewhere[0]}: its newest commits are known to its "
            "catalog alone",
            hint="Use a table whose log is in its folder.",
        )
    version = protocol.get("minReaderVersion") or 0
    named = protocol.get("readerFeatures") or () if version == _FEATURES else ()
    unknown = sorted(set(map(str, named)) - _KNOWN_TO_READERS)
    if unknown or version > _FEATURES:
        what = f"the table feature {unknown[0]}" if unknown else f"reader version {version}"
        raise TableError(
            f"{location} needs {what} of Delta, which this release cannot read",
            hint="Drop the feature from the table, or use a release that knows it.",
        )


def with_metadata(state: TableState, metadata: Mapping[str, Any]) -> TableState:
    """Return the table with schema, partition columns and id as its `metaData` action has them."""
    schema = json.loads(metadata["schemaString"])
    types = {field["name"].lower(): _type_name(field) for field in schema["fields"]}
    names = tuple(metadata.get("partitionColumns") or ())
    columns = partition_columns(names, types)
    if state.by is not None:
        by = state.by
        named = {field["name"].lower(): field["name"] for field in schema["fields"]}
        lower = by.name.lower()
        kind = types.get(lower, "")
        columns = (ValueColumn(named.get(lower, by.name), kind, by.by, by.form),)
    return replace(
        state,
        table_id=metadata.get("id"),
        schema=schema,
        configuration=dict(metadata.get("configuration") or {}),
        columns=columns,
        partitioned_by=names,
    )


def _type_name(field: Mapping[str, Any]) -> str:
    """Return the type of a column; Spark stores CHAR types in its metadata."""
    kind, char = field["type"], str((field.get("metadata") or {}).get(CHAR_TYPE))
    if char.startswith("char"):
        return char
    return kind if isinstance(kind, str) else str(kind["type"])


def _columns_of(state: TableState) -> tuple[tuple[PartitionColumn, ...], tuple[str, ...]]:
    """Return the partition columns and their names in the log."""
    physical = {name.lower(): written for name, written in physical_names(state).items()}
    if state.by is not None:
        # By value also the physical partition of a file.
        names = (*(column.name for column in state.columns), *state.partitioned_by)
        return state.columns, tuple(physical.get(name.lower(), name) for name in names)
    return state.columns, tuple(physical[column.name.lower()] for column in state.columns)


def physical_names(state: TableState) -> dict[str, str]:
    """Return the physical name of each column in files and log."""
    return {
        field["name"]: (field.get("metadata") or {}).get(_PHYSICAL_NAME, field["name"])
        for field in state.schema.get("fields", ())
    }


def _commit(
    version: int,
    actions: Sequence[Mapping[str, Any]],
    columns: tuple[PartitionColumn, ...],
    names: tuple[str, ...],
    held: _Holders,
) -> Commit:
    info = _info(actions)
    changed = _changed_files(actions)
    touched = {_values(body, columns, names, held) for body in changed}
    metadata = _our_metadata(info.get("userMetadata"))
    identity = next((c.identity for c in columns if isinstance(c, ValueColumn)), None)
    told = metadata.get("partitions", ()) if metadata.get("by") == identity else ()
    recorded = {tuple(values): (rows, fingerprint) for values, rows, fingerprint in told}
    if identity is not None and recorded and touched:
        touched = set(recorded)
    return Commit(
        version=version,
        touched=frozenset(values for values in touched if values is not None),
        at=_at(info.get("inCommitTimestamp") or info.get("timestamp")),
        id=info.get("txnId") or _text(info.get("inCommitTimestamp") or info.get("timestamp")),
        by=info.get("userName") or info.get("engineInfo"),
        operation=info.get("operation", "unknown operation"),
        metadata=metadata,
        recorded=recorded,
        adds=all("modificationTime" in body for body in changed),  # no `remove` has one
        merged=_merged(info),
        is_by_files=identity is not None and not recorded,
    )


def _changed_files(actions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the files that were added or removed by a change of data."""
    bodies = (a.get("add") or a.get("remove") for a in actions)
    return [body for body in bodies if body and body.get("dataChange", True)]


_INFO: Mapping[str, type] = {
    **dict.fromkeys(("inCommitTimestamp", "timestamp"), int),
    **dict.fromkeys(("operation", "userName", "engineInfo", "userMetadata", "txnId"), str),
    "operationMetrics": dict,
}


def _info(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the members of `commitInfo` that have their usual types; any JSON is allowed there."""
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if a.get("commitInfo")), {})
    return {name: info[name] for name, kind in _INFO.items() if isinstance(info.get(name), kind)}


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _at(milliseconds: int | None) -> datetime | None:
    """Return an instant, None if there is none or no such one."""
    try:
        return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def _merged(info: Mapping[str, Any]) -> Mapping[str, int] | None:
    metrics = info.get("operationMetrics") or {}
    names = {
        f"numTargetRows{what.capitalize()}": what for what in ("inserted", "updated", "deleted")
    }
    counts = {what: _count(metrics.get(name)) for name, what in names.items()}
    known = {what: count for what, count in counts.items() if count is not None}
    return known if info.get("operation") == "MERGE" and len(known) == len(names) else None


def _count(value: object) -> int | None:
    """Return a number that may be written as text, None if it is none."""
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (OverflowError, TypeError, ValueError):
        return None


def _our_metadata(text: str | None) -> Mapping[str, Any]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    ours = document.get(METADATA_KEY) if isinstance(document, dict) else None
    return ours if isinstance(ours, dict) and _is_ours(ours) else {}


def _is_ours(document: Mapping[str, Any]) -> bool:
    """Whether metadata has the members of ours with their types."""
    undone, partitions = document.get("undo_of") or [], document.get("partitions") or []
    undone = [undone] if isinstance(undone, str) else undone
    return (
        isinstance(document.get("token"), str | None)
        and isinstance(document.get("taken_back"), int | None)
        and isinstance(undone, list)
        and all(isinstance(one, str) for one in undone)
        and isinstance(partitions, list)
        and all(isinstance(one, list) and len(one) == 3 for one in partitions)
        and all(isinstance(values, list) for values, _, _ in partitions)
    )


def _values(
    body: Mapping[str, Any],
    columns: tuple[PartitionColumn, ...],
    names: tuple[str, ...],
    held: _Holders,
) -> Values | None:
    """Return the partition of a file, None for one that is removed but never existed."""
    if columns and isinstance(columns[0], ValueColumn):
        if "modificationTime" not in body:  # a `remove`, which has no bounds
            return held.of(body["path"])
        span = columns[0].extent(names[0], body, _stats(body))
        return span and (
            *span,
            *((body.get("partitionValues") or {}).get(name) for name in names[1:]),
        )
    # A `remove` omits NULL keys; some writers only name the file, which is allowed.
    values = body.get("partitionValues")
    if values is None and columns:
        return held.of(body["path"])
    values = values or {}
    return tuple(
        logged(column, values.get(name)) for column, name in zip(columns, names, strict=True)
    )


def _file(body: Mapping[str, Any]) -> File:
    vector = body.get("deletionVector")
    if not vector:
        return body["path"], None
    return body["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


#: The alphabet of Z85, in which the id of a deletion vector's file is written.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_ID_LENGTH = 20


def vector_file(vector: str) -> str | None:
    """Return the path of a deletion vector, as its id in `File` has it; None if it has no file.

    >>> vector_file("uab^-aqEH.-t@S}K{vb[*k^@1")
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    kind, (path, _, _) = vector[0], vector[1:].rpartition("@")
    if kind != "u":
        return path if kind == "p" else None
    prefix, text = path[:-_ID_LENGTH], path[-_ID_LENGTH:]
    number = b""
    for start in range(0, _ID_LENGTH, 5):
        word = 0
        for letter in text[start : start + 5]:
            word = word * len(_Z85) + _Z85.index(letter)
        number += word.to_bytes(4, "big")
    name = f"deletion_vector_{UUID(bytes=number)}.bin"
    return f"{prefix}/{name}" if prefix else name


def _rows(body: Mapping[str, Any]) -> int | None:
    records = _count(_stats(body).get("numRecords"))
    vector = body.get("deletionVector")
    return records - int(vector["cardinality"]) if vector and records is not None else records


def _stats(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the statistics of a file, empty if there are none."""
    try:
        stats = json.loads(body.get("stats") or "{}") or body.get("stats_parsed") or {}
    except (TypeError, ValueError):
        return {}
    return stats if isinstance(stats, dict) else {}
