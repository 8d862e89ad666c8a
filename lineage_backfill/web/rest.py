"""REST: the documents and the acts of the pages for programs, described by OpenAPI.

Errors are problems as of RFC 9457; an answer that has not changed keeps its ETag. A `POST` needs
the token of `--token-file`, and of two with one `Idempotency-Key` the first is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any, Final

from flask import Blueprint, Response, request, url_for

from lineage_backfill.errors import DoneBeforeError, UsageError
from lineage_backfill.plans.document import plan_to_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import Request
from lineage_backfill.ports import Settings, Submission
from lineage_backfill.project.access import Role
from lineage_backfill.show import printed
from lineage_backfill.typed import JSON, Bounds, Text, json_schema, read
from lineage_backfill.web.acts import (
    do,
    do_saved,
    instant,
    moved,
    now_shown,
    once,
    seen_acts,
    submit,
)
from lineage_backfill.web.answers import as_json, cache
from lineage_backfill.web.backfills import ACTS
from lineage_backfill.web.session import acting, needing, planning_reach
from lineage_backfill.workspace.catchup import find_stale
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

api = Blueprint("rest", __name__, url_prefix="/api/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What to plan: a request, with `since_version` for the keys by the log of its tables."""

    request: Request
    since_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Ask):
    """What to start: the same, with the `id` and the `now` of the plan as it was answered."""

    id: Text
    now: Text
    title: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_parallel: Annotated[int, Bounds(1)] | None = None


_BODIES: Final = {"plan": Ask, "start": Start, "save": Start}
_SUBMITTED: Final = ("title", "description", "parameters", "max_parallel")
_ON_SAVED: Final = ("approve", "run", "discard")
_Answer = Callable[..., Response]


def _operation(
    method: str, path: str, answer: str | None, *, needs: Role = Role.VIEWER
) -> Callable[[_Answer], _Answer]:
    """Register an operation that needs a role; `answer` is the kind of document it returns."""

    def register(call: _Answer) -> _Answer:
        api.add_url_rule(path, call.__name__, needing(needs, call), methods=[method])
        _OPERATIONS.append((method, path, answer, call))
        return call

    return register


_OPERATIONS: Final[list[tuple[str, str, str | None, _Answer]]] = []


def _answer(document: Mapping[str, Any], status: int = 200) -> Response:
    answer = as_json(document)
    answer.status_code = status
    if status == 200:
        answer.add_etag()
        answer.headers["Cache-Control"] = "no-cache"  # it may be kept, and is asked about
        answer.make_conditional(request)
    return answer


@_operation("GET", "/backfills", "history")
def backfills() -> Response:
    """List the backfills, newest first; `limit` and `offset` choose a part."""
    with cache().backfills() as kept:
        document = kept.history()
    first, most = (request.args.get(n, d, type=int) for n, d in (("offset", 0), ("limit", 100)))
    if first < 0 or most < 1:
        raise UsageError("offset or limit is negative", hint="Leave them out for the newest 100.")
    every = document["backfills"]
    answer = _answer(document | {"backfills": every[first : first + most]})
    if first + most < len(every):
        more = url_for("rest.backfills", offset=first + most, limit=most)
        answer.headers["Link"] = f'<{more}>; rel="next"'
    return answer


@_operation("GET", "/backfills/<backfill>", "status")
def backfill(backfill: str) -> Response:
    """Return the state of a backfill and its runs."""
    with cache().backfills() as kept:
        return _answer(kept.status(backfill))


@_operation("GET", "/backfills/<backfill>/report", "report")
def report(backfill: str) -> Response:
    """Return the partitions that a backfill planned and rewrote."""
    with cache().backfills() as kept:
        return _answer(cache().report(kept.status(backfill), kept))


@_operation("GET", "/backfills/<backfill>/runs/<run>", "run")
def run(backfill: str, run: str) -> Response:
    """Return one run of a backfill with its attempts."""
    with cache().backfills() as kept:
        return _answer(kept.run(backfill, run))


@_operation("GET", "/stale", "stale")
def stale() -> Response:
    """Return what is missing or older than its inputs."""
    return _answer(find_stale(now_shown(), Request(), reach=planning_reach()).to_dict())


@_operation("GET", "/audit", "audit")
def acts() -> Response:
    """Return the newest acts."""
    return _answer(seen_acts())


@_operation("POST", "/plans", "plan")
def plan() -> Response:
    """Plan a request; writes nothing."""
    return _answer(plan_to_dict(_plan(_body(Ask), now_shown())))


@_operation("POST", "/backfills", "status", needs=Role.OPERATOR)
def start() -> Response:
    """Start the plan of a request, by its id: it is made again, and must be the same."""
    asked = _body(Start)
    workspace, plan = _as_answered(asked)
    submission = Submission(
        title=asked.title,
        description=asked.description,
        parameters=asked.parameters,
        settings=Settings(max_parallel=asked.max_parallel),
    )
    return _submitted(lambda: submit(workspace, plan, submission))


@_operation("GET", "/saved-plans", "saved_plans")
def saved_plans() -> Response:
    """List the saved plans that wait, with what has moved since."""
    return _answer(acting().saved())


@_operation("POST", "/saved-plans", "saved_plans", needs=Role.OPERATOR)
def save() -> Response:
    """Save the plan of a request, by its id, to be approved and run later."""
    asked = _body(Start)
    workspace, plan = _as_answered(asked)
    given = {name: getattr(asked, name) for name in _SUBMITTED} | {"reason": asked.request.reason}
    with suppress(DoneBeforeError):
        acting(workspace).save(plan, given)
    return saved_plans()


@_operation("POST", "/saved-plans/<plan>/<verb>", "saved_plans", needs=Role.OPERATOR)
def on_saved(plan: str, verb: str) -> Response:
    """Approve, run or discard a saved plan; one that runs is answered with its status."""
    if verb not in _ON_SAVED:
        raise UsageError(f"{verb!r} is not an act", hint=f"They are: {', '.join(_ON_SAVED)}.")
    if verb == "run":
        return _submitted(lambda: do_saved(verb, plan))
    with suppress(DoneBeforeError):
        do_saved(verb, plan)
    return saved_plans()


@_operation("POST", "/backfills/<backfill>/<verb>", "status", needs=Role.OPERATOR)
def act(backfill: str, verb: str) -> Response:
    """Pause, resume, cancel, kill, retry, undo or delete a backfill."""
    if verb not in ACTS:
        raise UsageError(f"{verb!r} is not an act", hint=f"They are: {', '.join(ACTS)}.")
    return _submitted(lambda: do(verb, backfill))


def _submitted(act: Callable[[], str]) -> Response:
    """Do an act, and return the status of its backfill."""
    id_ = once(act)
    with cache().backfills() as kept:
        answer = _answer(kept.status(id_), 202)
    answer.headers["Location"] = url_for("rest.backfill", backfill=id_)
    return answer


def _as_answered(asked: Start) -> tuple[Workspace, Plan]:
    """Return the plan that was answered; raises StalePlanError if it is another one now."""
    workspace = Workspace(cache().project, as_of=instant(asked.now))
    plan = _plan(asked, workspace)
    if plan.id != asked.id:
        raise moved("Plan again.")
    return workspace, plan


def _plan(asked: Ask, workspace: Workspace) -> Plan:
    planning, given = Planning(workspace, reach=planning_reach()), asked.request
    if asked.since_version is not None:
        given = planning.with_changes(given, after=asked.since_version)
    return planning.plan(given)


def _body(kind: type[Any]) -> Any:
    document = request.get_json(silent=True)
    if document is None:
        raise UsageError("the body is not JSON", hint="Send it as application/json.")
    return read(kind, document, "the body", style=JSON, fault=UsageError)


@_operation("GET", "/openapi.json", None)
def openapi() -> Response:
    """Describe all of this as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    for method, path, answer, call in _OPERATIONS:
        names = [part[1:-1] for part in path.split("/") if part.startswith("<")]
        document = _schema(answer, printed.schema_of(answer), schemas) if answer else {}
        says: dict[str, Any] = {
            "operationId": call.__name__,
            "summary": (call.__doc__ or "").partition("\n")[0],
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ],
            "responses": {
                "202" if method == "POST" and answer == "status" else "200": {
                    "description": "The document.",
                    "content": {"application/json": {"schema": document}},
                },
                "default": {
                    "description": "What is wrong, and what to do next.",
                    "content": {"application/problem+json": {"schema": _PROBLEM_HERE}},
                },
            },
        }
        if kind := _BODIES.get(call.__name__):
            body = _schema(kind.__name__, json_schema(kind, kind.__doc__ or ""), schemas)
            content = {"application/json": {"schema": body}}
            says["requestBody"] = {"required": True, "content": content}
        if method == "POST":
            says["security"] = [{"token": []}]
            says["parameters"].append(
                {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
            )
        where = f"{api.url_prefix}{path}".replace("<", "{").replace(">", "}")
        paths.setdefault(where, {})[method.lower()] = says
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    return _answer(
        {
            "openapi": "3.1.0",
            "info": {"title": "lineage-backfill", "version": version("lineage-backfill")},
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": schemes},
        }
    )


def _schema(name: str, schema: Mapping[str, Any], schemas: dict[str, Any]) -> dict[str, str]:
    """Add a schema and what it refers to to those of the description; return a reference to it."""
    place = f"#/components/schemas/{name}"
    found = json.loads(json.dumps(schema).replace('"#/$defs/', f'"{place}.'))
    schemas |= {f"{name}.{part}": one for part, one in found.pop("$defs", {}).items()}
    schemas[name] = {key: one for key, one in found.items() if key != "$schema"}
    return {"$ref": place}


_PROBLEM_HERE: Final = {"$ref": "#/components/schemas/Problem"}
_PROBLEM: Final = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "status"],
}
