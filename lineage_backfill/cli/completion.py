"""Shell completion: names of datasets, jobs and backfills from the local cache.

It contacts no service; on an error it completes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import typer

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project import Project
from lineage_backfill.store.readonly import newest_backfills
from lineage_backfill.workspace.environment import open_project, sqlite_file
from lineage_backfill.workspace.lineage import ProjectLineage

#: Names come from lineage and shells evaluate their input: other names are not offered.
_HARMLESS = re.compile(r"[\w/.][\w/.:@=+,%-]*")
_BACKFILLS = 50  # offered at most


def complete_datasets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the datasets whose names begin with the word."""
    return _names(ctx, incomplete, datasets=True)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin with the word."""
    return _names(ctx, incomplete, jobs=True)


def complete_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the datasets and jobs whose names begin with the word."""
    return _names(ctx, incomplete, datasets=True, jobs=True)


def complete_backfills(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the newest backfills whose ids begin so, with their states."""
    with suppress(Exception):  # a completing shell cannot show errors
        file = sqlite_file(_project(ctx))
        if file is not None:
            found = newest_backfills(file, most=_BACKFILLS)
            return [one for one in found if one[0].startswith(incomplete)]
    return []


def _names(
    ctx: typer.Context, incomplete: str, *, datasets: bool = False, jobs: bool = False
) -> list[str]:
    with suppress(Exception):  # as above
        project = _project(ctx)
        every = ProjectLineage(project).known_names()
        wanted: list[DatasetRef | JobRef] = [*every[0] * datasets, *every[1] * jobs]
        return _spelled(wanted, incomplete, project.declarations.namespace)
    return []


def _spelled(refs: Sequence[DatasetRef | JobRef], incomplete: str, home: str | None) -> list[str]:
    """Return the names that begin so: bare where unique, in full once a full name is begun."""
    bearers = Counter(ref.name for ref in refs)
    bare = {ref.name for ref in refs if bearers[ref.name] == 1 or ref.namespace == home}
    found = {name for name in bare if name.startswith(incomplete)}
    if incomplete or len(bare) < len(bearers):
        in_full = {str(ref) for ref in refs if incomplete or ref.name not in bare}
        found |= {name for name in in_full if name.startswith(incomplete)}
    return sorted(filter(_HARMLESS.fullmatch, found))


def _project(ctx: typer.Context) -> Project:
    given = ctx.params.get
    return open_project(
        given("config"),
        target=given("target"),
        lineage={
            "events": given("events") or None,
            "marquez": given("marquez"),
            "snapshot": given("snapshot") and str(given("snapshot")),
        },
        code=False,
    )
