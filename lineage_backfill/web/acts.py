"""The pages that act: new backfills, the verbs of a backfill, the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from flask import Response, abort, g, make_response, redirect, render_template, request, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as AnyResponse

from lineage_backfill.errors import (
    BackfillError,
    DoneBeforeError,
    StalePlanError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.partitions.text import parse_partitions
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import RAILS, ChangedJob, Request
from lineage_backfill.ports import Settings, Submission
from lineage_backfill.project.access import Role
from lineage_backfill.show.names import Names
from lineage_backfill.web.answers import FIELDS, as_json, cache, error_status, number, routes
from lineage_backfill.web.backfills import ACTS, parts_of
from lineage_backfill.web.logins import Logins
from lineage_backfill.web.session import (
    acting,
    actor,
    by_token,
    is_https,
    logins,
    owner,
    planning_reach,
    reach,
    refuse_foreign,
    refused,
    session_id,
    sight,
)
from lineage_backfill.web.view_models import Page
from lineage_backfill.workspace.actions import audit, find_saved
from lineage_backfill.workspace.catchup import find_stale
from lineage_backfill.workspace.environment import account
from lineage_backfill.workspace.named import NameLookup
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

_NAMES = 500  # most names that a form proposes
_JOBS = 50  # rows on a page
MOST_ACTS = 500  # newest acts that are shown
_AGE = timedelta(days=1)  # of a preview that can still be started


_ENTERED = Markup(
    '<!doctype html><title>Logged in</title><link rel="icon" href="{1}">'
    '<meta http-equiv="refresh" content="0;url={0}"><a href="{0}">Logged in: go on</a>'
)


def _logins() -> Logins:
    """Return the logins; where there are none, pages are read-only."""
    return logins() or abort(405)


@routes.get("/login", needs=Role.PUBLIC)
def login() -> AnyResponse | str:
    """Log a browser in by the code in the address, or show the form for a token."""
    known = _logins()
    if "code" not in request.args:
        return render_template("login.html")
    if known.is_slowed(request.remote_addr or ""):
        refused(429, "Too many wrong logins from this address: wait a minute.")
    id_ = known.enter(request.args["code"], owner())
    if id_ is None:
        refused(
            403, "This login is used up, or of another server; its terminal shows the next one."
        )
    return _entered(known, id_)


@routes.post("/login", needs=Role.PUBLIC)
def log_in() -> AnyResponse:
    """Log a browser in by a token."""
    known, caller = _logins(), by_token(request.form.get("token", "").strip())
    if caller is None:
        refused(403, "This token is wrong, expired or revoked.")
    return _entered(known, known.begin(caller))


def _entered(known: Logins, id_: str) -> AnyResponse:
    """Return a page with the cookie of a new session; the one before ends."""
    known.leave(session_id())
    # A redirect would count as coming from where this link was, and would not send the cookie.
    icon = url_for("static", filename="icon.svg")
    answer = make_response(_ENTERED.format(url_for("pages.history"), icon))
    answer.set_cookie(known.cookie, id_, httponly=True, samesite="Strict", secure=is_https())
    return answer


@routes.post("/logout", needs=Role.PUBLIC)
def logout() -> AnyResponse:
    """End the session."""
    refuse_foreign()
    _logins().leave(session_id())
    return redirect(url_for("pages.history"), 303)


# --- a new backfill -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preview:
    """The plan for the fields of a form, None if nothing is stale, or what is wrong with them."""

    plan: Plan | None = None
    error: BackfillError | None = None


@routes.get("/new", needs=Role.VIEWER)
def new() -> str:
    """Show the form of a new backfill, and what it would run; writes nothing."""
    given = _asked()
    return _form(given, _preview(given) if _is_filled(given) else None)


@routes.get("/new.json")
def new_json() -> Response:
    """Return what `impact --json` prints for the fields of the form."""
    plan = _plan(_asked(), now_shown())
    if plan is None:
        raise UsageError("nothing is stale", hint="Name what changed.")
    return as_json(plan_to_dict(plan))


def _asked() -> Mapping[str, str]:
    """Return the fields of the address; keys that are ticked come one by one."""
    keys = ",".join(filter(None, request.args.getlist("keys")))
    return request.args.to_dict() | ({"keys": keys} if keys else {})


@routes.post("/new", needs=Role.OPERATOR)
def start() -> AnyResponse:
    """Start what the form has shown, by its hash: the plan is made again, and must be the same."""
    given = request.form
    workspace, plan = _as_shown(given)
    limit, runs = cache().project.declarations.limits.confirm_above, plan.totals["runs"]
    if runs > limit and given.get("typed", "").strip() != str(runs):
        raise UsageError(
            f"nothing was started: these are {runs:,} runs", hint="Type their number to start them."
        )
    plan = replace(plan, request={**plan.request, "reason": given.get("reason", "").strip()})
    most = _whole(given, "max-parallel")
    submission = Submission(
        title=given.get("title", "").strip(), settings=Settings(max_parallel=most)
    )
    id_ = once(lambda: submit(workspace, plan, submission))
    return redirect(url_for("pages.backfill", backfill=id_), 303)


def _as_shown(given: Mapping[str, str]) -> tuple[Workspace, Plan]:
    """Return the plan that a form has shown; answers with the form if it is another one now."""
    workspace = Workspace(cache().project, as_of=instant(given.get("now", "")))
    plan = _plan(given, workspace)
    if plan is None or plan.id != given.get("plan"):
        changed = moved("This is the plan now.")
        g.why = changed.message
        form = _form(given, _Preview(plan=plan, error=changed))
        abort(make_response(form, error_status(changed)))
    return workspace, plan


# --- saved plans --------------------------------------------------------------------------------


@routes.post("/plans", needs=Role.OPERATOR)
def save() -> AnyResponse:
    """Save what the form has shown, to be approved and run later."""
    given = request.form
    workspace, plan = _as_shown(given)
    texts = {name: given.get(name, "").strip() for name in ("title", "reason")}
    saved = acting(workspace).save(plan, texts | {"max_parallel": _whole(given, "max-parallel")})
    return redirect(url_for("pages.saved_plan", plan=saved.id), 303)


@routes.get("/plans")
def saved_plans() -> str:
    """List the saved plans that wait to be approved or run."""
    page = Page.of(acting().saved()["plans"], number("page"), size=_JOBS)
    return render_template("plans.html", page=page)


@routes.get("/plans.json")
def saved_plans_json() -> Response:
    """Return the saved plans."""
    return as_json(acting().saved())


@routes.get("/plans/<plan>")
def saved_plan(plan: str) -> str:
    """Show a saved plan, and what has moved since."""
    actions, seen = acting(now_shown()), sight()
    with Workspace(cache().project).open_store() as store:
        found = find_saved(store, plan, reach())
    document = seen.document(found.plan) if seen else found.plan
    return render_template(
        "saved.html",
        saved=actions.saved(found)["plans"][0],
        is_own=found.author == actor().name,
        **parts_of(plan_from_dict(document, only_shown=True)),
    )


@routes.post("/plans/<plan>/<any(approve, run, discard):verb>", needs=Role.OPERATOR)
def on_saved(plan: str, verb: str) -> AnyResponse:
    """Approve, run or discard a saved plan."""
    if backfill := do_saved(verb, plan):
        return redirect(url_for("pages.backfill", backfill=backfill), 303)
    if verb == "approve":
        return redirect(url_for("pages.saved_plan", plan=plan), 303)
    return redirect(url_for("pages.saved_plans"), 303)


def do_saved(verb: str, plan: str) -> str:
    """Approve, run or discard a saved plan; return the id of its backfill, if it has one."""
    actions = acting(now_shown())
    if verb == "run":
        return once(lambda: actions.run_saved(plan, _logins().process).id)
    (actions.approve if verb == "approve" else actions.discard)(plan)
    return ""


def submit(workspace: Workspace, plan: Plan, submission: Submission) -> str:
    """Start a plan, and return the id of its backfill."""
    plan, _ = Planning(workspace).without_missing(plan)
    return acting(workspace).submit(plan, submission, _logins().process).id


def once(act: Callable[[], str]) -> str:
    """Do an act and return the id of its backfill; of one that was done before, that id alone."""
    try:
        return act()
    except DoneBeforeError as error:
        if not error.backfill:
            raise
        return error.backfill


def moved(hint: str) -> StalePlanError:
    """Return the error for a plan that is no longer what was shown."""
    return StalePlanError(
        "nothing was started: since it was shown, lineage, declarations or tables have changed",
        hint=hint,
    )


def _is_filled(given: Mapping[str, str]) -> bool:
    return "stale" in given or bool(given.get("changed", "").strip())


def now_shown() -> Workspace:
    """Return a workspace as of now, with the lineage that all pages share."""
    shared = cache().whole()
    return Workspace(shared.project, as_of=datetime.now(UTC), read=lambda: shared.snapshot)


def _preview(given: Mapping[str, str]) -> _Preview:
    workspace = now_shown()
    try:
        return _Preview(plan=_plan(given, workspace))
    except BackfillError as error:
        return _Preview(error=error)


def _plan(given: Mapping[str, str], workspace: Workspace) -> Plan | None:
    """Return the plan for the fields of a form, None if nothing is stale."""
    asked = Request(
        select=tuple(given.get("select", "").split()),
        exclude=tuple(given.get("exclude", "").split()),
        exact="exact" in given,
        reverse="reverse" in given,
        author=actor().name or account(),
        allow=frozenset(rail for rail in RAILS if f"allow-{rail}" in given),
    )
    if "stale" in given:
        return find_stale(workspace, asked, reach=planning_reach()).plan
    planning, version = Planning(workspace, reach=planning_reach()), _whole(given, "version")
    asked = _with_roots(asked, NameLookup(cache().workspace().resolver), given)
    if version is None:
        return planning.plan(asked)
    if given.get("keys", "").strip() or not asked.changed:
        raise UsageError(
            "a version finds the changed keys of a dataset itself",
            hint="Leave out the keys, and name a dataset.",
        )
    return planning.plan(planning.with_changes(asked, after=version))


def _with_roots(asked: Request, names: NameLookup, given: Mapping[str, str]) -> Request:
    """Return the request with the dataset that changed, or the job to re-run."""
    name, keys = given.get("changed", "").strip(), given.get("keys", "").strip()
    key_set = parse_partitions(keys) if keys else None
    dataset, job = name.removeprefix("dataset:"), name.removeprefix("job:")
    if job == name:
        try:
            return replace(asked, changed=(names.changed(dataset, key_set),))
        except UnknownNameError:
            if not names.is_job(name):
                raise
    return replace(asked, jobs=(ChangedJob(job=names.job(job), keys=key_set),))


def _form(given: Mapping[str, str], preview: _Preview | None) -> str:
    plan, seen = preview.plan if preview else None, sight()
    plan = seen.plan(plan) if seen and plan else plan
    return render_template(
        "new.html",
        given=given,
        fields={name: text for name, text in given.items() if name in FIELDS},
        known=[] if "bare" in given else _known(),
        rails=RAILS,
        preview=preview,
        key=uuid4().hex,
        confirm_above=cache().project.declarations.limits.confirm_above,
        **(parts_of(plan) if plan else {"plan": None}),
    )


def _known() -> list[str]:
    """Return the names that the form proposes; a script that has them asks for a bare form."""
    edges = cache().workspace().resolver.edges
    known = Names([*edges.datasets, *edges.jobs])
    return [known(ref) for ref in sorted(edges.datasets)][:_NAMES]


def instant(text: str) -> datetime:
    """Return the instant at which a form was shown; raises UsageError for one too long ago."""
    now = datetime.now(UTC)
    try:
        shown = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        shown = now - 2 * _AGE
    if not now - _AGE < shown <= now:
        raise UsageError("this was shown too long ago", hint="Load the page again.")
    return shown


def _whole(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal():
        raise UsageError(f"{name} is {text!r}", hint="Write a whole number.")
    return int(text)


# --- one backfill -------------------------------------------------------------------------------


@routes.post(f"/backfills/<backfill>/<any({', '.join(ACTS)}):verb>", needs=Role.OPERATOR)
def act(backfill: str, verb: Any) -> AnyResponse:
    """Do something to a backfill."""
    do(verb, backfill)
    return redirect(url_for("pages.backfill", backfill=backfill), 303)


def do(verb: Any, backfill: str) -> str:
    """Do something to a backfill and return its id; another process drives what lasts."""
    process = _logins().process
    actions = acting()
    if verb == "pause":
        return actions.pause(backfill).id
    if verb in ("cancel", "kill"):
        return actions.cancel(backfill, kill=verb == "kill").id
    if verb == "delete":
        return actions.delete(backfill).id
    agreed = ["--yes"] * (verb == "undo")
    process = replace(process, arguments=[*process.arguments, *agreed])
    return actions.hand_over(verb, backfill, process).id


# --- the audit ----------------------------------------------------------------------------------


@routes.get("/audit")
def acts() -> str:
    """Show who did what."""
    document = seen_acts()
    page = Page.of(document["acts"], number("page"), size=_JOBS)
    return render_template("audit.html", page=page)


@routes.get("/audit.json")
def acts_json() -> Response:
    """Return the newest acts."""
    return as_json(seen_acts())


def seen_acts() -> dict[str, Any]:
    """Return the newest acts that the sender of this request may see."""
    return audit(Workspace(cache().project), MOST_ACTS, actor=actor())
