"""`doctor`: whether everything that a backfill needs is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import BackfillError, EnvironmentMissingError

if TYPE_CHECKING:
    from lineage_backfill.config import Project

_JAVA = 17
_JARS = """
import sys
from spark_runtime.errors import RuntimeFailure
from spark_runtime.session import find_jars
try:
    print(*find_jars(), sep="\\n")
except RuntimeFailure as error:
    sys.exit(error.message)
"""


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(doctor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at; `fix` says how to mend it, empty where all is well."""

    name: str
    detail: str
    fix: str = ""
    ok: bool = True


@takes_options
def doctor(source: SourceOptions, as_json: JsonOption = False) -> None:
    """Check Java, Spark, its jars, the lineage and the run store; say how to mend what is not."""
    project = source.open()
    looks: dict[str, Callable[[], str]] = {
        "project": partial(_project, project),
        "lineage": partial(_lineage, project),
        "store": partial(_store, project),
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


def _lineage(project: Project) -> str:
    from lineage_backfill.app import read_lineage

    snapshot = read_lineage(project)
    warned = f", {len(snapshot.warnings)} warnings" if snapshot.warnings else ""
    return f"{len(snapshot.jobs)} jobs, {len(snapshot.datasets)} datasets{warned}"


def _store(project: Project) -> str:
    from lineage_backfill.app import open_store

    with open_store(project) as store:
        return f"{len(store.backfills())} backfills"


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
    import subprocess
    import sys

    # In a process of its own, as the workers are: the tool itself imports nothing of Spark's side.
    found = subprocess.run(
        [sys.executable, "-c", _JARS], capture_output=True, text=True, check=False
    )
    if found.returncode:
        said = found.stderr.strip().splitlines()[-1]
        raise EnvironmentMissingError(said, hint="Run scripts/fetch-jars once.")
    return f"{len(found.stdout.split())} jars, as {found.stdout.splitlines()[0]}"


def _emit(checks: list[Check]) -> None:
    from dataclasses import asdict

    from lineage_backfill.cli import documents

    documents.emit(
        {"schema_version": 1, "kind": "doctor", "checks": [asdict(one) for one in checks]}
    )


def _print(checks: list[Check]) -> None:
    from rich.text import Text

    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.render import table

    rows = table("", "Check", "Found")
    for one in checks:
        found = Text(terminal.safe(one.detail))
        if one.fix:
            found.append(f"\n{terminal.safe(one.fix)}", style="yellow")
        mark = Text("✓", style="green") if one.ok else Text("✗", style="red")
        rows.add_row(mark, one.name, found)
    terminal.out().print(rows)
