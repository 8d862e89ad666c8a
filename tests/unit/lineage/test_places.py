"""Datasets that lineage names by their place are the ones declared to lie there."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import DeclarationError, UnknownNameError
from lineage_backfill.lineage.identity.places import Places
from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.locations import dataset_storage, storage
from tests.unit.planning.world import declarations, find, plan, request

ORDERS = DatasetRef("w", "orders")
JOB = JobRef("w", "daily")


def sent(*names: DatasetRef, **rest: object) -> LineageSnapshot:
    """The lineage of a job that reads these names."""
    return LineageSnapshot.of([JobNode(ref=JOB, reads=tuple(sorted(names)))], **rest)  # type: ignore[arg-type]


def declared(*tables: str) -> Declarations:
    return declarations(f"dataset = [{', '.join(tables)}]")


def at(place: str, name: str = "orders") -> str:
    key = "location" if ":/" in place or place.startswith("/") else "table"
    return f'{{ name = "{name}", grain = "day", {key} = "{place}" }}'


@pytest.mark.parametrize(
    ("place", "namespace", "name"),
    [
        ("/lake/raw/orders", "file", "/lake/raw/orders"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/"),
        ("/lake/raw/orders", "file", "/lake//raw/orders"),
        ("/lake/raw/orders", "file:", "/lake/raw/orders"),
        ("/lake/raw/orders", "file://localhost", "/lake/raw/orders"),
        ("file:///lake/raw/orders", "file", "/lake/raw/orders"),
        ("file:/lake/raw/orders/", "file", "/lake/raw/orders"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/dt=2024-01-01"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/dt=2024-01-01/hour=3"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/part-00000-7d1e-c000.snappy.parquet"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/dt=2024-01-01/part-0.parquet"),
        ("s3://lake/raw/orders", "s3a://lake", "raw/orders/part-m-00003.avro"),
        ("s3://lake/raw/orders", "s3a://lake", "raw/orders/dt=2024-01-01/part-00001.csv.gz"),
        ("s3://lake/raw/orders", "s3a://lake", "raw/orders/dt=2024-01-01/000000_0"),
        ("s3://lake/raw/orders", "s3a://lake", "raw/orders/dt=2024-01-01/*.json"),
        ("/lake/my orders", "file", "/lake/my%20orders"),
        ("s3://lake/raw/orders", "s3a://lake", "raw/orders"),
        ("s3a://lake/raw/orders/", "s3n://lake", "/raw/orders"),
        ("s3://lake/raw/orders", "s3://lake/", "raw/orders/ds=x"),
        ("s3://lake/raw/orders", "spark", "s3a://lake/raw/orders"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs://C@a.dfs.core.windows.net", "t"),
        ("wasbs://c@a.blob.core.windows.net/t", "wasb://c@a.blob.core.windows.net", "t"),
        ("abfss://c@a.dfs.core.windows.net/t", "wasbs://c@a.blob.core.windows.net", "t"),
        ("gs://lake/t", "gs://lake", "t"),
        ("gs://lake/t", "gcs://lake", "t"),
        ("s3://lake/t", "s3a://KEY:secret@lake", "t"),
        ("hdfs://nn/t", "hdfs://etl@nn:8020", "/t"),
        ("hdfs://nn:8020/t", "hdfs://nn:8020", "/t"),
        ("hdfs://nn/t", "hdfs://nn:8020", "/t"),
        ("/lake/raw/orders", "file:///", "lake/raw/orders"),
        ("dbfs:/mnt/t", "dbfs", "/mnt/t"),
        ("dbfs:/mnt/t", "file", "/dbfs/mnt/t"),
        ("/dbfs/mnt/t", "dbfs", "mnt/t"),
        ("sales.orders", "hive://metastore:9083", "sales.orders"),
        ("sales.orders", "hive://metastore:9083", "spark_catalog.Sales.Orders"),
        ("spark_catalog.sales.orders", "hive://metastore:9083", "sales.orders"),
        ("sales.orders", "databricks://host", "main.sales.orders"),
        ("main.sales.orders", "databricks://host", "main.sales.orders"),
        ("orders", "hive://metastore:9083", "default.orders"),
        ("sales.orders", "arn:aws:glue:eu-west-1:123", "table/sales/orders"),
        ("`sales`.`orders`", "hive://metastore:9083", "sales.orders"),
        ("sales.orders", "trino://host:8080", "hive.sales.orders"),
        ("hive.sales.orders", "presto://host:8080", "hive.sales.orders"),
    ],
)
def test_a_dataset_of_a_declared_place_is_the_declared_one(
    place: str, namespace: str, name: str
) -> None:
    tied = Places(declared(at(place))).tie(sent(DatasetRef(namespace, name)))
    assert tied.jobs[JOB].reads == (ORDERS,)
    assert list(tied.datasets) == [ORDERS]
    (alias,) = tied.datasets[ORDERS].aliases
    assert (alias.namespace, name.startswith(alias.name)) == (namespace, True)


@pytest.mark.parametrize(
    ("place", "namespace", "name"),
    [
        ("/lake/raw/orders", "file", "/lake/raw/orders_2"),
        ("/lake/raw/orders", "file", "/lake/raw"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/sub"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/part-1"),
        ("/lake/raw/orders", "file", "/lake/raw/orders/customers.csv"),
        ("/lake/raw/orders", "file", "lake/raw/orders"),
        ("/lake/raw/orders", "file", "/Lake/raw/orders"),
        ("/lake/raw/orders", "file://other-host", "/lake/raw/orders"),
        ("/lake/raw/orders", "s3://lake", "raw/orders"),
        ("s3://lake/raw/orders", "s3://other", "raw/orders"),
        ("s3://lake/raw/orders", "gs://lake", "raw/orders"),
        ("hdfs://nn:9000/t", "hdfs://nn", "/t"),
        ("sales.orders", "postgres://host:5432", "sales.orders"),
        ("sales.orders", "hive://metastore:9083", "other.orders"),
        ("main.sales.orders", "databricks://host", "test.sales.orders"),
        ("hive.sales.orders", "trino://host:8080", "pg.sales.orders"),
        ("sales.orders", "s3://lake", "sales.orders"),
    ],
)
def test_a_dataset_of_another_place_is_another_one(place: str, namespace: str, name: str) -> None:
    lineage = sent(DatasetRef(namespace, name))
    assert Places(declared(at(place))).tie(lineage) is lineage


@given(
    st.sampled_from(["s3", "s3a", "s3n"]),
    st.lists(st.sampled_from(["a", "b c", "d%", "é"]), min_size=1, max_size=4),
    st.sampled_from(["", "/", "//"]),
)
def test_the_form_of_a_form_is_itself(scheme: str, parts: list[str], end: str) -> None:
    form = storage(f"{scheme}://lake/{'//'.join(parts)}{end}")
    assert form == f"s3://lake/{'/'.join(parts)}" == storage(form or "")
    assert dataset_storage(f"{scheme}://lake", "/".join(parts)) == form


def test_all_names_of_one_place_become_one_with_what_is_told_of_it() -> None:
    path, table = DatasetRef("s3://lake", "orders"), DatasetRef("hive://m:9083", "sales.orders")
    part, out = DatasetRef("s3a://lake", "orders/dt=2024-01-01"), DatasetRef("w", "out")
    lineage = LineageSnapshot.of(
        [
            JobNode(ref=JobRef("w", "load"), writes=(path,)),
            JobNode(ref=JOB, reads=(part,), writes=(out,), former_reads=(path,)),
        ],
        [DatasetNode(ref=path, aliases=(table,), fields=("x",), owners=("team",))],
        column_edges=(
            ColumnEdge(job=JOB, input=part, input_column="x", output=out, output_column="x"),
        ),
    )
    tied = Places(declared(at("s3a://lake/orders"))).tie(lineage)
    assert sorted(tied.datasets) == [ORDERS, out]
    node = tied.datasets[ORDERS]
    assert (node.fields, node.owners) == (("x",), ("team",))
    assert set(node.aliases) == {path, table, DatasetRef("s3a://lake", "orders")}
    assert tied.jobs[JOB].reads == (ORDERS,)
    assert tied.jobs[JOB].former_reads == ()
    assert tied.jobs[JobRef("w", "load")].writes == (ORDERS,)
    assert [edge.input for edge in tied.column_edges] == [ORDERS]
    assert Places(declared(at("s3a://lake/orders"))).tie(tied).jobs == tied.jobs


@pytest.mark.parametrize(
    ("space", "name", "warehouse"),
    [
        ("s3://lake", "wh/orders", "s3://lake/wh"),
        ("hdfs://nn", "/wh/orders", "hdfs://nn/wh"),
        ("file", "/wh/orders", "file:/wh"),
        ("file", "/wh/orders", "file:///wh"),
        ("file", "/wh/orders", "/wh"),
        ("dbfs", "/wh/orders", "dbfs:/wh"),
    ],
)
def test_a_path_is_tied_by_the_table_that_it_links_to(
    space: str, name: str, warehouse: str
) -> None:
    path = DatasetRef(space, name)
    linked = DatasetNode(ref=path, aliases=(DatasetRef(warehouse, "sales.orders"),))
    for tables in (at("sales.orders"), f'{{ name = "sales.orders", namespace = "{warehouse}" }}'):
        tied = Places(declared(tables)).tie(sent(path, datasets=[linked]))
        assert [ref.name in ("orders", "sales.orders") for ref in tied.jobs[JOB].reads] == [True]


LOAD = JobRef("w", "load")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (("s3a://lake", "orders"), ("s3://lake", "orders")),
        (("s3a://lake", "orders"), ("s3n://LAKE/", "/orders/")),
        (("file", "/lake/orders"), ("file", "/lake/orders/")),
        (("file", "/lake/orders"), ("file", "/lake/orders/dt=2024-01-01")),
        (("file", "/lake/orders/dt=2024-01-01"), ("file", "/lake/orders")),
        (("s3://lake", "orders/dt=2024-01-01"), ("s3a://lake", "orders/dt=2023-12-31")),
        (
            ("s3://lake", "orders/part-00000-7d1e.parquet"),
            ("s3://lake", "orders/part-00001-7d1e.parquet"),
        ),
        (("s3://lake", "orders/dt=2024-01-01/part-0.avro"), ("s3://lake", "orders/dt=2024-01-02")),
        (("s3://lake", "orders/part-00000.csv"), ("s3://lake", "orders/part-00000.csv")),
        (("dbfs", "/mnt/orders"), ("file", "/dbfs/mnt/orders")),
        (("hive://m:9083", "sales.orders"), ("hive://m:9083", "spark_catalog.Sales.Orders")),
    ],
)
def test_undeclared_names_of_one_place_are_one_dataset(
    written: tuple[str, str], read: tuple[str, str]
) -> None:
    jobs = [
        JobNode(ref=LOAD, writes=(DatasetRef(*written),)),
        JobNode(ref=JOB, reads=(DatasetRef(*read),)),
    ]
    tied = Places(declarations("")).tie(LineageSnapshot.of(jobs))
    assert tied.jobs[LOAD].writes == tied.jobs[JOB].reads
    assert not re.search("=|part-", tied.jobs[JOB].reads[0].name)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (("file", "/lake/orders"), ("file", "/lake/Orders")),
        (("file", "/lake/orders"), ("file", "/lake/orders/part")),
        (("s3://lake", "orders"), ("gs://lake", "orders")),
        (("hive://m:9083", "sales.orders"), ("hive://other:9083", "sales.orders")),
        (("hive://m:9083", "sales.orders"), ("hive://m:9083", "main.sales.orders")),
        (("mysql://h:3306", "sales.orders"), ("mysql://h:3306", "Sales.orders")),
        (("s3://lake", "x?q=1"), ("s3://lake", "y?q=2")),
        (("s3://lake", "eu=1"), ("s3a://lake", "/us=2")),
        (("file", "/dt=1"), ("file", "/hour=2")),
        # A family: its pattern is to be declared.
        (("file", "/lake/orders/dt=2024-01-01"), ("file", "/lake/orders/dt=2023-12-31")),
    ],
)
def test_undeclared_names_of_several_places_stay_apart(
    written: tuple[str, str], read: tuple[str, str]
) -> None:
    lineage = LineageSnapshot.of(
        [
            JobNode(ref=LOAD, writes=(DatasetRef(*written),)),
            JobNode(ref=JOB, reads=(DatasetRef(*read),)),
        ]
    )
    assert Places(declarations("")).tie(lineage) is lineage


def test_folders_that_a_glob_declares_are_one_table() -> None:
    parts = [DatasetRef("file", f"/lake/orders/dt=2024-01-0{day}") for day in (1, 2)]
    lineage = LineageSnapshot.of(
        [JobNode(ref=LOAD, writes=(parts[0],)), JobNode(ref=JOB, reads=(parts[1],))]
    )
    tied = Places(declared('{ name = "*", namespace = "file", grain = "day" }')).tie(lineage)
    assert list(tied.datasets) == [DatasetRef("file", "/lake/orders")]


def test_a_folder_that_is_declared_itself_stays_apart() -> None:
    parts = [f"/lake/orders/region={region}" for region in ("eu", "us")]
    lineage = sent(*(DatasetRef("file", name) for name in (*parts, "/lake/orders")))
    tied = Places(declared(at(parts[0], "eu"), at(parts[1], "us"))).tie(lineage)
    assert [ref.name for ref in tied.jobs[JOB].reads] == ["/lake/orders", "eu", "us"]


def test_a_link_ties_the_folders_of_a_path_to_the_declared_table() -> None:
    path, table = DatasetRef("file", "/wh/orders"), DatasetRef("hive://m:9083", "sales.orders")
    folder = DatasetRef("file", "/wh/orders/dt=2024-01-01")
    lineage = LineageSnapshot.of(
        [JobNode(ref=LOAD, writes=(path,)), JobNode(ref=JOB, reads=(folder,))],
        [DatasetNode(ref=path, aliases=(table,))],
    )
    tied = Places(declared(at("sales.orders"))).tie(lineage)
    assert (tied.jobs[LOAD].writes, tied.jobs[JOB].reads) == ((ORDERS,), (ORDERS,))


def test_one_place_bears_the_name_that_a_declared_edge_gives_it() -> None:
    toml = 'job = [{ name = "daily", reads = [{ dataset = "t", namespace = "s3://lake" }] }]'
    tied = Places(declarations(toml)).tie(sent(DatasetRef("s3a://lake", "t")))
    assert tied.jobs[JOB].reads == (DatasetRef("s3://lake", "t"),)


def test_a_location_on_the_command_line_is_the_dataset_that_lies_there() -> None:
    known = [DatasetRef("s3a://lake", "orders"), DatasetRef("file", "/orders")]
    places = Places(declarations(""))
    named = {ref: ref for ref in known} | {DatasetRef("s3://lake", "wh/orders"): known[0]}
    for place in ("s3://lake/orders/", "s3a://lake/orders/part-00000-7d1e.parquet"):
        assert places.located(place, named) == known[0]
    assert places.located("s3a://lake/wh/orders", named) == known[0]
    assert places.located("s3://lake/other", named) is None


@pytest.mark.parametrize(
    ("tables", "names", "message"),
    [
        (
            [at("/lake/orders"), at("file:///lake//orders/", "orders_2")],
            [],
            'datasets "orders" and "orders_2" are one place, file:///lake/orders',
        ),
        (
            [at("s3://lake/orders"), at("s3a://lake/orders", "orders_2")],
            [],
            'datasets "orders" and "orders_2" are one place, s3://lake/orders',
        ),
        (
            [at("sales.orders"), at("Sales.Orders", "orders_2")],
            [],
            'datasets "orders" and "orders_2" are one place, sales.orders',
        ),
        (
            [at("/lake/orders"), '{ name = "/lake/orders", namespace = "file" }'],
            [DatasetRef("file", "/lake/orders")],
            'datasets "orders" and "/lake/orders" are one place, file:///lake/orders',
        ),
        (
            [at("a.sales.orders"), at("b.sales.orders", "orders_2")],
            [DatasetRef("hive://m", "sales.orders")],
            'declared twice, by its names or location: "orders" and "orders_2"',
        ),
        (
            [at("sales.orders")],
            [DatasetRef("databricks://h", f"{one}.sales.orders") for one in "ab"],
            "can be databricks://h:a.sales.orders or databricks://h:b.sales.orders",
        ),
    ],
)
def test_one_dataset_is_never_two_declared_ones(
    tables: list[str], names: list[DatasetRef], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        Places(declared(*tables)).tie(sent(*names))


def test_an_edge_that_is_declared_by_a_tied_name_is_refused() -> None:
    read = '{ dataset = "/lake/orders", namespace = "file", mapping = "window", before = 6 }'
    toml = f'dataset = [{at("/lake/orders")}]\njob = [{{ name = "daily", reads = [{read}] }}]'
    with pytest.raises(DeclarationError, match="which is w:orders by its place") as caught:
        Places(declarations(toml)).tie(sent(DatasetRef("file", "/lake/orders")))
    assert caught.value.hint == 'Write dataset = "orders" there.'


def test_a_change_of_a_declared_dataset_reaches_the_readers_of_its_place() -> None:
    lineage = LineageSnapshot.of(
        [
            JobNode(
                ref=JOB,
                reads=(DatasetRef("file", "/lake/orders"),),
                writes=(DatasetRef("w", "out"),),
            )
        ]
    )
    project = declared(at("/lake/orders"), '{ name = "out", grain = "day" }')
    tied = Places(project).tie(lineage)
    made = plan(request({"orders": "2024-03-10"}), tied, project)
    assert find(made, "daily").status == "planned"
    with pytest.raises(UnknownNameError, match="dataset w:orders is not in the lineage") as caught:
        plan(
            request({"orders": "2024-03-10"}),
            lineage,
            declared('{ name = "orders", grain = "day" }'),
        )
    assert "ties it to the name" in caught.value.hint
    assert "Did you mean /lake/orders?" in caught.value.hint


def test_a_dataset_of_the_project_file_alone_is_planned_by_its_declared_readers() -> None:
    toml = """dataset = [{ name = "orders", grain = "day" }, { name = "out", grain = "day" }]
    job = [{ name = "daily", reads = [{ dataset = "orders" }], writes = [{ dataset = "out" }] }]"""
    made = plan(request({"orders": "2024-03-10"}), LineageSnapshot.of([]), toml)
    assert find(made, "daily").status == "planned"
