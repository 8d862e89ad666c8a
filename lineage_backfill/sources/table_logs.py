"""Reads table logs with `python -m spark_runtime`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from lineage_backfill.errors import TableLogError
from lineage_backfill.ports import (
    TableChanges,
    TableCommit,
    TableHistory,
    TableLogs,
    TablePartition,
    TablePlace,
)

COMMAND = (sys.executable, "-m", "spark_runtime")


class DeltaTableLogs(TableLogs):
    """Calls `spark_runtime`, which has all code about tables, in a separate process.

    `conf` holds Spark settings, for tables that are named in a catalog. Histories hold how much
    time a file spans only with `spans`, which takes as long as all the rest.
    """

    def __init__(
        self,
        *,
        conf: Mapping[str, object] | None = None,
        spans: bool = False,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._command = tuple(command)
        self._spans = ["--spans"] if spans else []
        self._settings = [f"--conf={name}={value}" for name, value in (conf or {}).items()]

    def changes(
        self, table: TablePlace, *, after: int | None = None, since: datetime | None = None
    ) -> TableChanges:
        place = f"--location={table.location}" if table.location else f"--table={table.table}"
        start = f"--after={after}" if since is None else f"--since={since.isoformat()}"
        by = f"--by={json.dumps(table.by)}"
        with _readable("changes", table.location or table.table):
            answer = self._answer("changes", place, start, by)
            document: Mapping[str, Any] = json.loads(answer or "null")
            _refuse(document)
            columns = _columns(document)
            return TableChanges(
                after=document["after"],
                until=document["version"],
                columns=columns,
                partitions=_partitions(document["partitions"], columns),
            )

    def histories(self, tables: Sequence[TablePlace]) -> Sequence[TableHistory | TableLogError]:
        if not tables:
            return []
        asked = json.dumps([place._asdict() for place in tables])
        named = ", ".join(str(place.location or place.table) for place in tables[:3])
        found: list[TableHistory | TableLogError] = []
        with _readable("history", named):
            lines = self._answer("history", *self._spans, asked=asked).splitlines()
            for line, _ in zip(lines, tables, strict=True):
                document = json.loads(line)
                try:
                    _refuse(document)
                    found.append(_history(document))
                except TableLogError as error:
                    found.append(error)
        return found

    def rows(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return which rows of a partition differ between two versions of a table, by Spark.

        `asked` has the members of RowsRequest in `spark_runtime`. Raises TableLogError.
        """
        with _readable("rows", asked["location"]):
            return _last(self._answer("rows", asked=json.dumps([asked])))

    def rehearse(
        self, asked: Mapping[str, Any], *, project: Path, env: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Return which rows of its outputs a run would change; it writes to clones of them.

        `asked` is the request for `spark_runtime.logs.rehearsal`, `project` the folder of the jobs'
        code and `env` is added to their environment. Raises TableLogError, also if the job fails.
        """
        with _readable("rehearse", "the run"):
            where = {"cwd": project, "env": {**os.environ, **env}}
            asked_for = json.dumps([asked])
            return _last(self._answer("rehearse", f"--project={project}", asked=asked_for, **where))

    def _answer(self, verb: str, *arguments: str, asked: str = "", **where: Any) -> str:
        answer: subprocess.CompletedProcess[str] = subprocess.run(
            [*self._command, verb, *self._settings, *arguments],
            input=asked,
            capture_output=True,
            text=True,
            check=False,
            **where,
        )
        return answer.stdout


@contextmanager
def _readable(verb: str, place: str | None) -> Iterator[None]:
    """Raise a TableLogError for an answer that cannot be read."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableLogError(
            f"the log of {place} cannot be read: {error}",
            hint=f"Check that `python -m spark_runtime {verb} --help` works here.",
        ) from error


def _last(answer: str) -> Mapping[str, Any]:
    """Return the last line of an answer, as a job may have printed before."""
    document: Mapping[str, Any] = json.loads(answer.splitlines()[-1] if answer else "null")
    _refuse(document)
    return document


def _refuse(document: Mapping[str, Any]) -> None:
    if error := document.get("error"):
        raise TableLogError(error["message"], hint=error["hint"])


def _history(document: Mapping[str, Any]) -> TableHistory:
    columns = _columns(document)
    since = document["since"]
    return TableHistory(
        version=document["version"],
        columns=columns,
        commits=tuple(
            TableCommit(
                version=one["version"],
                at=datetime.fromisoformat(one["at"]),
                changed=_partitions(one["changed"], columns),
                made=_partitions(one["made"], columns),
                job=one["job"],
                read=one["read"],
            )
            for one in document["commits"]
        ),
        old=_partitions(document["old"], columns),
        since=None if since is None else datetime.fromisoformat(since),
        whole=document["whole"],
        file_seconds=document["file_seconds"],
    )


def _columns(document: Mapping[str, Any]) -> Mapping[str, str]:
    return {column["name"]: column["type"] for column in document["columns"]}


def _partitions(
    partitions: Sequence[Sequence[str | None]], columns: Mapping[str, str]
) -> tuple[TablePartition, ...]:
    return tuple(dict(zip(columns, values, strict=True)) for values in partitions)
