"""`doctor`: whether everything that a backfill needs is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import BackfillError, EnvironmentMissingError

if TYPE_CHECKING:
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.planning.plan import Plan
    from lineage_backfill.project import Project

_JAVA = 17
_CLOCK_SLACK, _EVENT_SLACK = 5, 300  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at; `fix` says how to mend it, empty where all is well."""

    name: str
    detail: str
    fix: str = ""
    ok: bool = True


@takes_options
def doctor(
    source: SourceOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A saved plan: only its tables are looked at, for all that it reads and writes.",
            metavar="PLAN.json",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check lineage, run store, tables, clock, permissions, Java, Spark; say how to mend each."""
    project = source.open()
    plan = _load(file)
    lineage = _Lineage(project)
    looks: dict[str, Callable[[], str]] = {
        "project": partial(_project, project),
        "lineage": partial(_lineage, lineage),
        "store": partial(_store, project),
        **({} if plan is None else _of_plan(project, lineage, plan)),
        "tables": partial(_tables, project, lineage, plan),
        "undo": partial(_undo, project, lineage, plan),
        "clock": partial(_clock, project, lineage),
        "permissions": partial(_permissions, project, lineage, plan),
        "java": _java,
        "spark": _spark,
        "jars": _jars,
    }
    checks = [_check(name, look) for name, look in looks.items()]
    if as_json:
        _emit(checks)
    else:
        _print(checks)
    if not all(one.ok for one in checks):
        raise typer.Exit(1)


def _load(file: Path | None) -> Plan | None:
    if file is None:
        return None
    from lineage_backfill.cli.planning import load_plan

    return load_plan(file)


class _Lineage:
    """The lineage, read when it is first asked for, and only once even where that fails."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._found: LineageSnapshot | None = None
        self._error: BackfillError | None = None

    def __call__(self) -> LineageSnapshot:
        from lineage_backfill.workspace import read_lineage

        if self._error is not None:
            raise self._error
        if self._found is None:
            try:
                self._found = read_lineage(self._project)
            except BackfillError as error:
                self._error = error
                raise
        return self._found


def _of_plan(project: Project, lineage: _Lineage, plan: Plan) -> dict[str, Callable[[], str]]:
    return {
        "plan": partial(_plan, project, lineage, plan),
        "retention": partial(_retention, project, lineage, plan),
    }


def _plan(project: Project, lineage: _Lineage, plan: Plan) -> str:
    """Look whether the plan may still be run as it is."""
    from lineage_backfill.workspace import check_plan

    check_plan(project, lineage(), plan)
    return f"{plan.totals['runs']} runs; lineage and declarations are as it was made from"


def _retention(project: Project, lineage: _Lineage, plan: Plan) -> str:
    """Look whether every table still holds what the plan's runs read of it."""
    from datetime import UTC, datetime

    from lineage_backfill.presentation.names import keys_on_a_line
    from lineage_backfill.workspace import lost_reads

    lost = lost_reads(project, lineage(), plan, now=datetime.now(UTC))
    if lost:
        said = "; ".join(f"{dataset} {keys_on_a_line(keys)}" for dataset, keys in lost.items())
        raise EnvironmentMissingError(
            f"past retention, and read by the plan: {said}",
            hint="Make the plan anew: it leaves out what needs them, or restore them first.",
        )
    return "all that its runs read is kept"


def _check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, detail=look())
    except BackfillError as error:
        return Check(name=name, detail=error.message, fix=error.hint, ok=False)


def _project(project: Project) -> str:
    if project.file is None:
        raise EnvironmentMissingError(
            f"no lineage-backfill.toml in {project.root} or above",
            hint="Only planning with the defaults works without one; name it with --config.",
        )
    declared = project.declarations
    return f"{project.file}: {len(declared.datasets)} datasets, {len(declared.jobs)} jobs declared"


def _lineage(lineage: _Lineage) -> str:
    snapshot = lineage()
    warned = f", {len(snapshot.warnings)} warnings" if snapshot.warnings else ""
    return f"{len(snapshot.jobs)} jobs, {len(snapshot.datasets)} datasets{warned}"


def _store(project: Project) -> str:
    from lineage_backfill.workspace import open_store

    with open_store(project) as store:
        return f"{len(store.backfills())} backfills"


def _tables(project: Project, lineage: _Lineage, plan: Plan | None) -> str:
    """Read the log of every declared Delta table that a job (of the plan) reads or writes."""
    from datetime import UTC, datetime

    from lineage_backfill.workspace import read_logs

    jobs = None if plan is None else {run.job for run in plan.runs or ()}
    now = datetime.now(UTC)
    known, silent = read_logs(project, lineage(), now=now, jobs=jobs)
    if silent:
        name, why = next(iter(sorted(silent.items())))
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        raise EnvironmentMissingError(
            f"{len(known)} are read, and of others nothing is known: {name}: {why}{more}",
            hint="Correct its `location` and `columns`; `stale --json` names them all.",
        )
    cut = [one.since for one in known.values() if one.since is not None]
    reach = f"; the logs reach back to {max(cut):%Y-%m-%d %H:%M}Z" if cut else ""
    return f"{len(known)} are read{reach}"


def _undo(project: Project, lineage: _Lineage, plan: Plan | None) -> str:
    """Look whether the tables that jobs write keep what they replace long enough to put it back."""
    from lineage_backfill.workspace import undo_blockers

    written = None if plan is None else {w.dataset for run in plan.runs or () for w in run.writes}
    hindered = undo_blockers(project, lineage(), written)
    if hindered:
        name, found = next(iter(hindered.items()))
        more = f" and {len(hindered) - 1} more tables" if len(hindered) > 1 else ""
        raise EnvironmentMissingError(
            f"not everything could be undone: {name}: {'; '.join(found)}{more}",
            hint="Raise the table's retention properties; rows of numbered ones are not put back.",
        )
    return "what is replaced is kept for a week"


def _clock(project: Project, lineage: _Lineage) -> str:
    """Compare this clock with that of the file system and with the newest lineage event."""
    import tempfile
    import time
    from datetime import UTC, datetime, timedelta

    hint = "Set the clocks of both machines by a time server (NTP)."
    try:
        with tempfile.NamedTemporaryFile(dir=project.root) as file:
            off = Path(file.name).stat().st_mtime - time.time()
    except OSError as error:
        raise EnvironmentMissingError(
            f"{project.root} cannot be written: {error.strerror}",
            hint="Run as somebody who may write there.",
        ) from error
    if abs(off) > _CLOCK_SLACK:
        raise EnvironmentMissingError(
            f"the clock of the file system is {off:+.0f} s off this one", hint=hint
        )
    newest = lineage().taken_at
    ahead = newest - datetime.now(UTC) if newest is not None else timedelta()
    if ahead > timedelta(seconds=_EVENT_SLACK):
        raise EnvironmentMissingError(
            f"the newest lineage is {ahead.total_seconds():.0f} s in the future", hint=hint
        )
    return "right beside the file system and the lineage"


def _permissions(project: Project, lineage: _Lineage, plan: Plan | None) -> str:
    """Look whether what is to be written may be written, and what is to be read may be read.

    Of a plan it is known which table is which; else all need only be readable.
    """
    import os

    places = {project.root / ".lineage-backfill": os.W_OK, project.outbox: os.W_OK}
    if plan is None:
        declared = project.declarations.datasets
        needs = {one.location: os.R_OK for one in declared if one.location or one.table}
    else:
        needs = _needs(project, lineage, plan, reading=os.R_OK, writing=os.R_OK | os.W_OK)
    elsewhere = 0
    for location, mode in needs.items():
        if location is None or "://" in location:
            elsewhere += 1
        else:
            places.setdefault(Path(location), mode)
    for place, mode in places.items():
        there = next(path for path in (place, *place.parents) if path.exists())
        if not os.access(there, mode | os.X_OK):
            word = "written" if mode & os.W_OK else "read"
            raise EnvironmentMissingError(
                f"{there} may not be {word}", hint="Run as somebody who may, or give the right."
            )
    unseen = f"; {elsewhere} tables lie elsewhere, where only a run can tell" if elsewhere else ""
    return f"{len(places)} folders are as they should be{unseen}"


def _needs(
    project: Project, lineage: _Lineage, plan: Plan, *, reading: int, writing: int
) -> dict[str | None, int]:
    """Return the places of a plan's tables, and what is to be done there."""
    from lineage_backfill.workspace import tables_of

    location = tables_of(project, lineage())
    runs = plan.runs or ()
    needs = {location(part.dataset): reading for run in runs for part in run.reads}
    return needs | {location(part.dataset): writing for run in runs for part in run.writes}


def _java() -> str:
    import os
    import re
    import shutil
    import subprocess

    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    hint = f"Install a JDK {_JAVA} or later, and let JAVA_HOME or PATH lead to it."
    if java is None:
        raise EnvironmentMissingError(f"none in {home or 'PATH'}", hint=hint)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _JAVA:
        raise EnvironmentMissingError(f"{java} is not Java {_JAVA} or later", hint=hint)
    return f"{java}: Java {version[1]}"


def _spark() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"pyspark {version('pyspark')}, delta-spark {version('delta-spark')}"
    except PackageNotFoundError as error:
        raise EnvironmentMissingError(
            f"{error.name} is not installed", hint="pip install 'lineage-backfill[spark]'"
        ) from error


def _jars() -> str:
    from lineage_backfill.engines.runtime import find_jars

    found = find_jars()
    return f"{len(found)} jars, as {found[0]}"


def _emit(checks: list[Check]) -> None:
    from dataclasses import asdict

    from lineage_backfill.presentation import documents

    documents.emit(
        {"schema_version": 1, "kind": "doctor", "checks": [asdict(one) for one in checks]}
    )


def _print(checks: list[Check]) -> None:
    from rich.text import Text

    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.render import table
    from lineage_backfill.presentation.text import safe

    rows = table("", "Check", "Found")
    for one in checks:
        found = Text(safe(one.detail))
        if one.fix:
            found.append(f"\n{safe(one.fix)}", style="yellow")
        mark = Text("✓", style="green") if one.ok else Text("✗", style="red")
        rows.add_row(mark, one.name, found)
    terminal.out().print(rows)
