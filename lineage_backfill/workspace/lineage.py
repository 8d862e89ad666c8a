"""Reads the lineage of a project, and applies the project's declarations."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import platformdirs

from lineage_backfill.errors import ConfigError
from lineage_backfill.files import not_written
from lineage_backfill.lineage.events.unread import Unread, unread_facets
from lineage_backfill.lineage.identity.identified import identified
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.ports import EventSample, LineageSource
from lineage_backfill.project import Project
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.settings import LineageSetting
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.names import keep_names, kept_names
from lineage_backfill.sources.packages import create_source
from lineage_backfill.sources.several import SeveralSources
from lineage_backfill.sources.snapshot import SnapshotSource, is_snapshot, save_snapshot
from lineage_backfill.workspace.environment import log_time, state_dir

_SAMPLED = 1_000  # events
_QUICKLY_READ = 2_000_000  # bytes of lineage


class ProjectLineage:
    """The lineage of a project.

    All names that match a `pattern`, or mean the same place, become one dataset; declared parents
    replace their children. Reading raises LineageError, ConfigError if no lineage is named,
    DeclarationError if both a parent and a job below it are declared, or two datasets at one place.
    """

    def __init__(self, project: Project) -> None:
        self._project = project

    def read(self) -> LineageSnapshot:
        """Return the current lineage."""
        began = time.monotonic()
        snapshot = self._declared(self.read_source())
        log_time(began, f"lineage: {len(snapshot.jobs)} jobs, {len(snapshot.datasets)} datasets")
        keep_names(snapshot, self._names_file)
        return snapshot

    def read_source(self) -> LineageSnapshot:
        """Return the lineage of the source, without the declarations."""
        snapshot = self._source().read()
        said = left_out(self._project.lineage)
        return replace(snapshot, warnings=(*snapshot.warnings, *said)) if said else snapshot

    def read_to_draft(self) -> LineageSnapshot:
        """Return the lineage as with a project file without declarations."""
        # Folders of partitions show a table's calendar: they are kept separate.
        return identified(self.read_source(), Declarations(), folders=False)

    def refresh(self) -> LineageSnapshot:
        """Clear the cache of Marquez, read the lineage in full, and return it."""
        for file in self._cache.glob("marquez-*"):
            file.unlink(missing_ok=True)
        return self.read()

    def read_file(self, file: Path) -> LineageSnapshot:
        """Return the lineage of a saved snapshot."""
        return self._declared(SnapshotSource(file).read())

    def unread_facets(self) -> tuple[int, list[Unread]]:
        """Return the number of sampled events, and their facets that are not understood.

        From Marquez, the newest events are sampled; a saved snapshot has none.
        """
        sources = map(self._single, self._project.lineage.parts)
        events = [
            event
            for source in sources
            if isinstance(source, EventSample)
            for event in source.sample(_SAMPLED)
        ]
        return len(events), unread_facets(events)

    def known_names(self) -> tuple[list[DatasetRef], list[JobRef]]:
        """Return the datasets and jobs as they were last read here, for completion.

        If they were not read yet, small files are read now. Raises OSError, ValueError or
        LineageError.
        """
        if self._names_file.exists():
            return kept_names(self._names_file)
        parts = self._project.lineage.parts
        if not parts or sum(map(_size, parts)) > _QUICKLY_READ:
            return [], []
        snapshot = self._declared(self.read_source())
        return sorted(snapshot.datasets), sorted(snapshot.jobs)

    def is_snapshot(self, file: Path) -> bool:
        """Whether a file is a saved snapshot of any version."""
        return is_snapshot(file)

    def save(self, file: Path) -> LineageSnapshot:
        """Save the lineage of the source as a snapshot, and return it.

        Declarations are applied when it is read, so later changes apply too. Raises UsageError if
        it cannot be written, and BackfillError if the disk is full.
        """
        snapshot = self.read_source()
        try:
            save_snapshot(snapshot, file)
        except OSError as error:
            raise not_written(file, error) from error
        return snapshot

    def _source(self) -> LineageSource:
        lineage = self._project.lineage
        found = [(one.kind, self._single(one)) for one in lineage.parts]
        if lineage.sources:
            return SeveralSources(found)
        return found[0][1] if found else _ProjectAlone(self._project.declarations)

    def _single(self, lineage: LineageSetting) -> LineageSource:
        if lineage.events:
            return EventSource(
                lineage.events, allow_torn=lineage.allow_torn, ignore=lineage.ignore_runs
            )
        if lineage.snapshot:
            return SnapshotSource(lineage.snapshot)
        if lineage.source:
            return create_source(
                lineage.source, lineage.source_settings, project=self._project.root
            )
        # Slow to load, and only a server needs them.
        from lineage_backfill.http import HttpSettings
        from lineage_backfill.sources.marquez import MarquezSource

        return MarquezSource(
            lineage.marquez or "",
            api_key=lineage.api_key,
            settings=HttpSettings(
                headers=lineage.headers, ca_bundle=lineage.ca_bundle, timeout=lineage.timeout
            ),
            cache=self._cache if lineage.cache else None,
            ignore=lineage.ignore_runs,
        )

    @property
    def _cache(self) -> Path:
        return state_dir(self._project) / "cache"

    @cached_property
    def _names_file(self) -> Path:
        """The file with the names of this project in the user's cache; completion only reads it."""
        place = str(self._project.root).encode("utf-8", "surrogateescape")
        name = f"names-{hashlib.sha256(place).hexdigest()[:16]}.json"
        return platformdirs.user_cache_path("lineage-backfill") / name

    def _declared(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        lineage = self._project.lineage
        return identified(
            snapshot,
            self._project.declarations,
            edges_of=lineage.edges_of,
            applications=lineage.fold,
        )


class _ProjectAlone:
    """The lineage of a project without a source: its jobs declare all reads and writes."""

    def __init__(self, declarations: Declarations) -> None:
        self._jobs = declarations.jobs

    def read(self) -> LineageSnapshot:
        """Return an empty lineage; the planner adds the declared edges.

        Raises ConfigError if a job does not declare its writes, as lineage is then needed.
        """
        open_ = next((job.name for job in self._jobs if not job.writes), None)
        if self._jobs and open_ is None:
            return LineageSnapshot.of([], source="project")
        raise ConfigError(
            "no lineage is named" + (f", and job {open_} declares no `writes`" if open_ else ""),
            hint="Name it: --events PATH, --marquez URL, --snapshot FILE, or [lineage] in the"
            " project file. Without lineage, every [[job]] declares its `reads` and `writes`;"
            " `init --example` writes such a file.",
        )


def _size(lineage: LineageSetting) -> int:
    """Return the number of bytes of a source; that of a server is more than can be read quickly."""
    if lineage.events:
        return EventSource(lineage.events).size()
    return lineage.snapshot.stat().st_size if lineage.snapshot else _QUICKLY_READ + 1


def left_out(lineage: LineageSetting) -> tuple[str, ...]:
    """Return warnings about what the user left out: code, and the runs of `ignore_runs`."""
    code = ("--no-code leaves out what the code of the project declares",) * lineage.no_code
    runs = ", ".join(lineage.ignore_runs)
    if not runs:
        return code
    kinds = [one.kind for one in lineage.parts]
    others = [kind for kind in kinds if kind not in ("events", "marquez")]
    if "snapshot" in kinds:
        text = f"`ignore_runs` changes no saved snapshot: save it again without {runs}"
    elif others:
        text = f"`ignore_runs` is not known to the lineage source {others[0]!r}: {runs}"
    else:
        text = f"`ignore_runs` leaves these runs out of the lineage: {runs}"
    return (*code, text)
