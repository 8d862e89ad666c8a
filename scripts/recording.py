#!/usr/bin/env python3
"""Draws the README's pictures: what the demo prints of its fix, and the page of that backfill.

Usage: python scripts/recording.py [--page-only] [FOLDER]

FOLDER is the demo's, which is made again; with --page-only it is taken as a demo has left it. The
demo needs Spark, the page Chromium (scripts/install-chromium).
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import threading
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.common.by import By
from waitress import create_server

from examples.demo.story import run_demo
from lineage_backfill.project import FILE_NAME
from lineage_backfill.web import server
from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.workspace import Workspace

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SESSION, PAGE = PICTURES / "session.svg", PICTURES / "heatmap.png"
FIRST, LAST = "$ lineage-backfill impact", "Check 1:"
WIDTH = 108


def main() -> None:
    """Run the demo, and draw its session and the page of its backfill."""
    page_only = "--page-only" in sys.argv
    given = [word for word in sys.argv[1:] if word != "--page-only"]
    folder = Path(given[0] if given else "lineage-backfill-demo")
    if not page_only:
        record(folder)
    project = open_project(folder / FILE_NAME)
    with server.listen("127.0.0.1", 0) as listening:
        address = server.address_of(listening)
        # The server runs until it is interrupted, in the main thread of a process alone.
        web = create_server(make_pages(project), sockets=[listening], threads=4)
        threading.Thread(target=web.run, daemon=True).start()
        newest = Backfills(Workspace(project)).history()["backfills"][0]["id"]
        shoot(f"{address}backfills/{newest}")


def record(folder: Path) -> None:
    """Run the demo and draw the part from its preview to its report."""
    said = io.StringIO()
    # Neither bars nor spinners: each line stands as it was printed last.
    console = Console(
        file=said,
        width=WIDTH,
        force_terminal=True,
        color_system="standard",
        force_interactive=False,
    )
    if code := run_demo(folder, year=False, console=console):
        raise SystemExit(code)
    texts = [Text.from_ansi(line) for line in said.getvalue().splitlines()]
    begin = next(n for n, text in enumerate(texts) if text.plain.startswith(FIRST))
    end = next(n for n, text in enumerate(texts) if text.plain.startswith(LAST))
    SESSION.write_text(drawn(texts[begin:end]), encoding="utf-8")


def shoot(address: str) -> None:
    """Take the picture of the jobs on the page of a backfill: a row each, a square for each day."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "hide-scrollbars",
        "window-size=1100,1600",
    ):
        options.add_argument(f"--{flag}")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    try:
        browser.get(address)
        browser.find_element(By.ID, "jobs").screenshot(str(PAGE))
    finally:
        browser.quit()


def drawn(lines: list[Text]) -> str:
    """Return the lines as a picture of a terminal that loads nothing from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in lines:
        console.print(line, soft_wrap=True)
    svg = console.export_svg(title="lineage-backfill", theme=MONOKAI, unique_id="session")
    svg = re.sub(r"@font-face {.*?}\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    main()
