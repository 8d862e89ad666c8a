"""Reads the lineage that a project names, as the project's declarations make it."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lineage_backfill.errors import (
    ConfigError,
    DeclarationError,
    UsageError,
)
from lineage_backfill.project import Project
from lineage_backfill.workspace.project import log_time, state_dir

if TYPE_CHECKING:
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.model import DatasetRef, JobRef
    from lineage_backfill.planning.draft import Draft
    from lineage_backfill.project.declarations import Declarations


_QUICKLY_READ = 2_000_000  # bytes of lineage


def draft_project(project: Project, folder: Path, *, now: datetime) -> Draft:
    """Return a first project file for the lineage that `project` names, to stand in `folder`.

    Raises LineageError, and ConfigError where no lineage is named.
    """
    from lineage_backfill.planning.draft import draft

    snapshot = read_source(project)
    lineage = project.lineage
    source: dict[str, str | list[str]] = {}
    if lineage.events:
        source["events"] = [_relative(path, folder) for path in lineage.events]
    elif lineage.snapshot:
        source["snapshot"] = _relative(str(lineage.snapshot), folder)
    elif lineage.marquez and "@" not in urlsplit(lineage.marquez).netloc:
        source["marquez"] = lineage.marquez
    return draft(snapshot, source, now=now)


def _relative(path: str, folder: Path) -> str:
    """Return the path as a project file in the folder names it, whole where it lies elsewhere."""
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def read_lineage(project: Project) -> LineageSnapshot:
    """Return the lineage that the project names, as its declarations make it.

    One dataset stands for all names that a `pattern` matches, and declared parents for their
    children. Raises LineageError, ConfigError where no lineage is named, DeclarationError where a
    parent and a job below it are both declared.
    """
    from lineage_backfill.sources.names import keep_names

    began = time.monotonic()
    snapshot = _declared(project, read_source(project))
    log_time(began, f"lineage: {len(snapshot.jobs)} jobs, {len(snapshot.datasets)} datasets")
    keep_names(snapshot, _names_file(project))
    return snapshot


def known_names(project: Project) -> tuple[list[DatasetRef], list[JobRef]]:
    """Return the datasets and jobs of the lineage as it was last read here; for completion.

    Where it was not read yet, small files are read now. Raises OSError, ValueError or LineageError.
    """
    from lineage_backfill.sources.names import kept_names

    if _names_file(project).exists():
        return kept_names(_names_file(project))
    lineage = project.lineage
    if lineage.events:
        from lineage_backfill.sources.events import EventSource

        size = EventSource(lineage.events).size()
    elif lineage.snapshot:
        size = lineage.snapshot.stat().st_size
    else:
        return [], []
    if size > _QUICKLY_READ:
        return [], []
    snapshot = _declared(project, read_source(project))
    return sorted(snapshot.datasets), sorted(snapshot.jobs)


def _names_file(project: Project) -> Path:
    """Return where the user keeps the names for a project: to look leaves nothing behind in it."""
    import platformdirs

    place = hashlib.sha256(str(project.root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return platformdirs.user_cache_path("lineage-backfill") / f"names-{place}.json"


def pull_lineage(project: Project, file: Path) -> LineageSnapshot:
    """Save the lineage that the project names as a snapshot, just as its source gave it.

    Declarations are applied where it is read, so that it serves whatever they come to be. Raises
    LineageError, ConfigError where no lineage is named, UsageError where it cannot be written.
    """
    from lineage_backfill.sources.snapshot import save_snapshot

    snapshot = read_source(project)
    try:
        save_snapshot(snapshot, file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}", hint="Name another file with --out."
        ) from error
    return snapshot


def read_snapshot(project: Project, file: Path) -> LineageSnapshot:
    """Return the lineage of a saved snapshot, as the project's declarations make it."""
    from lineage_backfill.sources.snapshot import SnapshotSource

    return _declared(project, SnapshotSource(file).read())


def _declared(project: Project, snapshot: LineageSnapshot) -> LineageSnapshot:
    from lineage_backfill.planning.folding import Folding

    return _folded(Folding(project.declarations).fold(snapshot), project.declarations)


def _folded(snapshot: LineageSnapshot, declarations: Declarations) -> LineageSnapshot:
    """Fold children into the parents without edges of their own that are declared by name.

    Whoever declares an Airflow DAG or a Spark application says that it is run as a whole.
    """
    named = {(job.namespace or declarations.namespace, job.name) for job in declarations.jobs}

    def is_declared(ref: JobRef) -> bool:
        return not named.isdisjoint({(ref.namespace, ref.name), (None, ref.name)})

    jobs = snapshot.jobs
    whole = {
        node.parent
        for node in jobs.values()
        if node.parent is not None
        and is_declared(node.parent)
        and not (node.parent in jobs and (jobs[node.parent].reads or jobs[node.parent].writes))
    }
    if not whole:
        return snapshot
    from lineage_backfill.lineage.merge import fold_children

    folded = fold_children(snapshot, whole)
    for ref in jobs:
        if ref not in folded.jobs and is_declared(ref):
            raise DeclarationError(
                f"job {ref} is declared, and so is a parent that runs it as a part of itself",
                hint="Keep the [[job]] of the one that is to be run, and leave the other one out.",
            )
    return folded


def read_source(project: Project) -> LineageSnapshot:
    """Return the lineage that the project names, just as its source gives it.

    Raises LineageError, and ConfigError where no lineage is named.
    """
    lineage = project.lineage
    if lineage.events:
        from lineage_backfill.sources.events import EventSource

        return EventSource(lineage.events).read()
    if lineage.snapshot:
        from lineage_backfill.sources.snapshot import SnapshotSource

        return SnapshotSource(lineage.snapshot).read()
    if lineage.marquez:
        from lineage_backfill.sources.marquez import MarquezSource
        from lineage_backfill.sources.web import WebSettings

        settings = WebSettings(
            headers=lineage.headers, ca_bundle=lineage.ca_bundle, timeout=lineage.timeout
        )
        return MarquezSource(
            lineage.marquez,
            view=lineage.view,
            api_key=lineage.api_key,
            settings=settings,
            cache=state_dir(project) / "cache",
        ).read()
    raise ConfigError(
        "no lineage is named",
        hint="Name it: --events PATH, --marquez URL, --snapshot FILE, or [lineage] in the project.",
    )
