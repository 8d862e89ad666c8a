"""The pages: each shows a document of the command line, also available as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import version
from typing import Any

from flask import Flask, Response, current_app, g, render_template, request
from jinja2 import StrictUndefined, pass_context
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project import Project
from lineage_backfill.project.access import Role
from lineage_backfill.show import settings
from lineage_backfill.show.names import keys_in_short, keys_in_words
from lineage_backfill.show.text import counted, safe, to_the_second
from lineage_backfill.web import acts, rest, view_models
from lineage_backfill.web import backfills as backfill_pages
from lineage_backfill.web import lineage as lineage_pages
from lineage_backfill.web.answers import as_json, cache, error_status, here, link, routes
from lineage_backfill.web.cache import Cache
from lineage_backfill.web.guard import guard
from lineage_backfill.web.logins import Logins
from lineage_backfill.web.session import is_program, reach, session, shown, sight

# Importing a module adds its pages.
_WITH = (acts, backfill_pages, lineage_pages)


def make_pages(
    project: Project,
    *,
    names: Collection[str] = (),
    frames: Collection[str] = (),
    logins: Logins | None = None,
) -> Flask:
    """Return the pages of a project as a WSGI application.

    `names` are extra host names, `frames` the addresses whose pages may show these in a frame.
    Without `logins` the pages are read-only.
    """
    pages = Flask(__name__)
    pages.extensions["cache"] = Cache(project, seen=sight)
    pages.extensions["logins"] = logins
    pages.context_processor(_about_caller)
    pages.jinja_options = {
        **pages.jinja_options,
        "finalize": pass_context(lambda _, one: shown(one)),
    }
    pages.jinja_env.undefined = StrictUndefined
    pages.jinja_env.trim_blocks = pages.jinja_env.lstrip_blocks = True
    pages.jinja_env.globals.update(
        counted=counted,
        in_states=view_models.in_states,
        partitions_in_states=view_models.partitions_in_states,
        bar=view_models.bar,
        worst=view_models.worst,
        signs=view_models.SIGNS,
        here=here,
        link=link,
        project_name=project.name or str(project.root),
        version=version("lineage-backfill"),
    )
    pages.jinja_env.filters.update(
        safe_text=safe,
        safe_lines=lambda text: "\n".join(map(safe, text.splitlines())),
        keys=_keys,
        some_keys=lambda keys: keys_in_words(tuple(keys), most=20),
        all_keys=lambda keys: keys_in_words(None if keys == "*" else tuple(keys), most=50),
        instant=to_the_second,
        job=lambda named: JobRef(**named),
        dataset=lambda named: DatasetRef(**named),
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )
    guard(pages, names, frames)
    pages.register_blueprint(routes)
    pages.register_blueprint(rest.api)
    pages.register_error_handler(BackfillError, _failed)
    pages.register_error_handler(HTTPException, _refused)
    return pages


def _about_caller() -> dict[str, Any]:
    """Return what every page knows of who sends a request: `can` is their highest role."""
    seen = sight()
    return {
        "login": session(),
        "can": reach().highest,
        "Role": Role,
        "hidden_jobs": seen.hidden_jobs if seen else 0,
    }


_UNBROKEN = Markup('<span class="keys">{}</span>')


def _keys(keys: Iterable[Any]) -> str:
    """Return a set of keys in few columns; a line breaks only in long ones."""
    text = keys_in_short(tuple(keys))
    return _UNBROKEN.format(text) if len(text) < 40 else text


def _failed(error: BackfillError) -> tuple[Any, int]:
    return _error(error_status(error), error.message, error.code, error.hint, error.lines)


def _refused(error: HTTPException) -> Any:
    if error.response is not None or (error.code or 500) < 400:
        return error
    page, status = _error(error.code or 500, error.description or error.name, "", "")
    answer = current_app.make_response((page, status))
    kept = ("Allow", "WWW-Authenticate")
    answer.headers.extend((name, text) for name, text in error.get_headers() if name in kept)
    return answer


def _error(
    status: int, message: str, code: str, hint: str, lines: Sequence[str] = ()
) -> tuple[Any, int]:
    g.why = message
    message, hint, lines = shown(message), shown(hint), [shown(one) for one in lines]
    if is_program():
        problem = {"title": message, "status": status, "detail": hint, "code": code, "lines": lines}
        answer = as_json({name: says for name, says in problem.items() if says})
        answer.mimetype = "application/problem+json"
        return answer, status
    if request.path.endswith(".json"):
        return as_json({"error": {"code": code, "message": message, "hint": hint}}), status
    page = render_template(
        "error.html", status=status, message=message, code=code, hint=hint, lines=lines
    )
    return page, status


@routes.get("/settings")
def configuration() -> str:
    """Show every setting, secrets masked."""
    return render_template("settings.html", document=settings.document(cache().project))


@routes.get("/settings.json")
def configuration_json() -> Response:
    """Return what `config show --json` prints."""
    return as_json(settings.document(cache().project))
