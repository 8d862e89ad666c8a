"""Opens what a project names: its run store, its engines and the functions of its code."""

from __future__ import annotations

import getpass
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lineage_backfill.errors import (
    DeclarationError,
)
from lineage_backfill.project import Project
from lineage_backfill.workspace.configuration import load_project

if TYPE_CHECKING:
    from lineage_backfill.model import JobRef
    from lineage_backfill.partitions.text import KeySet
    from lineage_backfill.ports import (
        Engine,
        RunStore,
    )


_log = logging.getLogger(__name__)
_SQLITE = "sqlite:///"


def open_project(
    file: Path | None = None,
    *,
    search: bool = True,
    events: Sequence[str] | None = None,
    marquez: str | None = None,
    snapshot: Path | None = None,
    view: str | None = None,
) -> Project:
    """Return the project of `file`, or the one found upward; the lineage given comes first.

    Without `file` and `search` it is one without a file. Raises ConfigError or DeclarationError.
    """
    flags = {
        "lineage.events": list(events) if events else None,
        "lineage.marquez": marquez,
        "lineage.snapshot": snapshot and str(snapshot),
        "lineage.view": view,
    }
    project = load_project(file=file, search=search, flags=flags)
    _log.info("project file: %s", project.file or "none")
    return project


def log_time(began: float, what: str) -> None:
    """Log what was done since `began`, an instant of the monotonic clock."""
    _log.info("%s, in %.2f s", what, time.monotonic() - began)


def spark_conf(project: Project) -> Mapping[str, object]:
    """Return the Spark settings of the first engine that has any."""
    for engine in project.declarations.engines:
        conf = engine.settings.get("conf")
        if isinstance(conf, Mapping):
            return conf
    return {}


def reading(project: Project, store: RunStore | None) -> AbstractContextManager[RunStore]:
    """Use a store that is open already and leave it so, or open the project's."""
    return nullcontext(store) if store is not None else open_store(project)


def sqlite_file(project: Project) -> Path | None:
    """Return the file of the run store; None where a service has it."""
    if not project.store_url.startswith(_SQLITE):
        return None
    return Path(project.store_url.removeprefix(_SQLITE))


@contextmanager
def open_store(
    project: Project, *, create: bool = False, read_only: bool = False
) -> Iterator[RunStore]:
    """Open the project's run store, and close it in the end; raises StoreError.

    A SQLite file that is not there is made only to `create`; else the store is an empty one. One
    that is `read_only` is not upgraded either.
    """
    file = sqlite_file(project)
    store: RunStore
    if create or file is None or file.exists():
        from lineage_backfill.store.sql import SqlRunStore

        began = time.monotonic()
        store = SqlRunStore(project.store_url, read_only=read_only)
        log_time(began, "run store opened")
    else:
        from lineage_backfill.store.empty import EmptyRunStore

        store = EmptyRunStore()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_engines(
    project: Project, names: Collection[str | None] | None = None
) -> Iterator[dict[str, Engine]]:
    """Make the project's engines, or those named, and close them in the end.

    PartitionBuild one starts nothing yet; raises ConfigError for settings that do not fit.
    """
    from lineage_backfill.engines import create_engine
    from lineage_backfill.project.declarations import SPARK_ENGINES

    with ExitStack() as stack:
        engines = {}
        for declared in project.declarations.engines:
            if names is not None and declared.name not in names:
                continue
            settings: dict[str, Any] = dict(declared.settings)
            if declared.kind in SPARK_ENGINES:
                settings["conf"] = {**project.spark, **settings.get("conf", {})}
            engine = create_engine(
                declared.kind, settings, project=project.code, state_dir=state_dir(project)
            )
            stack.callback(engine.close)
            engines[declared.name] = engine
        yield engines


def live_by_engine(
    project: Project, engines: Mapping[str, Engine]
) -> Mapping[str, Callable[[JobRef], KeySet | None]]:
    """Return what tells the keys of a job that others run, by the names of engines that know.

    A program that the project file names for it comes before what the engine itself knows. Raises
    ConfigError where such a program is not rightly named.
    """
    from lineage_backfill.engines.live import LiveCommand

    named: dict[str, Callable[[JobRef], KeySet | None]] = {
        one.name: LiveCommand(one.name, one.live, project.root)
        for one in project.declarations.engines
        if one.live
    }
    return {name: engine.live for name, engine in engines.items()} | named


def state_dir(project: Project) -> Path:
    """Return the folder of what backfills leave behind."""
    return project.root / ".lineage-backfill"


def code_version(root: Path) -> str:
    """Return the commit of the project's code, marked if it was changed since; empty if unknown."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()[:200]


def functions_of(project: Project) -> dict[str, Callable[[Any], Any]]:
    """Load the functions that `python` mappings name, from the project's code."""
    names = {read.function for job in project.declarations.jobs for read in job.reads}
    functions = {}
    for name in sorted(name for name in names if name):
        module, _, attribute = name.partition(":")
        if str(project.code) not in sys.path:
            sys.path.insert(0, str(project.code))
        try:
            functions[name] = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise DeclarationError(
                f"the mapping function {name} cannot be loaded: {error}",
                hint=f"It is looked for below {project.code}.",
            ) from error
    return functions


def account() -> str:
    """Return the name of the account that runs this; empty where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in containers
        return ""
