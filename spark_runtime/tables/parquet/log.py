"""A Parquet table's own journal: what was written to it, and the swap that does it, without Spark.

    <table>/_lineage_backfill/
        log/<version>.json   what each write did; version 0 is the table as it was found
        journal.json         the write under way; the next look takes back one that died
        staging/<id>/        rows not yet visible, locked while their writer lives
        trash/<version>/     what that version replaced

Of a table without partitions it lies beside the table, as `.<table>_lineage_backfill`. Neither
Spark nor Hive look into folders of such names.

A write puts the new folder of each partition into its trash, by hard links, and exchanges it with
the one that readers see: one step, before which the partition is old and after which it is new. It
counts once its journal is moved to the log. Stopped before that, every exchange is made once more.
A version of ours lasts until the next one begins: what others did to the files meanwhile is found
by the files' names, sizes and times.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lineage_backfill.project.locations import is_remote
from lineage_backfill.runspec.values import NULL_DIRECTORY
from spark_runtime.errors import (
    RuntimeFailure,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    WriteConflictError,
)
from spark_runtime.spec import write_atomically
from spark_runtime.tables.locks import locked
from spark_runtime.tables.places import local_path, mark
from spark_runtime.tables.scope import describe
from spark_runtime.tables.state import Commit, Contents, TableState, Transaction, note_tokens
from spark_runtime.tables.values import PartitionColumn, Values, partition_columns

FOLDER = "_lineage_backfill"
SCHEMA_VERSION = 2
#: How many days what was replaced is kept, so that it can be restored.
DAYS_KEPT = 7

#: Size and time of change (in ns) of each data file of one folder.
Stamps = Mapping[str, tuple[int, int]]
#: The data files of one partition by folder, relative to the table.
Folders = Mapping[str, Stamps]
Listing = Mapping[Values, Folders]
#: The folders whose files each folder of a partition is to hold.
Sources = Mapping[Values, Mapping[str, Sequence[Path]]]

#: The operations that write no rows.
_CREATE, _FENCE = "CREATE", "FENCE"
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: What a file system answers that cannot exchange two folders, or not these two.
_UNABLE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV, errno.EBUSY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a partition holds: its files, their rows (None: not known) and its fingerprint."""

    folders: Folders = field(default_factory=dict)
    rows: int | None = 0
    fingerprint: str | None = None

    def contents(self) -> Contents:
        """The same without file names: the first folder stands for all files."""
        return Contents(
            {(name, None): self.rows for name in sorted(self.folders)[:1]}, self.fingerprint
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One write: what it does, and all that is known of the table because of it.

    `found` holds the partitions that others had changed, `left` those that the write touched.
    `schema` is that of the rows as Spark writes it, `columns` the partition columns in order.
    `swaps` holds the folders that it exchanges, relative to the table: the inode numbers of the new
    and of the old one.
    """

    version: int
    at: datetime
    operation: str
    transaction: Transaction
    schema: Mapping[str, Any]
    columns: tuple[str, ...]
    swaps: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    found: Mapping[Values, Held] = field(default_factory=dict)
    left: Mapping[Values, Held] = field(default_factory=dict)

    def commit(self) -> Commit:
        """Return what it did."""
        return Commit(
            version=self.version,
            touched=frozenset(self.left),
            operation=self.operation,
            metadata=self.transaction.metadata,
            at=self.at,
            stamps={values: held.folders for values, held in self.left.items()},
        )

    def to_json(self) -> str:
        """Return the record as its file holds it."""
        found, left = _held_to_list(self.found), _held_to_list(self.left)
        document = asdict(replace(self, found={}, left={}))
        changes = {"at": self.at.isoformat(), "found": found, "left": left}
        return json.dumps({"schema_version": SCHEMA_VERSION, **document, **changes})

    @staticmethod
    def from_json(text: str) -> Record:
        """Return the record of a file; raises TableError for one of another version."""
        document = json.loads(text)
        if (version := document.pop("schema_version")) != SCHEMA_VERSION:
            raise TableError(
                f"the log has records of version {version}, and this release reads version "
                f"{SCHEMA_VERSION}",
                hint=f"Use the release that wrote them, or delete the table's {FOLDER}: its rows "
                "stay, and what it replaced cannot be undone any more.",
            )
        changes = {
            "at": datetime.fromisoformat(document["at"]),
            "transaction": Transaction(**document["transaction"]),
            "columns": tuple(document["columns"]),
            "found": _held_from_list(document["found"]),
            "left": _held_from_list(document["left"]),
        }
        return Record(**{**document, **changes})


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
                "by exchanging folders under a lock, which stores do not have",
                hint="Make it a Delta table, or put it on a local disk.",
            )
        self.location = location
        self.root = local_path(location).absolute()
        self._beside = self.root.parent / f".{self.root.name}{FOLDER}"
        self._loaded: tuple[list[Record], tuple[int, int] | None] = [], None

    def latest_version(self) -> int | None:
        """Return the newest version, None if there is no table; raises TableError."""
        self.recover()
        if self.is_recorded():
            return self._load()[-1].version
        if (self.root / "_delta_log").is_dir():
            raise TableError(
                f"{self.location} is a Delta table", hint='Declare it: format = "delta".'
            )
        return 0 if any(_visible(self.root)) else None

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version, at the end of it; the newest one is listed."""
        self.recover()
        newest = self._load()[-1].version if self._load() else 0
        if version in (None, newest):
            return self._now().state
        records, columns = self._look(version)
        return _state(records, columns, self._held(version))

    def left_by(self, version: int) -> TableState:
        """Return the table right after a version, without what others changed before the next."""
        self.recover()
        return _state(*self._look(version), self._held(version, is_end=False))

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
        """Yield the commits in (after, until], oldest first; raises TableError if they are gone."""
        records = self._load()
        if until > (records[-1].version if records else 0):
            raise self._missing()
        for record in records:
            if after < record.version <= until:
                yield record.commit()

    def ever_written(self, state: TableState) -> set[Values]:
        """Return the partitions that were written by a version."""
        found = {*state.partitions, *state.emptied}
        for commit in self.commits(-1, state.version):
            found |= commit.touched
            found.update(tuple(values) for values, *_ in commit.metadata.get("partitions", ()))
        return found

    def is_recorded(self) -> bool:
        """Whether this library knows schema and partition columns of the table.

        Those of a first write that was refused do not count: there is no table yet.
        """
        records = self._load() if self.root.is_dir() else []
        is_written = any(one.operation not in (_CREATE, _FENCE) for one in records)
        return is_written or (bool(records) and any(_visible(self.root)))

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
        with self.exclusively(self.root / FOLDER if columns else self._beside):
            if not self.root.exists():  # another table of that name has been dropped
                for name in ("log", "staging"):
                    shutil.rmtree(self._path(name), ignore_errors=True)
            self.root.mkdir(exist_ok=True)
            records, metadata = self._load(), {}
            if not records:
                log, trash = self._path("log"), self._path("trash")
                shutil.rmtree(trash, ignore_errors=True)  # of a log that is gone
                log.mkdir(exist_ok=True)
                trash.mkdir()
                exchange(log, trash)  # fails here where it cannot be done
                metadata = {"table_id": uuid.uuid4().hex}
            elif self.is_recorded() or not self._is_other(records[-1], schema, columns):
                return
            created = Transaction(app_id="", version=0, metadata=metadata)
            record = replace(self._begun(_CREATE, created), schema=schema, columns=columns)
            self._make(record, {}, {})

    @staticmethod
    def _is_other(known: Record, schema: Mapping[str, Any], columns: tuple[str, ...]) -> bool:
        """Whether the table would be another one, whose log lies at the same place."""
        is_same_place = bool(known.columns) == bool(columns)
        return is_same_place and (known.schema, known.columns) != (schema, columns)

    def recover(self) -> None:
        """Take back a write whose process died in the middle of it."""
        if self._path("journal.json").exists():
            with self.exclusively():
                pass

    @contextmanager
    def exclusively(self, folder: Path | None = None) -> Iterator[None]:
        """Hold the lock for swaps; an unfinished write is reverted first."""
        folder = folder or self._folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "lock"):
                self._take_back()
                yield
        except OSError as error:
            raise TableError(
                f"{self.location} cannot be locked or changed: {error}; nothing was written",
                hint="Free disk space, grant write access to its folders and the one above them, "
                "or use Delta or a file system with locks; then retry the run.",
            ) from error

    @contextmanager
    def staging(self, token: str) -> Iterator[Path]:
        """Yield a folder, not yet there, for the rows of one attempt; it is gone afterwards.

        What dead attempts have left is removed. Raises WriteConflictError where another process is
        at the same attempt.
        """
        folder = self._path("staging", hashlib.sha256(token.encode()).hexdigest()[:16])
        with contextlib.ExitStack() as stack:
            with self.exclusively():
                for entry in _entries(folder.parent):
                    with contextlib.suppress(BlockingIOError), _claimed(entry.path):
                        shutil.rmtree(entry.path, ignore_errors=True)
                folder.mkdir(parents=True, exist_ok=True)  # there if its writer lives
                try:
                    stack.enter_context(_claimed(folder))
                except BlockingIOError as error:
                    raise WriteConflictError(
                        f"another process writes the same attempt to {self.location}",
                        hint="Let it finish.",
                    ) from error
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder / "rows"

    def publish(
        self,
        transaction: Transaction,
        staging: Path,
        make: Callable[[Record, Now, Listing], Record],
        *,
        adds: bool,
    ) -> int:
        """Replace partitions by what is staged, or add it to them, and return the version.

        `make` gets the record begun, the table as it is and what is staged; it refuses by raising,
        or says which partitions are `left` with how many rows. Raises WriteConflictError where
        files came or went after the table was listed. The table is as it was wherever it raises.
        """
        with self.exclusively():
            if not staging.exists() or not self._load():
                raise self._missing()
            now = self._now()
            token = transaction.metadata["token"]
            if token in now.state.tokens:
                return now.state.tokens[token]
            if now.state.transactions.get(transaction.app_id, -1) >= transaction.version:
                raise StaleAttemptError(
                    f"this attempt was replaced by a later one while it wrote to {self.location}; "
                    "nothing was written",
                    hint="Nothing to do: the later attempt completes the run.",
                )
            arrived = list_partitions(staging, now.state.columns)
            record = make(self._begun("WRITE", transaction), now, arrived)
            old = [self.root] if adds else []
            sources = {
                values: {
                    path: [folder / path for folder in (*old, staging)]
                    for path in {**now.listing.get(values, {}), **arrived.get(values, {})}
                }
                for values in record.left
            }
            self._make(record, now.listing, sources)
            return record.version

    def fence(self, transaction: Transaction) -> None:
        """Record the transaction and nothing else, unless a higher one of its app id is there."""
        with self.exclusively():
            state = _state(*self._look(None), {})
            if state.transactions.get(transaction.app_id, -1) < transaction.version:
                self._make(self._begun(_FENCE, transaction), {}, {})

    def undo(self, versions: Sequence[int], transaction: Transaction) -> None:
        """Restore what these versions replaced, in one step.

        What they left must still be there. Raises UndoRefusedError, nothing done.
        """
        with self.exclusively():
            now, undone = self._now(), [self._record(version) for version in sorted(versions)]
            if now.state.transactions.get(transaction.app_id, -1) >= transaction.version:
                return  # another process did it, or a later attempt has begun
            changed = self._changed_since(undone, now.listing)
            if changed is not None:
                raise UndoRefusedError(
                    f"someone else changed {describe(now.state.columns, changed)} of "
                    f"{self.location} after version {undone[0].version}",
                    hint="Leave it as it is, or put the files back by hand.",
                )
            before: dict[Values, Held] = {}
            sources: dict[Values, dict[str, list[Path]]] = {}
            for record in undone:
                held = self._held(record.version - 1)
                for values in record.left.keys() - before.keys():
                    before[values] = held.get(values, Held())
                    sources[values] = {path: [] for path in now.listing.get(values, {})}
                    for path, stamps in before[values].folders.items():
                        sources[values][path] = [self._trash(record.version) / path]
                        if _stamps(sources[values][path][0]) != stamps:
                            raise UndoRefusedError(
                                f"what {path} of {self.location} held before version "
                                f"{record.version} is gone",
                                hint="It was deleted from the trash; restore it from a backup.",
                            )
            record = self._begun("UNDO", transaction)
            record = replace(record, schema=undone[0].schema, left=before)
            self._make(record, now.listing, sources)

    def purge(self, older_than: timedelta) -> None:
        """Delete what was replaced longer ago than this; it can no longer be restored."""
        oldest = datetime.now(UTC) - older_than
        old = [self._trash(one.version) for one in self._load() if one.at <= oldest]
        if old := [path for path in old if path.exists()]:
            with self.exclusively():
                for path in old:
                    shutil.rmtree(path, ignore_errors=True)

    # Under the lock.

    def _begun(self, operation: str, transaction: Transaction) -> Record:
        records, columns = self._look(None)
        return Record(
            version=records[-1].version + 1 if records else 0,
            at=datetime.now(UTC),
            operation=operation,
            transaction=transaction,
            schema=records[-1].schema if records else {},
            columns=tuple(column.name for column in columns),
        )

    def _make(self, record: Record, listing: Listing, sources: Sources) -> None:
        """Let each folder hold the files of its sources, if those listed are all that it held."""
        journal, new = self._path("journal.json"), self._trash(record.version)
        seen = {path: stamps for folders in listing.values() for path, stamps in folders.items()}
        swaps: dict[str, tuple[int, int]] = {}
        left = {}
        shutil.rmtree(new, ignore_errors=True)  # of one that died before it had a journal
        is_begun = False
        try:
            for values, paths in sources.items():
                for path, folders in paths.items():
                    (new / path).mkdir(parents=True)
                    (self.root / path).mkdir(parents=True, exist_ok=True)
                    swaps[path] = _inode(new / path), _inode(self.root / path)
                    for entry in (entry for folder in folders for entry in _entries(folder)):
                        _link(entry, new / path / entry.name)
                held = {path: stamps for path in paths if (stamps := _stamps(new / path))}
                left[values] = replace(record.left[values], folders=held)
            write_atomically(journal, replace(record, swaps=swaps, left=left).to_json())
            is_begun = True
            for path in swaps:
                exchange(new / path, self.root / path)
            for path in swaps:
                self._refuse_unseen(path, new / path, seen.get(path, {}))
            journal.rename(self._file(record.version))
        except BaseException as error:
            is_known = journal.exists() or self._file(record.version).exists()
            if is_begun and not is_known:
                raise self._torn(swaps) from error
            self._take_back()
            if isinstance(error, FileNotFoundError):
                raise self._conflict(f"removed {error.filename}") from error
            raise
        finally:
            if not journal.exists():  # else an empty folder may be a new one
                self._tidy(swaps)

    def _refuse_unseen(self, path: str, out: Path, seen: Stamps) -> None:
        """Raise if what came out of a folder is not what was listed, or someone writes there."""
        changed = sorted(name for name, _ in _stamps(out).items() ^ seen.items())
        changed += [entry.name for entry in _entries(out) if entry.is_dir()]
        if changed:
            raise self._conflict(f"wrote {_join(path, changed[0])}")

    def _missing(self) -> TableError:
        return TableError.missing(
            f"{self.location} has no log of ours any more",
            hint=f"Restore the table, or its {FOLDER}, and retry.",
        )

    def _torn(self, paths: Collection[str]) -> RuntimeFailure:
        """Return the error for a write that can be neither completed nor reverted."""
        if not self.root.exists():
            return self._missing()
        error = WriteConflictError(
            f"someone else deleted {self._folder} while this write exchanged "
            f"{', '.join(sorted(paths)[:3]) or 'the table'}: the previous rows may be gone",
            hint="Compare the table with a backup, restore it, and retry the run.",
        )
        error.stands = True
        return error

    def _conflict(self, what: str) -> WriteConflictError:
        return WriteConflictError(
            f"someone else {what} of {self.location} at the same time; this write was reverted",
            hint="Let the other writer finish (if it died, delete its _temporary folder), "
            "then retry the run.",
        )

    def _take_back(self) -> None:
        """Undo the write that has a journal, and nothing that others did meanwhile."""
        journal = self._path("journal.json")
        try:
            record = Record.from_json(journal.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        left = {p: set(s) for held in record.left.values() for p, s in held.folders.items()}
        trash = self._trash(record.version)
        for path, inodes in record.swaps.items():
            _take_back(self.root / path, trash / path, inodes, left.get(path, set()))
        journal.unlink()
        shutil.rmtree(trash, ignore_errors=True)
        self._tidy(record.swaps)

    def _tidy(self, paths: Collection[str]) -> None:
        """Remove folders of partitions that hold nothing."""
        for path in filter(None, paths):
            with contextlib.suppress(OSError):
                (self.root / path).rmdir()

    # Where things are.

    @property
    def _folder(self) -> Path:
        within = self.root / FOLDER
        return self._beside if self._beside.exists() and not within.exists() else within

    def _path(self, *names: str) -> Path:
        return self._folder.joinpath(*names)

    def _trash(self, version: int) -> Path:
        return self._path("trash", str(version))

    # What the log says.

    def _load(self) -> list[Record]:
        versions = sorted(int(entry.name[:20]) for entry in _entries(self._path("log")))
        records, seen = self._loaded  # taken and put at once: runs of one application share a log
        if records and mark(self._file(records[-1].version)) != seen:
            records = []  # deleted and recreated
        known = records[-1].version if records else -1
        texts = [self._file(v).read_text(encoding="utf-8") for v in versions if v > known]
        if texts:
            records = [*records, *map(Record.from_json, texts)]
            seen = mark(self._file(records[-1].version))
        self._loaded = records, seen
        return records

    def _file(self, version: int) -> Path:
        return self._path("log", f"{version:020}.json")

    def _record(self, version: int) -> Record:
        for record in self._load():
            if record.version == version:
                return record
        raise TableError(f"version {version} of {self.location} is not in its log")

    def _held(self, until: int | None, *, is_end: bool = True) -> dict[Values, Held]:
        """Return what is known of the partitions at the end of a version, or right after it."""
        held: dict[Values, Held] = {}
        for record in self._load():
            is_later = until is not None and record.version > until
            held.update(record.found if is_end or not is_later else {})
            if is_later:
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
        state = replace(_state(records, columns, held), stamps=listing)
        return Now(state=state, listing=listing, others=others)

    def _changed_since(self, undone: Sequence[Record], listing: Listing) -> Values | None:
        """Return a partition that others have changed between these writes, or after them."""
        left: dict[Values, Held] = {}
        for record in undone:
            held = self._held(record.version - 1)
            for values in record.left.keys() & left.keys():
                if held.get(values, Held()).folders != left[values].folders:
                    return values
            left.update(record.left)
        return next((v for v, one in left.items() if listing.get(v, {}) != one.folders), None)

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
                    hint="Correct `columns` in the project file, or move it out of the table.",
                )
            value = None if text == NULL_DIRECTORY else column.found(_unescaped(text))
            walk(Path(entry.path), (*values, value), f"{path}/{entry.name}" if path else entry.name)

    walk(root, (), "")
    return found


def exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step; raises OSError, TableError where that cannot be done."""
    renameat2 = getattr(_LIBC, "renameat2", None)
    paths = os.fsencode(one), os.fsencode(other)
    if renameat2 is None:
        ctypes.set_errno(errno.ENOSYS)
    elif renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return
    error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    if error.errno in _UNABLE:
        raise TableError(
            f"{other} cannot be exchanged with {one} in one step: {error.strerror}",
            hint="Make it a Delta table, or put it on ext4, XFS, Btrfs or tmpfs under Linux; most "
            "network file systems cannot do it, nor can a mount point be exchanged.",
        ) from error
    raise error


def _take_back(live: Path, kept: Path, inodes: tuple[int, int], files: set[str]) -> None:
    """Restore the old folder, at whichever step its writer or an earlier restore died.

    A file that others added to the new one goes to the old one, one that they removed is removed
    there. A folder that they replaced, or took all new files out of, is left as they made it.
    """
    new, old = inodes

    def is_new(folder: Path) -> bool:
        return _inode(folder) == new and (not files or not files.isdisjoint(_names(folder)))

    while not is_new(kept) and _inode(kept) and (is_new(live) or _inode(live) == old):
        for name in _theirs(live, files) if is_new(live) else ():
            with contextlib.suppress(OSError):
                os.link(live / name, kept / name)  # so that a reader sees it at any time
        with contextlib.suppress(FileNotFoundError):
            exchange(kept, live)
    if is_new(kept):
        for name in _theirs(kept, files):
            live.mkdir(parents=True, exist_ok=True)
            if not (live / name).is_dir():
                (kept / name).rename(live / name)
        for name in files - _names(kept):
            (live / name).unlink(missing_ok=True)


@contextmanager
def _claimed(folder: str | Path) -> Iterator[None]:
    """Hold a folder for as long as its process lives; raises BlockingIOError if another does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _link(entry: os.DirEntry[str], target: Path) -> None:
    """Let a file be there too; what is not data, as Spark's mark, may be there already."""
    if entry.is_dir() or (entry.name[0] in "._" and target.exists()):
        return
    try:
        os.link(entry.path, target)
    except PermissionError:  # Linux may forbid links to files of others
        shutil.copy2(entry.path, target)


def _inode(path: Path) -> int:
    """Return what tells a folder from one that came in its place, 0 if there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in _entries(folder)}


def _theirs(folder: Path, ours: Collection[str]) -> list[str]:
    """Return what others put into a folder beside these files, their checksums and Spark's mark."""
    names = {name: name.removeprefix(".").removesuffix(".crc") for name in _names(folder)}
    return [name for name, of in names.items() if not {name, of} & {*ours, "_SUCCESS"}]


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    stamps = {}
    for entry in _visible(folder):
        if entry.is_dir():
            raise TableError(
                f"{entry.path} is a folder within a partition",
                hint="Correct `columns` in the project file: it names all partition columns.",
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
