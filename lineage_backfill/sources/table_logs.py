"""What changed in Delta tables, as `python -m spark_runtime changes` reads it from their logs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lineage_backfill.errors import TableLogError
from lineage_backfill.ports import TableChanges

COMMAND = (sys.executable, "-m", "spark_runtime", "changes")


class DeltaTableLogs:
    """Asks a process of its own, as all that is known of tables is known to `spark_runtime`.

    `conf` holds Spark settings, for tables that are named in a catalog.
    """

    def __init__(
        self, *, conf: Mapping[str, object] | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self._command = [
            *command,
            *(f"--conf={name}={value}" for name, value in (conf or {}).items()),
        ]

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
        try:
            answer = subprocess.run(
                [*self._command, place, start], capture_output=True, text=True, check=False
            )
            document: Mapping[str, Any] = json.loads(answer.stdout or "null")
            if error := document.get("error"):
                raise TableLogError(error["message"], hint=error["hint"])
            columns = {column["name"]: column["type"] for column in document["columns"]}
            return TableChanges(
                after=document["after"],
                until=document["version"],
                columns=columns,
                partitions=tuple(
                    dict(zip(columns, values, strict=True)) for values in document["partitions"]
                ),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableLogError(
                f"the log of {location or table} cannot be read: {error}",
                hint="See that `python -m spark_runtime changes --help` works here.",
            ) from error
