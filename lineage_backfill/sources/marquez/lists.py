"""The lists of all names in Marquez, each checked against another count of its rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from lineage_backfill.errors import HTTPStatusError
from lineage_backfill.lineage.events.build import LISTENER
from lineage_backfill.sources.marquez.api import Api, Name, segment

Kind = Literal["job", "dataset"]
_MAX_NAMES_LISTED = 1_000_000
#: Up to this many namespaces, datasets are counted for each; above, listing twice is cheaper.
_MAX_COUNTED = 16


class Lists:
    """Namespaces with their rows, and names of jobs and datasets, without deleted ones.

    `names["dataset"]` is empty if Marquez cannot list them; with `has_holes`, `names["job"]` lacks
    some that it cannot show. With `is_early`, events are still being read.
    """

    def __init__(self, api: Api, *, is_early: bool = False) -> None:
        self._api = api
        self.has_holes = False
        #: The time of the event of each job that arrived last.
        self.updated: dict[Name, str] = {}
        self.namespaces = self._list_namespaces()
        with ThreadPoolExecutor(1) as pool:  # a large server takes a second to count its jobs
            jobs = pool.submit(self._listed, "job")
            datasets = self._listed("dataset")
            self.names = {"job": jobs.result(), "dataset": datasets}
        self._early = set(self.names) if is_early else set()

    def list_again(self, kind: Kind) -> None:
        """Replace an early list: an event read after it may name others."""
        if kind in self._early:
            self._early.remove(kind)
            self.namespaces = self._list_namespaces()
            self.names[kind] = self._listed(kind)

    def _list_namespaces(self) -> dict[str, Any]:
        try:
            rows = self._api.pages("namespaces", "namespaces")
            return {row["name"]: row for row in rows}
        except HTTPStatusError as error:
            self._api.warnings.append(f"deleted namespaces cannot be recognised: {error}")
            return {}

    def _listed(self, kind: Kind) -> set[Name]:
        try:
            query = {"q": "%", "filter": kind, "limit": str(_MAX_NAMES_LISTED)}
            number = self._jobs_counted if kind == "job" else self._datasets_counted
            rows = self._api.get_list("search", "results", number, **query)
            if any(row["type"] != kind.upper() for row in rows):
                raise TypeError(f"a list of {kind}s that holds others")
        except HTTPStatusError as error:
            if error.status != 500:
                raise
            if kind == "dataset":
                self._api.warnings.append(f"datasets that no job names cannot be listed: {error}")
                return set()
            self.has_holes = True
            rows = list(self._api.readable_rows("jobs", "jobs"))
        if kind == "job":
            self.updated = {(row["namespace"], row["name"]): row["updatedAt"] for row in rows}
        return {(row["namespace"], row["name"]) for row in rows if row["namespace"] != LISTENER}

    def _jobs_counted(self) -> int | None:
        return self._api.number("jobs")

    def _datasets_counted(self) -> int | None:
        """Return the number of datasets in all namespaces, None if counting is expensive."""
        if len(self.namespaces) > _MAX_COUNTED:
            return None
        paths = [f"namespaces/{segment(name)}/datasets" for name in self.namespaces]
        numbers = [self._api.number(path) for path in paths]
        return None if None in numbers else sum(number or 0 for number in numbers)
