"""Shows the pages of `lineage-backfill serve` inside Airflow's UI."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin


class LineageBackfillPlugin(AirflowPlugin):  # type: ignore[misc] # its types are not installed here
    """Adds *Backfills* to the menu *Browse*; `[lineage_backfill] serve_url` is the pages' address.

    Start them with `lineage-backfill serve --allow-frame` and the address of Airflow.
    """

    name = "lineage_backfill"
    external_views: ClassVar[list[Any]] = [
        {
            "name": "Backfills",
            "href": conf.get("lineage_backfill", "serve_url", fallback="http://127.0.0.1:8085/"),
            "destination": "nav",
            "category": "browse",
            "url_route": "lineage-backfill",
        }
    ]
