"""A running Marquez that tests may write to: recorded scenarios are done to it once more.

Every visit writes into namespaces of its own, so that what else the server holds is not touched.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Self
from urllib.parse import quote, unquote
from uuid import uuid4

import requests

from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.sources.marquez import MarquezSource, View

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
                body = event if isinstance(event, str) else json.dumps(event)
                answer = self._session.post(
                    ADDRESS + write["path"],
                    data=body.encode(),
                    headers={"Content-Type": "application/json"},
                    timeout=60,
                )
                # A refused event is kept as well, if it was understood.
                self.posted += [event] if answer.status_code in (201, 400) else []
            else:
                path = re.sub("(?<=/namespaces/)[^/]+", self._segment, write["path"])
                answer = self._session.request(write["method"], ADDRESS + path, timeout=60)
                assert answer.ok, (write, answer.text)

    def read(self, view: View = "both") -> LineageSnapshot:
        """Read the whole server, and return what this visit wrote."""
        return self.own(MarquezSource(ADDRESS, view=view).read())

    def own(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        """Return the part of a snapshot that lies in the namespaces of this visit."""
        return LineageSnapshot.of(
            [node for ref, node in snapshot.jobs.items() if self._is_own(ref.namespace)],
            [node for ref, node in snapshot.datasets.items() if self._is_own(ref.namespace)],
            column_edges=tuple(e for e in snapshot.column_edges if self._is_own(e.job.namespace)),
            history=tuple(run for run in snapshot.history if self._is_own(run.job.namespace)),
            warnings=tuple(said for said in snapshot.warnings if self._suffix in said),
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
