"""Finds, reports, watches, pauses and deletes backfills in the run store."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.errors import (
    AmbiguousNameError,
    ConflictError,
    DeclarationError,
    UnknownNameError,
)
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.timeline import Span, spans
from lineage_backfill.plans.document import plan_from_dict
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import (
    BackfillRecord,
    ControlRequest,
    Holder,
    Reporter,
    RunRecord,
    RunStore,
)
from lineage_backfill.redaction import is_secret
from lineage_backfill.runs import observations, reports
from lineage_backfill.runs.cutoff import without
from lineage_backfill.runs.drive.clock import StoreClock
from lineage_backfill.runs.drive.owner import LEASE, is_dead, owner, standing
from lineage_backfill.runs.drive.run_loop import spec_file
from lineage_backfill.runs.estimate import NEWEST, Estimate, usual_seconds
from lineage_backfill.runs.watching import follow
from lineage_backfill.sources.parsing import collector_paused
from lineage_backfill.sources.table_logs import DeltaTableLogs
from lineage_backfill.staleness.record import TableRecord
from lineage_backfill.workspace.environment import spark_conf, state_dir
from lineage_backfill.workspace.workspace import Workspace

_FINAL = frozenset(state for state in RunState if state.is_final)
_MOVED = 500  # runs that are read one by one; of more, all are
POLL = 0.5  # seconds between two reads of a backfill that another process drives


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOutcome:
    """The state in which a verb left a backfill; `timed_out` if its time was up before the end.

    `is_orphan` if the backfill has not ended and its driver process is gone; `is_left` if a signal
    ended that process, and the next driver takes over; `had_succeeded` if nothing was left to run.
    """

    id: str
    state: BackfillState
    timed_out: bool = False
    is_orphan: bool = False
    is_left: bool = False
    had_succeeded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The status document of a backfill as of an event; other versions have other documents.

    `usual` are the usual seconds of the runs of each job.
    """

    status: dict[str, Any]
    version: str
    event: int
    usual: Mapping[JobRef, float]


class Backfills:
    """The backfills in the run store of a workspace; the id None means the newest one."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._state_dir = state_dir(workspace.project)

    # --- documents ------------------------------------------------------------------------------

    def history(self, *, hidden: bool = False) -> dict[str, Any]:
        """Return the document of all backfills; of hidden ones only their number."""
        with self.workspace.open_store() as store:
            now = StoreClock(store).now()
            records = [
                standing(store, one.id, now)[0] if one.state.is_under_way else one
                for one in store.backfills(deleted=True)
            ]
        shown = [one for one in records if hidden or not one.deleted]
        return reports.history(shown, hidden=len(records) - len(shown))

    def tallies(self, ids: Iterable[str]) -> Mapping[str, Mapping[RunState, int]]:
        """Return the number of runs of each backfill by state."""
        with self.workspace.open_store() as store:
            return store.tallies(list(ids))

    @collector_paused()
    def status(self, backfill: str | None = None) -> dict[str, Any]:
        """Return the status document of a backfill."""
        with self.workspace.open_store() as store:
            record, driver = _standing(store, backfill)
            plan, runs = store.plan(record.id), store.runs(record.id)
            left = self._estimate(store, record).left if record.state.is_under_way else None
            return reports.status(record, plan, runs, driver, left)

    @collector_paused()
    def current(self, backfill: str, known: Current | None = None) -> Current:
        """Return the status document of a backfill; after a `known` one only what has changed is
        read.
        """
        with self.workspace.open_store() as store:
            record, driver = _standing(store, backfill)
            event = store.last_event(record.id)
            acts = store.acts(1, backfill_id=record.id)
            version = repr((event, record, driver and driver.owner, acts))
            if known is not None and known.version == version:
                return known
            moved = self._moved(store, record.id, known) if known is not None else None
            usual = known.usual if known is not None else usual_seconds(store.past_runs(NEWEST))
            if known is not None and moved is not None:
                status, runs = known.status, moved
            else:
                runs = store.runs(record.id)
                status = reports.status(record, store.plan(record.id), runs, driver)
        status = reports.moved_on(status, record, runs, driver, None)
        if record.state.is_under_way:
            left = Counter(
                (one["job"]["namespace"], one["job"]["name"])
                for one in status["runs"]
                if one["state"] not in _FINAL
            )
            jobs = {JobRef(*job): number for job, number in left.items()}
            time = Estimate(runs=jobs, usual=usual, parallel=self._parallel(record)).left
            status |= {"time_left": reports.time_left(time)}
        return Current(status=status, version=version, event=event, usual=usual)

    @staticmethod
    def _moved(store: RunStore, backfill: str, known: Current) -> Sequence[RunRecord] | None:
        """Return the runs that have moved on since; None if all are to be read again."""
        events = store.events(backfill, after=known.event)
        ids = {one.run_id for one in events if one.run_id is not None}
        before = {one["id"] for one in known.status["runs"]}
        if len(ids) > _MOVED or not ids <= before or any(one.kind == "extended" for one in events):
            return None
        return store.runs(backfill, only=ids) if ids else ()

    @collector_paused()
    def report(self, backfill: str | None = None) -> dict[str, Any]:
        """Return the report document of a backfill."""
        with self.workspace.open_store() as store:
            record, _ = _standing(store, backfill)
            plans = plans_of(store, record.id, only_shown=True)
            runs, attempts = store.runs(record.id), store.attempts(record.id)
        newest = plans[-1]  # it has the keys of all
        resolver = cache(partial(self.workspace.resolver_of, newest))

        def cut(run: PlannedRun, keys: KeySet) -> PlannedRun:
            return without(resolver(), run, keys)

        calendars = self._calendars(datetime.fromisoformat(newest.now))

        def tables(datasets: Collection[DatasetRef]) -> Mapping[DatasetRef, TableRecord]:
            logs = DeltaTableLogs(conf=spark_conf(self.workspace.project.declarations))
            return observations.of_near_tables(resolver(), datasets, logs)

        return reports.report(record, plans, runs, attempts, calendars, cut, tables)

    def plan_documents(self, backfill: str) -> tuple[BackfillRecord, Sequence[Mapping[str, Any]]]:
        """Return the record of a backfill, and the documents of its plan and of its tails."""
        with self.workspace.open_store() as store:
            record, _ = _standing(store, backfill)
            return record, _plan_documents(store, record.id)

    def run(self, backfill: str, run_id: str) -> dict[str, Any]:
        """Return the document of one run of a backfill; raises UnknownNameError."""
        with self.workspace.open_store() as store:
            record, _ = _standing(store, backfill)
            plans = _plan_documents(store, record.id)
            runs = (run for plan in plans for run in plan.get("runs") or () if run["id"] == run_id)
            found = next(runs, None)
            if found is None:
                raise UnknownNameError(
                    f"{record.id} has no run {run_id!r}",
                    hint=f"`lineage-backfill status {record.id} --json` lists its runs.",
                )
            return reports.run(record, found, store.runs(record.id), store.attempts(record.id))

    def spans(self, status: Mapping[str, Any]) -> Mapping[str, tuple[Span, ...]]:
        """Return the time spans of each run in the status document of a backfill, by run id."""
        with self.workspace.open_store() as store:
            plan = plans_of(store, status["id"], only_shown=True)[-1]
        resolver = self.workspace.resolver_of(plan)
        return {
            run["id"]: spans(resolver.job(JobRef(**run["job"])).calendar, run["partitions"])
            for run in status["runs"]
        }

    def _calendars(self, now: datetime) -> Callable[[DatasetRef], Calendar]:
        """Return each dataset's calendar; the lineage is only read if it is not declared."""
        declarations = self.workspace.project.declarations
        declared = Resolver(LineageSnapshot.of([]), declarations, now=now)
        known = cache(lambda: Resolver(self.workspace.snapshot, declarations, now=now))

        @cache
        def calendar_of(dataset: DatasetRef) -> Calendar:
            calendar = declared.calendar(dataset) or known().calendar(dataset)
            if calendar is None:
                raise DeclarationError(
                    f"the partitioning of {dataset} is no longer known",
                    hint="Declare it as it was when the backfill was planned.",
                )
            return calendar

        return calendar_of

    # --- files of attempts ----------------------------------------------------------------------

    def attempt_spec(self, backfill: str, run_id: str, number: int) -> dict[str, Any]:
        """Return the run spec of an attempt, secrets masked.

        Raises UnknownNameError if it is not in the project's own folder.
        """
        files = self._attempt_files(backfill, run_id, number)
        if not self._is_ours(files.spec_path):
            raise UnknownNameError(
                "its run spec is not stored on this machine", hint="Check its engine for it."
            )
        try:
            spec: dict[str, Any] = redaction.document(files.spec())
        except (OSError, ValueError) as error:
            raise UnknownNameError(f"its run spec cannot be read: {error}") from error
        return spec

    def attempt_log(self, backfill: str, run_id: str, number: int, *, most: int) -> str:
        """Return at most this many of the last bytes of an attempt's output.

        Raises UnknownNameError if it is not in the project's own folder.
        """
        files = self._attempt_files(backfill, run_id, number)
        try:
            if self._is_ours(files.log_place()[0]):
                return files.log_end(most).decode(errors="replace")
        except (OSError, ValueError):
            pass
        raise UnknownNameError(
            "its log is not stored on this machine", hint="Check its engine for it."
        )

    def _attempt_files(self, backfill: str, run_id: str, number: int) -> AttemptFiles:
        files = AttemptFiles(spec_file(self._folder(backfill), run_id, number))
        with (
            self.workspace.open_store() as store,
            suppress(OSError, ValueError, UnknownNameError),
        ):
            is_kept = self._is_ours(files.spec_path)
            given = files.spec().get("parameters", {}) if is_kept else {}
            kept = store.backfill(backfill).parameters
            secret = {name: one for name, one in given.items() if is_secret(name, kept.get(name))}
            redaction.remember(str(one) for one in secret.values())
        return files

    def _is_ours(self, path: Path) -> bool:
        """Whether the file exists, and is really in the folder of backfills."""
        return path.is_file() and path.resolve().is_relative_to(self._state_dir.resolve())

    # --- verbs that drive nothing ---------------------------------------------------------------

    def estimate_left(
        self, backfill: str | None = None, *, again: bool = False, max_parallel: int | None = None
    ) -> Estimate:
        """Return how long the rest of a backfill will take, from past runs in its store.

        With `again` failed runs are included. The lineage is not needed.
        """
        with self.workspace.open_store() as store:
            record = find(store, backfill)
            return self._estimate(store, record, again=again, max_parallel=max_parallel)

    def _estimate(
        self,
        store: RunStore,
        record: BackfillRecord,
        *,
        again: bool = False,
        max_parallel: int | None = None,
    ) -> Estimate:
        left = (
            run.job
            for run in store.runs(record.id)
            if not (run.state.is_good if again else run.state.is_final)
        )
        return Estimate(
            runs=Counter(left),
            usual=usual_seconds(store.past_runs(NEWEST)),
            parallel=max_parallel or self._parallel(record),
        )

    def _parallel(self, record: BackfillRecord) -> int:
        limit = self.workspace.project.declarations.limits.max_parallel
        return record.settings.max_parallel or limit

    def watch(
        self, backfill: str | None, reporter: Reporter, *, timeout: timedelta | None = None
    ) -> BackfillOutcome:
        """Report the events of a backfill until it ends or the time is up; only reads.

        It also ends if the driver process is gone.
        """
        deadline = time.monotonic() + timeout.total_seconds() if timeout else math.inf

        def wait() -> bool:
            left = deadline - time.monotonic()
            time.sleep(max(0.0, min(left, POLL)))
            return left > 0

        with self.workspace.open_store() as store:
            id_ = find(store, backfill).id
            state = follow(store, id_, reporter, now=StoreClock(store).now, wait=wait)
            is_orphan = not state.is_under_way and store.backfill(id_).state.is_under_way
        timed_out = time.monotonic() >= deadline
        return BackfillOutcome(id=id_, state=state, timed_out=timed_out, is_orphan=is_orphan)

    def pause(self, backfill: str | None = None) -> BackfillOutcome:
        """Request that no more runs of a backfill are started; return its previous state.

        No-op for a backfill that no process drives, or that is being cancelled.
        """
        with self.workspace.open_store() as store:
            record, _ = _standing(store, backfill)
            if record.state.is_under_way and record.control not in (None, ControlRequest.PAUSE):
                return BackfillOutcome(id=record.id, state=BackfillState.CANCELLED)
            if record.state.is_under_way:
                now = StoreClock(store).now()
                store.request_control(record.id, ControlRequest.PAUSE, now=now)
        return BackfillOutcome(id=record.id, state=record.state)

    def now(self) -> datetime:
        """Return the run store's time, which decides when backfills begin and expire."""
        with self.workspace.open_store() as store:
            return StoreClock(store).now()

    def _folder(self, backfill: str) -> Path:
        return self._state_dir / "backfills" / backfill

    def delete(self, backfill: str) -> BackfillRecord:
        """Mark a backfill as deleted, release its partition locks, and return its id.

        Raises ConflictError while a process drives it, or one of its runs may still be running.
        """
        with self.workspace.open_store() as store:
            now = StoreClock(store).now()
            record, driver = _standing(store, backfill)
            if record.deleted:
                return record
            if driver is None:
                if any(run.state.is_under_way for run in store.runs(record.id)):
                    raise ConflictError(
                        f"runs of {record.id} may still be running",
                        hint=f"End them first: `cancel {record.id}`.",
                    )
                # Releases locks that a dead driver has left.
                lease = store.acquire(record.id, owner(), now=now, ttl=LEASE, is_dead=is_dead)
                store.release(lease)
            store.delete(record.id, now=now)
            return store.backfill(record.id)


def _standing(store: RunStore, backfill: str | None) -> tuple[BackfillRecord, Holder | None]:
    """Return the backfill as `find` does, interrupted if its process is gone, and its driver."""
    return standing(store, find(store, backfill).id, StoreClock(store).now())


def find(store: RunStore, backfill: str | None) -> BackfillRecord:
    """Return the backfill with this title or an id that begins so; for None, the newest one.

    A deleted one is found by its id.
    """
    records = store.backfills()
    if not records and backfill is None:
        if store.backfills(deleted=True):
            raise UnknownNameError(
                "all backfills here are deleted",
                hint="`lineage-backfill history --all` lists them.",
            )
        raise UnknownNameError(
            "no backfill has been run here",
            hint="Start one with `lineage-backfill run`, or go to the folder of the project file.",
        )
    found = [one for one in records if one.id.startswith(backfill or "")]
    found = found or [one for one in records if one.title == backfill]
    if backfill is None or len(found) == 1:
        return found[0]
    if not found:
        return store.backfill(backfill)  # raises, with similar ids
    raise AmbiguousNameError(
        f"{len(found)} backfills have the title {backfill}",
        hint="Name one by its id: " + " or ".join(one.id for one in found[:3]),
    )


def plans_of(store: RunStore, backfill_id: str, *, only_shown: bool = False) -> list[Plan]:
    """Return the plan of a backfill and its tails; see `plan_from_dict`."""
    documents = _plan_documents(store, backfill_id)
    return [plan_from_dict(document, only_shown=only_shown) for document in documents]


def _plan_documents(store: RunStore, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
    return store.plan(backfill_id), *store.tails(backfill_id)
