"""OpenLineage events in files, plain or gzip, in one pass.

One per line, in arrays, a single one, or in the lines of a log.
"""

from __future__ import annotations

import glob
import gzip
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from lineage_backfill.errors import EnvironmentMissingError, LineageError, NoLineageError
from lineage_backfill.files import open_file, reason, refuse_endless
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.envelopes import (
    events_of,
    is_log,
    logged_events,
)
from lineage_backfill.sources.event_file import EventFile
from lineage_backfill.sources.parsing import DECODER, collector_paused, parse, parse_event, run_id

#: Endings of event files in a directory, also with `.gz`; a file named itself is always read.
_STRICT = (".json", ".ndjson", ".jsonl")  # holds events alone; others may be the log of a program
SUFFIXES = (*_STRICT, ".log")
#: The longest event, in bytes; lineage is untrusted input.
MAX_EVENT = 64 * 1024 * 1024
_log = logging.getLogger(__name__)
_CHUNK = 1024 * 1024
#: How long to wait for a writer, how often to check, and how recent its last write must be.
_TIMEOUT, _LOOK, _RECENT = 2.0, 0.1, 60.0  # seconds
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_HINT = (
    "Repair or remove that line: nothing is planned from partial lineage. A dump with more around"
    " its events, as records of Kafka, is read if its name ends with .log."
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GZIP_MAGIC = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"  # of byte order


class EventSource:
    """Lineage from files, directories and globs of OpenLineage events, here or at a URL.

    Memory grows with jobs, datasets and runs. A line that is not an event raises a LineageError
    with file and line; with `allow_torn` an incomplete last line is left out, with a warning.
    Events of the runs `ignore` are left out.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        allow_torn: bool = False,
        ignore: Collection[str] = (),
    ) -> None:
        self._paths = [str(path) for path in paths]
        self._allow_torn = allow_torn
        self._ignore = frozenset(ignore)

    def read(self) -> LineageSnapshot:
        """Return the lineage of all events; raises LineageError if a part cannot be read."""
        builder = LineageBuilder()
        notices = self.fold(builder)
        # As of the newest event: the same files always give the same snapshot.
        return builder.snapshot(source="events", taken_at=builder.newest, notices=notices)

    def fold(self, builder: LineageBuilder) -> list[Notice]:
        """Add all events, and return notices; raises LineageError as `read` does."""

        def add_others(event: Any) -> None:
            if run_id(event) not in self._ignore:
                builder.add(event)

        add = add_others if self._ignore else builder.add
        notices: list[Notice] = []
        with collector_paused():
            for path in self._paths:
                for file in _files(path, notices):
                    _log.info("reading %s, %d bytes", file.name, file.size)
                    torn = notices if self._allow_torn else None
                    _fold(file, add, torn)
        return notices


def _files(path: str, notices: list[Notice]) -> list[EventFile]:
    found = _stored(path) if _URL.match(path) else list(_local(path))
    files: list[EventFile] = []
    for file in found:
        if file.is_named or _is_event_file(file.name):
            files.append(file)
        else:
            text = ": not read, by name no event file"
            notices.append(Notice(text, file.name, leaves_out=True))
    if not files:
        raise NoLineageError(
            f"no lineage events at {path}",
            hint="Name a file, a directory or a glob that holds OpenLineage events.",
        )
    return files


def _local(path: str) -> Iterator[EventFile]:
    # pathlib takes no absolute patterns.
    found = [path] if os.path.lexists(path) else glob.glob(path, recursive=True)  # noqa: PTH207
    for one in map(Path, sorted(found)):
        is_named = not one.is_dir()
        for file in [one] if is_named else sorted(_below(one, set())):
            if is_named or not file.name.startswith("."):
                opener = partial(open_file, file, _CHUNK)
                size = _size(file) if is_named or _is_event_file(file.name) else 0
                yield EventFile(str(file), size, opener, is_named)


def _is_event_file(name: str) -> bool:
    return name.removesuffix(".gz").endswith(SUFFIXES)


def _below(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield what is in a folder and the folders below it, also linked ones, each once."""
    seen.add(folder.resolve())
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise _unreadable(folder, error) from error
    for one in entries:
        if not one.is_dir():
            yield one
        elif one.resolve() not in seen:
            yield from _below(one, seen)


def _size(file: Path) -> int:
    """Return the size of a file; raises LineageError if it cannot be read to its end."""
    try:
        refuse_endless(file)
        return file.stat().st_size
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(path: Path | str, error: OSError) -> LineageError:
    """Return the error for a part that cannot be read: without it the lineage is not whole."""
    return LineageError(
        f"{path}: cannot be read: {error.strerror}", hint="Check that path and its permissions."
    )


def _stored(url: str) -> list[EventFile]:
    try:
        from lineage_backfill.sources.object_store import files_at  # needs an extra
    except ModuleNotFoundError as error:
        raise EnvironmentMissingError(
            f"{url} needs {error.name}, which is not installed",
            hint="Install it: pip install 'lineage-backfill[object-store]'",
        ) from error
    return files_at(url)


@dataclass(slots=True)
class _Place:
    """The reader's position in a file, for messages."""

    file: str
    line: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _fold(
    file: EventFile,
    add: Callable[[Any], None],
    torn: list[Notice] | None,
) -> None:
    """Add the events of a file; an incomplete last line is an error, or added to `torn`."""
    place = _Place(file.name)
    with _opened(file) as raw:
        try:
            for value in _values(_unpacked(raw), place, torn):
                for event in events_of(value):
                    add(event)
        except LineageError as error:
            raise LineageError(f"{place}: {error}", hint=error.hint or _HINT) from error
        except (ValueError, RecursionError) as error:
            raise LineageError(f"{place}: not JSON: {error}", hint=_HINT) from error
        except (OSError, EOFError, zlib.error) as error:
            raise LineageError(
                f"{place}: cannot be read from here on: {reason(error)}",
                hint="Copy the file again.",
            ) from error


def _opened(file: EventFile) -> BinaryIO:
    try:
        return file.open()
    except OSError as error:
        raise _unreadable(file.name, error) from error


def _unpacked(raw: BinaryIO) -> BinaryIO:
    packed = raw.read(2) == _GZIP_MAGIC
    raw.seek(0)
    return cast(BinaryIO, gzip.open(raw)) if packed else raw


def _values(stream: BinaryIO, place: _Place, torn: list[Notice] | None) -> Iterator[Any]:
    """Yield each JSON value of a stream: one per line, spread over lines, or in an array."""
    lines = enumerate(iter(partial(stream.readline, MAX_EVENT), b""), 1)
    first = next(((at, line) for at, line in lines if line.removeprefix(_MARK).strip()), None)
    if first is None:
        return
    number, start = first
    if number == 1:
        start = start.removeprefix(_MARK)
    if not place.file.removesuffix(".gz").endswith(_STRICT) and is_log(start):
        for place.line, line in chain([(number, start)], lines):
            yield from logged_events(line)
        return
    if start.lstrip().startswith(b"[") or (start.endswith(b"\n") and not _is_json(start)):
        stream.seek(0)
        with TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="\n") as text:
            yield from _document(text, place)
        return
    for place.line, line in chain([(number, start)], lines):
        try:
            value = parse_event(line)
        except ValueError:
            if line.isspace():
                continue
            if not _is_cut_off(line):
                raise
            whole = _awaited(stream, line)  # a writer may be writing it
            if not _is_cut_off(whole):
                value = parse_event(whole)
            elif torn is None:
                raise LineageError(
                    "the last line is incomplete: its writer was stopped, or is still writing",
                    hint="Try again once the writer has finished; else repair or remove that"
                    " line, or pass --allow-torn-events.",
                ) from None
            else:
                why = ": the incomplete last line is left out (--allow-torn-events)"
                torn.append(Notice(why, str(place), leaves_out=True))
                return
        yield value


def _is_cut_off(line: bytes) -> bool:
    """Whether a last line is the beginning of an event, rather than something else."""
    is_begun = line.lstrip().startswith(b"{")
    if line.endswith(b"\n") or len(line) >= MAX_EVENT or not is_begun:
        return False
    rest = _STRINGS.sub(b"", line)
    return b'"' in rest or len(re.findall(rb"[{[]", rest)) > len(re.findall(rb"[}\]]", rest))


def _awaited(stream: BinaryIO, line: bytes) -> bytes:
    """Return an incomplete line with what is added to it within two seconds."""
    is_written = time.time() - os.fstat(stream.fileno()).st_mtime < _RECENT
    deadline = time.monotonic() + (_TIMEOUT if is_written else 0)
    while not line.endswith(b"\n") and time.monotonic() < deadline:
        time.sleep(_LOOK)
        line += stream.readline(MAX_EVENT)
    return line


def _document(stream: TextIO, place: _Place) -> Iterator[Any]:
    """Yield the values of a text that does not have one per line; arrays element by element."""
    text, at, depth = "", 0, 0
    while True:
        at = _skip(text, at, place)
        if at == len(text):
            text, at = stream.read(_CHUNK), 0
            if not text:
                break
        elif text[at] in "[]":
            depth += 1 if text[at] == "[" else -1
            at += 1
        else:
            try:
                value, end = DECODER.raw_decode(text, at)
            except ValueError:
                # Perhaps cut at the end of the chunk: read twice as much to decide.
                more = stream.read(max(_CHUNK, len(text) - at))
                if not more or len(text) - at > MAX_EVENT:
                    raise
                text, at = text[at:] + more, 0
                continue
            yield value
            place.line += text.count("\n", at, end)
            at = end
    if depth:
        raise LineageError("the array is incomplete", hint="Copy or export the file again.")


def _skip(text: str, at: int, place: _Place) -> int:
    match = _BETWEEN.match(text, at)
    end = match.end() if match else at
    place.line += text.count("\n", at, end)
    return end


def _is_json(line: bytes) -> bool:
    try:
        parse(line)
    except ValueError:
        return False
    return True
