"""A driver as a service: takes the backfills of a run store by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread

from lineage_backfill.errors import BackfillError, StoreUnreachableError
from lineage_backfill.ports import Claim, Driver, Reporter, RunStore
from lineage_backfill.project import Project
from lineage_backfill.runs.drive.clock import StoreClock
from lineage_backfill.runs.drive.owner import LEASE, is_driving, may_drive, owner
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace

_LOOK = 1.0  # seconds between two reads of the store
_ANNOUNCE = LEASE / 3
_FIRST, _LONGEST = 5.0, 300.0  # seconds until a backfill that could not be driven is retried
_PATIENCE = 60.0  # seconds for drives to stop


class ServiceReporter(Reporter):
    """Also has hooks for the service itself; each does nothing by default."""

    def refused(self, backfill_id: str, why: str) -> None:
        """Called when a backfill is skipped or could not be driven, with the reason."""

    def unreachable(self, error: BackfillError) -> None:
        """Called when the run store does not answer; the service retries."""


@dataclass
class _Drive:
    """A backfill that this service drives, in a thread."""

    runner: Runner
    thread: Thread
    error: Exception | None = None


@dataclass
class _Refusal:
    """A backfill that could not be driven: when to try again, by the monotonic clock."""

    again: float
    wait: float = _FIRST


@dataclass
class Service:
    """Drives the backfills of a project that have no driver, at most `slots` at once.

    `open_workspace` reads the project again for each backfill, `reporter_of` returns the reporter
    of one. Several services may share a run store: leases keep them apart. Active runs of `gone`
    machines are lost.
    """

    open_workspace: Callable[[], Workspace]
    reporter_of: Callable[[str], Reporter]
    reporter: ServiceReporter
    slots: int = 4
    gone: Collection[str] = ()
    _drives: dict[str, _Drive] = field(default_factory=dict)
    _refusals: dict[str, _Refusal] = field(default_factory=dict)
    _announced: float = float("-inf")

    def run(self, stopped: Event) -> None:
        """Drive until stopped; then leave running attempts to the next driver.

        Raises StoreError if the run store cannot be used.
        """
        workspace = self.open_workspace()
        with workspace.open_store(create=True) as store, Runner(workspace).notifying(store):
            try:
                while not stopped.is_set():
                    try:
                        self._look(store, workspace.project)
                    except StoreUnreachableError as error:
                        self.reporter.unreachable(error)
                    stopped.wait(_LOOK)
            finally:
                self._let_go()
                with suppress(BackfillError):
                    store.withdraw(owner())

    def _look(self, store: RunStore, project: Project) -> None:
        """Take the backfills that may be driven, up to the limit."""
        now = StoreClock(store).now()
        self._reap(store, now)
        if time.monotonic() - self._announced > _ANNOUNCE.total_seconds():
            until = now + LEASE
            store.announce(
                Driver(owner=owner(), until=until, project=project.name, target=project.target)
            )
            self._announced = time.monotonic()
        for claim in store.open_claims():
            if len(self._drives) >= self.slots:
                break
            settings = claim.record.settings
            if (settings.project, settings.target) != (project.name, project.target):
                continue
            if self._is_free(claim, now):
                self._begin(store, claim.record.id)

    def _is_free(self, claim: Claim, now: datetime) -> bool:
        id_ = claim.record.id
        refused = self._refusals.get(id_)
        is_early = refused is not None and time.monotonic() < refused.again
        return id_ not in self._drives and not is_early and may_drive(claim, now)

    def _begin(self, store: RunStore, id_: str) -> None:
        try:
            workspace = self.open_workspace()
        except BackfillError as error:  # the project file is being edited
            self._refuse(id_, str(error))
            return
        engines = {one.name for one in workspace.project.declarations.engines}
        used = {run.engine for run in store.runs(id_) if run.engine and not run.state.is_final}
        if used - engines:
            self._refuse(id_, f"engine {min(used - engines)!r} is not declared here")
            return
        options = DriveOptions(waits=True, hands_over=True, gone=self.gone)
        runner = Runner(workspace, self.reporter_of(id_), options)

        def drive() -> None:
            try:
                runner.adopt(id_)
            except Exception as error:  # noqa: BLE001 - one backfill must not end the others
                self._drives[id_].error = error

        drive_ = _Drive(runner, Thread(target=drive, name=id_, daemon=True))
        self._drives[id_] = drive_
        drive_.thread.start()

    def _reap(self, store: RunStore, now: datetime) -> None:
        for id_, drive in list(self._drives.items()):
            if not drive.thread.is_alive():
                del self._drives[id_]
                if drive.error is None:
                    self._refusals.pop(id_, None)
                elif not is_driving(
                    store.claim(id_).holder, now
                ):  # otherwise another one was faster
                    self._refuse(id_, str(drive.error) or type(drive.error).__name__)

    def _refuse(self, id_: str, why: str) -> None:
        before = self._refusals.get(id_)
        wait = min(before.wait * 2, _LONGEST) if before else _FIRST
        self._refusals[id_] = _Refusal(time.monotonic() + wait, wait)
        self.reporter.refused(id_, why)

    def _let_go(self) -> None:
        for drive in self._drives.values():
            drive.runner.let_go()
        deadline = time.monotonic() + _PATIENCE
        for drive in self._drives.values():
            drive.thread.join(max(0.0, deadline - time.monotonic()))
