"""The pages of backfills: list, details, runs, plan and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from flask import Response, render_template, request
from werkzeug.exceptions import NotFound

from lineage_backfill.errors import (
    LineageError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.planning.timeline import Span
from lineage_backfill.plans.document import plan_from_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.ports import BackfillRecord
from lineage_backfill.show import backfills, plans, words
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import to_the_second
from lineage_backfill.web import view_models
from lineage_backfill.web.answers import DRAWN, Ref, as_json, as_svg, cache, number, routes
from lineage_backfill.web.cache import Listed, Look
from lineage_backfill.web.live import PATIENCE, is_watching, live
from lineage_backfill.web.session import sight
from lineage_backfill.web.view_models import Page
from lineage_backfill.workspace.actions import audit
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.workspace import Workspace

_BACKFILLS, _RUNS, _JOBS, _OTHERS, _FAILED = 25, 100, 50, 100, 200  # rows on a page
_TROUBLES, _WRITTEN, _ACTS = 20, 10, 20
_ACTS_SENT = 500  # as JSON
_LOGS, _LINES, _LOG_END = 3, 15, 8 * 1024  # failed runs whose log ends on the page: lines, bytes
_TAIL = 64 * 1024  # bytes of a log on its page
_WHOLE_LOG = 4 * 1024 * 1024
#: What a page can do, and the box to tick before that.
ACTS = {
    "pause": "",
    "resume": "",
    "retry": "",
    "cancel": "what is not started stays stale",
    "kill": "running runs are stopped, too",
    "undo": "what it wrote is replaced by what was there before",
    "delete": "it leaves the lists",
}
_REPORTED = 5_000  # most runs of a backfill whose verdict is on its first page


#: The states of backfills that wait for a person or a time.
_WAITING = (BackfillState.SCHEDULED, BackfillState.PAUSED, BackfillState.INTERRUPTED)


@routes.get("/")
def history() -> Response:
    """Show what is stale, runs, failed and waits, and the backfills, the newest first."""
    look = cache().look()
    listed = cache().listed(patience=PATIENCE if is_watching() else 0.0)
    version = f"{listed.version} {look and look.at}"
    return live(version, lambda: _history(listed, look))


def _history(listed: Listed, look: Look | None) -> str:
    """Render the first page."""
    every, tallies = listed.document["backfills"], listed.tallies
    states = Counter(BackfillState(one["state"]) for one in every if not one["undone_by"])
    found = [one for one in every if _is_chosen(one)]
    page = Page.of(found, number("page"), size=_BACKFILLS)
    under_way = [one["id"] for one in every if BackfillState(one["state"]).is_under_way]
    with cache().backfills() as kept:
        ended = kept.tallies({one["id"] for one in page.items} - tallies.keys())
    return render_template(
        "history.html",
        page=page,
        tallies={**tallies, **ended},
        hidden=listed.document["hidden"],
        given=request.args,
        states=[one for one in BackfillState if states[one]],
        count=states,
        running=sum(tallies[id_].get(RunState.RUNNING, 0) for id_ in under_way),
        waiting=sum(states[one] for one in _WAITING),
        stale=_stale(look),
        look=look,
        is_live=True,
        reloads=bool(under_way),  # without JavaScript, which else would empty the search
    )


def _stale(look: Look | None) -> list[Any] | None:
    """Return the datasets that are stale and may be seen, None while that is not known."""
    if look is None or look.stale is None:
        return None
    every, seen = view_models.stale_datasets(look.stale), sight()
    return every if seen is None else [one for one in every if seen.reach.sees(one[0])]


def _is_chosen(one: Mapping[str, Any]) -> bool:
    """Whether the search in the address finds a backfill."""
    wanted, state = request.args.get("q", "").strip().casefold(), request.args.get("state")
    texts = ("id", "title", "changed", "reason", "description", "submitted_by")
    states = _WAITING if state == "waiting" else (state,)
    return (not state or one["state"] in states) and (
        not wanted or any(wanted in one[text].casefold() for text in texts)
    )


@routes.get("/history.json")
def history_json() -> Response:
    """Return what `history --json` prints, as far as the search in the address finds it."""
    document = cache().listed().document
    found = [one for one in document["backfills"] if _is_chosen(one)]
    return as_json({**document, "backfills": found})


@routes.get("/stale.json")
def stale_json() -> Response:
    """Return what `stale --json` prints, as of the last look."""
    _, stale = cache().looked()
    return as_json(stale.to_dict())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the page of a backfill shows besides its status, or why it cannot."""

    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    no_spans: str = ""
    report: Mapping[str, Any] | None = None
    no_report: str = ""


@routes.get("/backfills/<backfill>")
def backfill(backfill: str) -> Response:
    """Show one backfill."""
    current = cache().current(backfill, patience=PATIENCE if is_watching() else 0.0)
    seen = _seen(current.status)
    version = f"{current.version} {seen.no_spans} {seen.no_report}"
    return live(version, lambda: _backfill(current.status, seen))


def _seen(status: dict[str, Any]) -> _Seen:
    seen = _Seen()
    try:
        seen = replace(seen, spans=cache().spans(status))
    except (LineageError, UsageError) as error:
        seen = replace(seen, no_spans=error.full_text)
    is_live = BackfillState(status["state"]).is_under_way
    if is_live or len(status["runs"]) > _REPORTED:
        return seen
    try:
        with cache().backfills() as kept:
            return replace(seen, report=cache().report(status, kept))
    except (LineageError, UsageError) as error:
        return replace(seen, no_report=error.full_text)


def _log_ends(kept: Backfills, id_: str, troubles: Iterable[view_models.Trouble]) -> dict[str, str]:
    """Return the last lines that the first failed runs have left, by run."""
    found = {}
    failed = (one.first for one in troubles if one.state is RunState.FAILED)
    for run in islice(failed, _LOGS):
        with suppress(UnknownNameError):
            log = kept.attempt_log(id_, run["id"], run["attempt"], most=_LOG_END)
            found[run["id"]] = "\n".join(log.splitlines()[-_LINES:])
    return found


def _backfill(status: dict[str, Any], seen: _Seen) -> str:
    """Render the page of a backfill."""
    is_live, report = BackfillState(status["state"]).is_under_way, seen.report
    runs = status["runs"]
    jobs = view_models.job_rows(runs)
    rows = Page.of(jobs, number("jobs"), size=_JOBS)
    periods = view_models.fill(rows.items, seen.spans, cache().project.declarations.zone)
    state, job = request.args.get("state"), _chosen_job()
    listed = [
        run
        for run in runs
        if (not state or run["state"] == state) and (job is None or JobRef(**run["job"]) == job)
    ]
    troubles = Page.of(view_models.troubles(runs), 1, size=_TROUBLES)
    with cache().backfills() as kept:  # opened once, which takes longer than what is read
        log_ends = _log_ends(kept, status["id"], troubles.items)
        done = audit(kept.workspace, _ACTS, status["id"])["acts"]
    return render_template(
        "backfill.html",
        status=status,
        names=Names(row.job for row in jobs),
        particulars=[one for one in backfills.particulars(status, to_the_second) if one[1]],
        is_live=is_live,
        rows=rows,
        periods=periods,
        lineage_says=seen.no_spans,
        troubles=troubles,
        log_ends=log_ends,
        cut_off=[run for run in runs if run["cut_off"]][:_JOBS],
        runs=Page.of(view_models.first_of_all(listed), number("page"), size=_RUNS),
        state=state,
        job=job,
        states=[one for one in RunState if status["totals"][one]],
        took=backfills.took,
        report=report,
        sentence="" if is_live else backfills.outcome(status, report),
        no_report=seen.no_report,
        outputs=list(backfills.outputs(report, backfills.names_in(report)))[:_WRITTEN]
        if report is not None
        else (),
        columns=backfills.OUTPUTS,
        mark=backfills.mark,
        done=done,
        commands=_commands(status),
        acts=ACTS,
    )


def _chosen_job() -> JobRef | None:
    name, namespace = request.args.get("job"), request.args.get("namespace")
    return None if name is None or namespace is None else JobRef(namespace, name)


def _commands(status: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the possible next steps for a backfill with their commands and verbs."""
    state, id_ = BackfillState(status["state"]), status["id"]
    verbs = [("Follow it in a terminal", "watch")] if state.is_under_way else []
    if state.is_under_way:
        verbs += [("Start no more runs", "pause"), ("Cancel the runs not started", "cancel")]
        verbs += [("Also stop the running runs", "cancel --kill")]
    elif state in (BackfillState.PAUSED, BackfillState.INTERRUPTED):
        verbs += [("Resume it", "resume")]
    elif state is not BackfillState.SUCCEEDED:
        verbs += [("Re-run what did not succeed", "retry")]
    if not state.is_under_way:
        verbs += [("See what it rewrote", "report")]
        may_have_written = any(run["started_at"] for run in status["runs"])
        if may_have_written and not (status["undo_of"] or status["undone_by"]):
            verbs += [("Undo it: restore what it overwrote", "undo")]
        verbs += [("Hide it from lists; its data stays", "delete")]
    target = cache().project.target
    option = f" --target={target}" if target else ""
    return [
        (title, f"lineage-backfill {verb} {id_}{option}", verb.rpartition("--")[2])
        for title, verb in verbs
    ]


@routes.get("/backfills/<backfill>.json")
def backfill_json(backfill: str) -> Response:
    """Return what `status --json` prints."""
    with cache().backfills() as kept:
        return as_json(kept.status(backfill))


@routes.get("/backfills/<backfill>/audit.json")
def backfill_acts_json(backfill: str) -> Response:
    """Return the newest acts on one backfill."""
    with cache().backfills() as kept:
        id_ = kept.status(backfill)["id"]
    return as_json(audit(Workspace(cache().project), _ACTS_SENT, id_))


@routes.get("/backfills/<backfill>/report")
def report(backfill: str) -> str:
    """Show the partitions that a backfill planned and rewrote."""
    document = _report(backfill)
    names = backfills.names_in(document)
    outputs = list(backfills.outputs(document, names))
    return render_template(
        "report.html",
        report=document,
        outputs=Page.of(outputs, number("page"), size=_OTHERS),
        columns=backfills.OUTPUTS,
        notes=backfills.notes,
        missing_inputs=list(backfills.missing_inputs(document, names))[:_FAILED],
        not_succeeded=list(backfills.not_succeeded(document, names))[:_FAILED],
        started_by_others=[
            (title, columns, Page.of(rows, number(f"others{place}"), size=_OTHERS))
            for place, (title, columns, rows) in enumerate(
                backfills.started_by_others(document, names)
            )
        ],
        not_planned=Page.of(
            list(backfills.not_planned(document, names)), number("left"), size=_OTHERS
        ),
        verdict=backfills.verdict(document).rstrip("."),
        sentence=backfills.repaired(document),
        mark=backfills.mark,
        who_and_when=backfills.who_and_when(document, to_the_second),
    )


@routes.get("/backfills/<backfill>/report.json")
def report_json(backfill: str) -> Response:
    """Return what `report --json` prints."""
    return as_json(_report(backfill))


def _report(backfill: str) -> Mapping[str, Any]:
    with cache().backfills() as kept:
        status = kept.status(backfill)
        return cache().report(status, kept)


@routes.get("/backfills/<backfill>/runs/<run>")
def run(backfill: str, run: str) -> str:
    """Show one run: attempts, run spec, upstream runs and output."""
    spec, log = {}, ""
    missing = []
    with cache().backfills() as kept:
        document = kept.run(backfill, run)
        tried = [one["attempt"] for one in document["attempts"]]
        chosen = request.args.get("attempt", tried[-1] if tried else 0, type=int)
        if tried and chosen not in tried:
            raise NotFound("No such attempt.")
        if tried:
            place = document["backfill"], document["id"], chosen
            try:
                spec = kept.attempt_spec(*place)
            except UnknownNameError as error:
                missing.append(error.full_text)
            try:
                log = kept.attempt_log(*place, most=_TAIL)
            except UnknownNameError as error:
                missing.append(error.full_text)
    upstream = document["upstream"]
    refs: list[Ref] = [JobRef(**one["job"]) for one in (document, *upstream)]
    refs += [DatasetRef(**one["dataset"]) for one in (*document["reads"], *document["writes"])]
    return render_template(
        "run.html",
        run=document,
        names=Names(refs),
        chosen=chosen,
        spec=spec,
        log=log,
        tail=_TAIL,
        missing=missing,
        in_engine=backfills.in_engine,
        upstream=Page.of(upstream, number("page"), size=_OTHERS),
        took=backfills.took,
        is_live=not RunState(document["state"]).is_final,
    )


@routes.get("/backfills/<backfill>/runs/<run>.json")
def run_json(backfill: str, run: str) -> Response:
    """Return the document of one run."""
    with cache().backfills() as kept:
        return as_json(kept.run(backfill, run))


@routes.get("/backfills/<backfill>/runs/<run>/<int:attempt>.txt")
def log(backfill: str, run: str, attempt: int) -> Response:
    """Return the output of an attempt."""
    with cache().backfills() as kept:
        found = kept.run(backfill, run)
        text = kept.attempt_log(found["backfill"], found["id"], attempt, most=_WHOLE_LOG)
    return Response(text, mimetype="text/plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """One plan of a backfill, the first or a tail, with its status."""

    record: BackfillRecord
    document: Mapping[str, Any]
    number: int
    plans: int

    @property
    def plan(self) -> Plan:
        return plan_from_dict(self.document, only_shown=sight() is not None)


def _planned(backfill: str) -> _Planned:
    with cache().backfills() as kept:
        record, every = kept.plan_documents(backfill)
    part = number("part")
    if not 1 <= part <= len(every):
        raise NotFound("No such plan.")
    return _Planned(record=record, document=every[part - 1], number=part, plans=len(every))


@routes.get("/backfills/<backfill>/plan")
def plan(backfill: str) -> str:
    """Show the plan of a backfill as a tree, each job with its reason."""
    found = _planned(backfill)
    plan = found.plan
    is_drawn = len(plan.jobs) <= DRAWN and len(plans.drawing(plan).nodes) <= DRAWN
    return render_template("plan.html", found=found, is_drawn=is_drawn, **parts_of(plan))


def parts_of(plan: Plan) -> dict[str, Any]:
    """Return what the table of a plan shows."""
    names = Names.of(plan)
    return {
        "plan": plan,
        "names": names,
        "roots": list(plans.roots(plan)),
        "amount": plans.amount(plan),
        "whole_or_keys": plans.whole_or_keys,
        "rows": Page.of(plans.tree(plan.jobs), number("page"), size=_JOBS),
        "in_words": lambda reason: words.in_words(reason, names),
        "why_left": words.why_left,
    }


@routes.get("/backfills/<backfill>/plan.json")
def plan_json(backfill: str) -> Response:
    """Return the saved plan, as `impact --json` prints it."""
    return as_json(_planned(backfill).document)


@routes.get("/backfills/<backfill>/plan.svg")
def plan_svg(backfill: str) -> Response:
    """Draw the plan of a backfill."""
    return as_svg(plans.drawing(_planned(backfill).plan))
