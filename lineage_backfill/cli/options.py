"""Options shared by several commands, as dataclasses."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, Context, Option

from lineage_backfill.cli.values import read_duration
from lineage_backfill.errors import BackfillError, UsageError
from lineage_backfill.project import Project
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.workspace import Workspace

_WHAT = "What changed"
_HOW_FAR = "How far to go"
_RAILS = "Guard rails"
_RUNNING = "How to run it"
_LINEAGE = "Lineage"
#: The order in which help shows them.
_PANELS = (_WHAT, _HOW_FAR, _RAILS, _RUNNING, _LINEAGE)
_what, _far, _rail, _drive, _source = (partial(Option, rich_help_panel=one) for one in _PANELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageOptions:
    """The lineage that a command uses."""

    events: Annotated[
        list[str] | None,
        _source(help="OpenLineage events: a file, a folder or a glob; repeatable.", metavar="PATH"),
    ] = None
    marquez: Annotated[str | None, _source(help="Marquez server to read.", metavar="URL")] = None
    snapshot: Annotated[Path | None, _source(help="A saved lineage snapshot.", metavar="FILE")] = (
        None
    )
    allow_torn_events: Annotated[
        bool,
        _source("--allow-torn-events", help="Ignore an incomplete last line in events files."),
    ] = False
    no_cache: Annotated[
        bool, _source("--no-cache", help="Read everything from Marquez, and cache nothing.")
    ] = False

    no_code: Annotated[
        bool, _source("--no-code", help="Leave out what the code of the project declares.")
    ] = False

    def project(
        self,
        file: Path | None,
        *,
        search: bool = True,
        target: str | None = None,
        code: bool = True,
    ) -> Project:
        """Return the project of a file; None searches upward, unless `search` is False."""
        return open_project(
            file,
            search=search,
            target=target,
            code=code and not self.no_code,
            lineage={
                "events": self.events or None,
                "marquez": self.marquez,
                "snapshot": self.snapshot and str(self.snapshot),
                "cache": False if self.no_cache else None,
            },
            allow_torn=self.allow_torn_events,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(LineageOptions):
    """The project file and the lineage that a command uses."""

    config: Annotated[
        Path | None,
        _source(
            help="Project file; by default lineage-backfill.toml, searched upward.", metavar="FILE"
        ),
    ] = None

    target: Annotated[
        str | None,
        _source(help="Target of the project file: its table target.NAME.", metavar="NAME"),
    ] = None

    def open(self, *, as_of: datetime | None = None, code: bool = True) -> Workspace:
        """Return the workspace of the project that these options name.

        Without `code`, jobs that only the code declares are not known.
        """
        return Workspace(self.load(code=code), as_of=as_of)

    def load(self, *, code: bool = True) -> Project:
        """Return the project that these options name."""
        return self.project(self.config, target=self.target, code=code)

    def arguments(self) -> list[str]:
        """Return the command-line arguments for another process with the same options.

        The address of Marquez is in `secret_settings` instead.
        """
        values: dict[str, Sequence[object]] = {
            "--config": [self.config],
            "--target": [self.target],
            "--events": self.events or (),
            "--snapshot": [self.snapshot],
        }
        given = [
            f"{option}={value}"
            for option, given in values.items()
            for value in given
            if value is not None
        ]
        flags = {
            "--allow-torn-events": self.allow_torn_events,
            "--no-cache": self.no_cache,
            "--no-code": self.no_code,
        }
        return [*given, *(flag for flag, is_given in flags.items() if is_given)]

    def command(self, *words: str) -> str:
        """Return a command line of ours for the same project and lineage."""
        return shlex.join(["lineage-backfill", *words, *self.arguments()])

    def commands(self, backfill: str) -> dict[str, str]:
        """Return the command lines for a backfill by their verbs."""
        verbs = ("watch", "report", "retry", "resume", "cancel", "undo")
        return {verb: self.command(verb, backfill) for verb in verbs}

    @property
    def has_own_lineage(self) -> bool:
        """Whether it names more than a target, so that the `drive` service of a project differs."""
        return replace(self, target=None) != SourceOptions()

    @property
    def secret_settings(self) -> dict[str, str]:
        """The given settings that may hold a password; they never go on a command line."""
        return {} if self.marquez is None else {"lineage.marquez": self.marquez}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How far a plan goes, and the guard rails it overrides."""

    select: Annotated[
        list[str] | None,
        _far(
            help="Only these jobs: x+, +x, tag:…, ns:…, owner:…, globs.",
            metavar="SELECTOR",
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        _far(help="Not these jobs.", metavar="SELECTOR"),
    ] = None
    reverse: Annotated[bool, _far("--reverse", help="Newest keys first.")] = False
    now: Annotated[
        str | None,
        _far(help="Plan as of this time, such as 2024-04-01T00:00:00Z.", metavar="INSTANT"),
    ] = None
    reason: Annotated[
        str | None,
        _far(help="Reason, stored with the plan and the backfill.", metavar="TEXT"),
    ] = None
    allow_protected: Annotated[bool, _rail("--allow-protected", help="Run protected jobs too.")] = (
        False
    )
    allow_not_idempotent: Annotated[
        bool, _rail("--allow-not-idempotent", help="Run jobs declared idempotent = false.")
    ] = False
    allow_expired: Annotated[bool, _rail("--allow-expired", help="Read keys beyond retention.")] = (
        False
    )
    allow_max_runs: Annotated[
        bool, _rail("--allow-max-runs", help="Plan more runs than limits.max_runs.")
    ] = False
    allow_unmatched: Annotated[
        bool, _rail("--allow-unmatched", help="Run despite names in the project file not known.")
    ] = False
    allow_two_writers: Annotated[
        bool, _rail("--allow-two-writers", help="Let two jobs overwrite the same partitions.")
    ] = False
    allow_append_again: Annotated[
        bool, _rail("--allow-append-again", help="Append to keys that a run has appended to.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions(PlanOptions):
    """What changed, and how far to go."""

    job: Annotated[
        list[str] | None,
        _what(
            help="Re-run keys of this job, and everything downstream; repeatable.",
            metavar="JOB",
        ),
    ] = None
    from_: Annotated[str | None, _what("--from", help="First partition key.", metavar="KEY")] = None
    to: Annotated[
        str | None,
        _what(help="Last partition key, included; by default the newest.", metavar="KEY"),
    ] = None
    partitions: Annotated[
        str | None,
        _what(
            help="Keys and A..B ranges, separated by commas; or @FILE with a JSON set.",
            metavar="SET",
        ),
    ] = None
    since_version: Annotated[
        int | None,
        _what(help="Keys that changed in the Delta table after version N.", metavar="N", min=-1),
    ] = None
    changed_since: Annotated[
        str | None,
        _what(help="Keys that changed since: 2h, 7d, a date or a time.", metavar="T"),
    ] = None
    request: Annotated[
        Path | None,
        _what(help="All changed datasets and jobs with their keys, as JSON.", metavar="FILE"),
    ] = None
    namespace: Annotated[
        str | None, _what(help="Namespace of the names given.", metavar="NAME")
    ] = None
    columns: Annotated[
        list[str] | None,
        _what(help="Only these columns changed; separated by commas.", metavar="NAMES"),
    ] = None
    depth: Annotated[int | None, _far(help="Stop after N jobs in a row.", min=1, metavar="N")] = (
        None
    )
    exact: Annotated[
        bool, _far("--exact", help="Do not add lookback keys; list what stays stale.")
    ] = False
    include_former: Annotated[
        bool, _far("--include-former", help="Follow edges that only older runs have.")
    ] = False

    @property
    def is_given(self) -> bool:
        """Whether any of these was named on the command line."""
        return self != RequestOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOptions:
    """How long to wait."""

    timeout: Annotated[
        str | None,
        _drive(help="Stop waiting after this time, such as 90s, 30m or 2h.", metavar="DURATION"),
    ] = None

    @property
    def limit(self) -> timedelta | None:
        """How long to wait; None without limit. Raises UsageError."""
        found = read_duration(self.timeout)
        if found is not None and not found:
            raise UsageError(
                f"--timeout is {self.timeout!r}, but must be more than 0",
                hint="Leave it out to wait without a limit.",
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningOptions(WaitOptions):
    """How many runs at once, for how long, and whether to wait for others."""

    max_parallel: Annotated[
        int | None, _drive(help="At most this many runs at once.", min=1, metavar="N")
    ] = None
    wait: Annotated[
        bool,
        _drive(
            "--wait",
            help="Wait if others hold this backfill or its partitions; by default exit with 6.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(RunningOptions):
    """How a plan is run, and what is stored with the backfill."""

    yes: Annotated[bool, _drive("--yes", "-y", help="Do not ask for confirmation.")] = False
    at: Annotated[
        str | None,
        _drive(
            "--at",
            "--start-at",
            help="Start at this time, or after a delay such as 2h.",
            metavar="WHEN",
        ),
    ] = None
    strict: Annotated[
        bool,
        _drive("--strict", help="Exit with 3 if --select, --exclude or --depth leave jobs stale."),
    ] = False
    detach: Annotated[
        bool,
        _drive("--detach", help="Run in a separate process, and print the id; `watch` follows it."),
    ] = False
    title: Annotated[
        str | None,
        _drive(
            help="Name of the backfill, such as 'VAT fix, INC-812'; by default what changed.",
            metavar="TEXT",
        ),
    ] = None
    description: Annotated[
        str | None,
        _drive(help="Description of the backfill; at most 1,000 characters.", metavar="TEXT"),
    ] = None
    parameter: Annotated[
        list[str] | None,
        _drive(
            help="Parameter for every job; the value is JSON, or else a string.",
            metavar="NAME=VALUE",
        ),
    ] = None
    no_cutoff: Annotated[
        bool,
        _drive(
            "--no-cutoff",
            help="Run everything planned, even if the inputs came out unchanged.",
        ),
    ] = False
    no_tail: Annotated[
        bool,
        _drive(
            "--no-tail",
            help="List keys that became complete meanwhile; do not run them.",
        ),
    ] = False


class Format(StrEnum):
    """How a plan is shown."""

    TABLE = "table"
    TREE = "tree"
    MARKDOWN = "markdown"
    MERMAID = "mermaid"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """How much of a list is shown, and in how much detail."""

    every: Annotated[bool, Option("--all", help="List everything, with full reasons.")] = False


DatasetsArgument = Annotated[
    list[str] | None,
    Argument(
        help="Datasets that were fixed; their readers are stale.",
        metavar="DATASET",
        show_default=False,
    ),
]


def _backfills(context: Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the backfills whose id or title begins as typed, for the completion of a shell."""
    given = context.params
    source = SourceOptions(config=given.get("config"), target=given.get("target"))
    try:
        with source.open(code=False).open_store() as store:
            records = store.backfills()
    except BackfillError:
        return []
    by_title = [(one.title, one.id) for one in records if incomplete and one.title]
    return [*((one.id, one.title or one.changed) for one in records), *by_title]


BackfillArgument = Annotated[
    str | None,
    Argument(
        help="Backfill id, or its beginning, or a title; by default the newest.",
        metavar="BACKFILL",
        autocompletion=_backfills,
        show_default=False,
    ),
]
NamespaceOption = Annotated[
    str | None, Option(help="Namespace of the names given.", metavar="NAME")
]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
JsonOption = Annotated[bool, Option("--json", help="Print the JSON document on stdout.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverOptions:
    """Machines that drove a backfill and no longer exist."""

    machine_gone: Annotated[
        list[str] | None,
        _drive(
            "--machine-gone",
            help="This machine is gone for good; re-run what it was running.",
            metavar="HOST",
        ),
    ] = None

    @property
    def gone(self) -> tuple[str, ...]:
        """The machines, by host name; raises UsageError for an empty name."""
        if not all(one.strip() for one in self.machine_gone or ()):
            raise UsageError(
                "--machine-gone names no machine",
                hint="Give the host name that `lineage-backfill resume` prints.",
            )
        return tuple(self.machine_gone or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions(SourceOptions):
    """The backfill that a command acts on."""

    backfill: BackfillArgument = None
    as_json: JsonOption = False


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn each field of the dataclasses that a command takes into an option."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in own if is_dataclass(one.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for one in own:
        if one.name in groups:
            parameters += _flattened(one.annotation)
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        command(**values)

    # Typer reads the signature to learn what the command takes.
    call.__dict__["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


@cache
def _flattened(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)

    def place(name: str) -> int:
        (option,) = hints[name].__metadata__
        panel = option.rich_help_panel
        return _PANELS.index(panel) if panel else len(_PANELS)

    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields(group), key=lambda field: place(field.name))
    ]
