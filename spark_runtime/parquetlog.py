"""A Parquet table's own journal: what was written to it, and the swap that does it, without Spark.

    <table>/_lineage_backfill/
        log/<version>.json   what each write did; version 0 is the table as it was found
        journal.json         the write under way; once it is there, the next process finishes it
        staging/<id>/        rows not yet visible; <id>.lock is held while their writer lives
        trash/<version>/     what that version replaced

Neither Spark nor Hive look into a folder of such a name. A version of ours lasts until the next one
begins: what others did to the files meanwhile is found by the files' names, sizes and times.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lineage_backfill.project.locations import is_remote
from lineage_backfill.runspec.values import NULL_DIRECTORY
from spark_runtime.errors import (
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    WriteConflictError,
)
from spark_runtime.locks import locked
from spark_runtime.places import local_path, mark
from spark_runtime.scope import describe
from spark_runtime.spec import write_atomically
from spark_runtime.state import Commit, Contents, File, TableState, Transaction, note_tokens
from spark_runtime.values import PartitionColumn, Values, partition_columns

FOLDER = "_lineage_backfill"
SCHEMA_VERSION = 1
#: How many days what was replaced is kept, so that it can be put back.
DAYS_KEPT = 7

#: Size and time of change (in ns) of each data file of one folder.
Stamps = Mapping[str, tuple[int, int]]
#: The data files of one partition by folder, relative to the table.
Folders = Mapping[str, Stamps]
Listing = Mapping[Values, Folders]

_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a partition holds: its files, their rows (None: not known) and its fingerprint."""

    folders: Folders = field(default_factory=dict)
    rows: int | None = 0
    fingerprint: str | None = None

    def contents(self) -> Contents:
        """The same without file names: the folders stand for their files."""
        counts: list[int | None] = [None] * len(self.folders)
        if self.rows is not None:
            counts = [self.rows, *[0] * (len(self.folders) - 1)]
        files: dict[File, int | None] = {
            (name, None): count for name, count in zip(self.folders, counts, strict=True)
        }
        return Contents(files, self.fingerprint)


@dataclass(frozen=True, slots=True)
class Swap:
    """One path that changes: what is there goes to the trash, then what is staged comes in.

    All three are relative to the table; None where there is nothing to move.
    """

    live: str
    staged: str | None
    trash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One write: what it does, and all that is known of the table because of it.

    `found` holds the partitions that others had changed, `left` those that the write touched.
    `schema` is that of the rows as Spark writes it, `columns` the partition columns in order.
    """

    version: int
    at: datetime
    operation: str
    transaction: Transaction
    schema: Mapping[str, Any]
    columns: tuple[str, ...]
    swaps: tuple[Swap, ...] = ()
    found: Mapping[Values, Held] = field(default_factory=dict)
    left: Mapping[Values, Held] = field(default_factory=dict)

    def commit(self) -> Commit:
        """Return what it did."""
        return Commit(
            version=self.version,
            touched=frozenset(self.left),
            operation=self.operation,
            read_version=self.version - 1,
            metadata=self.transaction.metadata,
            at=self.at,
        )

    def to_json(self) -> str:
        """Return the record as its file holds it."""
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "version": self.version,
                "at": self.at.isoformat(),
                "operation": self.operation,
                "app_id": self.transaction.app_id,
                "attempt": self.transaction.version,
                "metadata": self.transaction.metadata,
                "schema": self.schema,
                "columns": self.columns,
                "swaps": [[swap.live, swap.staged, swap.trash] for swap in self.swaps],
                "found": _held_to_list(self.found),
                "left": _held_to_list(self.left),
            }
        )

    @staticmethod
    def from_json(text: str) -> Record:
        """Return the record of a file."""
        document = json.loads(text)
        return Record(
            version=document["version"],
            at=datetime.fromisoformat(document["at"]),
            operation=document["operation"],
            transaction=Transaction(
                app_id=document["app_id"],
                version=document["attempt"],
                metadata=document["metadata"],
            ),
            schema=document["schema"],
            columns=tuple(document["columns"]),
            swaps=tuple(Swap(*swap) for swap in document["swaps"]),
            found=_held_from_list(document["found"]),
            left=_held_from_list(document["left"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A table as it is: `others` holds the partitions that are not as its log says."""

    state: TableState
    listing: Listing
    others: Mapping[Values, Held]


class ParquetLog:
    """The versions of one Parquet table; `location` is a path or a `file:` URL."""

    def __init__(self, location: str) -> None:
        if is_remote(location):
            raise TableError(
                f"{location} is not on a local or mounted file system: Parquet tables are changed "
                "by renames under a lock, which stores do not have",
                hint="make it a Delta table, or mount a file system whose files can be locked",
            )
        self.location = location
        self.root = local_path(location)
        self._folder = self.root / FOLDER
        self._log = self._folder / "log"
        self._journal = self._folder / "journal.json"
        self._records: list[Record] = []
        self._mark: tuple[int, int] | None = None

    def latest_version(self) -> int | None:
        """Return the newest version, None if there is no table; raises TableError."""
        self.recover()
        records = self._load()
        if records:
            return records[-1].version
        if (self.root / "_delta_log").is_dir():
            raise TableError(f"{self.location} is a Delta table", hint='say so: format = "delta"')
        return 0 if any(_visible(self.root)) else None

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version, at the end of it; the newest one is listed."""
        self.recover()
        newest = self._load()[-1].version if self._load() else 0
        if version in (None, newest):
            return self._now().state
        records, columns = self._look(version)
        return _state(records, columns, self._held(version))

    def now(self) -> Now:
        """Return the table as it is, file by file."""
        self.recover()
        return self._now()

    def touched_at(self, now: Now) -> dict[Values, datetime]:
        """Return when the files of each partition came, as the file system tells.

        Of a partition that others have removed it is when the folder that held it has changed.
        """
        times = {
            values: max(changed for stamps in folders.values() for _, changed in stamps.values())
            for values, folders in now.listing.items()
        }
        logged = self._held(now.state.version)
        for values in now.others.keys() - times.keys():
            held = [self.root / name for name in logged[values].folders]
            places = [next(one for one in path.parents if one.exists()) for path in held]
            times[values] = max(place.stat().st_mtime_ns for place in (places or [self.root]))
        return {
            values: datetime.fromtimestamp(at / 1_000_000_000, UTC) for values, at in times.items()
        }

    def commits(self, after: int, until: int) -> Iterator[Commit]:
        """Yield the commits in (after, until], oldest first."""
        for record in self._load():
            if after < record.version <= until:
                yield record.commit()

    def is_recorded(self) -> bool:
        """Whether this library knows schema and partition columns of the table."""
        return bool(self._load())

    def column_names(self) -> tuple[str, ...]:
        """Return the partition columns that the folders name."""
        names: list[str] = []
        folder = self.root
        while first := next((e for e in _visible(folder) if e.is_dir() and "=" in e.name), None):
            names.append(_unescaped(first.name.partition("=")[0]))
            folder = Path(first.path)
        return tuple(names)

    def create(self, schema: Mapping[str, Any], columns: tuple[str, ...]) -> None:
        """Record what the table looks like; files that are there already are its first version."""
        with self.exclusively():
            if not self._load():
                metadata = {"table_id": uuid.uuid4().hex}
                transaction = Transaction(app_id="", version=0, metadata=metadata)
                self._make(
                    Record(
                        version=0,
                        at=datetime.now(UTC),
                        operation="CREATE",
                        transaction=transaction,
                        schema=schema,
                        columns=columns,
                    )
                )

    def recover(self) -> None:
        """Finish a write whose process died in the middle of it."""
        if self._journal.exists():
            with self.exclusively():
                pass

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Hold the lock for swaps; an unfinished journal is finished first."""
        with contextlib.ExitStack() as stack:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self._folder / "lock"))
            except OSError as error:
                raise TableError(
                    f"{self.location} cannot be locked: {error}",
                    hint="a Parquet table needs a file system with locks; use Delta elsewhere",
                ) from error
            self._finish()
            yield

    @contextmanager
    def staging(self, token: str) -> Iterator[Path]:
        """Yield a folder, not yet there, for the rows of one attempt; it is gone afterwards.

        What dead attempts have left is removed. Raises WriteConflictError where another process is
        at the same attempt.
        """
        folder = self._folder / "staging" / hashlib.sha256(token.encode()).hexdigest()[:16]
        with contextlib.ExitStack() as stack:
            with self.exclusively():
                folder.parent.mkdir(exist_ok=True)
                sign = stack.enter_context(folder.with_suffix(".lock").open("w", encoding="utf-8"))
                try:
                    fcntl.flock(sign, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise WriteConflictError(
                        f"another process writes the same attempt to {self.location}",
                        hint="let it finish",
                    ) from error
                shutil.rmtree(folder, ignore_errors=True)
                self._sweep()
            try:
                yield folder
            finally:
                if not self._journal.exists():  # else the rows are needed to finish what it holds
                    shutil.rmtree(folder, ignore_errors=True)
                Path(sign.name).unlink(missing_ok=True)

    def publish(self, transaction: Transaction, make: Callable[[Now], Record]) -> int:
        """Make the swaps of a record and return its version; once journalled, it is made.

        `make` gets the table as it is, and refuses by raising. Raises WriteConflictError where
        files were replaced that came after the table was listed; they are back then.
        """
        with self.exclusively():
            now = self._now()
            token = transaction.metadata["token"]
            if token in now.state.tokens:
                return now.state.tokens[token]
            if now.state.transactions.get(transaction.app_id, -1) >= transaction.version:
                raise StaleAttemptError(
                    f"this attempt was overtaken by a later one while it wrote to {self.location}; "
                    "nothing was written",
                    hint="nothing to do: the later attempt writes what is missing",
                )
            record = make(now)
            self._make(record)
            self._refuse_unseen(record, now.listing)
            return record.version

    def fence(self, transaction: Transaction) -> None:
        """Record the transaction and nothing else, unless a higher one of its app id is there."""
        with self.exclusively():
            records, columns = self._look(None)
            state = _state(records, columns, {})
            if state.transactions.get(transaction.app_id, -1) < transaction.version:
                self._make(
                    Record(
                        version=state.version + 1,
                        at=datetime.now(UTC),
                        operation="FENCE",
                        transaction=transaction,
                        schema=state.schema,
                        columns=tuple(column.name for column in columns),
                    )
                )

    def undo(self, versions: Sequence[int], transaction: Transaction) -> None:
        """Put back what these versions replaced, in one step.

        What they left must still be there. Raises UndoRefusedError, nothing done.
        """
        with self.exclusively():
            now, undone = self._now(), [self._record(version) for version in sorted(versions)]
            if now.state.transactions.get(transaction.app_id, -1) >= transaction.version:
                return  # another process did it, or a later attempt has begun
            left = {values: held for record in undone for values, held in record.left.items()}
            changed = [v for v, held in left.items() if now.listing.get(v, {}) != held.folders]
            if changed:
                raise UndoRefusedError(
                    f"somebody else changed {describe(now.state.columns, changed[0])} of "
                    f"{self.location} after version {undone[-1].version}",
                    hint="leave it as it is, or put the files back by hand",
                )
            self._make(self._undoing(now.state, undone, transaction))

    def purge(self, older_than: timedelta) -> None:
        """Delete what was replaced longer ago than this; it cannot be put back any more."""
        oldest = time.time() - older_than.total_seconds()
        old = [e for e in _entries(self._folder / "trash") if e.stat().st_mtime < oldest]
        if old:
            with self.exclusively():
                for entry in old:
                    shutil.rmtree(entry.path, ignore_errors=True)

    # Under the lock.

    def _make(self, record: Record) -> None:
        self._log.mkdir(exist_ok=True)
        write_atomically(self._journal, record.to_json())
        self._finish()

    def _finish(self) -> None:
        """Make what the journal holds; each step leaves traces by which the next one is found."""
        try:
            text = self._journal.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        record = Record.from_json(text)
        for swap in record.swaps:
            self._swap(swap)
        self._journal.rename(self._path(record.version))

    def _swap(self, swap: Swap) -> None:
        live = self.root / swap.live
        staged = self.root / swap.staged if swap.staged is not None else None
        trash = self.root / swap.trash if swap.trash is not None else None
        if staged is not None and not staged.exists():
            return  # it is where it belongs already
        if trash is not None and not trash.exists():
            trash.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                live.rename(trash)
        if staged is not None:
            if live.exists():
                raise WriteConflictError(
                    f"{live} appeared while it was being replaced",
                    hint="move it away, and see who else writes to this table",
                )
            live.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(live)

    def _refuse_unseen(self, record: Record, listing: Listing) -> None:
        """Raise if files were added to what was replaced after it was listed."""
        seen = {name: stamps for folders in listing.values() for name, stamps in folders.items()}
        unseen = [
            swap.live
            for swap in record.swaps
            if swap.trash is not None
            and swap.live in seen
            and _stamps(self.root / swap.trash) != seen[swap.live]
        ]
        if unseen:
            token = f"unseen:{record.transaction.metadata['token']}"
            transaction = replace(
                record.transaction,
                app_id=f"{record.transaction.app_id}/taken-back",
                metadata={"token": token, "taken_back": record.version},
            )
            self._make(self._undoing(self._now().state, [record], transaction))
            raise WriteConflictError(
                f"somebody else wrote to {unseen[0]} of {self.location} at the same time; "
                "their rows are there, this write was taken back",
                hint="let the other writer finish, then retry the run",
            )

    def _undoing(
        self, state: TableState, undone: Sequence[Record], transaction: Transaction
    ) -> Record:
        version = state.version + 1
        first: dict[str, Swap] = {}
        last: dict[str, Swap] = {}
        before: dict[Values, Held] = {}
        for record in undone:
            held = self._held(record.version - 1)
            for swap in record.swaps:
                first.setdefault(swap.live, swap)
                last[swap.live] = swap
            for values in record.left:
                before.setdefault(values, held.get(values, Held()))
        for path, swap in first.items():
            if swap.trash is not None and not (self.root / swap.trash).exists():
                raise UndoRefusedError(
                    f"what {path} of {self.location} held before version {undone[0].version} is "
                    "gone",
                    hint="it was deleted from the trash; restore it from a backup",
                )
        swaps = [
            Swap(
                live=path,
                staged=first[path].trash,
                trash=None if last[path].staged is None else _trash(version, path),
            )
            for path in reversed(last)
        ]
        return Record(
            version=version,
            at=datetime.now(UTC),
            operation="UNDO",
            transaction=transaction,
            schema=undone[0].schema,
            columns=undone[0].columns,
            swaps=tuple(swap for swap in swaps if swap.staged or swap.trash),
            left=before,
        )

    def _sweep(self) -> None:
        """Remove what dead writers have staged; their locks died with them."""
        names = {Path(entry.name).stem for entry in _entries(self._folder / "staging")}
        for path in (self._folder / "staging" / name for name in names):
            sign = path.with_suffix(".lock")
            with contextlib.suppress(OSError), sign.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                sign.unlink(missing_ok=True)

    # What the log says.

    def _load(self) -> list[Record]:
        versions = sorted(int(entry.name[:20]) for entry in _entries(self._log))
        if self._records and mark(self._path(self._records[-1].version)) != self._mark:
            self._records = []  # deleted and recreated
        known = self._records[-1].version if self._records else -1
        new = [
            Record.from_json(self._path(v).read_text(encoding="utf-8"))
            for v in versions
            if v > known
        ]
        if new:
            self._records = [*self._records, *new]
            self._mark = mark(self._path(new[-1].version))
        return self._records

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _record(self, version: int) -> Record:
        for record in self._load():
            if record.version == version:
                return record
        raise TableError(f"version {version} of {self.location} is not in its log")

    def _held(self, until: int | None) -> dict[Values, Held]:
        """Return what is known of the partitions at the end of a version."""
        held: dict[Values, Held] = {}
        for record in self._load():
            held.update(record.found)
            if until is not None and record.version > until:
                break
            held.update(record.left)
        return held

    def _now(self) -> Now:
        """Return the table as it is; rows of partitions that others have changed are not known."""
        records, columns = self._look(None)
        listing = list_partitions(self.root, columns)
        logged = self._held(records[-1].version if records else None)
        held = {
            values: one
            if (one := logged.get(values)) is not None and one.folders == folders
            else Held(folders=folders, rows=None)
            for values, folders in listing.items()
        }
        others = {
            values: held.get(values, Held())
            for values in listing.keys() | logged.keys()
            if listing.get(values, {}) != logged.get(values, Held()).folders
        }
        return Now(state=_state(records, columns, held), listing=listing, others=others)

    def _look(self, version: int | None) -> tuple[list[Record], tuple[PartitionColumn, ...]]:
        """Return the records up to a version, and the partition columns as of then."""
        records = [r for r in self._load() if version is None or r.version <= version]
        schema: Mapping[str, Any] = records[-1].schema if records else {}
        names = records[-1].columns if records else self.column_names()
        types = {f["name"].lower(): str(f["type"]) for f in schema.get("fields", ())}
        return records, partition_columns(names, {n.lower(): "string" for n in names} | types)


def _state(
    records: Sequence[Record], columns: tuple[PartitionColumn, ...], held: Mapping[Values, Held]
) -> TableState:
    tokens: dict[str, int] = {}
    for record in records:
        note_tokens(tokens, record.commit())
    transactions = [record.transaction for record in records if record.transaction.app_id]
    return TableState(
        version=records[-1].version if records else 0,
        table_id=records[0].transaction.metadata.get("table_id") if records else None,
        columns=columns,
        schema=records[-1].schema if records else {},
        partitions={values: one.contents() for values, one in held.items() if one.folders},
        transactions={one.app_id: one.version for one in transactions},
        tokens=tokens,
    )


def list_partitions(root: Path, columns: Sequence[PartitionColumn]) -> Listing:
    """Return the data files below a folder by partition; raises TableError for what is none."""
    found: dict[Values, dict[str, Stamps]] = {}

    def walk(folder: Path, values: Values, path: str) -> None:
        if len(values) == len(columns):
            if stamps := _stamps(folder):
                found.setdefault(values, {})[path] = stamps
            return
        column = columns[len(values)]
        for entry in _visible(folder):
            name, separator, text = entry.name.partition("=")
            if not separator or _unescaped(name).lower() != column.name.lower():
                raise TableError(
                    f"{entry.path} is not of the form {column.name}=…",
                    hint="correct `columns` in the project file, or move it out of the table",
                )
            value = None if text == NULL_DIRECTORY else column.found(_unescaped(text))
            walk(Path(entry.path), (*values, value), f"{path}/{entry.name}" if path else entry.name)

    walk(root, (), "")
    return found


def swaps_for(
    version: int,
    *,
    root: Path,
    staged: str,
    arrived: Listing,
    listing: Listing,
    replaced: Collection[Values],
    adds: bool,
) -> Iterator[Swap]:
    """Yield what must move so that staged rows replace these partitions, or are added to them.

    Partitions move as folders, in two renames; the files of an unpartitioned table, and those that
    are added, one by one.
    """
    for values in replaced:
        old, new = listing.get(values, {}), arrived.get(values, {})
        if adds or values == ():
            for name, stamps in () if adds else old.items():
                for file in stamps:
                    yield Swap(_join(name, file), None, _trash(version, _join(name, file)))
            for name, stamps in new.items():
                for file in stamps:
                    yield Swap(_join(name, file), _join(staged, name, file), None)
            continue
        for name in {**old, **new}:
            yield Swap(
                live=name,
                staged=_join(staged, name) if name in new else None,
                trash=_trash(version, name) if (root / name).exists() else None,
            )


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _trash(version: int, path: str) -> str:
    return f"{FOLDER}/trash/{version}/{path}"


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    stamps = {}
    for entry in _visible(folder):
        if entry.is_dir():
            raise TableError(
                f"{entry.path} is a folder within a partition",
                hint="correct `columns` in the project file: it names all partition columns",
            )
        stat = entry.stat()
        stamps[entry.name] = (stat.st_size, stat.st_mtime_ns)
    return stamps


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what Spark sees of a folder."""
    for entry in _entries(folder):
        if not entry.name.startswith(".") and (entry.name[0] != "_" or "=" in entry.name):
            yield entry


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:  # not knowing what is there is not the same as nothing
        raise TableError(f"{folder} cannot be read: {error}") from error


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _held_to_list(held: Mapping[Values, Held]) -> list[Any]:
    return [[v, one.folders, one.rows, one.fingerprint] for v, one in held.items()]


def _held_from_list(rows: Sequence[Any]) -> dict[Values, Held]:
    return {
        tuple(values): Held(
            folders={
                name: {file: (size, changed) for file, (size, changed) in stamps.items()}
                for name, stamps in folders.items()
            },
            rows=count,
            fingerprint=fingerprint,
        )
        for values, folders, count, fingerprint in rows
    }
