"""The pages: each shows a document that the command line prints, which stands beside it as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from flask import Blueprint, Flask, Response, current_app, render_template, request, url_for
from jinja2 import StrictUndefined
from markupsafe import Markup
from werkzeug.exceptions import HTTPException, NotFound

from lineage_backfill import app
from lineage_backfill.config import Project
from lineage_backfill.errors import (
    BackfillError,
    DeclarationError,
    LineageError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.graph import view
from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.plan.document import plan_from_dict
from lineage_backfill.plan.plan import Plan
from lineage_backfill.plan.timeline import Span
from lineage_backfill.ports import RunStore
from lineage_backfill.telling import backfills, documents, draw, plans, settings, views, words
from lineage_backfill.telling import lineage as told
from lineage_backfill.telling.names import Names, keys_in_words, keys_on_a_line
from lineage_backfill.telling.text import counted, safe
from lineage_backfill.web import shown
from lineage_backfill.web.guard import guard
from lineage_backfill.web.knowledge import Knowledge, Lineage
from lineage_backfill.web.shown import Page

Ref = DatasetRef | JobRef

_BACKFILLS, _RUNS, _JOBS, _NODES = 25, 100, 50, 100  # rows on a page
_DRAWN = 60  # nodes of the largest graph that is drawn
_TAIL = 64 * 1024  # bytes of a log on its page
_WHOLE_LOG = 4 * 1024 * 1024
#: What the addresses of pages may say after their `?`.
_PARAMETERS = frozenset(
    ("attempt", "job", "jobs", "kind", "left", "name", "namespace", "page", "part", "q", "state")
)
_REPORTED = 5_000  # runs of the largest backfill whose verdict stands on its first page

routes = Blueprint("pages", __name__)


def make_pages(project: Project, *, names: Collection[str] = ()) -> Flask:
    """Return the pages of a project as a WSGI application, which answers by `names` as well."""
    pages = Flask(__name__)
    pages.extensions["knowledge"] = Knowledge(project)
    pages.jinja_env.undefined = StrictUndefined
    pages.jinja_env.trim_blocks = pages.jinja_env.lstrip_blocks = True
    pages.jinja_env.globals.update(
        counted=counted,
        in_states=shown.in_states,
        bar=shown.bar,
        worst=shown.worst,
        signs=shown.SIGNS,
        here=_here,
        link=_link,
        project_name=project.root.name or str(project.root),
        version=version("lineage-backfill"),
    )
    pages.jinja_env.filters.update(
        safe_text=safe,
        keys=lambda keys: keys_on_a_line(tuple(keys)),
        all_keys=lambda keys: keys_in_words(None if keys == "*" else tuple(keys), shown=50),
        instant=backfills.to_the_second,
        job=lambda named: JobRef(**named),
        dataset=lambda named: DatasetRef(**named),
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )
    guard(pages, names)
    pages.register_blueprint(routes)
    pages.register_error_handler(BackfillError, _told)
    pages.register_error_handler(HTTPException, _refused)
    return pages


# --- what all of them use -------------------------------------------------------------------------


def _known() -> Knowledge:
    known: Knowledge = current_app.extensions["knowledge"]
    return known


@contextmanager
def _store() -> Iterator[RunStore]:
    with app.open_store(_known().project, read_only=True) as store:
        yield store


def _here(**changed: Any) -> str:
    """Return the address of this page with other parameters."""
    given = {name: text for name, text in request.args.items() if name in _PARAMETERS}
    parameters = {**given, **(request.view_args or {}), **changed}
    return url_for(request.endpoint or "pages.history", **parameters)


def _link(ref: Ref, text: str) -> Markup:
    """Return the name of a dataset or a job as a link to its page."""
    address = url_for("pages.node", kind=ref.kind, namespace=ref.namespace, name=ref.name)
    return Markup('<a class="{}" href="{}">{}</a>').format(ref.kind, address, text)


def _number(name: str) -> int:
    return request.args.get(name, 1, type=int)


def _json(document: Mapping[str, Any]) -> Response:
    return Response(documents.dump(document), mimetype="application/json")


def _svg(drawing: draw.Drawing) -> Response:
    # It has a style of its own, and nothing else.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy}
    return Response(draw.svg(drawing), mimetype="image/svg+xml", headers=headers)


def _told(error: BackfillError) -> tuple[Any, int]:
    status = 404 if isinstance(error, UnknownNameError) else 503
    if isinstance(error, UsageError) and status != 404:
        status = 409 if isinstance(error, DeclarationError) else 400
    return _error(status, error.message, error.code, error.hint)


def _refused(error: HTTPException) -> Any:
    if error.response is not None or (error.code or 500) < 400:
        return error
    said = error.description or error.name
    made, status = _error(error.code or 500, said, "", "")
    answer = current_app.make_response((made, status))
    answer.headers.extend((name, text) for name, text in error.get_headers() if name == "Allow")
    return answer


def _error(status: int, said: str, code: str, hint: str) -> tuple[Any, int]:
    if request.path.endswith(".json"):
        return _json({"error": {"code": code, "message": said, "hint": hint}}), status
    page = render_template("error.html", status=status, said=said, code=code, hint=hint)
    return page, status


# --- backfills ------------------------------------------------------------------------------------


@routes.get("/")
def history() -> str:
    """List the backfills, the newest first."""
    with _store() as store:
        every = app.history(_known().project, store=store)["backfills"]
        page = Page.of(every, _number("page"), size=_BACKFILLS)
        tallies = store.tallies([one["id"] for one in page.items])
    is_live = any(BackfillState(one["state"]).is_under_way for one in page.items)
    return render_template("history.html", page=page, tallies=tallies, is_live=is_live)


@routes.get("/history.json")
def history_json() -> Response:
    """Return what `history --json` prints."""
    with _store() as store:
        return _json(app.history(_known().project, store=store))


@routes.get("/backfills/<backfill>")
def backfill(backfill: str) -> str:
    """Show one backfill."""
    with _store() as store:
        status = app.status(_known().project, backfill, store=store)
        lineage_says = ""
        spans: Mapping[str, tuple[Span, ...]] = {}
        try:
            spans = _known().spans(status, store)
        except (LineageError, UsageError) as error:
            lineage_says = f"{error} {error.hint}"
        is_live = BackfillState(status["state"]).is_under_way
        report, no_report = None, ""
        if not is_live and len(status["runs"]) <= _REPORTED:
            try:
                report = _known().report(status["id"], status["updated_at"], store)
            except (LineageError, UsageError) as error:
                no_report = f"{error} {error.hint}"
    runs = status["runs"]
    rows = Page.of(shown.job_rows(runs), _number("jobs"), size=_JOBS)
    periods = shown.fill(rows.items, runs, spans, _known().project.declarations.zone)
    state, job = request.args.get("state"), _asked_job()
    listed = [
        run
        for run in runs
        if (not state or run["state"] == state) and (job is None or JobRef(**run["job"]) == job)
    ]
    return render_template(
        "backfill.html",
        status=status,
        names=Names(JobRef(**run["job"]) for run in runs),
        particulars=[one for one in backfills.particulars(status) if one[1]],
        is_live=is_live,
        rows=rows,
        periods=periods,
        lineage_says=lineage_says,
        troubles=Page.of(shown.troubles(runs), 1, size=_JOBS),
        cut_off=[run for run in runs if run["cut_off"]][:_JOBS],
        runs=Page.of(listed, _number("page"), size=_RUNS),
        state=state,
        job=job,
        states=[one for one in RunState if status["totals"][one]],
        took=backfills.took,
        report=report,
        no_report=no_report,
        commands=_commands(status),
        next=backfills.NEXT[BackfillState(status["state"])].format(id=status["id"]),
    )


def _asked_job() -> JobRef | None:
    name, namespace = request.args.get("job"), request.args.get("namespace")
    return None if name is None or namespace is None else JobRef(namespace, name)


def _commands(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a person may want to do with a backfill, and the command that does it."""
    state, id_ = BackfillState(status["state"]), status["id"]
    verbs = [("Follow it in a terminal", "watch")] if state.is_under_way else []
    if state.is_under_way:
        verbs += [("Start no more of its runs", "pause"), ("Give up what has not begun", "cancel")]
    elif state in (BackfillState.PAUSED, BackfillState.INTERRUPTED):
        verbs += [("Go on with it", "resume")]
    elif state is not BackfillState.SUCCEEDED:
        verbs += [("Run again what did not succeed", "retry")]
    if not state.is_under_way:
        verbs += [("See what it touched", "report")]
        if not (status["undo_of"] or status["undone_by"]):
            verbs += [("Put back what it wrote", "undo")]
    return [(says, f"lineage-backfill {verb} {id_}") for says, verb in verbs]


@routes.get("/backfills/<backfill>.json")
def backfill_json(backfill: str) -> Response:
    """Return what `status --json` prints."""
    with _store() as store:
        return _json(app.status(_known().project, backfill, store=store))


@routes.get("/backfills/<backfill>/report")
def report(backfill: str) -> str:
    """Show what a backfill has touched beside what it had planned."""
    document = _report(backfill)
    outputs = Page.of(document["outputs"], _number("page"), size=_NODES)
    took = {JobRef(**one["job"]): backfills.seconds(one["seconds"]) for one in document["times"]}
    names = backfills.names_in(document)
    return render_template(
        "report.html",
        report=document,
        names=names,
        outputs=outputs,
        took=took,
        in_words=lambda reason: words.in_words(reason, names),
        not_planned=Page.of(document["not_planned"], _number("left"), size=_NODES),
        who_and_when=backfills.who_and_when(document),
    )


@routes.get("/backfills/<backfill>/report.json")
def report_json(backfill: str) -> Response:
    """Return what `report --json` prints."""
    return _json(_report(backfill))


def _report(backfill: str) -> Mapping[str, Any]:
    with _store() as store:
        status = app.status(_known().project, backfill, store=store)
        return _known().report(status["id"], status["updated_at"], store)


@routes.get("/backfills/<backfill>/runs/<run>")
def run(backfill: str, run: str) -> str:
    """Show one run: its attempts, what it was told, what it waits for and what it has printed."""
    project = _known().project
    with _store() as store:
        document = app.run_of(project, backfill, run, store=store)
    tried = [one["attempt"] for one in document["attempts"]]
    chosen = request.args.get("attempt", tried[-1] if tried else 0, type=int)
    if tried and chosen not in tried:
        raise NotFound("There was no such attempt.")
    spec, log = {}, ""
    missing = []
    if tried:
        place = document["backfill"], document["id"], chosen
        try:
            spec = app.attempt_spec(project, *place)
        except UnknownNameError as error:
            missing.append(f"{error}. {error.hint}")
        try:
            log = app.attempt_log(project, *place, most=_TAIL)
        except UnknownNameError as error:
            missing.append(f"{error}. {error.hint}")
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
        upstream=Page.of(upstream, _number("page"), size=_NODES),
        took=backfills.took,
        is_live=not RunState(document["state"]).is_final,
    )


@routes.get("/backfills/<backfill>/runs/<run>.json")
def run_json(backfill: str, run: str) -> Response:
    """Return the document of one run."""
    with _store() as store:
        return _json(app.run_of(_known().project, backfill, run, store=store))


@routes.get("/backfills/<backfill>/runs/<run>/<int:attempt>.txt")
def log(backfill: str, run: str, attempt: int) -> Response:
    """Return what an attempt has printed."""
    project = _known().project
    with _store() as store:
        found = app.run_of(project, backfill, run, store=store)
    text = app.attempt_log(project, found["backfill"], found["id"], attempt, most=_WHOLE_LOG)
    return Response(text, mimetype="text/plain")


# --- plans ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """One of the plans of a backfill, the first or a tail, with the status of that."""

    backfill: str
    document: Mapping[str, Any]
    number: int
    plans: int

    @property
    def plan(self) -> Plan:
        return plan_from_dict(self.document)


def _planned(backfill: str) -> _Planned:
    with _store() as store:
        id_ = app.status(_known().project, backfill, store=store)["id"]
        every = (store.plan(id_), *store.tails(id_))
    number = _number("part")
    if not 1 <= number <= len(every):
        raise NotFound("It has no such plan.")
    return _Planned(backfill=id_, document=every[number - 1], number=number, plans=len(every))


@routes.get("/backfills/<backfill>/plan")
def plan(backfill: str) -> str:
    """Show the plan of a backfill as a tree, each job with its reason."""
    found = _planned(backfill)
    plan = found.plan
    names = Names.of(plan)
    drawing = plans.drawing(plan) if len(plan.jobs) <= _DRAWN else None
    is_drawn = drawing is not None and len(drawing.nodes) <= _DRAWN
    return render_template(
        "plan.html",
        found=found,
        plan=plan,
        names=names,
        roots=list(plans.roots(plan)),
        amount=plans.amount(plan),
        whole_or_keys=plans.whole_or_keys,
        rows=Page.of(plans.tree(plan.jobs), _number("page"), size=_JOBS),
        in_words=lambda reason: words.in_words(reason, names),
        why_left=words.why_left,
        is_drawn=is_drawn,
        is_live=False,
    )


@routes.get("/backfills/<backfill>/plan.json")
def plan_json(backfill: str) -> Response:
    """Return the plan as it was saved: what `impact --json` prints."""
    return _json(_planned(backfill).document)


@routes.get("/backfills/<backfill>/plan.svg")
def plan_svg(backfill: str) -> Response:
    """Draw the plan of a backfill."""
    return _svg(plans.drawing(_planned(backfill).plan))


# --- lineage --------------------------------------------------------------------------------------


@routes.get("/lineage")
def lineage() -> str:
    """List the jobs or the datasets of the lineage, those that are searched for."""
    known = _known().lineage()
    snapshot = known.snapshot
    kind = "dataset" if request.args.get("kind") == "dataset" else "job"
    wanted = request.args.get("q", "").strip()
    nodes: list[Any] = list((snapshot.datasets if kind == "dataset" else snapshot.jobs).values())
    found = sorted(
        (one for one in nodes if wanted.casefold() in str(one.ref).casefold()),
        key=lambda one: one.ref,
    )
    return render_template(
        "lineage.html",
        snapshot=snapshot,
        kind=kind,
        wanted=wanted,
        page=Page.of(found, _number("page"), size=_NODES),
        names=Names([*snapshot.jobs, *snapshot.datasets]),
        calendar=lambda ref: _calendar(known, ref),
        families=known.families,
        is_drawn=not wanted and len(snapshot.jobs) + len(snapshot.datasets) <= _DRAWN,
        is_live=False,
    )


@routes.get("/lineage.json")
def lineage_json() -> Response:
    """Return what `lineage show --json` prints."""
    known = _known().lineage()
    snapshot = known.snapshot
    jobs, datasets = snapshot.jobs.values(), snapshot.datasets.values()
    return _json(told.document(snapshot, jobs, datasets, known.families))


@routes.get("/graph.json")
def graph_json() -> Response:
    """Return what `graph --json` prints."""
    known = _known().lineage()
    return _json(views.document(_seen(known), known.snapshot))


@routes.get("/graph.svg")
def graph_svg() -> Response:
    """Draw the lineage, or what is one job away from `name`."""
    return _svg(views.drawing(_seen(_known().lineage())))


def _seen(known: Lineage) -> view.View:
    """Return what is asked for: all of the lineage, or what is one job away from one name."""
    if "name" not in request.args:
        return view.whole(known.neighbours, known.snapshot.datasets)
    ref = _ref(known.snapshot, request.args.get("kind", "job"))
    return view.around(known.neighbours, [ref], up=True, down=True, depth=1)


@routes.get("/lineage/<any(job, dataset):kind>")
def node(kind: str) -> str:
    """Show all that is known of one job or dataset."""
    known = _known().lineage()
    ref = _ref(known.snapshot, kind)
    seen = _seen_around(known, ref)
    names = Names(seen.nodes)
    return render_template(
        "node.html",
        ref=ref,
        name=names(ref),
        names=names,
        lines=[(title, says) for title, says in told.lines(ref, known.snapshot, names) if says],
        facts=known.catalog.job(ref) if isinstance(ref, JobRef) else known.catalog.dataset(ref),
        calendar=_calendar(known, ref),
        evidence=_evidence(known, ref),
        mapping=lambda edge: (
            "unknown" if edge.mapping is None else words.mapping_in_words(edge.mapping.name)
        ),
        above=[one for one, other in seen.edges if other == ref][:_NODES],
        below=[other for one, other in seen.edges if one == ref][:_NODES],
        is_drawn=1 < len(seen.nodes) <= _DRAWN,
        is_live=False,
    )


@routes.get("/lineage/<any(job, dataset):kind>.json")
def node_json(kind: str) -> Response:
    """Return what `lineage show NAME --json` prints."""
    known = _known().lineage()
    snapshot, ref = known.snapshot, _ref(known.snapshot, kind)
    return _json(told.document(snapshot, *told.around(snapshot, ref), known.families))


def _seen_around(known: Lineage, ref: Ref) -> view.View:
    return view.around(known.neighbours, [ref], up=True, down=True, depth=1)


def _ref(snapshot: LineageSnapshot, kind: str) -> Ref:
    name, namespace = request.args.get("name", ""), request.args.get("namespace", "")
    ref: Ref = JobRef(namespace, name) if kind == "job" else DatasetRef(namespace, name)
    edges = _known().lineage().catalog.edges
    nodes: tuple[Container[object], ...] = (
        (snapshot.jobs, edges.jobs) if kind == "job" else (snapshot.datasets, edges.datasets)
    )
    if not any(ref in known for known in nodes):
        raise UnknownNameError(
            f"no {kind} is called {ref}", hint="The lineage may have changed; look for it there."
        )
    return ref


def _calendar(known: Lineage, ref: Ref) -> str:
    """Return how a dataset or the runs of a job are partitioned; empty where that is unknown."""
    try:
        facts = known.catalog.job(ref) if isinstance(ref, JobRef) else known.catalog.dataset(ref)
    except UsageError as error:
        return str(error)
    return "" if facts.calendar is None else _in_words(facts.calendar)


def _in_words(calendar: Calendar) -> str:
    if calendar.is_whole:
        return "whole: one key"
    parts = [f"{axis.name or 'key'}: {counted(len(axis.keys), 'key')}" for axis in calendar.statics]
    if (time := calendar.time) is not None:
        unit = " ".join(time.grid.family)
        newest = time.grid.label(time.last) if time.first is None or time.last >= time.first else ""
        first = "" if time.first is None else f" from {time.grid.label(time.first)}"
        parts.insert(0, f"{unit} in {time.grid.zone.name}{first}{newest and f' to {newest}'}")
    return " x ".join(parts)


def _evidence(known: Lineage, ref: Ref) -> str:
    """Return why it is held to be partitioned so."""
    if isinstance(ref, JobRef):
        facts = known.catalog.job(ref)
        evidence = known.catalog.evidence(facts)
        return _origin(facts.origin) + (f": {evidence}" if evidence else "")
    return _origin(known.catalog.dataset(ref).origin)


def _origin(origin: str | None) -> str:
    return _ORIGINS.get(origin or "", "unknown: declare it in the project file")


_ORIGINS = {
    "declared": "declared in the project file",
    "facet": "sent with the lineage",
    "inferred": "inferred from past runs",
    "outputs": "that of its outputs",
    "inputs": "that of its inputs",
}


# --- settings -------------------------------------------------------------------------------------


@routes.get("/settings")
def configuration() -> str:
    """Show every setting, secrets masked."""
    document = settings.document(_known().project)
    return render_template("settings.html", document=document, is_live=False)


@routes.get("/settings.json")
def configuration_json() -> Response:
    """Return what `config show --json` prints."""
    return _json(settings.document(_known().project))
