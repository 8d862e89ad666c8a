"""A running Marquez that tests may write to: recorded scenarios are done to it once more.

Every visit writes into namespaces of its own, so that what else the server holds is not touched.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote
from uuid import uuid4

import requests

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.marquez import MarquezSource

#: Names the server, as http://127.0.0.1:5000; without it the tests of a live one are skipped.
ADDRESS = os.environ.get("LINEAGE_BACKFILL_TEST_MARQUEZ_URL", "")


class Visit:
    """What one test writes to the server, and sees of it."""

    def __init__(self) -> None:
        self._suffix = f"-{uuid4().hex[:8]}"
        self._session = requests.Session()
        #: Every event that was posted, under the names that it has there.
        self.posted: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def repeat(self, stage: Any) -> None:
        """Do all the writes of a recorded stage."""
        for write in stage["writes"]:
            if write["method"] == "POST":
                event = self._renamed(stage["events"][write["event"]])
                # A refused event is kept as well, if it was understood.
                self.posted += [event] if self.post(event) in (201, 400) else []
            else:
                path = re.sub("(?<=/namespaces/)[^/]+", self._segment, write["path"])
                answer = self._session.request(write["method"], ADDRESS + path, timeout=60)
                assert answer.ok, (write, answer.text)

    def post(self, event: Any) -> int:
        """Post an event, or a text that is none; return the status."""
        answer = self._session.post(
            f"{ADDRESS}/api/v1/lineage",
            data=(event if isinstance(event, str) else json.dumps(event)).encode(),
            headers={"Content-Type": "application/json"},
            timeout=60,
        )
        return answer.status_code

    def get(self, *path: str) -> Any:
        """Return what the server says of `namespace`, or of what lies below it."""
        address = "/".join((ADDRESS, "api/v1/namespaces", self.namespace, *path))
        answer = self._session.get(address, timeout=60)
        answer.raise_for_status()
        return answer.json()

    @property
    def namespace(self) -> str:
        """A namespace of this visit, for what is in no recording."""
        return f"emitted{self._suffix}"

    def run_spec(self, job: str, day: str, *, reads: list[str], outbox: Path) -> dict[str, Any]:
        """Return the spec of a run that writes the day's partition of the dataset of its name."""
        scope = [{"key": day, "values": {"day": day}}]

        def end(name: str, **more: Any) -> dict[str, Any]:
            dataset = {"namespace": self.namespace, "name": name}
            place = {"format": "delta", "location": f"/nowhere/{name}", "columns": ["day"]}
            return {"dataset": dataset, **place, **more}

        return {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": f"{job}@{day}",
            "attempt": 1,
            "token": f"{job}@{day}",
            "job": {"namespace": self.namespace, "name": job, "entrypoint": "jobs:run"},
            "partitions": [day],
            "keys": [{"key": day, "start": f"{day}T00:00:00Z", "end": f"{day}T23:59:59Z"}],
            "inputs": [end(name, partitions=scope, version=None) for name in reads],
            "outputs": [end(job, scope=scope, mode="overwrite", on_empty="clear")],
            "parameters": {},
            "lineage": {"outbox": str(outbox), "facets": {}},
            "result_path": str(outbox / "result"),
        }

    def read(self) -> LineageSnapshot:
        """Read the whole server, and return what this visit wrote."""
        return self.own(MarquezSource(ADDRESS).read())

    def own(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        """Return the part of a snapshot that lies in the namespaces of this visit."""
        return LineageSnapshot.of(
            [node for ref, node in snapshot.jobs.items() if self._is_own(ref.namespace)],
            [node for ref, node in snapshot.datasets.items() if self._is_own(ref.namespace)],
            column_edges=tuple(e for e in snapshot.column_edges if self._is_own(e.job.namespace)),
            history=tuple(run for run in snapshot.history if self._is_own(run.job.namespace)),
            notices=tuple(one for one in snapshot.notices if self._suffix in str(one)),
        )

    def _is_own(self, namespace: str) -> bool:
        return namespace.endswith(self._suffix)

    def _segment(self, match: re.Match[str]) -> str:
        return quote(unquote(match[0]) + self._suffix, safe="")

    def _renamed(self, value: Any) -> Any:
        """Return an event with every namespace and run id made this visit's own."""
        if isinstance(value, list):
            return [self._renamed(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: self._member(name, member) for name, member in value.items()}

    def _member(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and name == "namespace":
            return value + self._suffix
        if isinstance(value, str) and name == "runId":
            return value[:-8] + self._suffix[1:] if len(value) == 36 else value
        return self._renamed(value)
