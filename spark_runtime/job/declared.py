"""Reads what the code of a project declares, without Spark and without running a job.

The tables are those of the project file. PySpark and Delta are not imported: a module that uses
them gets stand-ins, as no body runs.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from lineage_backfill.errors import BackfillError
from lineage_backfill.partitions.lengths import Span
from lineage_backfill.project.declarations import DimensionMapping, ReadDeclaration
from spark_runtime.errors import EntrypointError
from spark_runtime.job.datasets import DEFAULT, Calendar, Dataset, Read, Write, dimension_tables
from spark_runtime.job.decorator import JobDefinition, definition_of
from spark_runtime.job.query import Query, load_query

_STOOD_IN = ("pyspark", "delta")


def declared(entries: Iterable[str], root: Path) -> dict[str, Any]:
    """Return the `job` and `dataset` tables of modules, packages and SQL files below `root`.

    A package counts with all its modules; an entry with "/" is a SQL file, or a folder of them.
    `files` are the project's files that were read, relative to `root`. Raises EntrypointError for
    an entry whose code fails.
    """
    sys.meta_path.insert(0, cast("Any", _StandIns()))
    jobs: list[dict[str, Any]] = []
    datasets: dict[str, dict[str, Any]] = {}
    files: set[Path] = set()
    for entry in dict.fromkeys(entries):
        found = _found(entry, root, files)
        for name, entrypoint, job in found:
            table = _job_table(name, entrypoint, job)
            if table not in jobs:
                jobs.append(table)
            edges: list[Read | Write] = [*job.reads, *job.writes]
            for dataset in (edge.dataset for edge in edges):
                if isinstance(dataset, Dataset):
                    datasets[str(dataset)] = _dataset_table(dataset)
    paths = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files |= {Path(path).resolve() for path in paths if path}
    inside = [path.relative_to(root).as_posix() for path in files if path.is_relative_to(root)]
    return {"job": jobs, "dataset": list(datasets.values()), "files": sorted(inside)}


def write_declared(entries: Sequence[str], root: Path, result: Path) -> int:
    """Write what these entries declare to a file of JSON; a failure names the entry."""
    document: dict[str, Any]
    try:
        document = declared(entries, root)
    except BackfillError as error:
        document = {"error": error.full_text}
    result.write_text(json.dumps(document), encoding="utf-8")
    return 0


def _found(
    entry: str, root: Path, files: set[Path]
) -> list[tuple[str, str, JobDefinition | Query]]:
    try:
        return list(_jobs(entry, root, files))
    except BackfillError as error:
        raise EntrypointError(f"{entry}: {error.message}", hint=error.hint) from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        raise EntrypointError(f"{entry}: {why}") from error


def _jobs(
    entry: str, root: Path, files: set[Path]
) -> Iterator[tuple[str, str, JobDefinition | Query]]:
    """Yield the name, the entrypoint and the definition of each job of an entry."""
    if "/" in entry or entry.endswith(".sql"):
        path = root / entry
        for file in sorted(path.rglob("*.sql")) if path.is_dir() else [path]:
            query = load_query(file)
            files.add(file.resolve())
            if query.writes:
                yield file.stem, file.relative_to(root).as_posix(), query
        return
    for module in _modules(entry):
        for name, value in vars(module).items():
            definition = definition_of(value)
            if definition is not None and value.__module__ == module.__name__:
                yield name, f"{module.__name__}:{name}", definition


def _modules(name: str) -> Iterator[ModuleType]:
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        yield importlib.import_module(found.name)


def _job_table(name: str, entrypoint: str, job: JobDefinition | Query) -> dict[str, Any]:
    calendar: Any = job.calendar
    table: dict[str, Any] = {"name": name, "entrypoint": entrypoint}
    if isinstance(calendar, Calendar):
        table |= calendar.table_values()
    elif calendar is not None:
        table["dimensions"] = dimension_tables(calendar)
    if job.batch != "key":
        table["batch"] = job.batch
    if job.depends_on_past is not None:
        table["depends_on_past"] = job.depends_on_past
    table["reads"] = [_read_table(read) for read in job.reads]
    table["writes"] = [_write_table(write) for write in job.writes]
    return table


def _read_table(read: Read) -> dict[str, Any]:
    table = {"dataset": str(read.dataset)}
    if read.how != DEFAULT:
        table |= _stated(read.how, replace(DEFAULT, dataset=read.how.dataset))
    return table


def _write_table(write: Write) -> dict[str, Any]:
    return _stated(write, Write(write.dataset)) | {"dataset": str(write.dataset)}


def _stated(one: ReadDeclaration | DimensionMapping | Write, plain: Any) -> dict[str, Any]:
    """Return the members that differ from those of a declaration that states nothing."""
    names = (each.name for each in fields(one) if each.name not in ("dataset", "namespace"))
    given = {name: getattr(one, name) for name in names}
    return {name: _plain(value) for name, value in given.items() if value != getattr(plain, name)}


def _plain(value: Any) -> Any:
    if isinstance(value, DimensionMapping):
        plain = DimensionMapping(mapping="overlap")
        return {"mapping": value.mapping} | _stated(replace(value), plain)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Span):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _dataset_table(dataset: Dataset) -> dict[str, Any]:
    return dataset.stated() | {"name": dataset.name}


class _StandIns:
    """Finds PySpark and Delta as modules in which each name is a stand-in."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if name.partition(".")[0] not in _STOOD_IN:
            return None
        return ModuleSpec(name, cast("Any", self), is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return


class _StandIn(ModuleType):
    """A module, class, function or value; what it gives are stand-ins, too."""

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn(f"{self.__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def _same(self, *_: Any) -> Any:
        return self

    __getitem__ = __or__ = __ror__ = __and__ = __rand__ = __invert__ = __neg__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __gt__ = _same
    __lt__ = __ge__ = __le__ = __mod__ = __rtruediv__ = _same
