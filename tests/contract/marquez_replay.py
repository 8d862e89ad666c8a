"""A Marquez made of recorded answers, which fails on what was not recorded.

Pages and windows of events, and search results, that were not recorded are cut from what was, by
the measured rules.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
import responses

from lineage_backfill.lineage.events.event_facets import parse_time
from lineage_backfill.sources.marquez.api import ALL
from tests.fake_marquez import as_shown

DATA = Path(__file__).parents[1] / "data" / "marquez"
ADDRESS = "http://marquez.example"
VERSIONS = ("0.50.0", "0.51.1")
_API = "/api/v1"
#: A refused event is kept as well, if it was understood.
_KEPT = (201, 400)
_LONG_AGO = "1970-01-01T00:00:00Z"

Answer = tuple[int, dict[str, str], str]


@cache
def load(version: str, scenario: str) -> Any:
    """Return one recorded stage."""
    return json.loads(gzip.decompress((DATA / version / f"{scenario}.json.gz").read_bytes()))


def scenarios() -> list[str]:
    """Return the names of all recorded stages."""
    return sorted(path.name.removesuffix(".json.gz") for path in (DATA / VERSIONS[0]).iterdir())


def stages(version: str, scenario: str) -> list[Any]:
    """Return the recorded stage with those that were recorded on the same server before it."""
    found = [load(version, scenario)]
    while before := found[0]["after"]:
        found.insert(0, load(version, before))
    return found


def body_of(document: Any, exchange: Any) -> Any:
    """Return the body of a recorded answer, which may stand at another one."""
    if "body" not in exchange:
        exchange = document["exchanges"][exchange["same_body_as"]]
    return exchange["body"]


@dataclass
class Replay:
    """The server as it stood after one stage, without its `purged` oldest events."""

    version: str
    scenario: str
    purged: int = 0
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.document = load(self.version, self.scenario)
        #: Every event that the server has kept, as posted.
        self.posted = [
            stage["events"][write["event"]]
            for stage in stages(self.version, self.scenario)
            for write in stage["writes"]
            if write.get("method") == "POST" and write["status"] in _KEPT
        ]

    def events(self) -> list[Any]:
        """Return all events by time."""
        return sorted(self.posted, key=_when)[self.purged :]

    def install(self, mock: responses.RequestsMock) -> None:
        """Answer all requests of the mock."""
        mock.add_callback(responses.GET, re.compile(re.escape(ADDRESS)), callback=self.answer)

    def answer(self, request: requests.PreparedRequest) -> Answer:
        """Return status, headers and body."""
        parts = urlsplit(request.url or "")
        path, query = str(parts.path), {str(k): str(v) for k, v in parse_qsl(str(parts.query))}
        self.asked.append(path.removeprefix(_API))
        if path == f"{_API}/events/lineage":
            return self._events(query)
        found = self._recorded(path, query)
        if found and path == f"{_API}/search" and found[0] == 200:
            rows = json.loads(found[2])
            rows["results"] = [row | self._updated(row) for row in rows["results"]]
            return 200, {}, json.dumps(rows)
        if found is None and path == f"{_API}/search":
            return self._search(query["filter"])
        if found is None and path.endswith("/versions"):
            return self._versions(path)
        unrecorded = {f"{_API}/namespaces/default", f"{_API}/lineage"}
        if found is None and (query == {"limit": "0"} or path in unrecorded):
            return 404, {}, "{}"  # such counts, this page and some graphs were not recorded
        if found is None:
            raise LookupError(f"not recorded: {self.version} {self.scenario} {path} {query}")
        return found

    def _recorded(self, path: str, query: dict[str, str]) -> Answer | None:
        if query.get("limit") == str(ALL) and path != f"{_API}/search":
            query = query | {"limit": "100"}  # no list that was recorded is longer
        for one in self.document["exchanges"]:
            if (one["path"], one["query"]) == (path, query):
                body = body_of(self.document, one)
                text = body if isinstance(body, str) else json.dumps(body)
                headers = {k: v for k, v in one["headers"].items() if k != "Content-Type"}
                return one["status"], headers, text
        return None

    def _events(self, query: dict[str, str]) -> Answer:
        after, before = parse_time(query["after"]), parse_time(query["before"])
        window = [event for event in self.events() if after <= _when(event) < before]
        # Those of jobs and datasets are counted, and not shown.
        shown = [event for event in window if "run" in event]
        shown = shown if query["sortDirection"] == "asc" else shown[::-1]
        first = int(query["offset"])
        page = shown[first : first + int(query["limit"])]
        page = [as_shown(event) for event in page]
        return 200, {}, json.dumps({"events": page, "totalCount": len(window)})

    def _versions(self, path: str) -> Answer:
        """Return the versions that the runs of a job have, as far as these were recorded."""
        query = {"limit": "100", "offset": "0"}
        answer = self._recorded(path.replace("/versions", "/runs"), query)
        rows: dict[str, Any] = {}
        for run in json.loads(answer[2]).get("runs", ()) if answer else ():
            ends = [
                [version["datasetVersionId"] for version in run[f"{side}DatasetVersions"]]
                for side in ("input", "output")
            ]
            if run.get("jobVersion"):
                row = {"inputs": ends[0], "outputs": ends[1], "latestRun": run}
                row |= {"version": run["jobVersion"]["version"], "createdAt": run["createdAt"]}
                rows.setdefault(row["version"], row)
        return 200, {}, json.dumps({"versions": list(rows.values()), "totalCount": len(rows)})

    def _updated(self, row: Any) -> dict[str, str]:
        """Return when a row was updated, unless by the clock of the day of the recording."""
        is_by_clock = parse_time(row["updatedAt"]) > max(map(_when, self.posted))
        return {"updatedAt": _LONG_AGO if is_by_clock else row["updatedAt"]}

    def _search(self, kind: str) -> Answer:
        rows: list[Any] = []
        for one in self.document["exchanges"]:
            listed = re.fullmatch(rf"{_API}/namespaces/[^/]+/{kind}s", one["path"])
            if listed and one["query"].get("limit") == "100":
                if one["status"] == 500:
                    return 500, {}, "{}"
                answer = self._recorded(one["path"], one["query"])
                listed_rows = json.loads(answer[2]).get(f"{kind}s", []) if answer else []
                rows += [row | {"type": kind.upper()} | self._updated(row) for row in listed_rows]
        return 200, {}, json.dumps({"results": rows, "totalCount": len(rows)})


def _when(event: Any) -> datetime:
    when = parse_time(event["eventTime"])
    return when if when.tzinfo else when.replace(tzinfo=UTC)
