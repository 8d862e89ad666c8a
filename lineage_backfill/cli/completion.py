"""What shells complete: names of datasets, jobs and backfills, as they were last seen here.

Nothing is asked of a service, and whatever goes wrong completes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from lineage_backfill.model import DatasetRef, JobRef
    from lineage_backfill.project import Project

#: Names come from lineage, and shells evaluate what they are given: others are not offered.
_HARMLESS = re.compile(r"[\w/.][\w/.:@=+,%-]*")


def complete_datasets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the datasets that the word may become."""
    return _names(ctx, incomplete, lambda datasets, _: datasets)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs that the word may become."""
    return _names(ctx, incomplete, lambda _, jobs: jobs)


def complete_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the datasets and jobs that the word may become."""
    return _names(ctx, incomplete, lambda datasets, jobs: [*datasets, *jobs])


def complete_backfills(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the newest backfills whose ids begin so, with their states."""
    with suppress(Exception):  # a shell that completes has no use for errors
        from lineage_backfill import workspace as app

        return [one for one in app.newest_backfills(_project(ctx)) if one[0].startswith(incomplete)]
    return []


def _names(
    ctx: typer.Context,
    incomplete: str,
    wanted: Callable[[list[DatasetRef], list[JobRef]], Sequence[DatasetRef | JobRef]],
) -> list[str]:
    with suppress(Exception):  # as above
        from lineage_backfill import workspace as app

        project = _project(ctx)
        refs = wanted(*app.known_names(project))
        return _spelled(refs, incomplete, project.declarations.namespace)
    return []


def _spelled(refs: Sequence[DatasetRef | JobRef], incomplete: str, home: str | None) -> list[str]:
    """Return the names that begin so, bare where that says which; in full once that is begun."""
    bearers = Counter(ref.name for ref in refs)
    bare = {ref.name for ref in refs if bearers[ref.name] == 1 or ref.namespace == home}
    found = {name for name in bare if name.startswith(incomplete)}
    if incomplete or len(bare) < len(bearers):
        in_full = {str(ref) for ref in refs if incomplete or ref.name not in bare}
        found |= {name for name in in_full if name.startswith(incomplete)}
    return sorted(filter(_HARMLESS.fullmatch, found))


def _project(ctx: typer.Context) -> Project:
    from lineage_backfill.workspace import open_project

    given = ctx.params.get
    return open_project(
        given("config"),
        events=given("events"),
        marquez=given("marquez"),
        snapshot=given("snapshot"),
    )
