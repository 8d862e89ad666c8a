"""The lineage source for Marquez: combines its event history and its catalogue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lineage_backfill.errors import HTTPStatusError, LineageError, ServiceUnreachableError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.marquez.api import Api, listing
from lineage_backfill.sources.marquez.comparison import compare
from lineage_backfill.sources.marquez.history import EventHistory, newest_events
from lineage_backfill.sources.marquez.lists import Lists
from lineage_backfill.sources.marquez.metadata import MarquezMetadata
from lineage_backfill.sources.parsing import collector_paused
from lineage_backfill.sources.web import WebClient, WebSettings

View = Literal["events", "graph", "both"]


class MarquezSource:
    """Lineage from a Marquez server, 0.50 or 0.51.

    `view` "events" reads only the event history, which must be complete; "graph" only the
    catalogue; "both" takes the edges from the events, and from the catalogue jobs without events,
    renames, deletions and differing edges. A partial answer is an error. The events are kept in the
    folder `cache`, so that the next read only requests new ones. The runs `ignore` are left out.
    """

    def __init__(
        self,
        address: str,
        *,
        view: View = "both",
        api_key: str | None = None,
        settings: WebSettings | None = None,
        cache: Path | None = None,
        ignore: Collection[str] = (),
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings = settings or WebSettings()
        if api_key:
            headers = {**settings.headers, "Authorization": f"Bearer {api_key}"}
            settings = replace(settings, headers=headers)
        self._address = address
        self._view = view
        self._ignore = frozenset(ignore)
        self._settings = settings
        self._cache = cache and cache / f"marquez-{self._identity()}.events.gz"
        self._unshown = cache and cache / f"marquez-{self._identity()}.unshown.gz"
        self._clock = clock or partial(datetime.now, UTC)

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError if it cannot be read."""
        with (
            closing(WebClient(self._address, self._settings)) as client,
            closing(Api(client)) as api,
            collector_paused(),
        ):
            try:
                return self._read(api)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise LineageError(
                    f"{self._address}: an answer is not of Marquez's shape: {error!r}",
                    hint="Check the address; Marquez 0.50 and 0.51 are known to work.",
                ) from error

    def sample(self, most: int) -> list[Any]:
        """Return at most this many of the newest events; raises LineageError."""
        with closing(WebClient(self._address, self._settings)) as client:
            return newest_events(Api(client), most)

    def _read(self, api: Api) -> LineageSnapshot:
        taken_at, born = self._clock(), api.born()
        history, lists = self._read_history(api, born)
        builder = history.builder
        unshown, _ = history.unshown
        if self._view == "events" and not unshown:
            lineage = builder.snapshot(source="marquez", taken_at=taken_at)
        else:
            catalogue = MarquezMetadata(api, history, self._unshown, lists)
            try:
                catalogue.read()
            except LineageError as error:
                if error.hint:
                    raise
                said = f"{self._address}: what its catalogue shows is {error}"
                raise LineageError(said, hint="Delete it in Marquez.") from error
            lineage = builder.snapshot(source="marquez", taken_at=taken_at)
            if history.refused:
                jobs = listing(map(":".join, sorted(history.refused)))
                api.warnings.append(
                    f"Marquez has refused events of {jobs}: it does not allow a name in them,"
                    " and the graph view lacks what they say"
                )
            if self._view == "events":
                api.warnings.append(
                    f"the event history omits {unshown} events of jobs and datasets, which have no"
                    " run; Marquez's current pages were read instead"
                )
            else:
                compare(api, lineage, catalogue.stored, catalogue.datasets, builder.is_united)
        if api.born() != born:
            raise LineageError(
                f"{self._address}: another server answers than at the beginning of the read",
                hint="Name one server, not a balancer before several; if it was reset, try again.",
            )
        return replace(lineage, warnings=(*api.all_warnings, *lineage.warnings))

    def _read_history(self, api: Api, born: str) -> tuple[EventHistory, Lists | None]:
        """Return the events, and the lists of names if they were read meanwhile."""
        if self._view == "graph":
            return EventHistory.survey(api, self._ignore), None
        if self._view == "events":
            return EventHistory.read(api, self._cache, self._ignore, born), None
        with ThreadPoolExecutor(1) as pool:
            lists = pool.submit(Lists, api, is_early=True)
            try:
                history = EventHistory.read(api, self._cache, self._ignore, born)
            except BaseException:
                api.close()  # wait here for the names
                raise
        try:
            return history, lists.result()
        except (HTTPStatusError, ServiceUnreachableError):
            raise
        except LineageError:  # the names changed while they were listed: list them again
            return history, None

    def _identity(self) -> str:
        """Return an id of the server as this user sees it."""
        seen = [self._address.rstrip("/"), sorted(self._settings.headers.items())]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
