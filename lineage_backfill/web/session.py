"""Who sends a request, what they may see, and what they may change."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from flask import Blueprint, abort, current_app, g, request
from werkzeug.datastructures import WWWAuthenticate

from lineage_backfill.project import Project
from lineage_backfill.project.access import READING, WHOLE, Access, Reach, Role
from lineage_backfill.web.logins import Caller, Logins, Session
from lineage_backfill.workspace.actions import Actions, Actor
from lineage_backfill.workspace.environment import account
from lineage_backfill.workspace.sight import Sight
from lineage_backfill.workspace.tokens import standing_token, token_of
from lineage_backfill.workspace.workspace import Workspace

_View = TypeVar("_View", bound=Callable[..., Any])
HOW_PROGRAMS_LOG_IN = (
    "Send `Authorization: Bearer TOKEN`: a token of [access], or that of `serve --token-file`."
)
_FOREIGN = "This was not sent by a page of this login. Load the page again."
_LONGEST = 100  # characters of a name


class Routes(Blueprint):
    """Pages that say which role they need; one that reads needs a viewer, unless it says more."""

    def get(self, rule: str, **options: Any) -> Callable[[_View], _View]:
        """Register a page that reads; `needs` is a role."""
        needs = options.pop("needs", Role.VIEWER)
        add = super().get(rule, **options)
        return lambda view: add(needing(needs, view))

    def post(self, rule: str, **options: Any) -> Callable[[_View], _View]:
        """Register a form that changes something; `needs` is a role."""
        needs = options.pop("needs")
        add = super().post(rule, **options)
        return lambda view: add(needing(needs, view))


def needing(role: Role, view: _View) -> _View:
    """Return a view with the role that it needs on anything; `Actions` checks it on each job."""
    view.needs = role  # type: ignore[attr-defined]
    return view


def logins() -> Logins | None:
    """Return the logins of this application, None where pages are read-only."""
    found: Logins | None = current_app.extensions["logins"]
    return found


def session() -> Session | None:
    """Return the session of this request, None without a login."""
    if "session" not in g:
        known = logins()
        g.session = _session(known) if known else None
    found: Session | None = g.session
    return found


def _session(known: Logins) -> Session | None:
    access = _access()
    if access is not None and (caller := _named_by_proxy(access)):
        return known.of_proxy(caller)
    found = known.session(session_id())
    if found and found.caller.prefix:
        with Workspace(_project()).open_store() as store:
            if standing_token(store, found.caller.prefix) is None:  # it was revoked
                known.leave(session_id())
                return None
    return found


def _named_by_proxy(access: Access) -> Caller | None:
    """Return the user whom a proxy names; aborts for a name that comes from anywhere else."""
    proxy = access.proxy
    name = request.headers.get(proxy.header or "", "").strip() if proxy else ""
    if proxy is None or not name:
        return None
    if not proxy.sends(request.remote_addr or "") or "," in name or len(name) > _LONGEST:
        refused(403, f"Only the proxy of [access] may send {proxy.header}, and one name.")
    groups = request.headers.get(proxy.groups or "", "").split(",")
    subjects = {f"user:{name}", *(f"group:{one.strip()}" for one in groups if one.strip())}
    return Caller(name=name, subjects=frozenset(subjects))


def is_https() -> bool:
    """Whether the browser speaks https, with this server or with the proxy of [access]."""
    access = _access()
    proxy = access.proxy if access else None
    is_proxy = proxy is not None and proxy.sends(request.remote_addr or "")
    return request.is_secure or (
        is_proxy and request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    )


def session_id() -> str:
    """Return the session that the cookie of this request names."""
    known = logins()
    return request.cookies.get(known.cookie, "") if known else ""


def owner() -> Caller:
    """Return the account that serves."""
    return Caller(name=account(), is_owner=True)


def by_token(text: str) -> Caller | None:
    """Return whose token this is; None for none, noted as a wrong login."""
    known = logins()
    if known is None:
        return None
    address = request.remote_addr or ""
    if known.is_slowed(address):
        refused(429, "Too many wrong logins from this address: wait a minute.")
    if known.token and compare_digest(text.encode(), known.token.encode()):
        return owner()
    with Workspace(_project()).open_store() as store:
        found = token_of(store, text) if _access() else None
    if found is None:
        return None
    subjects = frozenset((f"token:{found.name}",))
    return Caller(name=found.name, subjects=subjects, prefix=found.prefix)


def caller() -> Caller | None:
    """Return who sends this request, None if they have not logged in."""
    if "caller" not in g:
        g.caller = _program() if is_program() else None
        if g.caller is None and (found := session()):
            g.caller = found.caller
    found_: Caller | None = g.caller
    return found_


def _program() -> Caller | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return by_token(token) if scheme.lower() == "bearer" else None


def reach() -> Reach:
    """Return what the sender of this request may do."""
    access, known = _access(), caller()
    if known is not None and known.is_owner:
        return WHOLE
    if access is None:
        return READING
    return access.reach(known.subjects if known else None)


def planning_reach() -> Reach:
    """Return for what this request plans: without [access] a reader sees what an owner would."""
    return WHOLE if _access() is None else reach()


def sight() -> Sight | None:
    """Return what the sender of this request may see, None if that is all."""
    found: Sight | None = g.get("sight")
    return found


def shown(text: Any) -> Any:
    """Return a text without names that are hidden from the sender of this request."""
    found = sight()
    return found.text(text) if found and type(text) is str else text


def actor() -> Actor:
    """Return who acts by this request."""
    found = caller()
    key = request.headers.get("Idempotency-Key") if is_program() else request.form.get("key")
    return Actor(
        door="rest" if is_program() else "pages",
        name=found.name if found else "",
        address=request.remote_addr or "",
        key=key or None,
        digest=_digest() if is_program() and key else "",
        reach=reach(),
    )


def _digest() -> str:
    return sha256(request.path.encode() + b"\0" + request.get_data()).hexdigest()


def acting(workspace: Workspace | None = None) -> Actions:
    """Return the actions of the sender of this request; these note what they refuse."""
    g.acts = True
    return Actions(workspace or Workspace(_project()), actor())


def _project() -> Project:
    found: Project = current_app.extensions["cache"].project
    return found


def _access() -> Access | None:
    return _project().access


def is_program() -> bool:
    """Whether a program sends this request, to the addresses of REST."""
    return request.path.startswith("/api/")


def refused(status: int, why: str, **more: Any) -> NoReturn:
    """Abort a request that is not as a page or a program of ours sends it, and count it."""
    if known := logins():
        known.fail(request.remote_addr or "")
    g.setdefault("session", None)  # asking again would refuse again
    g.setdefault("caller", None)
    g.is_refused = True
    abort(status, why, **more)


def refuse_strangers() -> None:
    """Abort a request of a program to change something unless it has a token.

    A browser sends this token for no page, as it does with cookies.
    """
    g.caller = _program()
    if g.caller is None:
        refused(401, HOW_PROGRAMS_LOG_IN, www_authenticate=WWWAuthenticate("bearer"))


def refuse_foreign() -> None:
    """Abort a request to change something unless a page of this session has sent it."""
    found = session()
    if found is None:
        refused(403, "Log in first, with the address that `serve` prints, or a token.")
    refuse_other_pages()
    token = request.form.get("sent", "")
    if not compare_digest(token.encode(), found.token.encode()):
        refused(403, _FOREIGN)


def refuse_other_pages() -> None:
    """Abort a form that a page of another address has sent."""
    origin, sent = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    is_ours = origin is None or urlsplit(origin).netloc == request.host
    if not is_ours or sent not in (None, "same-origin"):
        refused(403, _FOREIGN)
