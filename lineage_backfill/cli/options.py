"""The options that several verbs share, as dataclasses that a command takes whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

from lineage_backfill.cli.completion import (
    complete_backfills,
    complete_datasets,
    complete_jobs,
)

if TYPE_CHECKING:
    from lineage_backfill.config import Project

_WHAT = "What changed"
_HOW_FAR = "How far to go"
_RAILS = "Guard rails"
_LINEAGE = "Lineage"
#: The order in which help shows them.
_PANELS = (_WHAT, _HOW_FAR, _RAILS, _LINEAGE)


class View(StrEnum):
    """What of Marquez is read: its event history, its own graph, or both."""

    EVENTS = "events"
    GRAPH = "graph"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageOptions:
    """Which lineage a verb works on."""

    events: Annotated[
        list[str] | None,
        Option(
            help="OpenLineage events: a file, a folder or a glob; repeatable.",
            rich_help_panel=_LINEAGE,
            metavar="PATH",
        ),
    ] = None
    marquez: Annotated[
        str | None, Option(help="Marquez to ask.", rich_help_panel=_LINEAGE, metavar="URL")
    ] = None
    snapshot: Annotated[
        Path | None,
        Option(help="A saved lineage snapshot.", rich_help_panel=_LINEAGE, metavar="FILE"),
    ] = None
    lineage_view: Annotated[
        View | None,
        Option(help="What of Marquez to read: by default both.", rich_help_panel=_LINEAGE),
    ] = None

    def project(self, file: Path | None, *, search: bool = True) -> Project:
        """Return the project of a file (None: the one found upward, if it is searched for)."""
        from lineage_backfill.app import open_project

        return open_project(
            file, search=search, events=self.events, marquez=self.marquez, snapshot=self.snapshot
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(LineageOptions):
    """Which project file and which lineage a verb works on."""

    config: Annotated[
        Path | None,
        Option(
            help="Project file; else lineage-backfill.toml, searched upward.",
            rich_help_panel=_LINEAGE,
            metavar="FILE",
        ),
    ] = None

    def open(self) -> Project:
        """Return the project that these options name."""
        return self.project(self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How far a plan goes, and which guard rails it overrides."""

    select: Annotated[
        list[str] | None,
        Option(
            help="Only these jobs: x+, +x, tag:…, ns:…, owner:…, globs.",
            rich_help_panel=_HOW_FAR,
            metavar="SELECTOR",
            autocompletion=complete_jobs,
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        Option(
            help="Not these jobs.",
            rich_help_panel=_HOW_FAR,
            metavar="SELECTOR",
            autocompletion=complete_jobs,
        ),
    ] = None
    reverse: Annotated[
        bool, Option("--reverse", help="Newest keys first.", rich_help_panel=_HOW_FAR)
    ] = False
    now: Annotated[
        str | None,
        Option(
            help="Plan as of this instant, as 2024-04-01T00:00:00Z.",
            rich_help_panel=_HOW_FAR,
            metavar="INSTANT",
        ),
    ] = None
    reason: Annotated[
        str | None,
        Option(
            help="Why it is done; kept with the plan and the backfill.",
            rich_help_panel=_HOW_FAR,
            metavar="TEXT",
        ),
    ] = None
    allow_protected: Annotated[
        bool,
        Option("--allow-protected", help="Run protected jobs too.", rich_help_panel=_RAILS),
    ] = False
    allow_not_idempotent: Annotated[
        bool,
        Option(
            "--allow-not-idempotent",
            help="Run jobs declared idempotent = false.",
            rich_help_panel=_RAILS,
        ),
    ] = False
    allow_expired: Annotated[
        bool,
        Option("--allow-expired", help="Read keys beyond retention.", rich_help_panel=_RAILS),
    ] = False
    allow_max_runs: Annotated[
        bool,
        Option(
            "--allow-max-runs",
            help="Plan more runs than limits.max_runs.",
            rich_help_panel=_RAILS,
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions(PlanOptions):
    """What changed, and how far to go."""

    job: Annotated[
        list[str] | None,
        Option(
            help="Run keys of this job again, and all below; repeatable.",
            rich_help_panel=_WHAT,
            metavar="JOB",
            autocompletion=complete_jobs,
        ),
    ] = None
    from_: Annotated[
        str | None,
        Option("--from", help="First partition key.", rich_help_panel=_WHAT, metavar="KEY"),
    ] = None
    to: Annotated[
        str | None,
        Option(
            help="Last partition key, included; else the newest.",
            rich_help_panel=_WHAT,
            metavar="KEY",
        ),
    ] = None
    partitions: Annotated[
        str | None,
        Option(
            help="Keys and A..B ranges, by commas; or @FILE with a JSON set.",
            rich_help_panel=_WHAT,
            metavar="SET",
        ),
    ] = None
    since_version: Annotated[
        int | None,
        Option(
            help="The keys that changed in the Delta table after version N.",
            rich_help_panel=_WHAT,
            metavar="N",
            min=-1,
        ),
    ] = None
    changed_since: Annotated[
        str | None,
        Option(
            help="The keys that changed since then: 2h, 7d or an instant.",
            rich_help_panel=_WHAT,
            metavar="T",
        ),
    ] = None
    request: Annotated[
        Path | None,
        Option(help="All roots and their keys as JSON.", rich_help_panel=_WHAT, metavar="FILE"),
    ] = None
    namespace: Annotated[
        str | None,
        Option(help="Namespace of the names given.", rich_help_panel=_WHAT, metavar="NAME"),
    ] = None
    columns: Annotated[
        list[str] | None,
        Option(
            help="Only these columns changed; by commas.", rich_help_panel=_WHAT, metavar="NAMES"
        ),
    ] = None
    depth: Annotated[
        int | None,
        Option(help="Stop after N jobs in a row.", rich_help_panel=_HOW_FAR, min=1, metavar="N"),
    ] = None
    exact: Annotated[
        bool,
        Option(
            "--exact",
            help="No widening by lookback; what is left stale is listed.",
            rich_help_panel=_HOW_FAR,
        ),
    ] = False
    include_former: Annotated[
        bool,
        Option(
            "--include-former",
            help="Follow edges that only older runs had.",
            rich_help_panel=_HOW_FAR,
        ),
    ] = False

    @property
    def is_given(self) -> bool:
        """Whether any of these was named on the command line."""
        return self != RequestOptions()


class Format(StrEnum):
    """How a plan is shown."""

    TABLE = "table"
    TREE = "tree"
    HEATMAP = "heatmap"
    MARKDOWN = "markdown"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


DatasetsArgument = Annotated[
    list[str] | None,
    Argument(
        help="Datasets that are right again and whose readers are not.",
        metavar="DATASET",
        show_default=False,
        autocompletion=complete_datasets,
    ),
]
BackfillArgument = Annotated[
    str | None,
    Argument(
        help="Its id or the beginning of it; else the newest one.",
        metavar="BACKFILL",
        show_default=False,
        autocompletion=complete_backfills,
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Print the JSON document on stdout.")]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
ParallelOption = Annotated[
    int | None, Option(help="At most this many runs at once.", min=1, metavar="N")
]
NoCutoffOption = Annotated[
    bool,
    Option(
        "--no-cutoff",
        help="Run all that is planned, also what reads nothing that has really changed.",
    ),
]
NoTailOption = Annotated[
    bool,
    Option(
        "--no-tail",
        help="List keys that became complete meanwhile in the end, instead of running them too.",
    ),
]
TimeoutOption = Annotated[
    str | None,
    Option(help="Stop waiting after this long, as 90s, 30m or 2h.", metavar="DURATION"),
]


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the dataclasses above: each field becomes an option of its own."""
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
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


@cache
def _flattened(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)

    def place(name: str) -> int:
        (option,) = hints[name].__metadata__
        return _PANELS.index(option.rich_help_panel)

    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields(group), key=lambda field: place(field.name))
    ]
