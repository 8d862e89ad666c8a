"""What keeps the pages safe: who may ask, how, and what a browser may do with the answer."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

from flask import Flask, Response, abort, request
from werkzeug.exceptions import MethodNotAllowed

from lineage_backfill.redaction import redacted

_READING = ("GET", "HEAD")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def guard(pages: Flask, names: Collection[str]) -> None:
    """Refuse what does not only read, and what was meant for another host.

    A page of somebody else whose name comes to mean this machine (DNS rebinding) asks by that name:
    only addresses, localhost, this machine's own names and `names` are answered.
    """
    known = {"localhost", *(name.lower().rstrip(".") for name in (*own_names(), *names))}

    @pages.before_request
    def refuse() -> None:
        if request.method not in _READING:
            raise MethodNotAllowed(_READING)
        if not is_trusted(request.host, known):
            abort(421, "These pages are not served by that name; `--allow-host` adds one.")

    @pages.after_request
    def protect(response: Response) -> Response:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if response.is_sequence:  # the files of the pages are streamed, and hold no secrets
            response.set_data(redacted(response.get_data(as_text=True)))
        return response


def own_names() -> tuple[str, ...]:
    """Return the names that this machine has for itself."""
    return socket.gethostname(), socket.getfqdn()


def is_trusted(host: str, known: Collection[str]) -> bool:
    """Whether the host of a request is an address, or among the names that are known."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name.lower().rstrip(".") in known
    return True
