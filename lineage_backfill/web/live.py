"""Pages that are asked for again and again: each is rendered once for each state of what it shows.

A browser that has the newest one gets 304, which costs no look at the store within a second.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from flask import Response, request

from lineage_backfill.web.answers import cache
from lineage_backfill.web.session import session

#: For so many seconds a browser that asks again is answered by the last look at the store.
PATIENCE = 1.0
_TOKEN = "\ufdd0"  # stands for the token of a session; no page contains it  # noqa: S105


def is_watching() -> bool:
    """Whether the browser of this request has the page, and asks whether it has changed."""
    return bool(request.if_none_match)


def live(version: str, render: Callable[[], str]) -> Response:
    """Respond with a page of this version of what it shows, unless the browser has it."""
    login = session()
    token = login.token if login else ""
    tag = sha256(f"{token} {request.full_path} {version}".encode()).hexdigest()[:32]
    if request.if_none_match.contains(tag):
        answer = Response(status=304)
    else:
        key = request.full_path, login is not None, version
        text = cache().rendered(key, lambda: _without(token, render()))
        answer = Response(text.replace(_TOKEN, token), mimetype="text/html")
    answer.set_etag(tag)
    return answer


def _without(token: str, page: str) -> str:
    return page.replace(token, _TOKEN) if token else page
