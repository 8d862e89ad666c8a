#!/usr/bin/env python3
"""What SQLMesh restates of a day that was wrong: the days, weeks and windows that it leaves stale.

In an environment of its own: pip install "sqlmesh==0.236.4", and then
python scripts/bench/restate_sqlmesh.py

Three models on DuckDB: `daily` copies a source table, `rolling` sums each day and the six before
it (with `lookback 6`), `weekly` sums weeks. One day of the source is corrected, and `daily` is
restated for that day. What the models hold then is compared with the same queries over the source.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path

import duckdb
from sqlmesh import Context

FIRST, LAST, FIXED = date(2024, 1, 1), date(2024, 1, 28), date(2024, 1, 10)
MODEL = (
    "MODEL (name shop.{name}, kind INCREMENTAL_BY_TIME_RANGE (time_column d{more}),"
    " cron '{cron}', start '2024-01-01');\n"
)
QUERIES = {
    "daily": (
        "@daily",
        "",
        "SELECT d, amount FROM src.orders WHERE d BETWEEN @start_ds AND @end_ds",
    ),
    "rolling": (
        "@daily",
        ", lookback 6",
        (
            "SELECT a.d, SUM(b.amount) AS amount FROM shop.daily a JOIN shop.daily b"
            " ON b.d BETWEEN a.d - INTERVAL 6 DAY AND a.d"
            " WHERE a.d BETWEEN @start_ds AND @end_ds GROUP BY a.d"
        ),
    ),
    "weekly": (
        "@weekly",
        "",
        (
            "SELECT CAST(DATE_TRUNC('week', d) AS DATE) AS d, SUM(amount) AS amount"
            " FROM shop.daily"
            " WHERE DATE_TRUNC('week', d) BETWEEN @start_ds AND @end_ds GROUP BY 1"
        ),
    ),
}
RIGHT = {
    "daily": "SELECT d, amount FROM src.orders",
    "rolling": "SELECT a.d, SUM(b.amount) FROM src.orders a JOIN src.orders b"
    " ON b.d BETWEEN a.d - INTERVAL 6 DAY AND a.d GROUP BY a.d",
    "weekly": "SELECT CAST(DATE_TRUNC('week', d) AS DATE), SUM(amount) FROM src.orders GROUP BY 1",
}


def main() -> None:
    """Build, correct a day, restate it, and print what is stale."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        database = folder / "lake.duckdb"
        with duckdb.connect(str(database)) as connection:
            connection.execute("CREATE SCHEMA src; CREATE TABLE src.orders (d DATE, amount INT)")
            days = [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days + 1)]
            connection.executemany("INSERT INTO src.orders VALUES (?, 1)", [[d] for d in days])
        (folder / "config.yaml").write_text(
            f"gateways: {{local: {{connection: {{type: duckdb, database: '{database}'}}}}}}\n"
            "default_gateway: local\nmodel_defaults: {dialect: duckdb}\n"
        )
        (folder / "models").mkdir()
        for name, (cron, more, query) in QUERIES.items():
            text = MODEL.format(name=name, cron=cron, more=more) + query
            (folder / "models" / f"{name}.sql").write_text(text)
        now = "2024-01-29"
        context = Context(paths=[folder])
        context.plan(auto_apply=True, no_prompts=True, execution_time=now)
        print("before the fix:", stale(context) or "nothing is stale")
        fix = f"UPDATE src.orders SET amount = 100 WHERE d = '{FIXED}'"  # noqa: S608
        context.engine_adapter.execute(fix)
        context.plan(
            restate_models=["shop.daily"],
            start=str(FIXED),
            end=str(FIXED),
            auto_apply=True,
            no_prompts=True,
            execution_time=now,
        )
        print("after restating shop.daily:", stale(context) or "nothing is stale")
        context.close()


def stale(context: Context) -> dict[str, list[str]]:
    """Return the keys whose rows are not those of the query over the whole source."""
    found = {}
    for name, query in RIGHT.items():
        right = {str(d)[:10]: int(v) for d, v in context.engine_adapter.fetchall(query)}
        held = context.engine_adapter.fetchall(f"SELECT d, amount FROM shop.{name}")  # noqa: S608
        rows = {str(d)[:10]: int(v) for d, v in held}
        wrong = sorted(key for key in right if rows.get(key) != right[key])
        if wrong:
            found[name] = wrong
    return found


if __name__ == "__main__":
    sys.exit(main())
