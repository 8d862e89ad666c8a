"""`serve`: shows and manages backfills in a browser."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import ForbiddenError, UsageError
from lineage_backfill.files import reason
from lineage_backfill.show import documents
from lineage_backfill.web import server
from lineage_backfill.web.logins import Logins
from lineage_backfill.workspace.actions import Process

_SHORTEST = 20  # characters of a token
_OTHER = "Take another port with --port, any free one with --port 0; --host names the address."


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """By what name, within which pages and with what token the pages are used."""

    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name that browsers use for it, such as a proxy's; repeatable.",
            metavar="NAME",
        ),
    ] = None
    allow_frame: Annotated[
        list[str] | None,
        typer.Option(
            help="Address whose pages may show these in a frame, such as Airflow's; repeatable.",
            metavar="ORIGIN",
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token of programs that act by REST.", metavar="FILE"),
    ] = None


@takes_options
def serve(
    source: SourceOptions,
    access: AccessOptions,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; by default 127.0.0.1, this machine only.",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(help="Port to listen on; 0 for any free one.", min=0, max=65535, metavar="N"),
    ] = 8085,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the pages in a browser.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show and manage backfills, plans and lineage in a browser, until Ctrl-C."""
    for origin in access.allow_frame or ():
        if not re.fullmatch(r"https?://[\w.:\[\]-]+", origin):
            raise UsageError(
                f"--allow-frame {origin} is not an origin",
                hint="Give scheme, host and port, such as http://localhost:8080.",
            )
    token = _token(access.token_file) if access.token_file else ""
    project = source.load()
    process = Process(
        arguments=source.arguments(),
        settings=source.secret_settings,
        has_own_lineage=source.has_own_lineage,
    )
    with server.listen(host, port, hint=_OTHER) as listening, TemporaryDirectory() as folder:
        address = server.address_of(listening)

        def tell(code: str) -> None:
            terminal.say(f"To act on these pages, log in: {address}login?code={code}")

        is_private = server.is_private(listening)
        if not is_private and project.access is None:
            raise ForbiddenError(
                f"others can reach {host}, and nothing says who may do what there",
                hint="Grant roles with [[access.grant]] in the project file, or leave out --host.",
            )
        logins = Logins(process, tell, token)
        if not is_private:
            logins.code = ""  # others could read it on its way

        def ready() -> None:
            login = f"{address}login?code={logins.code}" if is_private else None
            if as_json:
                document = {"schema_version": 1, "kind": "serve", "url": address, "login": login}
                documents.emit(document)
            else:
                typer.echo(address)
            sys.stdout.flush()
            if is_private:
                tell(logins.code)
            terminal.say("Serving until Ctrl-C.")
            if open_browser:
                typer.launch(_page_to(login, Path(folder)) if login else address)

        names, frames = access.allow_host or (), access.allow_frame or ()
        server.serve(project, listening, names=names, frames=frames, logins=logins, ready=ready)


def _page_to(login: str, folder: Path) -> str:
    """Return a file that leads to the login: others can read command lines, and not this folder."""
    page = folder / "login.html"
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={login}">')
    return str(page)


def _token(file: Path) -> str:
    """Return the token in a file; raises UsageError for one that is short or others can read."""
    try:
        is_shared = bool(file.stat().st_mode & 0o077)
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--token-file {file} cannot be read: {reason(error)}", hint="Name a file of text."
        ) from error
    if is_shared or len(token) < _SHORTEST:
        raise UsageError(
            f"--token-file {file} {'can be read by others' if is_shared else 'has a short token'}",
            hint=f"Make one: (umask 077; openssl rand -hex 32 > {file}).",
        )
    return token
