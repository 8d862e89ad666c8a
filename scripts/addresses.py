#!/usr/bin/env python3
"""Writes the project's address into what an index shows: project URLs, and the links of README.md.

Usage: python scripts/addresses.py https://HOST/OWNER/NAME TAG

Only a release has them: in a checkout links are relative, so that those of a fork lead to itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_RELATIVE = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")
_PAGES = {
    "Homepage": "",
    "Documentation": "/blob/{tag}/docs/README.md",
    "Changelog": "/blob/{tag}/CHANGELOG.md",
    "Issues": "/issues",
    "Source": "/tree/{tag}",
}


def absolute(text: str, address: str, tag: str) -> str:
    """Return a page of the root folder whose links lead to a server, as of a tag."""

    def link(found: re.Match[str]) -> str:
        path = found[1]
        if path.startswith("../../"):  # of the server, above its view of a branch
            return f"]({address}/{path.removeprefix('../../')})"
        kind = "raw" if path.endswith((".png", ".svg")) else "blob"
        return f"]({address}/{kind}/{tag}/{path})"

    return _RELATIVE.sub(link, text)


def main(address: str, tag: str) -> None:
    """Write README.md and pyproject.toml."""
    readme, project = ROOT / "README.md", ROOT / "pyproject.toml"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), address, tag), encoding="utf-8")
    urls = "".join(f'{name} = "{address}{page.format(tag=tag)}"\n' for name, page in _PAGES.items())
    with project.open("a", encoding="utf-8") as file:
        file.write(f"\n[project.urls]\n{urls}")


if __name__ == "__main__":
    main(*sys.argv[1:])
