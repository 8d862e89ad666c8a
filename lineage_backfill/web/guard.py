"""Protects the pages: allowed hosts, methods and browser features."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from contextlib import suppress

from flask import Flask, Response, abort, current_app, g, redirect, request, url_for
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Response as AnyResponse

from lineage_backfill.errors import BackfillError, ForbiddenError, LineageError, StoreError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.access import Reach, Role
from lineage_backfill.redaction import redacted
from lineage_backfill.web import session
from lineage_backfill.web.answers import cache
from lineage_backfill.web.session import is_program, logins
from lineage_backfill.workspace.sight import Sight, refuse_hidden
from lineage_backfill.workspace.workspace import Workspace

_READING = ("GET", "HEAD")
_BEARER = WWWAuthenticate("bearer")
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a form of ours has no Origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def guard(pages: Flask, names: Collection[str], frames: Collection[str] = ()) -> None:
    """Refuse requests that name another host, or that the sender's role does not allow.

    In a DNS rebinding attack the host is the attacker's name: only addresses, localhost, this
    machine's own names and `names` are accepted. Pages of `frames` may show these in a frame.
    """
    shown = " ".join(frames) or "'none'"
    headers = {**_HEADERS, "Content-Security-Policy": f"{_POLICY} {shown}"}
    if not frames:
        headers["X-Frame-Options"] = "DENY"  # it knows no other addresses
    known = {"localhost", *(name.lower().rstrip(".") for name in (*own_names(), *names))}

    @pages.before_request
    def admit() -> AnyResponse | None:
        if request.method not in _READING and logins() is None:
            raise MethodNotAllowed(_READING)
        if not is_trusted(request.host, known):
            abort(
                421, "These pages are not served under that host name; add it with `--allow-host`."
            )
        needs = _needs()
        if request.method not in _READING and needs is Role.PUBLIC:
            session.refuse_other_pages()
        elif request.method not in _READING:
            refuse = session.refuse_strangers if is_program() else session.refuse_foreign
            refuse()
        if needs is not Role.PUBLIC:
            return _admit(needs)
        return None

    @pages.after_request
    def protect(response: Response) -> Response:
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        if response.is_sequence:  # static files are streamed, and contain no secrets
            text = redacted(response.get_data(as_text=True))
            response.set_data(session.shown(text) if response.mimetype == "text/plain" else text)
        _note_refusal(response)
        return response


def _needs() -> Role:
    """Return the role that the page of this request needs; one that names none is an admin's."""
    if request.endpoint in (None, "static"):
        return Role.PUBLIC if request.method in _READING else Role.VIEWER
    view = current_app.view_functions[str(request.endpoint)]
    role: Role = getattr(view, "needs", Role.ADMIN)
    return role


def _admit(needs: Role) -> AnyResponse | None:
    """Refuse a request that the sender's role does not allow, or for what is hidden from them."""
    reach, caller = session.reach(), session.caller()
    if caller is None and reach.highest < Role.VIEWER:
        if is_program() or request.path.endswith(".json"):
            if "Authorization" in request.headers:
                session.refused(401, session.HOW_PROGRAMS_LOG_IN, www_authenticate=_BEARER)
            abort(401, session.HOW_PROGRAMS_LOG_IN, www_authenticate=_BEARER)
        return redirect(url_for("pages.login"), 303)
    has_it = reach.is_admin if needs is Role.ADMIN else reach.highest >= needs
    if not has_it:
        name = caller.name if caller else "a reader"
        raise ForbiddenError(
            f"{name} is not {needs} of anything here",
            hint="A [[access.grant]] in the project file makes one.",
        )
    if not reach.sees_all:
        g.sight = _sight(reach)
        _refuse_hidden(reach)
    return None


def _sight(reach: Reach) -> Sight:
    try:
        return cache().sight(reach)
    except BackfillError as error:
        raise LineageError("what you may see is unknown: the lineage cannot be read") from error


def _refuse_hidden(reach: Reach) -> None:
    """Refuse an address that names a hidden job, dataset or backfill, as if it did not exist."""
    name, namespace = request.args.get("name"), request.args.get("namespace")
    if name and namespace is not None and not reach.sees(DatasetRef(namespace, name)):
        abort(404, f"nothing is named {namespace}:{name}")
    if backfill := (request.view_args or {}).get("backfill"):
        with Workspace(cache().project).open_store() as store:
            refuse_hidden(store, backfill, reach)


def _note_refusal(response: Response) -> None:
    """Add a refused change, or a wrong login, to the audit unless `Actions` has done so."""
    is_change = request.method not in _READING and logins() is not None
    if response.status_code < 400 or "acts" in g or not (is_change or "is_refused" in g):
        return
    known, address = logins(), request.remote_addr or ""
    if known is not None and g.get("caller") is None:
        if "is_refused" not in g:
            known.fail(address)
        if response.status_code == 429 or known.is_slowed(address, by=1):
            return  # those before it are there: strangers do not fill the store
    given = request.view_args or {}
    verb = given.get("verb") or (request.endpoint or "request").rpartition(".")[2]
    why = g.get("why", response.status)
    with suppress(StoreError):  # it is refused all the same
        session.acting().refuse(verb, why, backfill=given.get("backfill", ""))


def own_names() -> tuple[str, ...]:
    """Return this machine's own names."""
    return socket.gethostname(), socket.getfqdn()


def is_trusted(host: str, known: Collection[str]) -> bool:
    """Whether the host of a request is an address or one of these names."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name.lower().rstrip(".") in known
    return True
