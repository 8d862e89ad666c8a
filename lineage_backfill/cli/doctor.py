"""`doctor`: whether everything that a backfill needs is here."""

from __future__ import annotations

import typer

from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(doctor)


@takes_options
def doctor(source: SourceOptions, as_json: JsonOption = False) -> None:
    """Check Java, Spark, its jars, the lineage and the run store; say how to mend what is not."""
    from lineage_backfill import app

    checks = app.examine(source.open())
    if as_json:
        from lineage_backfill.cli import documents

        documents.emit(
            {
                "schema_version": 1,
                "kind": "doctor",
                "checks": [
                    {"name": one.name, "ok": one.ok, "detail": one.detail, "fix": one.fix}
                    for one in checks
                ],
            }
        )
    else:
        from rich.text import Text

        from lineage_backfill.cli import terminal
        from lineage_backfill.cli.render import table

        rows = table("", "Check", "Found")
        for one in checks:
            mark = Text("✓", style="green") if one.ok else Text("✗", style="red")
            found = Text(terminal.safe(one.detail))
            if one.fix:
                found.append(f"\n{terminal.safe(one.fix)}", style="yellow")
            rows.add_row(mark, one.name, found)
        terminal.out().print(rows)
    if not all(one.ok for one in checks):
        raise typer.Exit(1)
