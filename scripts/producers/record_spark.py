"""Records what Spark's own listener sends for small applications on Delta.

Usage: python scripts/producers/record_spark.py JARS FILE

JARS holds the jars of scripts/fetch-jars, with the listener's in a folder below.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Applications in the order in which they run, each in a session of its own.
APPLICATIONS = {
    "ingest": """
        spark.range(9).selectExpr("id", "id % 3 as customer").write.parquet("{cwd}/raw/orders")
        spark.sql("create database shop")
        spark.read.parquet("{cwd}/raw/orders").write.format("delta").save("{cwd}/lake/bronze")
    """,
    "silver": """
        spark.sql("create table shop.customers (id bigint, orders bigint) using delta")
        bronze = "delta.`{cwd}/lake/bronze`"
        spark.sql(f"create table shop.orders using delta as select * from {bronze}")
        spark.sql(f"insert into shop.orders select id + 100, customer from {bronze}")
    """,
    "merge": """
        spark.sql('''merge into shop.customers t using (
            select customer as id, count(*) as orders from shop.orders group by customer) s
            on t.id = s.id when matched then update set * when not matched then insert *''')
    """,
    "replace": """
        spark.table("shop.orders").write.format("delta").mode("overwrite").save("{cwd}/lake/copy")
        spark.sql("create table shop.totals (orders bigint) using delta")
        spark.sql("insert overwrite table shop.totals select sum(orders) from shop.customers")
    """,
    "export": """
        to = dict(url="jdbc:derby:{cwd}/db;create=true", dbtable="customers")
        spark.table("shop.customers").write.format("jdbc").options(**to).save()
    """,
    "import": """
        frm = dict(url="jdbc:derby:{cwd}/db", dbtable="customers")
        spark.read.format("jdbc").options(**frm).load().write.parquet("{cwd}/lake/imported")
    """,
    "stream": """
        write = lambda df, n: df.write.format("delta").mode("append").save("{cwd}/lake/streamed")
        rows = spark.readStream.format("delta").load("{cwd}/lake/bronze").writeStream
        rows = rows.foreachBatch(write).option("checkpointLocation", "{cwd}/checkpoint")
        rows.trigger(availableNow=True).start().awaitTermination()
    """,
    "report": """
        spark.table("shop.customers").where("orders > 1").write.parquet("{cwd}/lake/report")
    """,
}
#: Starts Java without its optimizing compiler, which small applications do not wait for.
_QUICK = "--driver-java-options -XX:TieredStopAtLevel=1"


def main(jars: Path, file: Path) -> None:
    """Run the applications, and put all events into one file."""
    file.unlink(missing_ok=True)
    every = [str(one) for one in (*jars.glob("*.jar"), *(jars / "listener").glob("*.jar"))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        conf = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": str(folder / "events.ndjson"),
            "spark.openlineage.namespace": "spark",
        }
        for application, body in APPLICATIONS.items():
            lines = [
                "from pyspark.sql import SparkSession",
                f"build = SparkSession.builder.appName({application!r}).master('local[2]')",
                *(f"build = build.config({key!r}, {value!r})" for key, value in conf.items()),
                "spark = build.getOrCreate()",
                *(line.strip() for line in body.replace("{cwd}", name).strip().splitlines()),
                "spark.stop()",
            ]
            # Both in one class loader: else the listener does not know Delta's commands.
            environ = {
                **os.environ,
                "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(every)} {_QUICK} pyspark-shell",
            }
            command = [sys.executable, "-c", "\n".join(lines)]
            subprocess.run(command, cwd=folder, env=environ, check=True)
        text = (folder / "events.ndjson").read_text().replace(str(folder), "/project")
        file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
