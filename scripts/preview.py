#!/usr/bin/env python3
"""Draws the README's picture: the preview of the demo's fix, from the lineage that a demo has left.

Usage: python scripts/preview.py [FOLDER]     (the demo's folder; default: lineage-backfill-demo)
"""

from __future__ import annotations

import io
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import lineage_backfill
from lineage_backfill import ChangedDataset, DatasetRef, Request
from lineage_backfill.cli.plan_forms import show
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

FIRST, LAST = "2013-03-10T10", "2013-03-10T12"
COMMAND = f"lineage-backfill impact flights_hourly --from {FIRST} --to {LAST}"
PICTURE = Path(lineage_backfill.__file__).parent / "example" / "preview.svg"
#: The same picture from the same lineage, on any day.
NOW = datetime(2013, 4, 2, tzinfo=UTC)


def main() -> None:
    """Draw the picture."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "lineage-backfill-demo")
    workspace = Workspace(open_project(folder / "lineage-backfill.toml"), as_of=NOW)
    fixed = DatasetRef(workspace.project.declarations.namespace or "", "flights_hourly")
    request = Request(changed=(ChangedDataset(dataset=fixed, keys=(f"{FIRST}..{LAST}",)),))
    plan = Planning(workspace).plan(request)
    console = Console(
        record=True, width=112, file=io.StringIO(), markup=False, emoji=False, highlight=False
    )
    show(plan, console, workspace=workspace)
    svg = console.export_svg(title=COMMAND, theme=MONOKAI, unique_id="preview")
    # A README shows no fonts from elsewhere.
    svg = re.sub(r"@font-face {.*?}\s*", "", svg, flags=re.DOTALL)
    PICTURE.write_text(svg, encoding="utf-8")


main()
