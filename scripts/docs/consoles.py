"""Runs the examples of a page, and writes under each command what it prints.

Code blocks of the language `console` hold commands after `$`. Those of a page run in one copy of
an example's folder, which `<!-- example: NAME -->` names. A block below `File **NAME**:` is written
to that file first, below `File **NAME**, added at its end:` it is appended. All is done at one
moment in time.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import time_machine

from lineage_backfill.cli.main import main

CONSOLE = "```console\n"
NOW = "2024-04-02T08:00:00+00:00"
WIDTH = 90
#: Where examples run, whatever TMPDIR is: tables break lines by the length of a path.
_SCRATCH = Path("/tmp")  # noqa: S108
_BLOCK = re.compile(
    r"(?:^File \*\*(?P<file>\S+)\*\*(?P<added>, added at its end)?:\n+)?"
    r"```(?P<language>\w+)\n(?P<body>.*?)```",
    re.DOTALL | re.MULTILINE,
)
_EXAMPLE = re.compile(r"<!-- example: (\w+) -->")
#: What differs each time, and what stands for it: names of backfills, and how long things take.
_CHANGING = (
    (re.compile(r"\bb-\d{8}-\d{6}-[0-9a-f]{6}\b"), "b-20240402-080000-c0ffee"),
    (re.compile(r"\b\d+\.\d s\b"), "0.4 s"),
)


def refreshed(page: str, folder: Path) -> str:
    """Return the page with what its commands print now; `folder` holds the examples."""
    with (
        tempfile.TemporaryDirectory(dir=_SCRATCH if _SCRATCH.is_dir() else None) as scratch,
        _settings(),
    ):
        here = Path(scratch).resolve() / "shop"
        example = _EXAMPLE.search(page)
        if example:
            shutil.copytree(folder / example[1], here)
        else:
            here.mkdir()
        with chdir(here), time_machine.travel(NOW, tick=False):
            return _BLOCK.sub(lambda found: _block(found, str(here)), page)


def _settings() -> _Environment:
    return _Environment(
        {
            "COLUMNS": str(WIDTH),
            "NO_COLOR": "1",
            "TZ": "UTC",
            "HOME": "/nonexistent",
            "LOGNAME": "ann",
        }
    )


class _Environment:
    """Sets variables for a while, and hides those of the person who runs this."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __enter__(self) -> None:
        self._before = dict(os.environ)
        for name in self._before:
            if name.startswith("LINEAGE_BACKFILL_"):
                del os.environ[name]
        os.environ.update(self._values)

    def __exit__(self, *_: object) -> None:
        os.environ.clear()
        os.environ.update(self._before)


def _block(found: re.Match[str], here: str) -> str:
    if found["file"]:
        _write(Path(found["file"]), found["body"], added=bool(found["added"]))
    if found["language"] != "console":
        return found[0]
    text = "".join(_answered(found["body"], here))
    return found[0].replace(found["body"], text)


def _write(file: Path, text: str, *, added: bool) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a" if added else "w", encoding="utf-8") as opened:
        opened.write(text)


def _answered(body: str, here: str) -> Iterator[str]:
    """Yield each command, and what it prints."""
    code = 0
    for command in _commands(body):
        yield f"$ {command}\n"
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        given = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            given[name] = value
        if words == ["echo", "$?"]:
            yield f"{code}\n"
            continue
        if words[0] == "cat":
            said = Path(words[1]).read_text(encoding="utf-8")
        elif words[0] == "rm":
            Path(words[1]).unlink()
            said = ""
        elif words[0] == "lineage-backfill":
            with _Environment(given):
                code, said = _run(words[1:])
        else:
            raise ValueError(f"an example runs {words[0]!r}, and only lineage-backfill is tried")
        for changing, instead in ((re.compile(re.escape(here)), "/shop"), *_CHANGING):
            said = changing.sub(instead, said)
        yield "".join(f"{line.rstrip()}\n" for line in said.splitlines())


def _commands(body: str) -> Iterator[str]:
    """Yield the commands of a block; one that ends with a backslash goes on in the next line."""
    lines = iter(body.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command


def _run(arguments: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main(arguments)
    return code, said.getvalue()
