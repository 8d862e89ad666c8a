"""`drive`: a service that drives the backfills of a run store."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import SourceOptions, TakeoverOptions, takes_options
from lineage_backfill.errors import BackfillError
from lineage_backfill.model import RunState
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import Reporter
from lineage_backfill.show.names import keys_on_a_line
from lineage_backfill.show.text import counted
from lineage_backfill.show.words import measured
from lineage_backfill.workspace.service import Service, ServiceReporter


@takes_options
def drive(
    source: SourceOptions,
    takeover: TakeoverOptions,
    backfills: Annotated[
        int, typer.Option(help="Drive at most this many backfills at once.", min=1, metavar="N")
    ] = 4,
) -> None:
    """Drive backfills without a driver, until SIGTERM; for services such as systemd."""
    project = source.load()
    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    service = Service(
        open_workspace=source.open,
        reporter_of=Lines,
        reporter=ServiceLines(),
        slots=backfills,
        gone=takeover.gone,
    )
    terminal.say(f"Driving the backfills of {project.name}; SIGTERM stops this, and no job.")
    service.run(stopped)
    terminal.say("Stopped; the next driver takes over the backfills.")


def _say(backfill: str, text: str) -> None:
    terminal.say(f"{backfill}: {text}")


class Lines(Reporter):
    """Logs one line for each event of a backfill."""

    def __init__(self, backfill: str) -> None:
        self._say = partial(_say, backfill)

    def backfill_started(self, backfill_id: str, plan: Plan, title: str) -> None:
        self._say(f"started: {title}, {counted(len(plan.runs or ()), 'run')}")

    def waiting(self, what: str) -> None:
        self._say(f"waits: {what}")

    def backfill_extended(self, plan: Plan) -> None:
        self._say(f"has {counted(len(plan.runs or ()), 'more run')}: keys became complete")

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        if state is RunState.FAILED:
            self._say(f"failed {run.job.name} {keys_on_a_line(run.partitions)}: {detail}")

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        self._say(f"again in {measured(delay.total_seconds())}: {run.job.name}: {detail}")

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        self._say(f"is {state}")


class ServiceLines(ServiceReporter):
    """Logs one line for each event of the service."""

    def refused(self, backfill_id: str, why: str) -> None:
        _say(backfill_id, f"not driven: {why}")

    def unreachable(self, error: BackfillError) -> None:
        terminal.say(f"waiting: {error}")
