"""`serve`: shows and manages backfills in a browser."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import UsageError
from lineage_backfill.show import documents
from lineage_backfill.web import server
from lineage_backfill.web.logins import Logins
from lineage_backfill.workspace.actions import Process

_OTHER = "Take another port with --port, any free one with --port 0; --host names the address."


@takes_options
def serve(
    source: SourceOptions,
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
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name that browsers use for it, such as a proxy's; repeatable.",
            metavar="NAME",
        ),
    ] = None,
    allow_frame: Annotated[
        list[str] | None,
        typer.Option(
            help="Address whose pages may show these in a frame, such as Airflow's; repeatable.",
            metavar="ORIGIN",
        ),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the pages in a browser.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show and manage backfills, plans and lineage in a browser, until Ctrl-C."""
    for origin in allow_frame or ():
        if not re.fullmatch(r"https?://[\w.:\[\]-]+", origin):
            raise UsageError(
                f"--allow-frame {origin} is not an origin",
                hint="Give scheme, host and port, such as http://localhost:8080.",
            )
    project = source.load()
    process = Process(
        arguments=source.arguments(),
        settings=source.secret_settings,
        has_own_lineage=source.has_own_lineage,
    )
    with server.listen(host, port, hint=_OTHER) as listening:
        address = server.address_of(listening)

        def tell(code: str) -> None:
            terminal.say(f"To act on these pages, log in: {address}login?code={code}")

        # Who may act on an address that others reach cannot be told yet.
        logins = Logins(process, tell) if server.is_private(listening) else None

        def ready() -> None:
            login = f"{address}login?code={logins.code}" if logins else None
            if as_json:
                document = {"schema_version": 1, "kind": "serve", "url": address, "login": login}
                documents.emit(document)
            else:
                typer.echo(address)
            sys.stdout.flush()
            if not server.is_private(listening):
                terminal.say(
                    f"warning: anyone who can reach {host} can read all of this: there is no login",
                    style="yellow",
                )
            if logins:
                tell(logins.code)
            terminal.say("Serving until Ctrl-C.")
            if open_browser:
                typer.launch(login or address)

        names, frames = allow_host or (), allow_frame or ()
        server.serve(project, listening, names=names, frames=frames, logins=logins, ready=ready)
