"""The manifest of a dbt project as lineage: alone, and with the events of dbt-ol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.dbt import DbtSource
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.several import SeveralSources

RECORDED = Path(__file__).parents[2] / "corpus" / "recorded" / "dbt_duckdb"
DAILY = {"grain": "day", "zone": "UTC", "start": "2024-06-01"}
WHOLE = {"grain": "none"}


def source(**settings: Any) -> DbtSource:
    return DbtSource(project=RECORDED, manifest="manifest.json", **settings)


def changed(folder: Path, change: Mapping[str, Any], **about: str) -> DbtSource:
    """Return the recorded project with other members of its nodes."""
    document = json.loads((RECORDED / "manifest.json").read_text())
    document["metadata"] |= about
    for node, members in change.items():
        side = document["sources" if node.startswith("source.") else "nodes"]
        side[node] |= {
            name: {**side[node].get(name, {}), **value} if isinstance(value, dict) else value
            for name, value in members.items()
        }
    (folder / "manifest.json").write_text(json.dumps(document))
    return DbtSource(project=folder, manifest="manifest.json")


def edges(snapshot: LineageSnapshot) -> dict[str, tuple[list[str], list[str]]]:
    return {
        ref.name: ([one.name for one in node.reads], [one.name for one in node.writes])
        for ref, node in snapshot.jobs.items()
        if node.reads or node.writes
    }


def calendars(snapshot: LineageSnapshot) -> dict[str, Any]:
    return {ref.name.split(".")[-1]: one.partitioning for ref, one in snapshot.datasets.items()}


def test_models_and_snapshots_are_jobs_by_the_names_of_dbt_ol() -> None:
    snapshot = source().read()
    marts = "shop.marts"
    assert edges(snapshot) == {
        f"{marts}.shop.stg_orders": (["shop.raw.orders"], [f"{marts}.stg_orders"]),
        f"{marts}.shop.orders_daily": ([f"{marts}.stg_orders"], [f"{marts}.orders_daily"]),
        # An ephemeral model stands for what it reads.
        f"{marts}.shop.customers": (
            [f"{marts}.countries", "shop.raw.customers"],
            [f"{marts}.customers"],
        ),
        f"{marts}.shop.sales": (
            [f"{marts}.customers", f"{marts}.orders_daily"],
            [f"{marts}.sales"],
        ),
        "shop.marts_marts.shop.customers_history.snapshot": (
            [f"{marts}.customers"],
            ["shop.marts_marts.customers_history"],
        ),
    }
    assert {ref.namespace for ref in snapshot.jobs} == {"dbt"}
    assert {ref.namespace for ref in snapshot.datasets} == {"duckdb"}
    modes = {ref.name.split(".")[3]: dict(node.modes) for ref, node in snapshot.jobs.items()}
    assert [*modes["customers"].values(), *modes["orders_daily"].values()] == ["merge", "overwrite"]


def test_batches_are_calendars_of_what_is_read_by_time() -> None:
    assert calendars(source().read()) == {
        **dict.fromkeys(("orders", "orders_daily", "stg_orders"), DAILY),
        **dict.fromkeys(("countries", "customers", "customers_history", "sales"), WHOLE),
    }


def test_the_finest_batch_and_the_first_begin_count(tmp_path: Path) -> None:
    hourly = {"batch_size": "hour", "begin": "2023-01-01", "event_time": "at"}
    of_customers = {**hourly, "incremental_strategy": "microbatch", "materialized": "incremental"}
    inputs = {"nodes": ["model.shop.stg_orders", "model.shop.orders_daily"]}
    snapshot = changed(
        tmp_path, {"model.shop.customers": {"config": of_customers, "depends_on": inputs}}
    ).read()
    found = calendars(snapshot)
    assert found["orders"] == {"grain": "hour", "zone": "UTC", "start": "2023-01-01T00"}
    assert found["orders_daily"] == DAILY


def test_a_partitioned_input_without_a_time_is_read_as_a_whole(tmp_path: Path) -> None:
    snapshot = changed(tmp_path, {"model.shop.stg_orders": {"config": {"event_time": None}}}).read()
    assert calendars(snapshot)["stg_orders"] == WHOLE
    monthly = {
        "batch_size": "month",
        "begin": "2024-01-15",
        "event_time": "at",
        "incremental_strategy": "microbatch",
        "materialized": "incremental",
    }
    of_daily = {"config": {"event_time": None}}
    change = {"model.shop.sales": {"config": monthly}, "model.shop.orders_daily": of_daily}
    snapshot = changed(tmp_path, change).read()
    assert calendars(snapshot)["sales"] == {"grain": "month", "zone": "UTC", "start": "2024-01-01"}
    (node,) = (node for ref, node in snapshot.jobs.items() if ref.name.endswith("sales"))
    edge = {"namespace": "duckdb", "name": "shop.marts.orders_daily"}
    assert node.partitioning == {"reads": [{"dataset": edge, "mapping": "all"}]}


def test_with_the_events_of_dbt_ol_each_model_is_one_job() -> None:
    several = SeveralSources(
        [("dbt", source()), ("events", EventSource([RECORDED / "events.ndjson"]))]
    )
    snapshot = several.read()
    assert snapshot.source == "dbt, events"
    files = {ref for ref in snapshot.datasets if ref.namespace.startswith("duckdb")}
    assert {ref.namespace for ref in files} == {"duckdb://shop.duckdb"}
    customers = snapshot.jobs[JobRef("dbt", "shop.marts.shop.customers")]
    # dbt-ol names the ephemeral model alone.
    assert [ref.name for ref in customers.reads] == [
        *("shop.marts.clean_customers", "shop.marts.countries", "shop.raw.customers")
    ]
    assert customers.stable_id == "model.shop.customers"


def beside(*spaces: str, table: str = "SHOP.raw.Orders") -> LineageSnapshot:
    return LineageSnapshot.of([], [DatasetNode(ref=DatasetRef(one, table)) for one in spaces])


@pytest.mark.parametrize(
    ("adapter", "known", "space"),
    [
        ("postgres", "postgresql://db", "postgresql://db"),
        ("snowflake", "snowflake://acct", "snowflake://acct"),
        ("databricks", "databricks://host", "databricks://host"),
        ("spark", "hive://metastore:9083", "hive://metastore:9083"),
        ("bigquery", "bigquery", "bigquery"),
        ("postgres", "mysql://db", "postgres"),
    ],
)
def test_tables_are_in_the_namespace_that_others_know(
    tmp_path: Path, adapter: str, known: str, space: str
) -> None:
    snapshot = changed(tmp_path, {}, adapter_type=adapter).read_beside(beside(known))
    assert {ref.namespace for ref in snapshot.datasets} == {space}
    assert any("dataset_namespace" in one for one in snapshot.warnings) == (space == "postgres")


def test_two_namespaces_are_asked_about() -> None:
    with pytest.raises(LineageError, match="are known as those of") as raised:
        source().read_beside(beside("duckdb://a", "duckdb://b"))
    assert raised.value.hint == 'Name one with the source: dataset_namespace = "duckdb://a".'
    spellings = beside("duckdb://a", "duckdb://a/")
    assert {ref.namespace for ref in source().read_beside(spellings).datasets} == {"duckdb://a"}
    snapshot = source(dataset_namespace="duckdb://b", namespace="etl").read_beside(beside())
    assert {ref.namespace for ref in snapshot.datasets} == {"duckdb://b"}
    assert {ref.namespace for ref in snapshot.jobs} == {"etl"}


def test_a_source_that_another_job_writes_keeps_its_calendar_open() -> None:
    raw = DatasetRef("duckdb://a", "shop.raw.customers")
    load = JobNode(ref=JobRef("etl", "load"), writes=(raw,))
    snapshot = source().read_beside(LineageSnapshot.of([load]))
    assert snapshot.datasets[raw].partitioning is None


def test_an_identifier_is_another_name_of_a_source(tmp_path: Path) -> None:
    change = {"source.shop.raw.orders": {"identifier": "orders_v2"}}
    snapshot = changed(tmp_path, change).read()
    (node,) = (node for ref, node in snapshot.datasets.items() if ref.name == "shop.raw.orders")
    assert node.aliases == (DatasetRef("duckdb", "shop.raw.orders_v2"),)


def test_the_identifier_of_a_source_tells_what_other_lineage_writes(tmp_path: Path) -> None:
    change = {"source.shop.raw.customers": {"identifier": "CLIENTS"}}
    raw = DatasetRef("duckdb://a", "shop.raw.clients")
    load = JobNode(ref=JobRef("etl", "load"), writes=(raw,))
    snapshot = changed(tmp_path, change).read_beside(LineageSnapshot.of([load]))
    node = snapshot.datasets[DatasetRef("duckdb://a", "shop.raw.customers")]
    assert node.partitioning is None


def results(folder: Path, *nodes: Mapping[str, Any], **args: Any) -> DbtSource:
    """Return the recorded project with the results of a command beside its manifest."""
    document = {
        "metadata": {"invocation_id": "i1"},
        "args": {"which": "run", **args},
        "results": [
            {
                "status": "success",
                "timing": [
                    {"name": "compile", "started_at": "", "completed_at": ""},
                    {
                        "name": "execute",
                        "started_at": "2024-06-06T03:00:00.5Z",
                        "completed_at": "2024-06-06T03:10:00.5Z",
                    },
                ],
                **node,
            }
            for node in nodes
        ],
    }
    (folder / "run_results.json").write_text(json.dumps(document))
    return changed(folder, {})


def test_results_are_runs_of_models_and_batches(tmp_path: Path) -> None:
    days = [
        [f"2024-06-0{day}T00:00:00+00:00", f"2024-06-0{day + 1}T00:00:00+00:00"]
        for day in (1, 2, 3)
    ]
    snapshot = results(
        tmp_path,
        {"unique_id": "model.shop.sales"},
        {"unique_id": "model.shop.customers", "status": "error"},
        {"unique_id": "model.shop.stg_orders", "status": "skipped", "timing": []},
        {"unique_id": "test.shop.unique_orders_daily_id.ae621f5544"},
        {
            "unique_id": "model.shop.orders_daily",
            "status": "partial success",
            "batch_results": {"successful": days[:2], "failed": days[2:]},
        },
    ).read()
    found = [
        (run.job.name.split(".")[-1], run.state, run.nominal_start and run.nominal_start.day)
        for run in snapshot.history
    ]
    assert found == [
        ("sales", "COMPLETE", None),
        ("customers", "FAIL", None),
        ("orders_daily", "COMPLETE", 1),
        ("orders_daily", "COMPLETE", 2),
        ("orders_daily", "FAIL", 3),
    ]
    seconds = [(run.ended_at - run.started_at).seconds for run in snapshot.history]  # type: ignore[operator]
    assert seconds == [600, 600, 200, 200, 200]


def test_recorded_results_hold_a_run_of_each_batch() -> None:
    runs = [(run.job.name, run.nominal_start) for run in source().read().history]
    batches = [start for name, start in runs if name.endswith("orders_daily")]
    assert [start and f"{start:%Y-%m-%d}" for start in batches] == [
        f"2024-06-0{day}" for day in range(1, 6)
    ]
    assert len(runs) == 9


@pytest.mark.parametrize("args", [{"which": "compile"}, {"empty": True}, {"sample": "3 days"}])
def test_results_of_a_command_that_writes_no_tables_are_no_runs(
    tmp_path: Path, args: dict[str, Any]
) -> None:
    assert results(tmp_path, {"unique_id": "model.shop.sales"}, **args).read().history == ()


def test_a_model_with_runs_in_other_lineage_keeps_these(tmp_path: Path) -> None:
    source = results(tmp_path, {"unique_id": "model.shop.sales"})
    events = EventSource([RECORDED / "events.ndjson"])
    several = SeveralSources([("dbt", source), ("events", events)])
    assert not [run for run in several.read().history if run.run_id == "i1"]


@pytest.mark.parametrize("text", ["{", "[]", '{"args": {"which": "run"}, "metadata": {}}'])
def test_a_part_of_the_results_is_refused(tmp_path: Path, text: str) -> None:
    source = results(tmp_path)
    (tmp_path / "run_results.json").write_text(text)
    with pytest.raises(LineageError, match=r"run_results\.json: not the results of a dbt command"):
        source.read()


def test_a_part_of_a_manifest_is_refused(tmp_path: Path) -> None:
    missing = {"model.shop.sales": {"depends_on": {"nodes": ["model.other.gone"]}}}
    with pytest.raises(LineageError, match=r"model\.shop\.sales depends on model\.other\.gone"):
        changed(tmp_path, missing).read()
    old = "https://schemas.getdbt.com/dbt/manifest/v9.json"
    with pytest.raises(LineageError, match="a manifest of version v9; known are v10, v11, v12"):
        changed(tmp_path, {}, dbt_schema_version=old).read()
    for text in ("{", "[]", '{"nodes": {}}'):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(LineageError, match=r"manifest\.json: "):
            DbtSource(project=tmp_path, manifest="manifest.json").read()
    with pytest.raises(LineageError, match="no such file"):
        DbtSource(project=tmp_path, manifest="none.json").read()
