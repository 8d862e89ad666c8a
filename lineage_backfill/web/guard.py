"""Protects the pages: allowed hosts, methods and browser features."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

from flask import Flask, Response, abort, request
from werkzeug.exceptions import MethodNotAllowed

from lineage_backfill.redaction import redacted
from lineage_backfill.web.session import is_program, logins, refuse_foreign, refuse_strangers

_READING = ("GET", "HEAD")
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
    """Refuse requests that name another host, or change something without a login.

    In a DNS rebinding attack the host is the attacker's name: only addresses, localhost, this
    machine's own names and `names` are accepted. Pages of `frames` may show these in a frame.
    """
    shown = " ".join(frames) or "'none'"
    headers = {**_HEADERS, "Content-Security-Policy": f"{_POLICY} {shown}"}
    if not frames:
        headers["X-Frame-Options"] = "DENY"  # it knows no other addresses
    known = {"localhost", *(name.lower().rstrip(".") for name in (*own_names(), *names))}

    @pages.before_request
    def admit() -> None:
        if request.method not in _READING and logins() is None:
            raise MethodNotAllowed(_READING)
        if not is_trusted(request.host, known):
            abort(
                421, "These pages are not served under that host name; add it with `--allow-host`."
            )
        if request.method not in _READING:
            refuse = refuse_strangers if is_program() else refuse_foreign
            refuse()

    @pages.after_request
    def protect(response: Response) -> Response:
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        if response.is_sequence:  # static files are streamed, and contain no secrets
            response.set_data(redacted(response.get_data(as_text=True)))
        return response


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
