"""Breaks three hours of a food delivery service, corrects them, and backfills through Airflow.

    python docs/examples/airflow/story.py FOLDER

FOLDER is that of `scripts/airflow up FOLDER`. It ends with exit code 0 if each table is what its
inputs say, and if Airflow ran what the plan names, once each.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from food_delivery_tables import TABLES, build  # noqa: E402 (it stands beside this file)

DAYS = 28  # the fix lies up to 20 days back, and a rolling week reads 6 days before it
CITIES = ("Aachen", "Bonn", "Celle")


def say(text: str) -> None:
    """Print what happens next."""
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


class Story:
    """One folder with an Airflow, its DAGs and tables."""

    def __init__(self, folder: Path, now: datetime | None = None) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.now = now or datetime.now(UTC)
        self.today = self.now.replace(hour=0, minute=0, second=0, microsecond=0)
        monday = self.today - timedelta(days=self.today.weekday() + 14)
        self.wrong = [f"{monday:%Y-%m-%d}T{hour}" for hour in (10, 11, 12)]
        self.fix = (f"{self.lake}/raw_orders", "--from", self.wrong[0], "--to", self.wrong[-1])
        self.days = [self.today - timedelta(days=back) for back in range(DAYS, 0, -1)]

    def raw(self, key: str) -> list[dict[str, Any]]:
        """Return the true orders of an hour, some of them twice."""
        drawn = Random(key)  # noqa: S311 (the same orders each time)
        orders = [
            {
                "order": f"{key}-{number}",
                "city": drawn.choice(CITIES),
                "cents": drawn.randrange(900, 6000),
            }
            for number in range(12)
        ]
        return orders + orders[:2]

    def deliver(self, key: str, *, wrong: bool = False) -> None:
        """Write an hour of raw orders; a wrong one has euros where cents should be."""
        file = self.lake / "raw_orders" / f"{key}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        orders = self.raw(key)
        if wrong:
            orders = [{**order, "cents": order["cents"] // 100} for order in orders]
        file.write_text(json.dumps(orders))

    def keys(self, table: str) -> list[str]:
        """Return the partitions that a table has now."""
        return sorted(path.stem for path in (self.lake / table).glob("*.json"))

    def fill(self) -> None:
        """Make the tables of the last weeks, three hours of them wrong."""
        hours = [
            f"{day:%Y-%m-%d}T{hour:02}" for day in [*self.days, self.today] for hour in range(24)
        ]
        for key in hours:
            if key < f"{self.now:%Y-%m-%dT%H}":
                self.deliver(key, wrong=key in self.wrong)
                build(self.lake, "clean_orders", key)
        names = [f"{day:%Y-%m-%d}" for day in self.days]
        for key in names:
            build(self.lake, "daily_revenue", key)
            build(self.lake, "city_report", key)
        for key in names[6:]:
            build(self.lake, "rolling_week", key)
        for week in sorted({f"{day:%G-W%V}" for day in self.days[7:]} - {f"{self.today:%G-W%V}"}):
            build(self.lake, "weekly_report", week)

    def stale(self) -> list[str]:
        """Return the partitions that are not what their inputs say."""
        return [
            f"{table} {key}"
            for table, rows in TABLES.items()
            for key in self.keys(table)
            if json.loads((self.lake / table / f"{key}.json").read_text()) != rows(self.lake, key)
        ]

    def journal(self) -> list[str]:
        """Return what Airflow's tasks have built, in order."""
        file = self.lake / "journal"
        return file.read_text().splitlines() if file.exists() else []

    def start(self) -> None:
        """Give Airflow the DAGs, and wait until each has run once and its lineage is known."""
        shutil.copy(HERE / "food_delivery_tables.py", self.folder / "dags")
        shutil.copy(HERE / "food_delivery.py", self.folder / "dags")
        until = time.monotonic() + 600
        while not self.is_known():
            if time.monotonic() > until:
                sys.exit(f"Not all DAGs have run within 10 minutes. See the logs in {self.folder}.")
            time.sleep(2)
        self.answer()

    def is_known(self) -> bool:
        """Whether each DAG has run, and a project file can be drafted from their lineage."""
        if {line.split()[0] for line in self.journal()} < TABLES.keys():
            return False
        server = os.environ.get("MARQUEZ_URL")
        source = ("--marquez", server) if server else ("--events", "events.ndjson")
        done = self.tool("init", "--force", *source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = self.file.read_text() if done.returncode == 0 else ""
        return all(f'name = "{table}.build"' in text for table in TABLES)

    @property
    def file(self) -> Path:
        """The project file."""
        return self.folder / "lineage-backfill.toml"

    def answer(self) -> None:
        """Write what the draft of the project file asks, and the window of the rolling week."""
        address = (self.folder / "address").read_text().strip()
        window = 'mapping = "window", before = 6'
        edge = f'dataset = "{self.lake}/daily_revenue", namespace = "file", {window}'
        text = self.file.read_text()
        for table, old, new in (
            ("", "http://localhost:8080", address),
            ("", 'username = "backfill"', 'username = "op"\npoll = 1'),
            (
                f'name = "{self.lake}/raw_orders"',
                'grain = "?"',
                f'grain = "hour"\nstart = "{self.days[0]:%Y-%m-%d}T00"',
            ),
            (
                'name = "rolling_week.build"',
                'batch = "key"',
                f'batch = "key"\nreads = [{{ {edge} }}]',
            ),
        ):
            head, found, tail = text.partition(table) if table else ("", "", text)
            text = head + found + tail.replace(old, new, 1)
        self.file.write_text(text)

    def tool(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run lineage-backfill as a user does."""
        command = [sys.executable, "-m", "lineage_backfill", *arguments]
        env = {**os.environ, "AIRFLOW_PASSWORD": "op"}
        return subprocess.run(command, cwd=self.folder, env=env, check=False, **options)

    def show(self, *arguments: str) -> None:
        """Show what lineage-backfill says; ends the story where it fails."""
        say(f"$ lineage-backfill {shlex.join(arguments)}")
        self.tool(*arguments).check_returncode()

    def tell(self) -> int:
        """Tell the story; return the exit code."""
        say("Three weeks of orders, and three hours of them in euros instead of cents")
        self.fill()
        say("Airflow runs each DAG once, and sends its lineage")
        self.start()
        before = self.journal()
        for key in self.wrong:
            self.deliver(key)
        say(f"The three hours are delivered again: {', '.join(self.wrong)}")
        self.tool("doctor")
        self.show("impact", *self.fix)
        self.show("run", *self.fix, "--yes", "--title", "euros instead of cents")
        self.show("report")
        return self.check(self.journal()[len(before) :])

    def wanted(self) -> list[str]:
        """Return what has to be built again after the fix, in order."""
        day = self.wrong[0][:10]
        monday = datetime.fromisoformat(day)
        week = [f"{monday + timedelta(days=on):%Y-%m-%d}" for on in range(7)]
        return [
            *(f"clean_orders {key}" for key in self.wrong),
            f"daily_revenue {day}",
            f"city_report {day}",
            *(f"rolling_week {key}" for key in week),
            f"weekly_report {monday:%G-W%V}",
        ]

    def check(self, ran: list[str]) -> int:
        """Compare the tables with what their inputs say, and what ran with what had to."""
        wanted = Counter(self.wanted())
        found = Counter(line.rpartition(" ")[0] for line in ran)
        stale = self.stale()
        say(f"Stale partitions: {len(stale)}" + "".join(f"\n  {one}" for one in stale[:5]))
        if found != wanted:
            say(f"Not as planned: {dict(found - wanted)} besides, {dict(wanted - found)} missing")
        else:
            say(f"Airflow ran {len(ran)} tasks for {len(wanted)} partitions, each once")
        return int(bool(stale) or found != wanted)


if __name__ == "__main__":
    raise SystemExit(Story(Path(sys.argv[1]).resolve()).tell())
