"""Pages that are asked for again and again: each is rendered once for each state of what it shows.

A browser that has the newest one gets 304, which costs no look at the store within a second.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from flask import Response, request

from lineage_backfill.redaction import redacted
from lineage_backfill.web.answers import cache
from lineage_backfill.web.session import session, sight

#: For so many seconds a browser that asks again is answered by the last look at the store.
PATIENCE = 1.0
_TOKEN = b"\xff"  # stands for the token of a session; no text contains it


def is_watching() -> bool:
    """Whether the browser of this request has the page, and asks whether it has changed."""
    return bool(request.if_none_match)


def live(version: str, render: Callable[[], str]) -> Response:
    """Respond with a page of this version of what it shows, unless the browser has it."""
    login, seen = session(), sight()
    token = login.token if login else ""
    tag = sha256(f"{token} {request.full_path} {version}".encode()).hexdigest()[:32]
    if request.if_none_match.contains(tag):
        answer = Response(status=304)
    else:
        key = request.full_path, login and login.caller, seen and seen.reach, version
        text = cache().rendered(key, lambda: _without(token, render()))
        page = text.replace(_TOKEN, token.encode())
        # As a stream, in which no secrets are looked for again.
        answer = Response(iter([page]), mimetype="text/html")
        answer.content_length = len(page)
    answer.set_etag(tag)
    return answer


def _without(token: str, page: str) -> bytes:
    """Return a page without secrets, nor the token of the session that it was rendered for."""
    data = redacted(page).encode()
    return data.replace(token.encode(), _TOKEN) if token else data
