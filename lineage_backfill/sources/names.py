"""The names in the lineage as it was last read, kept for shells that complete them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from lineage_backfill.files import whole_file
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

Names = tuple[list[DatasetRef], list[JobRef]]


def keep_names(snapshot: LineageSnapshot, file: Path) -> None:
    """Write the names of datasets and jobs; where that cannot be done, nothing is kept."""
    datasets, jobs = sorted(snapshot.datasets), sorted(snapshot.jobs)
    text = json.dumps([[[ref.namespace, ref.name] for ref in refs] for refs in (datasets, jobs)])
    with suppress(OSError):
        if file.exists() and file.read_text(encoding="utf-8") == text:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            stream.write(text.encode())


def kept_names(file: Path) -> Names:
    """Return the datasets and the jobs that were kept; raises OSError or ValueError."""
    datasets, jobs = json.loads(file.read_text(encoding="utf-8"))
    return [DatasetRef(*one) for one in datasets], [JobRef(*one) for one in jobs]
