"""What Delta tables hold, as `python -m spark_runtime` reads it from their logs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from lineage_backfill.errors import TableLogError
from lineage_backfill.ports import TableChanges, TableCommit, TableHistory, TablePartition

COMMAND = (sys.executable, "-m", "spark_runtime")


class DeltaTableLogs:
    """Asks a process of its own, as all that is known of tables is known to `spark_runtime`.

    `conf` holds Spark settings, for tables that are named in a catalog.
    """

    def __init__(
        self, *, conf: Mapping[str, object] | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self._command = tuple(command)
        self._settings = [f"--conf={name}={value}" for name, value in (conf or {}).items()]

    def changes(
        self,
        *,
        location: str | None,
        table: str | None,
        after: int | None = None,
        since: datetime | None = None,
    ) -> TableChanges:
        """Return what changed; raises TableLogError."""
        place = f"--table={table}" if location is None else f"--location={location}"
        start = f"--after={after}" if since is None else f"--since={since.isoformat()}"
        with _readable("changes", location or table):
            document: Mapping[str, Any] = json.loads(self._said("changes", place, start) or "null")
            _refuse(document)
            columns = _columns(document)
            return TableChanges(
                after=document["after"],
                until=document["version"],
                columns=columns,
                partitions=_partitions(document["partitions"], columns),
            )

    def histories(
        self, tables: Sequence[tuple[str | None, str | None]]
    ) -> Sequence[TableHistory | TableLogError]:
        """Return the history of each table, or what is wrong with it; raises TableLogError."""
        if not tables:
            return ()
        asked = json.dumps([{"location": location, "table": table} for location, table in tables])
        named = ", ".join(str(location or table) for location, table in tables[:3])
        with _readable("history", named):
            lines = self._said("history", asked=asked).splitlines()
            return [_history(json.loads(line)) for line, _ in zip(lines, tables, strict=True)]

    def _said(self, verb: str, *arguments: str, asked: str = "") -> str:
        answer = subprocess.run(
            [*self._command, verb, *self._settings, *arguments],
            input=asked,
            capture_output=True,
            text=True,
            check=False,
        )
        return answer.stdout


@contextmanager
def _readable(verb: str, place: str | None) -> Iterator[None]:
    """Make a TableLogError of an answer that cannot be read."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableLogError(
            f"the log of {place} cannot be read: {error}",
            hint=f"See that `python -m spark_runtime {verb} --help` works here.",
        ) from error


def _refuse(document: Mapping[str, Any]) -> None:
    if error := document.get("error"):
        raise TableLogError(error["message"], hint=error["hint"])


def _history(document: Mapping[str, Any]) -> TableHistory | TableLogError:
    try:
        _refuse(document)
    except TableLogError as error:
        return error
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
    )


def _columns(document: Mapping[str, Any]) -> Mapping[str, str]:
    return {column["name"]: column["type"] for column in document["columns"]}


def _partitions(
    partitions: Sequence[Sequence[str | None]], columns: Mapping[str, str]
) -> tuple[TablePartition, ...]:
    return tuple(dict(zip(columns, values, strict=True)) for values in partitions)
