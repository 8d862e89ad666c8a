"""The tool in Python: plans, backfills and lineage of a project, as the command line has them.

    project = Project.open(".")
    plan = project.plan("raw_orders", keys="2024-03-10T22..2024-03-11T00")
    project.run(plan)["state"]

Every document is the one that `--json` prints; a notebook shows it as the command line does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.pretty import Pretty

from lineage_backfill.cli.commands.stale import stale_tables
from lineage_backfill.cli.output.render import preview
from lineage_backfill.cli.output.tables import history_table, report_table, status_table
from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.partitions.text import KeySet, parse_partitions
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import RAILS, ChangedJob, Request
from lineage_backfill.ports import Settings, Submission
from lineage_backfill.show import documents
from lineage_backfill.show.plans import PlanFacts
from lineage_backfill.workspace.actions import Actions, Actor
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.catchup import find_stale
from lineage_backfill.workspace.environment import account, open_project
from lineage_backfill.workspace.named import NameLookup
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions
from lineage_backfill.workspace.workspace import Workspace

if TYPE_CHECKING:  # only notebooks have it
    import pandas as pd

Keys = str | Sequence[str | Mapping[str, Any]]
Names = str | Iterable[str]
#: The members of a request that are lists of names.
_LISTS = ("select", "exclude", "columns")
_WIDTH = 120  # columns of a document in a notebook


class Document(dict[str, Any]):
    """A document of the command line; a notebook shows it as a table.

    `rows` names the list that `to_pandas` returns; `plan` is that of a preview, or what repairs
    what is stale.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        rows: str,
        shown: Callable[[], RenderableType],
        plan: Plan | None = None,
    ) -> None:
        super().__init__(values)
        self.plan = plan
        self._rows, self._shown = rows, shown

    def to_pandas(self) -> pd.DataFrame:
        """Return its list as a table, with `job.name` and the like as columns."""
        table: pd.DataFrame = import_module("pandas").json_normalize(self.get(self._rows) or [])
        return table

    def _repr_html_(self) -> str:
        console = Console(file=StringIO(), record=True, width=_WIDTH)
        console.print(self._shown())
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


class Project:
    """A project as `lineage-backfill` reads it; see `open`.

    Each method raises BackfillError where the command line ends with an error.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._backfills = Backfills(workspace)

    @classmethod
    def open(
        cls,
        path: str | Path = ".",
        *,
        target: str | None = None,
        now: datetime | None = None,
        code: bool = True,
        **lineage: Any,
    ) -> Project:
        """Return the project of a file, or of the nearest one in or above a folder.

        Plans are made as of `now` (aware), by default the time of each call. Without `code` what
        the code declares is left out. `events`, `marquez` or `snapshot` replace its lineage.
        """
        found = Path(path)
        file, start = (None, found) if found.is_dir() else (found, None)
        project = open_project(file, start=start, target=target, code=code, lineage=lineage)
        return cls(Workspace(project, as_of=now))

    @property
    def lineage(self) -> LineageSnapshot:
        """Its lineage with the edges that it declares, read once; `graph()` is for networkx."""
        return self._workspace.resolver.edges.shown

    def plan(
        self,
        *datasets: str,
        keys: Keys | None = None,
        jobs: Names = (),
        since_version: int | None = None,
        changed_since: datetime | None = None,
        allow: Names = (),
        **more: Any,
    ) -> Document:
        """Return the plan for a fix of these datasets, as `impact --json` prints it.

        `keys` is a text as `--partitions` takes it, or a list; for datasets and `jobs` alike.
        `more` are members of `Request`: select, exclude, columns, depth, exact, reverse, reason.
        """
        names, planning = NameLookup(self._workspace.resolver), Planning(self._workspace)
        given = _key_set(keys)
        rest: dict[str, Any] = {
            name: _names(one) if name in _LISTS else one for name, one in more.items()
        }
        request = Request(
            changed=tuple(names.changed(one, given) for one in datasets),
            jobs=tuple(ChangedJob(job=names.job(one), keys=given) for one in _names(jobs)),
            author=account(),
            allow=_rails(allow),
            **rest,
        )
        if not (request.changed or request.jobs):
            raise UsageError("no changed dataset or job is named", hint="Name one: plan('orders').")
        if since_version is not None or changed_since is not None:
            request = planning.with_changes(request, after=since_version, since=changed_since)
        return self._planned(planning.plan(request))

    def run(
        self,
        plan: Document | Plan | str | Path,
        *,
        title: str = "",
        parameters: Mapping[str, Any] | None = None,
        max_parallel: int | None = None,
        timeout: timedelta | None = None,
        wait: bool = False,
    ) -> Document:
        """Run a plan of `plan` or `stale`, or a saved one, to its end; return its `status`.

        Raises StalePlanError, GuardRailError and ConflictError before anything runs; a run that
        fails is in the document. With `wait` it waits for others that write the same partitions.
        """
        planning = Planning(self._workspace)
        found = plan.plan if isinstance(plan, Document) else plan
        if isinstance(found, str | Path):
            found = plan_from_dict(documents.load(Path(found)))
        if found is None:
            raise UsageError("there is nothing to run: the document has no plan")
        planning.check(found)
        found, _ = planning.without_missing(found)
        submission = Submission(
            title=title,
            parameters=parameters or {},
            settings=Settings(max_parallel=max_parallel),
        )
        options = DriveOptions(max_parallel=max_parallel, timeout=timeout, waits=wait)
        outcome = self._acting(options).start(found, submission)
        return self.status(outcome.id)

    def save(self, plan: Document, *, title: str = "", reason: str = "") -> Document:
        """Save a plan of `plan` or `stale`, to be approved and run later; return what waits."""
        if plan.plan is None:
            raise UsageError("there is nothing to save: the document has no plan")
        self._acting().save(plan.plan, {"title": title, "reason": reason})
        return self.saved()

    def saved(self) -> Document:
        """Return the saved plans that wait, newest first."""
        found = self._acting().saved()
        return _document(found, "plans", lambda _: Pretty(found))

    def approve(self, plan: str) -> Document:
        """Approve a saved plan of another user, by its hash; return what waits."""
        self._acting().approve(plan)
        return self.saved()

    def discard(self, plan: str) -> Document:
        """Discard a saved plan, by its hash; return what waits."""
        self._acting().discard(plan)
        return self.saved()

    def run_saved(self, plan: str) -> Document:
        """Run a saved plan, by its hash, to its end; return its `status`."""
        return self.status(self._acting().run_saved(plan, None).id)

    def stale(
        self,
        *,
        select: Names = (),
        exclude: Names = (),
        since: datetime | None = None,
        allow: Names = (),
    ) -> Document:
        """Return what is missing or older than its inputs; `run` takes it to repair that."""
        request = Request(
            select=_names(select), exclude=_names(exclude), author=account(), allow=_rails(allow)
        )
        found = find_stale(self._workspace, request, since=since)
        return Document(found.to_dict(), "jobs", lambda: stale_tables(found), found.plan)

    def status(self, backfill: str | None = None) -> Document:
        """Return the state of a backfill and its runs; None is the newest."""
        return _document(self._backfills.status(backfill), "runs", status_table)

    def report(self, backfill: str | None = None) -> Document:
        """Return the partitions that a backfill planned and rewrote, and rows before and after."""
        return _document(self._backfills.report(backfill), "outputs", report_table)

    def history(self) -> Document:
        """Return the backfills of this project, newest first."""
        return _document(self._backfills.history(), "backfills", history_table)

    def resume(self, backfill: str | None = None) -> Document:
        """Resume a backfill that was paused or interrupted, to its end; return its `status`."""
        return self.status(self._acting().resume(backfill).id)

    def retry(self, backfill: str | None = None) -> Document:
        """Re-run what did not succeed, to its end; return its `status`."""
        return self.status(self._acting().retry(backfill).id)

    def undo(self, backfill: str | None = None) -> Document:
        """Restore what a backfill overwrote; return the `status` of the undo."""
        return self.status(self._acting().undo(backfill, confirm=_agreed).id)

    def pause(self, backfill: str | None = None) -> Document:
        """Start no more runs of a backfill; return its `status`."""
        return self.status(self._acting().pause(backfill).id)

    def cancel(self, backfill: str | None = None, *, kill: bool = False) -> Document:
        """Cancel the runs that a backfill has not started, with `kill` the running ones too."""
        return self.status(self._acting().cancel(backfill, kill=kill).id)

    def _acting(self, options: DriveOptions | None = None) -> Actions:
        return Actions(self._workspace, Actor(door="python"), options=options)

    def _planned(self, plan: Plan) -> Document:
        def shown() -> RenderableType:
            facts = PlanFacts.of(plan, self._workspace.resolver_of(plan), None)
            return preview(plan, width=_WIDTH, facts=facts)

        return Document(plan_to_dict(plan), "runs", shown, plan)


def read_lineage(**source: Any) -> LineageSnapshot:
    """Return the lineage of `events` (a list of paths), `marquez` (an address) or `snapshot`.

    Without a project: nothing is declared.
    """
    return Workspace(open_project(search=False, lineage=source)).snapshot


def _key_set(keys: Keys | None) -> KeySet | None:
    if keys is None or isinstance(keys, str):
        return None if keys is None else parse_partitions(keys)
    return tuple(keys)


def _names(given: Names) -> tuple[str, ...]:
    """Return the names; one name alone may be given as a text."""
    return (given,) if isinstance(given, str) else tuple(given)


def _rails(names: Names) -> frozenset[str]:
    """Return guard rails to override; raises UsageError for an unknown one."""
    found = frozenset(_names(names))
    if unknown := sorted(found - set(RAILS)):
        raise UsageError(
            f"{unknown[0]!r} is not a guard rail", hint=f"They are: {', '.join(RAILS)}."
        )
    return found


def _agreed(plan: Plan) -> None:
    """Ask nothing: the call itself is the confirmation."""


def _document(
    values: dict[str, Any], rows: str, table: Callable[[dict[str, Any]], RenderableType]
) -> Document:
    return Document(values, rows, lambda: table(values))
