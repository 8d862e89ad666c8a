"""`run`, `resume`, `retry`, `undo` and `watch`: the verbs that stay until a backfill ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lineage_backfill.cli.options import (
    BackfillArgument,
    DatasetsArgument,
    DriveOptions,
    JsonOption,
    RequestOptions,
    RunOptions,
    SourceOptions,
    WaitOptions,
    YesOption,
    takes_options,
)
from lineage_backfill.errors import GuardRailError, UsageError
from lineage_backfill.model import BackfillState

if TYPE_CHECKING:
    from lineage_backfill.cli.planning import Made
    from lineage_backfill.planning.plan import Plan
    from lineage_backfill.ports import Reporter
    from lineage_backfill.project import Project
    from lineage_backfill.runs.simulate import Estimate
    from lineage_backfill.workspace import Ended

_NOT_ALL = 3
_TIMED_OUT = 8
#: What these verbs end with, by the state of the backfill.
_EXIT_CODES = {
    BackfillState.SCHEDULED: _TIMED_OUT,
    BackfillState.RUNNING: _TIMED_OUT,
    BackfillState.SUCCEEDED: 0,
    BackfillState.FAILED: _NOT_ALL,
    BackfillState.CANCELLED: _NOT_ALL,
    BackfillState.PAUSED: 130,
    BackfillState.INTERRUPTED: 130,
}
_NEXT = {
    BackfillState.SCHEDULED: "It waits for its time; see how: lineage-backfill watch {id}",
    BackfillState.RUNNING: "It goes on; see how: lineage-backfill watch {id}",
    BackfillState.SUCCEEDED: "See what it touched: lineage-backfill report {id}",
    BackfillState.FAILED: "Mend the cause, then: lineage-backfill retry {id}",
    BackfillState.CANCELLED: "To run what was given up: lineage-backfill retry {id}",
    BackfillState.PAUSED: "It is paused; go on with: lineage-backfill resume {id}",
    BackfillState.INTERRUPTED: "Its state is saved; go on with: lineage-backfill resume {id}",
}


@takes_options
def run(
    request: RequestOptions,
    source: SourceOptions,
    how: RunOptions,
    datasets: DatasetsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Run a saved plan (PLAN.json), or plan and run what the same arguments of `impact` ask for."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli.planning import Made, load_plan, make_plan

    saved = _saved_plan(datasets or (), request)
    if saved is None:
        made = make_plan(datasets or (), request, source)
    else:
        project = source.open()
        snapshot = app.read_lineage(project)
        plan = load_plan(saved)
        app.check_plan(project, snapshot, plan)
        made = Made(plan=plan, project=project, snapshot=snapshot)
    carry_out(made, how, source=source, as_json=as_json)


def carry_out(made: Made, how: RunOptions, *, source: SourceOptions, as_json: bool) -> None:
    """Show a plan, ask, run it, and exit by how it ended."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.planning import estimate, show

    submission, driving = how.submission(), how.driving()
    plan, project, snapshot = made.plan, made.project, made.snapshot
    if how.detach and how.timeout:
        raise UsageError(
            "--detach waits for nothing that --timeout could end",
            hint="Keep one of them; `watch --timeout` follows a backfill for so long.",
        )
    takes = estimate(made, max_parallel=how.max_parallel)
    # Who is asked sees what about, also where quiet is asked for.
    console = terminal.talk() if how.yes else terminal.err()
    show(plan, console, snapshot=snapshot, estimate=takes)
    stuck = any(job.status == "blocked" for job in plan.jobs)
    if not plan.totals["runs"]:
        raise typer.Exit(_NOT_ALL if stuck else 0)
    written = {write.dataset for run in plan.runs or () for write in run.writes}
    for dataset, found in app.undo_blockers(project, snapshot, written).items():
        terminal.say(f"undo: {dataset}: {'; '.join(found)}")
    _confirm(plan, how.yes, above=project.declarations.limits.confirm_above)
    if how.detach:
        arguments = [*source.arguments(), *(["--wait"] if how.wait else [])]
        backfill = app.submit(project, snapshot, plan, **submission)
        log = app.detach(project, backfill, arguments)
        _tell_detached(project, backfill, log, as_json=as_json)
        return
    with _reporting(takes) as reporter:
        ended = app.start(project, snapshot, plan, reporter=reporter, **driving, **submission)
    _finish(project, ended, as_json=as_json)


@contextmanager
def _reporting(takes: Estimate | None) -> Iterator[Reporter]:
    """Show on stderr what happens meanwhile, and how long it still takes where that is known."""
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.progress import progress

    reporter = progress(terminal.talk(), takes)
    with reporter.showing():
        yield reporter


@takes_options
def resume(
    source: SourceOptions,
    how: DriveOptions,
    backfill: BackfillArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a backfill that was paused or interrupted; what has succeeded is not run again."""
    from lineage_backfill import workspace as app

    project = source.open()
    takes = app.estimate_left(project, backfill, max_parallel=how.max_parallel)
    _go_on(app.resume, project, how, backfill, takes, as_json=as_json)


@takes_options
def retry(
    source: SourceOptions,
    how: DriveOptions,
    backfill: BackfillArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Run again what failed, and what was blocked by it; nothing else."""
    from lineage_backfill import workspace as app

    project = source.open()
    takes = app.estimate_left(project, backfill, again=True, max_parallel=how.max_parallel)
    _go_on(app.retry, project, how, backfill, takes, as_json=as_json)


def _go_on(
    verb: Callable[..., Ended],
    project: Project,
    how: DriveOptions,
    backfill: str | None,
    takes: Estimate,
    *,
    as_json: bool,
) -> None:
    driving = how.driving()
    with _reporting(takes) as reporter:
        ended = verb(project, backfill, reporter=reporter, **driving)
    _finish(project, ended, as_json=as_json)


@takes_options
def undo(
    source: SourceOptions,
    how: DriveOptions,
    backfill: BackfillArgument = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put back what a backfill wrote, the newest first; what others changed since is refused."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.progress import progress
    from lineage_backfill.presentation.text import counted

    project, driving = source.open(), how.driving()
    reporter = progress(terminal.talk())

    def ask(plan: Plan) -> None:
        said = f"{counted(plan.totals['runs'], 'run')} of {counted(plan.totals['jobs'], 'job')}"
        terminal.say(f"To be put back: what {said} wrote.", asking=not yes)
        _confirm(plan, yes, above=project.declarations.limits.confirm_above, verb="Undo")
        shown.enter_context(reporter.showing())

    with ExitStack() as shown:
        ended = app.undo(project, backfill, ask=ask, reporter=reporter, **driving)
    _finish(project, ended, as_json=as_json)


@takes_options
def watch(
    source: SourceOptions,
    how: WaitOptions,
    backfill: BackfillArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a backfill that runs elsewhere, until it ends; changes nothing."""
    from lineage_backfill import workspace as app

    project, limit = source.open(), how.limit
    with _reporting(app.estimate_left(project, backfill)) as reporter:
        ended = app.watch(project, backfill, reporter=reporter, timeout=limit)
    _finish(project, ended, as_json=as_json)


def _saved_plan(datasets: Sequence[str], request: RequestOptions) -> Path | None:
    """Return the plan file, if that is what was named."""
    if len(datasets) != 1 or not datasets[0].endswith(".json") or not Path(datasets[0]).is_file():
        return None
    if request.is_given:
        raise UsageError(
            f"{datasets[0]} is a plan already; it is run as it was saved",
            hint="Leave out the other options, or make another plan with `impact --out`.",
        )
    return Path(datasets[0])


def _confirm(plan: Plan, yes: bool, *, above: int, verb: str = "Run") -> None:
    """Ask before anything is done; for more runs than `above`, their number has to be typed."""
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation.text import counted

    if yes:
        return
    if not terminal.is_interactive():
        raise GuardRailError(
            f"There is nobody to ask whether to {verb.lower()} this", hint="Say so with --yes."
        )
    number = plan.totals["runs"]
    if number > above:
        typed = typer.prompt(
            f"These are {counted(number, 'run')}. Type the number to {verb.lower()} them",
            default="",
            show_default=False,
            err=True,
        )
        agreed = typed.strip().replace(",", "") == str(number)
    else:
        agreed = typer.confirm(f"{verb} {counted(number, 'run')}?", err=True)
    if not agreed:
        terminal.say("Nothing was run.")
        raise typer.Exit(1)


def _tell_detached(project: Project, backfill: str, log: Path, *, as_json: bool) -> None:
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation import documents

    if as_json:
        documents.emit(app.status(project, backfill))
    else:
        typer.echo(backfill)
    terminal.say(f"It runs on its own, and writes to {log}")
    terminal.say(_NEXT[BackfillState.RUNNING].format(id=backfill))


def _finish(project: Project, ended: Ended, *, as_json: bool) -> None:
    """Say how a backfill ended and what to do next, and exit by it."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation import documents
    from lineage_backfill.presentation.names import keys_on_a_line

    document = app.status(project, ended.id)
    if as_json:
        documents.emit(document)
    if ended.is_orphan:
        terminal.say("Nobody drives it any more: its process has ended without a word.")
    terminal.say(_NEXT[ended.state].format(id=ended.id))
    for one in document["left"]:
        keys = keys_on_a_line(tuple(one["partitions"]))
        terminal.say(f"Became complete meanwhile, and was not run: {one['job']['name']} {keys}")
    code = _EXIT_CODES[ended.state]
    if ended.timed_out and ended.state is BackfillState.INTERRUPTED:
        code = _TIMED_OUT
    if code == 0 and (document["blocked_jobs"] or document["left"]):
        code = _NOT_ALL
    if code:
        raise typer.Exit(code)
