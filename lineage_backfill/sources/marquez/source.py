"""The lineage source for Marquez: its event history, and its lists for what has no events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lineage_backfill.errors import HTTPStatusError, LineageError
from lineage_backfill.http import HttpClient, HttpSettings
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.plans.notice import Notice
from lineage_backfill.sources.marquez.api import Api
from lineage_backfill.sources.marquez.catalogue import Catalogue
from lineage_backfill.sources.marquez.history import EventHistory
from lineage_backfill.sources.parsing import collector_paused


class MarquezSource:
    """Lineage from a Marquez server, 0.50 or 0.51.

    Edges come from its event history; its lists show what was deleted or renamed there, and what
    has no events left. A partial answer is an error. The events are kept in the folder `cache`, so
    that the next read only requests new ones. The runs `ignore` are left out.
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        settings: HttpSettings | None = None,
        cache: Path | None = None,
        ignore: Collection[str] = (),
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        settings = settings or HttpSettings()
        key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._settings = replace(
            settings,
            headers={**settings.headers, **key},
            check="Check the address (`marquez` in [lineage], --marquez or variable) and that it"
            " runs.",
            slow="Raise lineage.timeout (`timeout` in [lineage]), or check what slows the server"
            " down.",
        )
        self._address = address
        self._ignore = frozenset(ignore)
        self._cache = cache and cache / f"marquez-{self._identity()}.events.gz"
        self._clock = clock or partial(datetime.now, UTC)

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError if it cannot be read."""
        builder, notices, taken_at = self.built()
        return builder.snapshot(source="marquez", taken_at=taken_at, notices=notices)

    def built(self) -> tuple[LineageBuilder, list[Notice], datetime]:
        """Return all events, folded, with notices and the time; raises LineageError as `read`."""
        with closing(HttpClient(self._address, self._settings)) as client, collector_paused():
            try:
                return self._read(Api(client))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise LineageError(
                    f"{self._address}: an answer is not of Marquez's shape: {error!r}",
                    hint="Check the address; Marquez 0.50 and 0.51 are known to work.",
                ) from error

    def _read(self, api: Api) -> tuple[LineageBuilder, list[Notice], datetime]:
        taken_at, born = self._clock(), _born(api)
        history = EventHistory.read(api, self._cache, born, self._ignore)
        catalogue = Catalogue(api, history)
        is_new = history.hidden_events != history.without_run[0]
        if is_new:
            history.without_run = (history.hidden_events, catalogue.without_run())
        if self._cache:
            history.save(api, self._cache, anyway=is_new)
        try:
            catalogue.fold()
            for event in history.without_run[1]:
                history.builder.add(event)
        except LineageError as error:
            if error.hint:
                raise
            why = f"{self._address}: a name in its lists is invalid: {error}"
            raise LineageError(why, hint="Delete it in Marquez.") from error
        if _born(api) != born:
            raise LineageError(
                f"{self._address}: another server answers than at the beginning of the read",
                hint="Name one server, not a balancer before several; if it was reset, try again.",
            )
        return history.builder, list(dict.fromkeys(api.notices)), taken_at

    def _identity(self) -> str:
        """Return an id of the server as this user sees it."""
        seen = [self._address.rstrip("/"), sorted(self._settings.headers.items())]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


def _born(api: Api) -> str:
    """Return when the server's database was created, which identifies it; empty if unknown."""
    try:
        return str(api.get("namespaces/default")["createdAt"])
    except HTTPStatusError as error:
        if error.status not in (404, 500):  # deleted, or unreadable
            raise
        return ""
