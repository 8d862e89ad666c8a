"""What all pages share: the cache, addresses and response formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, current_app, request, url_for
from markupsafe import Markup, escape
from werkzeug.exceptions import NotFound

from lineage_backfill.errors import (
    BackfillError,
    DeclarationError,
    ForbiddenError,
    OtherRequestError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.request import RAILS
from lineage_backfill.show import documents
from lineage_backfill.show.draw import Drawing
from lineage_backfill.web.cache import Cache
from lineage_backfill.web.session import Routes, sight
from lineage_backfill.web.svg import svg
from lineage_backfill.workspace.sight import HIDDEN

Ref = DatasetRef | JobRef

#: Most nodes of a graph that is drawn.
DRAWN = 60
#: The fields of the form of a new backfill.
FIELDS = frozenset(
    (
        *("changed", "keys", "version", "stale", "select", "exclude", "exact", "reverse"),
        *("reason", "title", "max-parallel", *(f"allow-{rail}" for rail in RAILS)),
    )
)
#: Query parameters of pages.
_PARAMETERS = FIELDS | frozenset(
    (
        "attempt",
        "job",
        "jobs",
        "kind",
        "left",
        "name",
        "namespace",
        "page",
        "part",
        "q",
        "state",
        "within",
        "from",
        "to",
        "depth",
    )
)

#: The exit codes for what is stale, held by another one, or refused by a guard rail.
_CONFLICTS = (5, 6, 9)

routes = Routes("pages", __name__)


def cache() -> Cache:
    """Return the cache of this application."""
    found: Cache = current_app.extensions["cache"]
    return found


def here(**changed: Any) -> str:
    """Return the address of this page with other parameters."""
    given = {name: text for name, text in request.args.items() if name in _PARAMETERS}
    parameters = {**given, **(request.view_args or {}), **changed}
    return url_for(request.endpoint or "pages.history", **parameters)


def link(ref: Ref, text: str) -> Markup:
    """Return the name of a dataset or a job as a link to its page, if it may be seen."""
    if (seen := sight()) and not seen.reach.sees(ref):
        return escape(HIDDEN)
    return Markup('<a class="{}" href="{}">{}</a>').format(ref.kind, address_of(ref), text)


def address_of(ref: Ref) -> str:
    """Return the address of the page of a dataset or a job."""
    return url_for("pages.node", kind=ref.kind, namespace=ref.namespace, name=ref.name)


def number(name: str) -> int:
    """Return a number from the query string, by default 1."""
    return request.args.get(name, 1, type=int)


def error_status(error: BackfillError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, ForbiddenError):
        return 403
    if isinstance(error, OtherRequestError):
        return 422
    if isinstance(error, UnknownNameError):
        return 404
    if isinstance(error, UsageError):
        return 409 if isinstance(error, DeclarationError) else 400
    return 409 if error.exit_code in _CONFLICTS else 503


def as_json(document: Mapping[str, Any]) -> Response:
    """Respond with a document, as the command line prints it, without what is hidden."""
    if seen := sight():
        document = seen.document(document)
    return Response(documents.dump(document), mimetype="application/json")


def as_svg(drawing: Drawing) -> Response:
    """Respond with a drawing, unless it is too large to read."""
    if len(drawing.nodes) > DRAWN:
        raise NotFound(
            f"Too large to draw here (more than {DRAWN} nodes); use `lineage-backfill graph`."
        )
    # The SVG contains its own style and nothing else.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy}
    return Response(svg(drawing), mimetype="image/svg+xml", headers=headers)
