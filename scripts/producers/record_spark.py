"""Records what Spark's own listener sends for small applications on Delta or Iceberg.

Usage: python scripts/producers/record_spark.py delta|iceberg|older JARS FILE [PYTHON]

JARS holds the jars of scripts/fetch-jars, with those of its options in folders below. `older` is an
older listener on Delta, with the Spark 3.5 of PYTHON.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_DELTA = {
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
_OLDER = {
    **{name: body for name, body in _DELTA.items() if name != "report"},
    "sink": """
        rows = spark.readStream.format("delta").load("{cwd}/lake/bronze").writeStream
        rows = rows.format("parquet").option("path", "{cwd}/lake/sunk")
        rows = rows.option("checkpointLocation", "{cwd}/checkpoint2")
        rows.trigger(availableNow=True).start().awaitTermination()
    """,
    "flow": """
        rows = spark.readStream.schema("id bigint, customer bigint").parquet("{cwd}/raw/orders")
        rows = rows.writeStream.format("delta").option("checkpointLocation", "{cwd}/checkpoint3")
        rows.trigger(availableNow=True).toTable("shop.flowed").awaitTermination()
    """,
    "report": f"""
        {_DELTA["report"]}
        spark.read.parquet("{{cwd}}/lake/sunk").write.parquet("{{cwd}}/lake/sunk_report")
    """,
}
_ICEBERG = {
    "ingest": """
        orders = "id", "id % 3 as customer", "date'2024-06-05' as day"
        spark.range(9).selectExpr(*orders).write.parquet("{cwd}/raw/orders")
        raw = "parquet.`{cwd}/raw/orders`"
        new = "using iceberg partitioned by (day) as"
        spark.sql(f"create table lake.shop.bronze {new} select * from {raw}")
        spark.sql(f"create table lake.shop.gone using iceberg as select id from {raw} where id = 8")
    """,
    "silver": """
        new = "using iceberg partitioned by (day) as"
        spark.sql(f"create table lake.shop.orders {new} select * from lake.shop.bronze")
        more = "select id + 100, customer, day from lake.shop.bronze"
        spark.sql(f"insert into lake.shop.orders {more}")
    """,
    "daily": """
        orders = spark.table("lake.shop.orders")
        orders.writeTo("lake.shop.daily").using("iceberg").partitionedBy("day").createOrReplace()
        orders.writeTo("lake.shop.daily").overwritePartitions()
    """,
    "merge": """
        new = "lake.shop.customers (id bigint, orders bigint) using iceberg"
        spark.sql(f"create table if not exists {new}")
        spark.sql('''merge into lake.shop.customers t using (
            select customer as id, count(*) as orders from lake.shop.orders group by customer) s
            on t.id = s.id when matched then update set * when not matched then insert *''')
    """,
    "people": """
        new = "lake.shop.people (id bigint, orders bigint) using iceberg"
        spark.sql(f"create table {new} tblproperties ('write.merge.mode'='merge-on-read')")
        spark.sql('''merge into lake.shop.people t using lake.shop.customers s
            on t.id = s.id when matched then update set * when not matched then insert *''')
    """,
    "replace": """
        spark.sql("create table lake.shop.totals (orders bigint) using iceberg")
        spark.sql("insert overwrite lake.shop.totals select sum(orders) from lake.shop.customers")
    """,
    "purge": """
        spark.sql("delete from lake.shop.daily where id in (select id from lake.shop.gone)")
        spark.sql("delete from lake.shop.daily where day = date'2020-01-01'")
        spark.sql("update lake.shop.people set orders = 0 where id = 1")
    """,
    "stream": """
        columns = "(id bigint, customer bigint, day date)"
        spark.sql(f"create table lake.shop.streamed {columns} using iceberg")
        rows = spark.readStream.format("iceberg").load("lake.shop.bronze").writeStream
        rows = rows.format("iceberg").option("checkpointLocation", "{cwd}/checkpoint")
        rows.trigger(availableNow=True).toTable("lake.shop.streamed").awaitTermination()
    """,
    "batches": """
        write = lambda df, n: df.writeTo("lake.shop.batched").using("iceberg").createOrReplace()
        rows = spark.readStream.format("iceberg").load("lake.shop.bronze").writeStream
        rows = rows.foreachBatch(write).option("checkpointLocation", "{cwd}/checkpoint2")
        rows.trigger(availableNow=True).start().awaitTermination()
    """,
    "optimize": """
        spark.sql("call lake.system.rewrite_data_files('shop.orders')")
    """,
    "report": """
        first = spark.table("lake.shop.customers.snapshots").first().snapshot_id
        then = spark.sql(f"select * from lake.shop.customers version as of {first}")
        then.write.parquet("{cwd}/lake/report")
        people = spark.read.format("iceberg").load("{cwd}/warehouse/shop/people")
        people.write.parquet("{cwd}/lake/by_path")
        spark.table("lake.shop.orders.snapshots").write.parquet("{cwd}/lake/snapshots")
    """,
}
_ON_DELTA = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": "{cwd}/warehouse",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_ON_ICEBERG = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": "{cwd}/warehouse",
}
#: The folders of the jars, the settings, and the applications in the order in which they run, each
#: in a session of its own.
KINDS = {
    "delta": (("", "listener"), _ON_DELTA, _DELTA),
    "iceberg": (("iceberg", "listener"), _ON_ICEBERG, _ICEBERG),
    "older": (("older",), _ON_DELTA, _OLDER),
}
#: Starts Java without its optimizing compiler, which small applications do not wait for.
_QUICK = "--driver-java-options -XX:TieredStopAtLevel=1"


def main(kind: str, jars: Path, file: Path, python: str = sys.executable) -> None:
    """Run the applications of a kind, and put all events into one file."""
    file.unlink(missing_ok=True)
    folders, settings, applications = KINDS[kind]
    every = [str(one) for folder in folders for one in (jars / folder).glob("*.jar")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        conf = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": str(folder / "events.ndjson"),
            "spark.openlineage.namespace": "spark",
            **{key: value.replace("{cwd}", str(folder)) for key, value in settings.items()},
        }
        for application, body in applications.items():
            lines = [
                "from pyspark.sql import SparkSession",
                f"build = SparkSession.builder.appName({application!r}).master('local[2]')",
                *(f"build = build.config({key!r}, {value!r})" for key, value in conf.items()),
                "spark = build.getOrCreate()",
                *(line.strip() for line in body.replace("{cwd}", name).strip().splitlines()),
                "spark.stop()",
            ]
            # All in one class loader: else the listener does not know the commands of a format.
            environ = {
                **os.environ,
                "PYSPARK_PYTHON": python,
                "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(every)} {_QUICK} pyspark-shell",
            }
            command = [python, "-c", "\n".join(lines)]
            subprocess.run(command, cwd=folder, env=environ, check=True)
        text = (folder / "events.ndjson").read_text().replace(str(folder), "/project")
        file.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute(), Path(sys.argv[3]), *sys.argv[4:])
