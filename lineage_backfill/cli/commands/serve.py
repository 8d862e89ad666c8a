"""`serve`: shows backfills, plans and lineage in a browser."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import UsageError
from lineage_backfill.show import documents
from lineage_backfill.web import server

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
    """Show backfills, plans, lineage and settings in a browser, read-only, until Ctrl-C."""
    for origin in allow_frame or ():
        if not re.fullmatch(r"https?://[\w.:\[\]-]+", origin):
            raise UsageError(
                f"--allow-frame {origin} is not an origin",
                hint="Give scheme, host and port, such as http://localhost:8080.",
            )
    project = source.load()
    with server.listen(host, port, hint=_OTHER) as listening:
        address = server.address_of(listening)

        def ready() -> None:
            if as_json:
                documents.emit({"schema_version": 1, "kind": "serve", "url": address})
            else:
                typer.echo(address)
            typer.get_text_stream("stdout").flush()
            if not server.is_private(listening):
                terminal.say(
                    f"warning: anyone who can reach {host} can read all of this: there is no login",
                    style="yellow",
                )
            terminal.say("Serving until Ctrl-C.")
            if open_browser:
                typer.launch(address)

        names, frames = allow_host or (), allow_frame or ()
        server.serve(project, listening, names=names, frames=frames, ready=ready)
