"""Files of JSON records: gzip, one record per line, then a hash over all of them."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lineage_backfill.files import open_file, whole_file

#: Errors of reading an incomplete file.
NOT_WHOLE = (OSError, EOFError, zlib.error, ValueError)
_CLOSING = "sha256"


def read_records(path: Path) -> Iterator[Any]:
    """Yield the records of a file; they are verified only once the last one was yielded.

    Raises one of NOT_WHOLE if the file is incomplete.
    """
    digest = hashlib.sha256()
    with open_file(path) as file, gzip.open(file) as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except RecursionError as error:
                raise ValueError("a line is nested too deeply") from error
            if isinstance(record, dict) and record.keys() == {_CLOSING}:
                if record[_CLOSING] != digest.hexdigest():
                    raise ValueError("its hash differs")
                if stream.read(1):
                    raise ValueError("data follows its end")
                return
            digest.update(line)
            yield record
    raise ValueError("it is incomplete")


def write_records(path: Path, records: Iterable[Any], *, level: int = 6) -> None:
    """Write a file completely or not at all; the same records give the same bytes.

    `level` is gzip's, from 1 (fast) to 9 (small).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with whole_file(path) as file, gzip.GzipFile("", "wb", level, file, mtime=0) as stream:
        for record in records:
            line = _line(record)
            digest.update(line)
            stream.write(line)
        stream.write(_line({_CLOSING: digest.hexdigest()}))


def _line(record: Any) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
