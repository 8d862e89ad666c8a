"""Records what dbt-ol sends for a small project on DuckDB, with its manifest and results.

Usage: python scripts/producers/record_dbt.py VENV FOLDER

VENV has dbt-duckdb and openlineage-dbt.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = {
    "dbt_project.yml": """
name: shop
profile: shop
models: {shop: {+materialized: table}}
""",
    "profiles.yml": """
shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.duckdb, schema: marts, threads: 2}}}
""",
    "seeds/countries.csv": "code,name\nde,Germany\nfr,France\n",
    "models/sources.yml": """
sources:
  - name: raw
    schema: raw
    tables:
      - {name: orders, config: {event_time: ordered_at}}
      - {name: customers}
models:
  - name: orders_daily
    columns: [{name: id, data_tests: [not_null, unique]}]
""",
    "models/stg_orders.sql": """
{{ config(materialized="view", event_time="ordered_at") }}
select * from {{ source("raw", "orders") }}
""",
    "models/clean_customers.sql": """
{{ config(materialized="ephemeral") }}
select * from {{ source("raw", "customers") }} where id is not null
""",
    "models/orders_daily.sql": """
{{ config(materialized="incremental", incremental_strategy="microbatch", event_time="ordered_at",
          batch_size="day", begin="2024-06-01", lookback=1, concurrent_batches=false) }}
select id, customer, ordered_at, amount from {{ ref("stg_orders") }}
""",
    "models/customers.sql": """
{{ config(materialized="incremental", unique_key="id", incremental_strategy="delete+insert") }}
select c.id, n.name as country from {{ ref("clean_customers") }} c
join {{ ref("countries") }} n on n.code = c.country
""",
    "models/sales.sql": """
select c.country, sum(o.amount) as amount from {{ ref("orders_daily") }} o
join {{ ref("customers") }} c on c.id = o.customer group by 1
""",
    "snapshots/customers_history.yml": """
snapshots:
  - name: customers_history
    relation: ref("customers")
    config: {unique_key: id, strategy: check, check_cols: all, schema: marts}
""",
}
TABLES = """
import duckdb
with duckdb.connect("shop.duckdb") as db:
    db.sql("create schema raw")
    db.sql("create table raw.customers as select 1 as id, 'de' as country")
    db.sql("create table raw.orders as select range as id, 1 as customer, 10 as amount,"
           " timestamp '2024-06-01 12:00:00' + interval 1 day * range as ordered_at from range(5)")
"""


def main(venv: Path, folder: Path) -> None:
    """Write the events, the manifest and the results of each command."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        for path, text in FILES.items():
            (project / path).parent.mkdir(exist_ok=True)
            (project / path).write_text(text.lstrip("\n"))
        subprocess.run([venv / "bin/python", "-c", TABLES], cwd=project, check=True)
        for command in ("build", "run", "test"):
            found = project / f"{command}.ndjson"
            transport = {"type": "file", "log_file_path": str(found), "append": True}
            environ = {
                **os.environ,
                "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
                "OPENLINEAGE__TRANSPORT": json.dumps(transport),
                "OPENLINEAGE_NAMESPACE": "dbt",
                "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            }
            asked = ["dbt-ol", command, "--profiles-dir", ".", "--event-time-start", "2024-06-01"]
            asked += ["--event-time-end", "2024-06-06"]
            asked = asked if command != "test" else asked[:4]
            subprocess.run(asked, cwd=project, env=environ, check=True)
            text = found.read_text().replace(str(project), "/project")
            (folder / f"{command}.ndjson").write_text(text)
            for made in ("manifest.json", "run_results.json"):
                shutil.copy(project / "target" / made, folder / f"{command}.{made}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
