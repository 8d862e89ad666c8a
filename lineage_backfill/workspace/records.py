"""Tells of backfills that the run store keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lineage_backfill.errors import (
    AmbiguousNameError,
    DeclarationError,
    UnknownNameError,
)
from lineage_backfill.project import Project
from lineage_backfill.workspace.lineage import read_lineage
from lineage_backfill.workspace.planning import request_of, resolver_of
from lineage_backfill.workspace.project import reading, sqlite_file, state_dir

if TYPE_CHECKING:
    from lineage_backfill.engines.attempt import AttemptFiles
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.model import DatasetRef
    from lineage_backfill.partitions.calendar import Calendar
    from lineage_backfill.partitions.text import KeySet
    from lineage_backfill.planning.plan import Plan, PlannedRun
    from lineage_backfill.planning.timeline import Span
    from lineage_backfill.ports import (
        BackfillRecord,
        RunStore,
    )


_COMPLETED = 50  # backfills offered by shells


def newest_backfills(project: Project) -> list[tuple[str, str]]:
    """Return the ids and states of the newest backfills; of none where a service has them.

    Raises sqlite3.Error.
    """
    from lineage_backfill.store.readonly import newest_backfills

    file = sqlite_file(project)
    return newest_backfills(file, most=_COMPLETED) if file else []


def status(
    project: Project, backfill: str | None, *, store: RunStore | None = None
) -> dict[str, Any]:
    """Return the status document of a backfill, of the newest if none is named.

    A `store` that is open already is used, and left open, here and below.
    """
    from lineage_backfill.runs import reports as accounts
    from lineage_backfill.runs.owner import standing

    with reading(project, store) as store:
        record, driver = standing(store, find(store, backfill).id, datetime.now(UTC))
        return accounts.status(record, store.plan(record.id), store.runs(record.id), driver)


def report(
    project: Project, backfill: str | None, *, store: RunStore | None = None
) -> dict[str, Any]:
    """Return the report document of a backfill, of the newest if none is named."""
    from lineage_backfill.runs import reports as accounts

    with reading(project, store) as store:
        record = find(store, backfill)
        plans = plans_of(store, record.id)
        runs, attempts = store.runs(record.id), store.attempts(record.id)
    # The newest plan knows the keys of all.
    calendars, without = _calendars(project, plans[-1].now), _without(project, plans[-1])
    return accounts.report(record, plans, runs, attempts, calendars, without)


def plan_documents(
    project: Project, backfill: str, *, store: RunStore | None = None
) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Return the whole id of a backfill, and the documents of its plan and of its tails."""
    with reading(project, store) as store:
        id_ = find(store, backfill).id
        return id_, _plan_documents(store, id_)


def run_of(
    project: Project, backfill: str, run_id: str, *, store: RunStore | None = None
) -> dict[str, Any]:
    """Return the document of one run of a backfill; raises UnknownNameError."""
    from lineage_backfill.runs import reports as accounts

    with reading(project, store) as store:
        record = find(store, backfill)
        plans = _plan_documents(store, record.id)
        planned = (run for plan in plans for run in plan.get("runs") or () if run["id"] == run_id)
        found = next(planned, None)
        if found is None:
            raise UnknownNameError(
                f"{record.id} has no run {run_id!r}",
                hint=f"`lineage-backfill status {record.id} --json` lists its runs.",
            )
        return accounts.run(record, found, store.runs(record.id), store.attempts(record.id))


def attempt_spec(project: Project, backfill: str, run_id: str, number: int) -> dict[str, Any]:
    """Return what an attempt was told, secrets masked; raises UnknownNameError if it is not here.

    A file that leads out of the project's own folder is not here.
    """
    from lineage_backfill.project.settings import masked

    files = _attempt_files(project, backfill, run_id, number)
    if not _is_ours(project, files.spec_path):
        raise UnknownNameError("its run spec is not kept here", hint="Its engine may know more.")
    try:
        spec: dict[str, Any] = masked(files.spec())
    except (OSError, ValueError) as error:
        raise UnknownNameError(f"its run spec cannot be read: {error}") from error
    return spec


def attempt_log(project: Project, backfill: str, run_id: str, number: int, *, most: int) -> str:
    """Return the end of what an attempt has printed, at most so many bytes.

    Raises UnknownNameError where it is not in the project's own folder.
    """
    place, begin = _attempt_files(project, backfill, run_id, number).log_place()
    if not _is_ours(project, place):
        raise UnknownNameError("its log is not kept here", hint="Its engine may know more.")
    with place.open("rb") as file:
        file.seek(max(begin, place.stat().st_size - most))
        return file.read(most).decode(errors="replace")


def _attempt_files(project: Project, backfill: str, run_id: str, number: int) -> AttemptFiles:
    from lineage_backfill.engines.attempt import AttemptFiles
    from lineage_backfill.runs.run_loop import spec_file

    return AttemptFiles(spec_file(state_dir(project) / "backfills" / backfill, run_id, number))


def _is_ours(project: Project, path: Path) -> bool:
    """Whether there is such a file, and it really lies among those that backfills leave."""
    return path.is_file() and path.resolve().is_relative_to(state_dir(project).resolve())


def run_spans(
    project: Project, snapshot: LineageSnapshot, backfill: str, *, store: RunStore | None = None
) -> Mapping[str, tuple[Span, ...]]:
    """Return where the keys of each run of a backfill lie in time, by the ids of the runs."""
    from lineage_backfill.planning.document import plan_from_dict
    from lineage_backfill.planning.timeline import spans

    with reading(project, store) as store:
        plan = plan_from_dict((store.tails(backfill) or (store.plan(backfill),))[-1])
        runs = store.runs(backfill)
    resolver = resolver_of(project, snapshot, plan.now, request_of(plan))
    return {run.run_id: spans(resolver.job(run.job).calendar, run.partitions) for run in runs}


def history(project: Project, *, store: RunStore | None = None) -> dict[str, Any]:
    """Return the document that lists all backfills but those that have expired."""
    from lineage_backfill.runs import reports as accounts
    from lineage_backfill.runs.owner import standing

    now = datetime.now(UTC)
    with reading(project, store) as store:
        seen = (
            standing(store, one.id, now)[0] if one.state.is_under_way else one
            for one in store.backfills()
        )
        return accounts.history(
            one
            for one in seen
            if one.state.is_under_way or one.expires_at is None or now < one.expires_at
        )


def plans_of(store: RunStore, backfill_id: str) -> list[Plan]:
    """Return the plan of a backfill and its tails."""
    from lineage_backfill.planning.document import plan_from_dict

    return [plan_from_dict(document) for document in _plan_documents(store, backfill_id)]


def _plan_documents(store: RunStore, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
    return store.plan(backfill_id), *store.tails(backfill_id)


def find(store: RunStore, backfill: str | None) -> BackfillRecord:
    """Return the backfill whose id begins so, the newest one for None; a deleted one by its id."""
    records = store.backfills()
    if not records and backfill is None:
        raise UnknownNameError(
            "no backfill has been run here", hint="Start one with `lineage-backfill run`."
        )
    found = [one for one in records if one.id.startswith(backfill or "")]
    if backfill is None or len(found) == 1:
        return found[0]
    if not found:
        return store.backfill(backfill)  # raises, with what it may have meant
    raise AmbiguousNameError(
        f"{len(found)} backfills begin with {backfill}",
        hint="Write more of it: " + " or ".join(one.id for one in found[:3]),
    )


def _calendars(project: Project, now: str) -> Callable[[DatasetRef], Calendar]:
    """Return what gives each dataset's calendar; lineage is read only where it is not declared."""
    from lineage_backfill.lineage.snapshot import LineageSnapshot

    declared = resolver_of(project, LineageSnapshot.of([]), now)
    known = cache(lambda: resolver_of(project, read_lineage(project), now))

    @cache
    def calendar_of(dataset: DatasetRef) -> Calendar:
        calendar = declared.calendar(dataset) or known().calendar(dataset)
        if calendar is None:
            raise DeclarationError(
                f"the partitioning of {dataset} is not known any more",
                hint="Declare it as it was when the backfill was planned.",
            )
        return calendar

    return calendar_of


def _without(project: Project, plan: Plan) -> Callable[[PlannedRun, KeySet], PlannedRun]:
    """Return what leaves keys out of a run; lineage is read only once that is asked."""
    from lineage_backfill.runs.cutoff import without

    resolver = cache(
        lambda: resolver_of(project, read_lineage(project), plan.now, request_of(plan))
    )
    return lambda run, cut_off: without(resolver(), run, cut_off)
