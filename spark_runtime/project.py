"""The project file, as far as a run needs it that starts without a run spec.

The tool checks the whole file; here only what is read is checked. Settings come from the
environment first (`LINEAGE_BACKFILL_LINEAGE_OUTBOX`), as they do for the tool.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lineage_backfill.model import DatasetRef
from spark_runtime.datasets import (
    Calendar,
    Dataset,
    Dimension,
    EdgeMapping,
    Read,
    Shape,
    Write,
    shape,
)
from spark_runtime.errors import DeclarationError

FILE_NAME = "lineage-backfill.toml"
ENV_PREFIX = "LINEAGE_BACKFILL_"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_GLOB = re.compile(r"[*?\[]")
#: What is said of an output beside its name.
WRITE = ("mode", "on_empty", "on_drift", "lookback")
#: What each member of a table must be; others are not ours to read.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("grain", "cron", "every", "zone", "name", "namespace", "column"), str),
    **dict.fromkeys(("format", "location", "table", "mapping", *WRITE[:3]), str),
    **dict.fromkeys(("entrypoint", "dataset", "output", "newest_by"), str),
    **dict.fromkeys(("data_lag", "before", "after", "by", "lookback", "retention"), int),
    **dict.fromkeys(("columns", "map", "inputs"), dict),
    **dict.fromkeys(("start", "end"), (str, date)),
    "dimensions": (list, dict),
    "keys": (str, list),
    **dict.fromkeys(("reads", "writes", "merge_on", "ignore"), list),
}
_CALENDAR = ("grain", "cron", "every", "keys", "zone", "start", "end", "data_lag")


@dataclass(frozen=True, kw_only=True)
class JobTable:
    """What the project file says of one job."""

    name: DatasetRef
    entrypoint: str | None = None
    shape: Shape | None = None
    reads: Sequence[Read] = ()
    writes: Sequence[Write] = ()


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project file, or none at all: bare names are then of the namespace "default".

    `code` is the folder that jobs are imported from, `outbox` the one for lineage events, `url` an
    endpoint to send them to.
    """

    root: Path
    document: Mapping[str, Any]
    namespace: str
    zone: str
    code: Path
    outbox: Path | None
    url: str | None

    def dataset(self, named: Dataset | str) -> Dataset:
        """Return a dataset as the file declares it, else as the job does; exact names beat globs.

        Raises DeclarationError where neither says anything.
        """
        text = str(named)
        given = named if isinstance(named, Dataset) else None
        tables = list(self._tables("dataset"))
        exact = [(table, place) for table, place in tables if self._is_named(table, text)]
        globs = [(table, place) for table, place in tables if self._fits(table, text)]
        for table, place in (exact or globs)[:1]:
            name = table["name"] if exact else text
            return self._dataset({**table, "name": name}, place)
        if given is None:
            raise DeclarationError(
                f"dataset {text!r} is not declared",
                hint=f"declare it in {FILE_NAME}: [[dataset]] name = {text!r}, or give the job a "
                "Dataset",
            )
        return replace(given, namespace=given.namespace or self.namespace)

    def job(self, named: str) -> JobTable | None:
        """Return what the file says of a job, by its name or its entrypoint."""
        for table, place in self._tables("job"):
            if self._is_named(table, named) or table.get("entrypoint") == named:
                return self._job(table, place)
        return None

    def spark_conf(self) -> dict[str, str]:
        """Return Spark's own settings; their names may leave `spark.` out."""
        conf: dict[str, str] = {}
        todo = list(self.document.get("spark", {}).items())
        while todo:
            name, value = todo.pop()
            if isinstance(value, dict):
                todo += [(f"{name}.{inner}", part) for inner, part in value.items()]
            else:
                name = name if name.startswith("spark.") else f"spark.{name}"
                conf[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return conf

    def _tables(self, name: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        for number, table in enumerate(self.document.get(name, ()), 1):
            named = table.get("name") if isinstance(table, dict) else None
            place = f"[[{name}]] {named or number}"
            yield checked(table, place), place

    def _is_named(self, table: Mapping[str, Any], text: str) -> bool:
        name = DatasetRef(table.get("namespace") or self.namespace, table.get("name", ""))
        return name.matches(text)

    def _fits(self, table: Mapping[str, Any], text: str) -> bool:
        name = table.get("name", "")
        return bool(_GLOB.search(name)) and fnmatchcase(text, name)

    def _dataset(self, table: Mapping[str, Any], place: str) -> Dataset:
        location = table.get("location")
        if location is not None and not _SCHEME.match(location):
            location = str((self.root / Path(location).expanduser()).resolve())
        return Dataset(
            table["name"],
            **self._calendar(table),
            namespace=table.get("namespace") or self.namespace,
            dimensions=self._dimensions(table, place),
            column=table.get("column"),
            columns=table.get("columns", {}),
            format=table.get("format", "delta"),
            location=location,
            table=table.get("table"),
            retention=table.get("retention"),
        )

    def _job(self, table: Mapping[str, Any], place: str) -> JobTable:
        def edges(name: str) -> Iterator[Mapping[str, Any]]:
            return (checked(edge, place) for edge in table.get(name, ()))

        dimensions = self._dimensions(table, place)
        calendar = Calendar(**self._calendar(table))
        declared = dimensions or calendar.is_time or calendar.keys or calendar.grain
        return JobTable(
            name=DatasetRef(table.get("namespace") or self.namespace, table["name"]),
            entrypoint=table.get("entrypoint"),
            shape=shape(calendar, dimensions, place) if declared else None,
            reads=[read_edge(edge, place) for edge in edges("reads")],
            writes=[Write(_name(edge), **members(edge, *WRITE)) for edge in edges("writes")],
        )

    def _dimensions(self, table: Mapping[str, Any], place: str) -> tuple[Dimension, ...]:
        parts = [checked(part, place) for part in table.get("dimensions", ())]
        return tuple(
            Dimension(part["name"], **self._calendar(part), column=part.get("column"))
            for part in parts
        )

    def _calendar(self, table: Mapping[str, Any]) -> dict[str, Any]:
        values = members(table, *_CALENDAR)
        for name in ("start", "end"):
            if name in values:
                values[name] = _label(values[name])
        if values.get("keys") == ["runtime"]:
            values["keys"] = "runtime"
        return {"zone": self.zone, **values}


def is_meant(name: DatasetRef, text: str) -> bool:
    """Whether `text` is this name, bare or with its namespace, or a glob that it fits."""
    return name.matches(text) or (bool(_GLOB.search(text)) and fnmatchcase(name.name, text))


def load_project(start: Path, file: Path | None = None) -> Project:
    """Return the project that a folder belongs to: `file`, or the one found from there upward.

    Raises DeclarationError where the file cannot be read.
    """
    found = file or _find(start.absolute())
    document = {} if found is None else _document(found)
    root = found.parent.absolute() if found else start.absolute()

    def setting(table: str, name: str, default: str | None = None) -> str | None:
        value = os.environ.get(f"{ENV_PREFIX}{table}_{name}".upper())
        return value or document.get(table, {}).get(name, default)

    outbox = setting("lineage", "outbox", ".lineage-backfill/lineage" if found else None)
    return Project(
        root=root,
        document=document,
        namespace=setting("project", "namespace") or "default",
        zone=setting("project", "zone") or "UTC",
        code=root / (setting("project", "code") or "."),
        outbox=root / outbox if outbox else None,
        url=setting("lineage", "marquez") or os.environ.get("OPENLINEAGE_URL"),
    )


def _find(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        pyproject = folder / "pyproject.toml"
        if pyproject.is_file() and _document(pyproject):
            return pyproject
    return None


def _document(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{file} cannot be read: {error}") from error
    if file.name == "pyproject.toml":
        ours: dict[str, Any] = document.get("tool", {}).get("lineage-backfill", {})
        return ours
    return document


def checked(table: Any, place: str) -> Mapping[str, Any]:
    """Return a table whose members are of the kinds that they must be; raises DeclarationError."""
    if not isinstance(table, dict):
        raise DeclarationError(f"{place}: a table is expected, not {table!r:.80}")
    for name, value in table.items():
        kind = _KINDS.get(name)
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise DeclarationError(f"{place}: `{name}` cannot be {value!r:.80}")
    return table


def members(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return those of the named members that a table has."""
    return {name: table[name] for name in names if name in table}


def _name(edge: Mapping[str, Any]) -> str:
    name = str(edge.get("dataset", ""))
    return f"{edge['namespace']}:{name}" if "namespace" in edge else name


def read_edge(edge: Any, place: str) -> Read:
    """Return an input as a table declares it; raises DeclarationError naming the place."""
    return Read(_name(checked(edge, place)), _mapping(edge, place))


def _mapping(edge: Any, place: str) -> EdgeMapping:
    edge = checked(edge, place)
    values = members(edge, "mapping", "before", "after", "by", "map")
    parts = edge.get("dimensions", {})
    dimensions = {name: _mapping(part, place) for name, part in parts.items()}
    return EdgeMapping(**values, dimensions=dimensions)


def _label(value: str | date) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H" if value.time() == time(value.hour) else "%FT%R")
    return value if isinstance(value, str) else value.isoformat()
