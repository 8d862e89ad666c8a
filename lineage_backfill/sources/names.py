"""Cache of the names in the lineage as it was last read, one file for each project."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from lineage_backfill.files import private_folder, whole_file
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

Names = tuple[list[DatasetRef], list[JobRef]]

_PROJECTS = 100  # the most recently read ones


def keep_names(snapshot: LineageSnapshot, file: Path) -> None:
    """Write the names of datasets and jobs; an error is ignored, as only completion reads them.

    Names of projects that were not read for long are removed.
    """
    datasets, jobs = sorted(snapshot.datasets), sorted(snapshot.jobs)
    names = [[[ref.namespace, ref.name] for ref in refs] for refs in (datasets, jobs)]
    text = json.dumps(names).encode()
    with suppress(OSError):
        if file.exists() and file.read_bytes() == text:
            file.touch()  # it was read now, whenever it was written
            return
        private_folder(file.parent)
        with whole_file(file, is_private=True) as stream:
            stream.write(text)
        kept = {one: one.stat().st_mtime_ns for one in file.parent.glob("names-*.json")}
        for old in sorted(kept, key=kept.__getitem__)[:-_PROJECTS]:
            old.unlink(missing_ok=True)


def kept_names(file: Path) -> Names:
    """Return the datasets and the jobs in the cache; raises OSError or ValueError."""
    datasets, jobs = json.loads(file.read_text(encoding="utf-8"))
    return [DatasetRef(*one) for one in datasets], [JobRef(*one) for one in jobs]
