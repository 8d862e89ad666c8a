"""`doctor`: checks everything that a backfill needs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.cli.output.grid import Grid, mark, table
from lineage_backfill.cli.planning import load_plan
from lineage_backfill.engines.runtime import find_jars, find_java
from lineage_backfill.errors import BackfillError, EnvironmentMissingError
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.plans.plan import Plan
from lineage_backfill.project.declarations import SPARK_ENGINES
from lineage_backfill.show.names import keys_on_a_line
from lineage_backfill.show.plans import lost_in_words
from lineage_backfill.show.text import counted, safe
from lineage_backfill.workspace.configuration import lineage_origin
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

_JAVA = 17
_MANY = 10  # times as many rows copied as replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check; `fix` says how to fix it, and is empty if it passed.

    One that is not `checked` had nothing to look into, and did not fail.
    """

    name: str
    detail: str
    fix: str = ""
    ok: bool = True
    checked: bool = True


class _NotChecked(str):
    """Why a check had nothing to look into."""

    __slots__ = ()


@takes_options
def doctor(
    source: SourceOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A saved plan: check only the tables that it reads and writes.",
            metavar="PLAN.json",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check lineage, run store, tables, engines, Java, Spark; show how to fix each."""
    workspace = source.open()
    checks = _Doctor(workspace, None if file is None else load_plan(file)).checks()
    document = {"schema_version": 1, "kind": "doctor", "checks": [asdict(one) for one in checks]}
    terminal.show(document, lambda _: _table(checks), as_json=as_json)
    if not all(one.ok for one in checks):
        raise typer.Exit(1)


class _Doctor:
    """Checks a workspace, or only what one plan needs."""

    def __init__(self, workspace: Workspace, plan: Plan | None) -> None:
        self._workspace = workspace
        self._project = workspace.project
        self._planning = Planning(workspace)
        self._plan = plan
        self._runs = () if plan is None else plan.runs or ()

    def checks(self) -> list[Check]:
        """Run the checks one after the other."""
        of_plan: dict[str, Callable[[], str]] = {}
        if self._plan is not None:
            of_plan = {
                "plan": self._check_plan,
                "retention": self._check_retention,
                "inputs": self._check_inputs,
            }
        every: dict[str, Callable[[], str]] = {
            "project": self._check_project,
            "lineage": self._check_lineage,
            "store": self._check_store,
            **of_plan,
            "tables": self._check_tables,
            **self._check_engines(),
            **self._check_runtime(),
        }
        return [_check(name, check) for name, check in every.items()]

    def _check_project(self) -> str:
        project = self._project
        if project.file is None:
            raise EnvironmentMissingError(
                f"no lineage-backfill.toml in {project.root} or above",
                hint="Without it, only planning with defaults works; name one with --config.",
            )
        declared = project.declarations
        datasets = counted(len(declared.datasets), "dataset")
        jobs = counted(len(declared.jobs), "job")
        target = f", target {project.target}" if project.target else ""
        return f"{project.file}{target}: {datasets}, {jobs} declared"

    def _check_lineage(self) -> str:
        snapshot = self._workspace.snapshot
        origin = lineage_origin(self._project)
        if not origin:
            return _NotChecked("no lineage is named; only the project counts")
        parts = [counted(len(snapshot.jobs), "job"), counted(len(snapshot.datasets), "dataset")]
        if snapshot.warnings:
            parts.append(counted(len(snapshot.warnings), "warning"))
        return ", ".join([*parts, origin])

    def _check_store(self) -> str:
        with self._workspace.open_store() as store:
            return counted(len(store.backfills()), "backfill")

    def _check_plan(self) -> str:
        """Check whether the plan can still be run unchanged."""
        assert self._plan is not None
        self._planning.check(self._plan)
        runs = self._plan.totals["runs"]
        return f"{runs} runs; lineage and declarations are unchanged"

    def _check_retention(self) -> str:
        """Check whether every table still holds the partitions that the plan reads."""
        assert self._plan is not None
        lost = self._planning.lost_reads(self._plan)
        if lost:
            keys = "; ".join(f"{dataset} {keys_on_a_line(keys)}" for dataset, keys in lost.items())
            raise EnvironmentMissingError(
                f"read by the plan, but past retention: {keys}",
                hint="Restore them, or make a new plan: it leaves out the runs that need them.",
            )
        if not any(declared.retention for declared in self._project.declarations.datasets):
            return _NotChecked("no dataset declares a retention")
        return "every partition that it reads is within the declared retention"

    def _check_inputs(self) -> str:
        """Check whether every input partition that the plan needs was ever written."""
        assert self._plan is not None
        lost = self._planning.missing_reads(self._plan)
        if failing := [one for one in lost if one.failing]:
            raise EnvironmentMissingError(
                "; ".join(map(lost_in_words, failing[:3])) + _more(failing[2:]),
                hint='Write them first; to read them as empty, declare on_missing = "read" in'
                " [[job.reads]].",
            )
        if lost:
            return "; ".join(map(lost_in_words, lost[:3]))
        read = {part.dataset for run in self._runs for part in run.reads}
        known = read.intersection(self._planning.known_inputs(self._plan))
        unread = listed(sorted(read - known), 3)
        if not known:
            return _NotChecked(f"no log of {unread} is known" if unread else "it reads nothing")
        rest = f"; {unread} not checked: their logs are not known" if unread else ""
        return f"every partition that it needs of {counted(len(known), 'table')} was written{rest}"

    def _check_tables(self) -> str:
        """Read the log of every declared Delta table that a job (of the plan) reads or writes."""
        jobs = None if self._plan is None else {run.job for run in self._runs}
        tables = self._planning.read_logs(jobs)
        unknown, unplaced = dict(tables.unknown), 0
        for ref in set(unknown) - self._used_by_spark():
            declared = self._workspace.resolver.dataset_declaration(ref)
            if declared is None or declared.location is declared.table is None:
                del unknown[ref]
                unplaced += 1
        if unknown:
            name, why = min(unknown.items())
            raise EnvironmentMissingError(
                f"{len(tables.known)} of {len(tables.known) + len(unknown)} can be read;"
                f" not {name}: {why}" + _more(unknown),
                hint="Declare or correct its `location` and `columns`; `stale --json` names them"
                " all.",
            )
        cut = [one.since for one in tables.known.values() if one.since is not None]
        reach = f"; the logs reach back to {terminal.moment(max(cut))}" if cut else ""
        rest = f"; {unplaced} without a declared location were not checked" if unplaced else ""
        found = f"{counted(len(tables.known), 'table')} can be read{reach}{rest}"
        written = self._workspace.resolver.edges.writers
        for ref, one in tables.known.items():
            if one.copied >= _MANY and written.get(ref):
                found += (
                    f"; to replace a key of {ref}, about {one.copied:,} times its rows are copied:"
                    " set delta.enableDeletionVectors, or cluster it by its time"
                )
        return found if tables.known else _NotChecked(found)

    def _check_engines(self) -> dict[str, Callable[[], str]]:
        """Return a check for each engine that is a service."""

        def check(name: str, url: str, noun: str) -> str:
            jobs: list[JobRef] = []
            with suppress(BackfillError):  # the check of the lineage reports it
                jobs = self._jobs_on({name})
            with self._workspace.open_engines([name]) as engines:
                engine: Any = engines[name]
                engine.open()
                for job in jobs:
                    engine.examine(job)
            return f"{url} answers and accepts this account; it has {counted(len(jobs), noun)}"

        return {
            f"engine {one.name}": partial(check, one.name, str(place), noun)
            for one in self._project.declarations.engines
            for kind, place, noun in (
                ("airflow", one.settings.get("url"), "task"),
                ("databricks", one.settings.get("host", "Databricks"), "job"),
            )
            if one.kind == kind
        }

    def _check_runtime(self) -> dict[str, Callable[[], str]]:
        """Return the checks of Spark on this machine, if a job needs it."""
        needed = True
        with suppress(BackfillError):  # the check of the lineage reports it
            needed = bool(self._spark_jobs())
        if not needed:
            return {"spark": lambda: _NotChecked("no declared job runs on Spark from here")}
        return {"java": _check_java, "spark": _check_spark, "jars": _check_jars}

    def _spark_jobs(self) -> list[JobRef]:
        declared = self._project.declarations.engines
        return self._jobs_on({one.name for one in declared if one.kind in SPARK_ENGINES})

    def _jobs_on(self, engines: Collection[str]) -> list[JobRef]:
        """Return the jobs (of the plan) that some engines run."""
        resolver = self._workspace.resolver
        jobs = resolver.edges.jobs if self._plan is None else {run.job for run in self._runs}
        declared = ((job, resolver.job_declaration(job)) for job in jobs)
        return [job for job, one in declared if one and one.engine in engines]

    def _used_by_spark(self) -> set[DatasetRef]:
        edges = self._workspace.resolver.edges
        return {
            ref for job in self._spark_jobs() for ref in (*edges.reads(job), *edges.writes(job))
        }


def _check(name: str, check: Callable[[], str]) -> Check:
    try:
        detail = check()
        return Check(name=name, detail=detail, checked=not isinstance(detail, _NotChecked))
    except BackfillError as error:
        return Check(name=name, detail=error.message, fix=error.hint, ok=False)


def _more(found: Any) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def _check_java() -> str:
    java = find_java(os.environ)
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', printed)
    if found is None or int(found[1]) < _JAVA:
        raise EnvironmentMissingError(
            f"{java} is not Java {_JAVA} or later",
            hint=f"Install a JDK {_JAVA} or later, and set JAVA_HOME or PATH.",
        )
    return f"{java}: Java {found[1]}"


def _check_spark() -> str:
    try:
        return f"pyspark {version('pyspark')}, delta-spark {version('delta-spark')}"
    except PackageNotFoundError as error:
        raise EnvironmentMissingError(
            f"{error.name} is not installed", hint="pip install 'lineage-backfill[spark]'"
        ) from error


def _check_jars() -> str:
    found = find_jars()
    return f"{len(found)} jars, as {found[0]}"


def _table(checks: list[Check]) -> Grid:
    def found(one: Check) -> Text:
        text = Text(safe(one.detail))
        return text.append(f"\n{safe(one.fix)}", style="yellow") if one.fix else text

    rows = ((mark(one.ok if one.checked else None), one.name, found(one)) for one in checks)
    return table("", "Check", "Found", rows=rows)
