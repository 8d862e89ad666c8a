"""`run`, `resume`, `retry`, `undo` and `watch`: the commands that last until a backfill ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import (
    BackfillOptions,
    DatasetsArgument,
    JsonOption,
    ListOptions,
    RequestOptions,
    RunningOptions,
    RunOptions,
    SourceOptions,
    TakeoverOptions,
    WaitOptions,
    YesOption,
    takes_options,
)
from lineage_backfill.cli.output.plan_forms import show
from lineage_backfill.cli.output.progress import progress
from lineage_backfill.cli.planning import PlannedRequest, estimate, load_plan, make_plan
from lineage_backfill.cli.values import read_moment, read_parameters
from lineage_backfill.errors import BackfillError, StoreError, UnknownNameError, UsageError
from lineage_backfill.model import BackfillState, listed
from lineage_backfill.plans.plan import Decision, Plan
from lineage_backfill.ports import Reporter, Settings, Submission
from lineage_backfill.runs.estimate import Estimate
from lineage_backfill.show import backfills, documents
from lineage_backfill.show.names import keys_on_a_line
from lineage_backfill.show.plans import lost_in_words
from lineage_backfill.show.text import counted
from lineage_backfill.workspace.actions import Actions, Process, at_command_line
from lineage_backfill.workspace.backfills import BackfillOutcome, Backfills
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace

_NOT_ALL = 3
_TIMED_OUT = 8
_DECLINED = 130  # as for Ctrl-C at the question
#: Exit code and next step for each state in which a command leaves a backfill.
_ENDS = {
    BackfillState.SCHEDULED: (_TIMED_OUT, "Scheduled; follow it with: {watch}"),
    BackfillState.RUNNING: (_TIMED_OUT, "Still running; follow it with: {watch}"),
    BackfillState.SUCCEEDED: (0, "See what it rewrote: {report}"),
    BackfillState.FAILED: (_NOT_ALL, "Fix the cause, then: {retry}"),
    BackfillState.CANCELLED: (_NOT_ALL, "To run what was cancelled: {retry}"),
    BackfillState.PAUSED: (130, "Paused; resume it with: {resume}"),
    BackfillState.INTERRUPTED: (130, "Interrupted, state saved; resume it with: {resume}"),
}


@takes_options
def run(
    request: RequestOptions,
    source: SourceOptions,
    how: RunOptions,
    listing: ListOptions,
    datasets: DatasetsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Run a saved plan (PLAN.json), or plan and run in one step, with the arguments of `impact`."""
    saved = _saved_plan(datasets or (), request)
    if saved is None:
        planned = make_plan(datasets or (), request, source)
    else:
        planned = PlannedRequest(plan=load_plan(saved), workspace=source.open())
        Planning(planned.workspace).check(planned.plan)
    carry_out(planned, how, source=source, listing=listing, as_json=as_json)


def carry_out(
    planned: PlannedRequest,
    how: RunOptions,
    *,
    source: SourceOptions,
    listing: ListOptions,
    as_json: bool,
) -> None:
    """Show a plan, ask for confirmation, run it, and exit with its code."""
    plan, workspace = planned.plan, planned.workspace
    submission, options = _submission(how, workspace), _drive_options(how)
    if how.detach and how.timeout:
        raise UsageError(
            "--detach does not wait, so --timeout has no effect",
            hint="Drop one of them; `watch --timeout` follows a backfill for a limited time.",
        )
    takes = estimate(planned, max_parallel=how.max_parallel)
    # Before a question the plan is shown even with --quiet.
    console = terminal.talk() if how.yes else terminal.err()
    show(plan, console, workspace=workspace, takes=takes, listing=listing)
    if not plan.totals["runs"]:
        left = (job for job in plan.jobs if job.status in ("blocked", "left_stale"))
        stuck = any(how.strict or not job.reason.get("by_choice") for job in left)
        stuck = stuck or bool(how.strict and plan.left_out)
        raise typer.Exit(_NOT_ALL if stuck else 0)
    plan, missing = Planning(workspace).without_missing(plan)
    for lost in missing:
        terminal.say(f"missing: {lost_in_words(lost)}")
    _confirm(plan, how.yes, workspace)
    if how.detach:
        acting = Actions(workspace, at_command_line(), options=options)
        process = Process(
            arguments=[*source.arguments(), *terminal.arguments(), *["--wait"] * how.wait],
            settings=source.secret_settings,
            has_own_lineage=source.has_own_lineage,
        )
        submitted = acting.submit(plan, submission, process)
        if as_json:
            documents.emit(Backfills(workspace).status(submitted.id))
        else:
            typer.echo(submitted.id)
        terminal.say(submitted.where)
        terminal.say(_ENDS[BackfillState.RUNNING][1].format_map(source.commands(submitted.id)))
        return
    with _reporting(takes) as reporter:
        acting = Actions(workspace, at_command_line(), reporter=reporter, options=options)
        outcome = acting.start(plan, submission)
    left_out = plan.left_out if how.strict else None
    _finish(workspace, outcome, source, as_json=as_json, left_out=left_out)


def _submission(how: RunOptions, workspace: Workspace) -> Submission:
    now = Backfills(workspace).now() if how.at else datetime.now(UTC)
    return Submission(
        settings=Settings(
            cutoff=not how.no_cutoff, tail=not how.no_tail, max_parallel=how.max_parallel
        ),
        title=how.title or "",
        description=how.description or "",
        parameters=read_parameters(how.parameter or ()),
        scheduled_for=read_moment(how.at, now, sign=1),
    )


def _drive_options(how: RunningOptions) -> DriveOptions:
    return DriveOptions(max_parallel=how.max_parallel, timeout=how.limit, waits=how.wait)


@contextmanager
def _reporting(takes: Estimate | None) -> Iterator[Reporter]:
    """Show progress on stderr, and the time left where it is known."""
    reporter = progress(terminal.talk(), takes)
    with reporter.showing():
        yield reporter


@takes_options
def resume(which: BackfillOptions, how: RunningOptions, takeover: TakeoverOptions) -> None:
    """Resume a backfill that was paused or interrupted; successful runs are not repeated."""
    _go_on(which, how, takeover, again=False)


@takes_options
def retry(which: BackfillOptions, how: RunningOptions, takeover: TakeoverOptions) -> None:
    """Re-run failed runs and the runs they blocked; nothing else."""
    _go_on(which, how, takeover, again=True)


def _go_on(
    which: BackfillOptions, how: RunningOptions, takeover: TakeoverOptions, *, again: bool
) -> None:
    workspace, backfill = which.open(), which.backfill
    takes = Backfills(workspace).estimate_left(backfill, again=again, max_parallel=how.max_parallel)
    options = replace(_drive_options(how), gone=takeover.gone)
    with _reporting(takes) as reporter:
        acting = Actions(workspace, at_command_line(), reporter=reporter, options=options)
        outcome = acting.retry(backfill) if again else acting.resume(backfill)
    if outcome.had_succeeded:
        verb = "retry" if again else "resume"
        terminal.say(f"{outcome.id} has already succeeded: nothing to {verb}.")
    _finish(workspace, outcome, which, as_json=which.as_json)


@takes_options
def undo(which: BackfillOptions, how: RunningOptions, yes: YesOption = False) -> None:
    """Restore what a backfill overwrote, newest first; refused if it has changed since."""
    workspace, options = which.open(), _drive_options(how)
    reporter = progress(terminal.talk())

    def confirm(plan: Plan) -> None:
        runs, jobs = counted(plan.totals["runs"], "run"), counted(plan.totals["jobs"], "job")
        terminal.say(f"Restores what {runs} of {jobs} overwrote.", is_needed=not yes)
        _confirm(plan, yes, workspace, verb="Undo")
        progress_shown.enter_context(reporter.showing())

    with ExitStack() as progress_shown:
        acting = Actions(workspace, at_command_line(), reporter=reporter, options=options)
        outcome = acting.undo(which.backfill, confirm=confirm)
    _finish(workspace, outcome, which, as_json=which.as_json)


@takes_options
def watch(which: BackfillOptions, how: WaitOptions) -> None:
    """Follow a backfill that another process drives, until it ends; changes nothing."""
    workspace, limit = which.open(), how.limit
    backfills = Backfills(workspace)
    with _reporting(backfills.estimate_left(which.backfill)) as reporter:
        outcome = backfills.watch(which.backfill, reporter, timeout=limit)
    _finish(workspace, outcome, which, as_json=which.as_json)


def _saved_plan(datasets: Sequence[str], request: RequestOptions) -> Path | None:
    """Return the plan file, if the argument is one."""
    if len(datasets) != 1 or not datasets[0].endswith(".json") or not Path(datasets[0]).is_file():
        return None
    if request.is_given:
        raise UsageError(
            f"{datasets[0]} is a saved plan and takes no other options",
            hint="Drop the other options, or make a new plan with `impact --out`.",
        )
    return Path(datasets[0])


def _confirm(plan: Plan, yes: bool, workspace: Workspace, *, verb: str = "Run") -> None:
    """Ask for confirmation; above the project's limit the number of runs must be typed."""
    if yes:
        return
    terminal.refuse_unasked(verb.lower())
    number = plan.totals["runs"]
    if number > workspace.project.declarations.limits.confirm_above:
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
        raise typer.Exit(_DECLINED)


def _outcome(workspace: Workspace, status: Mapping[str, Any]) -> str:
    """Return how a backfill ended, with what it rewrote if known, and what stays stale."""
    report = None
    if status["state"] == BackfillState.SUCCEEDED:
        with suppress(BackfillError):
            report = Backfills(workspace).report(status["id"])
    stale = status["blocked_jobs"]
    rest = f" Stale but not planned: {counted(len(stale), 'job')}." if stale else ""
    return backfills.outcome(status, report) + rest


def _next_step(workspace: Workspace, outcome: BackfillOutcome) -> str:
    """Return what to do after a verb has left a backfill, as a format."""
    if outcome.is_left and Runner(workspace).has_driver():
        return "The `drive` service resumes it; follow it with: {watch}"
    return _ENDS[outcome.state][1]


def _strictly(document: Mapping[str, Any], left_out: Sequence[Decision] | None) -> Sequence[str]:
    """Return what --strict, without which `left_out` is None, has against exit code 0."""
    if left_out is None:
        return ()
    excluded = [one["name"] for one in document["excluded_jobs"]]
    asked = f"left out by the request, and stale: {listed(excluded, 3)}"
    return [*[asked] * bool(excluded), *(one.text for one in left_out)]


def _finish(
    workspace: Workspace,
    outcome: BackfillOutcome,
    source: SourceOptions,
    *,
    as_json: bool,
    left_out: Sequence[Decision] | None = None,
) -> None:
    """Print how a backfill ended and what to do next; exit with its code.

    With --strict, `left_out` is what the plan leaves out.
    """
    try:
        document = Backfills(workspace).status(outcome.id)
    except UnknownNameError as error:
        raise StoreError(
            f"the run store was removed while {outcome.id} ran, which is {outcome.state}",
            hint="Its records are lost; what it wrote to its tables stays.",
        ) from error
    if as_json:
        documents.emit(document)
    if outcome.is_orphan:
        terminal.say("Its driver process no longer exists.")
    code, _ = _ENDS[outcome.state]
    reasons = _strictly(document, left_out)
    if code == 0 and (document["blocked_jobs"] or document["left"] or reasons):
        code = _NOT_ALL
    is_bad = code == _NOT_ALL
    for text in reasons:
        terminal.say(f"--strict: {text}", is_needed=True)
    if outcome.is_left:
        terminal.say("Stopping: no more runs are started; those under way continue.")
    elif not outcome.state.is_under_way:
        terminal.say(_outcome(workspace, document), is_needed=is_bad)
        if terminal.manner.quiet and (failure := backfills.first_failure(document)):
            terminal.say(failure, is_needed=True)  # no progress has shown it
    then = _next_step(workspace, outcome)
    terminal.say(then.format_map(source.commands(outcome.id)))
    for one in document["left"]:
        keys = keys_on_a_line(tuple(one["partitions"]))
        text = f"Became complete meanwhile, not run: {one['job']['name']} {keys}"
        terminal.say(text, is_needed=is_bad)
    if outcome.timed_out and outcome.state is BackfillState.INTERRUPTED:
        code = _TIMED_OUT
    if code:
        raise typer.Exit(code)
