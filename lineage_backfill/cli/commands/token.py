"""`token`: makes, lists and revokes the tokens by which a team logs in to `serve`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import SourceOptions, takes_options
from lineage_backfill.cli.output.grid import table
from lineage_backfill.cli.values import read_duration
from lineage_backfill.show.text import safe
from lineage_backfill.workspace.actions import Actions, at_command_line

token = typer.Typer(help="Tokens by which a team logs in to `serve`.", no_args_is_help=True)
_Name = Annotated[
    str,
    typer.Argument(help="Its name; the project file grants roles to token:NAME.", metavar="NAME"),
]


@token.command("create")
@takes_options
def create(
    source: SourceOptions,
    name: _Name,
    lasts: Annotated[
        str | None,
        typer.Option(help="For how long, as 90d; by default until it is revoked.", metavar="TIME"),
    ] = None,
) -> None:
    """Print a new token, once: only its hash is kept."""
    acting = Actions(source.open(code=False), at_command_line())
    text, made = acting.make_token(name, lasts=read_duration(lasts))
    typer.echo(text)
    until = f" until {made.expires_at:%F %R} UTC" if made.expires_at else ""
    terminal.say(f"It logs in as token:{name}{until}; it is not shown again.")


@token.command("list")
@takes_options
def list_tokens(source: SourceOptions) -> None:
    """List the tokens, with who made them and when they were last used."""
    with source.open(code=False).open_store() as store:
        found = store.tokens()
    rows = (
        [
            Text(safe(one.name)),
            Text(f"lbt_{one.prefix}_…"),
            Text(f"{one.created_at:%F} by {safe(one.created_by)}"),
            Text(_day(one.used_at) or "never"),
            Text(f"revoked {_day(one.revoked_at)}" if one.revoked_at else _day(one.expires_at)),
        ]
        for one in found
    )
    terminal.out().print(table("Token", "Begins", "Made", "Last used", "Ends", rows=rows))


def _day(at: datetime | None) -> str:
    return f"{at:%F}" if at else ""


@token.command("revoke")
@takes_options
def revoke(source: SourceOptions, name: _Name) -> None:
    """End a token now, and the logins that began with it."""
    Actions(source.open(code=False), at_command_line()).revoke_token(name)
    terminal.say(f"token:{name} no longer logs in.")
