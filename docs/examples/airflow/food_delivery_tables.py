"""The tables of a food delivery service: a folder each, and in it a JSON file for each partition.

Pure functions of files, so that tasks build them, and anyone can compute them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any


def read(lake: Path, table: str, key: str) -> Any:
    """Return the rows of a partition; raises FileNotFoundError where there is none."""
    return json.loads((lake / table / f"{key}.json").read_text())


def clean_orders(lake: Path, key: str) -> Any:
    """Return the orders of an hour, each once."""
    orders = {row["order"]: row for row in read(lake, "raw_orders", key)}
    return [orders[number] for number in sorted(orders)]


def daily_revenue(lake: Path, key: str) -> Any:
    """Return what each city paid in the 24 hours of a day."""
    cities: dict[str, int] = {}
    for number in range(24):
        for row in read(lake, "clean_orders", f"{key}T{number:02}"):
            cities[row["city"]] = cities.get(row["city"], 0) + row["cents"]
    return dict(sorted(cities.items()))


def city_report(lake: Path, key: str) -> Any:
    """Return the cities of a day, the one that paid most first."""
    cities = read(lake, "daily_revenue", key)
    return sorted(cities, key=lambda city: (-cities[city], city))


def rolling_week(lake: Path, key: str) -> Any:
    """Return what was paid in the seven days that end with a day."""
    last = date.fromisoformat(key)
    return {"cents": _paid(lake, [last - timedelta(days=back) for back in range(7)])}


def weekly_report(lake: Path, key: str) -> Any:
    """Return what was paid in an ISO week such as 2026-W46."""
    monday = date.fromisoformat(f"{key}-1")
    return {"cents": _paid(lake, [monday + timedelta(days=on) for on in range(7)])}


def _paid(lake: Path, days: list[date]) -> int:
    return sum(sum(read(lake, "daily_revenue", day.isoformat()).values()) for day in days)


#: In the order in which they are built.
TABLES: dict[str, Callable[[Path, str], Any]] = {
    "clean_orders": clean_orders,
    "daily_revenue": daily_revenue,
    "city_report": city_report,
    "rolling_week": rolling_week,
    "weekly_report": weekly_report,
}


def build(lake: Path, table: str, key: str) -> None:
    """Replace a partition by what its inputs say now."""
    file = lake / table / f"{key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(TABLES[table](lake, key)))
    part.replace(file)
