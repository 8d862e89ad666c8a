#!/usr/bin/env python3
"""Refuses a site whose links lead nowhere, or that loads anything from elsewhere.

Usage: python scripts/site_links.py FOLDER
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: The attributes that make a browser load something, by their elements.
LOADED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
_ADDRESS = re.compile(
    r"""url\(\s*['"]?((?:https?:)?//[^)'"]+)|@import\s+['"]((?:https?:)?//[^'"]+)"""
)


class Page(HTMLParser):
    """The links of a page, what it loads, and what links can name in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what an element links to, loads or names."""
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        passive = tag == "link" and given.get("rel", "") in ("canonical", "next", "prev")
        if tag in LOADED and given.get(LOADED[tag]) and not passive:
            self.loads.append(given[LOADED[tag]])
        if "srcset" in given:
            self.loads += [one.split()[0] for one in given["srcset"].split(",")]


def faults(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the pages and style sheets of a site."""
    pages = {file.resolve(): Page(file) for file in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder} has no pages"
    for file, page in pages.items():
        for address in page.loads:
            there = urlsplit(address)
            if there.netloc or there.scheme not in ("", "data"):
                yield f"{file}: loads {address}"
        if file.name != "404.html":  # it is served anywhere
            for address in (*page.links, *page.loads):
                yield from _dead(file, address, pages)
    for file in sorted(folder.rglob("*.css")):
        for found in _ADDRESS.finditer(file.read_text(encoding="utf-8")):
            yield f"{file}: loads {found[1] or found[2]}"


def _dead(file: Path, address: str, pages: dict[Path, Page]) -> Iterator[str]:
    there = urlsplit(address)
    if there.scheme or there.netloc:
        return
    aim = (file.parent / unquote(there.path)).resolve() if there.path else file
    if aim.is_dir():
        aim /= "index.html"
    if not aim.exists():
        yield f"{file}: {address} leads nowhere"
    elif there.fragment and aim in pages and unquote(there.fragment) not in pages[aim].names:
        yield f"{file}: {address} has no such place"


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1])))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
