"""The outbox: the lineage events of a project's own runs, in files of its state folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from lineage_backfill.project.locations import sent_mark


class _Run(msgspec.Struct):
    id: str = msgspec.field(name="runId")


class _Event(msgspec.Struct):
    run: _Run


_EVENT = msgspec.json.Decoder(_Event)


def holds_events(outbox: Path) -> bool:
    """Whether runs have put events into an outbox."""
    return any(outbox.glob("*.ndjson"))


def unsent(outbox: Path, url: str) -> int:
    """Return how many events of an outbox were not sent to an address."""
    count = 0
    for file in outbox.glob("*.ndjson"):
        done = 0
        with suppress(OSError, ValueError):
            done = json.loads(sent_mark(file).read_bytes()).get(url.rstrip("/"), 0)
        if file.stat().st_size > done:
            with file.open("rb") as stream:
                stream.seek(done)
                count += sum(line.endswith(b"\n") for line in stream)
    return count


def unknown_runs(outbox: Path, known: Collection[str]) -> int:
    """Return how many runs of an outbox are not among the known ones, by id."""
    return len(set(_runs(outbox)).difference(known))


def _runs(outbox: Path) -> Iterator[str]:
    for file in outbox.glob("*.ndjson"):
        with file.open("rb") as stream:
            for line in stream:
                with suppress(msgspec.MsgspecError):  # a line that is being written
                    yield _EVENT.decode(line).run.id
