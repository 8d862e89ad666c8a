"""Pages that list what the code has: every error, every verb and option, every setting."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from lineage_backfill.cli.main import program
from lineage_backfill.cli.verbs import Verb
from lineage_backfill.errors import BackfillError
from lineage_backfill.project.settings import known_settings
from spark_runtime.errors import RuntimeFailure

_MADE = "<!-- Made by scripts/docs from the code: do not edit. -->"
_WIDTH = 100
_ERRORS = """\
# Errors

Every error has a code, one sentence that says what happened, and a hint that says what to do next.
The codes are stable. `--debug` adds the traceback."""
_IN_A_JOB = """\
## Errors inside a Spark job

`spark_runtime` raises these inside the job. `status` and `report` show the name and the message of
the error that ended an attempt. Transient errors are retried automatically."""
_OPTIONS = """\
# Every verb, option and setting

Results go to stdout, everything else to stderr. `-h` on any verb prints its part of this page.
`NO_COLOR` switches colours off, `FORCE_COLOR` on; `COLUMNS` sets the width. Times are shown, and
read if they have no UTC offset, in the local zone (`TZ`); the time of `--now` needs an offset.

| exit code | meaning |
|---|---|
| 0 · 1 | done, or nothing to do · unexpected failure |
| 2 | `--detailed-exitcode`: there is work to do, or a difference |
| 3 | the run ended; some runs failed or are blocked (`--strict`: or were left out by choice) |
| 4 · 7 | a service refuses · a service is unreachable, or in trouble |
| 5 · 6 | the plan is stale · another backfill is in the way |
| 8 · 9 | `--timeout` has passed: `resume` continues · a guard rail refused: see its message |
| 64 · 130 | wrong usage · interrupted (state saved), or "no" at the question |"""
_OF_ALL = """\
## Options of every verb

They may be before or after the verb. With `--quiet`, stderr has only errors, questions and the
preview that a question is about: no progress and no next steps. Exit codes and stdout do not
change. With `--verbose`, stderr also has every source that was read, each request to a service,
what came from the cache, and how long reading, planning and checking tables took."""
_SETTINGS = """\
## Settings

A setting takes its value from the first of these that has one: the command line, an environment
variable, the project file, the user's `config.toml`, the default. `lineage-backfill config show
--sources` shows which one it was. The tables `[[dataset]]`, `[[job]]`, `[engines.*]`, `[pools]` and
`[spark]` are described in [project-file.md](project-file.md)."""


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    return {name: "\n\n".join([_MADE, *page]) + "\n" for name, page in _pages()}


def _pages() -> Iterator[tuple[str, Iterable[str]]]:
    yield "errors.md", _errors()
    yield "options.md", _options()


def all_errors(root: type[BackfillError] = BackfillError) -> Iterator[type[BackfillError]]:
    """Yield the classes of errors, each before its subclasses."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == root.__module__:  # errors of spark_runtime have no codes
            yield from all_errors(below)


def explained(error: type[BackfillError]) -> list[str]:
    """Return the paragraphs for users: what the error means, and what to do about it."""
    paragraphs = (inspect.getdoc(error) or "").split("\n\n")[:2]
    return [" ".join(one.split()) for one in paragraphs]


def _errors() -> Iterator[str]:
    yield _ERRORS
    for error in all_errors():
        meaning, to_do = explained(error)
        yield f'<a id="{error.code.lower()}"></a>'
        yield f"## {error.code}: {error.__name__}"
        yield textwrap.fill(f"{meaning} Exit code {error.exit_code}.", _WIDTH)
        yield textwrap.fill(to_do, _WIDTH, break_on_hyphens=False)
    yield _IN_A_JOB
    yield "\n".join(f"- **{one.__name__}**: {_first(one)}" for one in _below(RuntimeFailure))


def _below(root: type[RuntimeFailure]) -> Iterator[type[RuntimeFailure]]:
    for one in root.__subclasses__():
        yield one
        yield from _below(one)


def _first(one: type[RuntimeFailure]) -> str:
    return (inspect.getdoc(one) or "").partition("\n\n")[0]


def _options() -> Iterator[str]:
    yield _OPTIONS
    whole = program()
    yield _OF_ALL
    yield _parameters(one for one in whole.params if not one.expose_value)
    for path, command in _verbs(whole):
        if not hasattr(command, "commands"):
            yield from _verb(" ".join(path), command)
    yield _SETTINGS
    rows = (
        (f"`{one.name}`", f"`{one.variable}`", f"`{one.default}`" if one.default else "", one.help)
        for one in known_settings()
    )
    yield _table(("Setting", "Environment", "Default", "Meaning"), rows)


def _verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _verbs(below.command if isinstance(below, Verb) else below, (*path, name))


def _verb(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}"
    yield _plain(command.help)
    yield _parameters(one for one in command.params if one.expose_value)


def _parameters(found: Iterable[Any]) -> str:
    return _table(("", ""), ((_spelled(one), _plain(one.help)) for one in found))


def _spelled(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"`{one.metavar or one.name.upper()}`"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    kind = one.type_descriptor.annotation
    if one.is_flag or getattr(one, "count", False):
        return names
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{names} {', '.join(kind)}"
    return f"{names} {one.metavar}"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
