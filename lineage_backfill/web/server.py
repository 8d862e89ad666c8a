"""Serves the pages until a signal stops it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

from lineage_backfill.errors import AddressError, EnvironmentMissingError
from lineage_backfill.files import reason
from lineage_backfill.project import Project

if TYPE_CHECKING:
    from lineage_backfill.web.logins import Logins

_THREADS = 4


def listen(host: str, port: int, *, hint: str = "Take another port.") -> socket.socket:
    """Return a listening socket, on any free port for 0; raises AddressError."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(128)
        except BaseException:
            opened.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise AddressError(
            f"pages cannot be served at {host} port {port}: {reason(error)}",
            hint=hint,
        ) from error
    return opened


def address_of(listening: socket.socket) -> str:
    """Return the address for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if ip_address(host).is_unspecified:
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def is_private(listening: socket.socket) -> bool:
    """Whether only this machine can connect."""
    return ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def serve(
    project: Project,
    listening: socket.socket,
    *,
    names: Collection[str] = (),
    frames: Collection[str] = (),
    logins: Logins | None = None,
    ready: Callable[[], None],
) -> None:
    """Serve the pages of a project until SIGINT or SIGTERM; calls `ready` first.

    `names` are extra host names that browsers may use, `frames` the addresses whose pages may show
    these in a frame; without `logins` they are read-only. Raises EnvironmentMissingError if the web
    server is not installed.
    """
    try:
        from waitress.server import create_server

        from lineage_backfill.web.pages import make_pages
    except ModuleNotFoundError as error:
        raise EnvironmentMissingError(
            f"pages need {error.name}, which is not installed",
            hint="Install it: pip install 'lineage-backfill[serve]'",
        ) from error
    pages = make_pages(project, names=names, frames=frames, logins=logins)
    server = create_server(
        pages,
        sockets=[listening],
        threads=_THREADS,
        ident=None,
        clear_untrusted_proxy_headers=False,  # only those of the proxy of [access] are read
    )

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    with suppress(KeyboardInterrupt):
        ready()
        server.run()
    server.close()
