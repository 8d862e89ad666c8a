"""Reads the lineage of a project, and applies the project's declarations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from lineage_backfill.errors import ConfigError
from lineage_backfill.files import not_written
from lineage_backfill.lineage.identity.identified import identified
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.plans.notice import Notice
from lineage_backfill.ports import LineageSource
from lineage_backfill.project import Project
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.settings import LineageSetting
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.outbox import holds_events, unknown_runs, unsent
from lineage_backfill.sources.packages import create_source
from lineage_backfill.sources.several import SeveralSources
from lineage_backfill.sources.snapshot import SnapshotSource, save_snapshot
from lineage_backfill.workspace.environment import log_time, state_dir


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
        return snapshot

    def read_source(self) -> LineageSnapshot:
        """Return the lineage of the source, without the declarations."""
        snapshot = self._source().read()
        more = (*_left_out(self._project.lineage), *self._not_held(snapshot))
        return replace(snapshot, notices=(*snapshot.notices, *more))

    def read_to_draft(self, declarations: Declarations) -> LineageSnapshot:
        """Return the lineage as with a project file of these declarations."""
        # Folders of partitions show a table's calendar: they are kept separate.
        return identified(self.read_source(), declarations, folders=False)

    def read_file(self, file: Path) -> LineageSnapshot:
        """Return the lineage of a saved snapshot."""
        return self._declared(SnapshotSource(file).read())

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
        return found[0][1] if found else _ProjectAlone(self._project)

    def _not_held(self, snapshot: LineageSnapshot) -> Iterator[Notice]:
        """Yield a warning if the sources lack events of the project's own runs."""
        lineage, outbox = self._project.lineage, self._project.outbox
        if not lineage.parts or not holds_events(outbox):
            return
        if lineage.address:
            if count := unsent(outbox, lineage.address):
                yield Notice(
                    f"events of this project's runs that {lineage.address} does not have:"
                    f" {count:,}; send them with `python -m spark_runtime replay`"
                )
        elif count := unknown_runs(outbox, self._known_runs(snapshot)):
            yield Notice(
                f"runs of this project that the lineage does not hold: {count:,}; name their"
                f' events among its sources, {{ source = "events", events = ["{outbox}"] }}'
            )

    def _known_runs(self, snapshot: LineageSnapshot) -> set[str]:
        return {run.run_id for run in snapshot.history} | {*self._project.lineage.ignore_runs}

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

    def _declared(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        lineage = self._project.lineage
        return identified(
            snapshot,
            self._project.declarations,
            edges_of=lineage.edges_of,
            applications=lineage.fold,
        )


class _ProjectAlone:
    """The lineage of a project without a source: what its jobs declare, and its own runs."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def read(self) -> LineageSnapshot:
        """Return the lineage of the runs so far; the planner adds the declared edges.

        Raises ConfigError if a job neither ran nor declares its writes, as lineage is then needed.
        """
        lineage, outbox = self._project.lineage, self._project.outbox
        runs = LineageSnapshot.of([])
        if holds_events(outbox):
            source = EventSource(
                [outbox], allow_torn=lineage.allow_torn, ignore=lineage.ignore_runs
            )
            runs = _without_facets(source.read())
        jobs = [job for job in self._project.declarations.jobs if not is_glob(job.name)]
        ran = {ref.name for ref in runs.jobs}
        open_ = next((job.name for job in jobs if not job.writes and job.name not in ran), None)
        if (jobs or ran) and open_ is None:
            return replace(runs, source="project")
        raise ConfigError(
            "no lineage is named" + (f", and job {open_} declares no `writes`" if open_ else ""),
            hint="Name it: --events PATH, --marquez URL, --snapshot FILE, or [lineage] in the"
            " project file. Without lineage, every [[job]] declares its `reads` and `writes`;"
            " `init --example` writes such a file.",
        )


def _without_facets(snapshot: LineageSnapshot) -> LineageSnapshot:
    """Return the lineage without partitioning facets: those of own runs repeat old declarations.

    What is deleted in the project's file or code would otherwise hold on.
    """
    jobs = [structs.replace(node, partitioning=None) for node in snapshot.jobs.values()]
    data = [structs.replace(node, partitioning=None) for node in snapshot.datasets.values()]
    return replace(
        snapshot,
        jobs={node.ref: node for node in jobs},
        datasets={node.ref: node for node in data},
    )


def _left_out(lineage: LineageSetting) -> Iterator[Notice]:
    """Yield what the user left out: code, and the runs of `ignore_runs`."""
    if lineage.no_code:
        text = "--no-code leaves out what the code of the project declares"
        yield Notice(text, leaves_out=True)
    runs = ", ".join(lineage.ignore_runs)
    if not runs:
        return
    kinds = [one.kind for one in lineage.parts]
    others = [kind for kind in kinds if kind not in ("events", "marquez")]
    if "snapshot" in kinds:
        text = f"`ignore_runs` changes no saved snapshot: save it again without {runs}"
    elif others:
        text = f"`ignore_runs` is not known to the lineage source {others[0]!r}: {runs}"
    else:
        text = f"`ignore_runs` leaves these runs out of the lineage: {runs}"
    yield Notice(text, leaves_out=True)
