"""`impact … --columns`, from events in the forms that producers send to what a user reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from tests.fake_marquez import FakeMarquez

Facet = dict[str, Any]
NOW = "2024-01-20T00:00:00Z"


def field(column: str, *kinds: str, table: str = "raw.orders") -> Facet:
    """Return an input field; kinds as in `DIRECT IDENTITY` or `INDIRECT FILTER`."""
    told = [dict(zip(("type", "subtype"), kind.split(), strict=False)) for kind in kinds]
    item: Facet = {"namespace": "shop", "name": table, "field": column}
    return item | {"transformations": told} if told else item


def columns(dataset: Iterable[Facet] = (), **fields: list[Facet]) -> Facet:
    """Return a columnLineage facet: what each output column is made of, and what the rows are."""
    facet: Facet = {"fields": {name: {"inputFields": made} for name, made in fields.items()}}
    return {"columnLineage": facet | ({"dataset": list(dataset)} if dataset else {})}


def event(job: str, reads: str, writes: str, facets: Facet | None = None) -> Facet:
    return {
        "eventType": "COMPLETE",
        "eventTime": "2024-01-10T00:00:00Z",
        "run": {
            "runId": f"00000000-0000-4000-8000-{int(job.encode().hex()[:10], 16) % 10**12:012}"
        },
        "job": {"namespace": "shop", "name": job},
        "inputs": [{"namespace": "shop", "name": name} for name in reads.split()],
        "outputs": [
            {"namespace": "shop", "name": name, "facets": facets or {}} for name in writes.split()
        ],
    }


ORDERS = [
    # Renamed twice on its way, then added up.
    event(
        "clean",
        "raw.orders",
        "orders",
        columns(
            id=[field("id", "DIRECT IDENTITY")],
            amount=[field("price", "DIRECT TRANSFORMATION")],
            city=[field("address.city")],  # the form before transformations
        ),
    ),
    event(
        "rename",
        "orders",
        "sales",
        columns(
            revenue=[field("amount", "DIRECT IDENTITY", table="orders")],
            id=[field("id", "DIRECT IDENTITY", table="orders")],
        ),
    ),
    event(
        "daily_sum",
        "sales",
        "sums",
        columns(total=[field("revenue", "DIRECT AGGREGATION", table="sales")]),
    ),
    # Other columns alone, and all that lies below.
    event("ids", "raw.orders", "order_ids", columns(id=[field("id", "DIRECT IDENTITY")])),
    event("count_ids", "order_ids", "counts"),
    event("cities", "orders", "by_city", columns(city=[field("city", table="orders")])),
    # Prices that decide which rows there are, told of one column or of the whole output.
    event(
        "expensive",
        "raw.orders",
        "expensive_ids",
        columns(id=[field("id", "DIRECT IDENTITY"), field("price", "INDIRECT FILTER")], day=[]),
    ),
    event(
        "days_of_expensive",
        "expensive_ids",
        "expensive_days",
        columns(day=[field("day", table="expensive_ids")]),
    ),
    event(
        "by_price",
        "raw.orders prices",
        "joined",
        columns(
            [field("price", "INDIRECT JOIN"), field("price", "INDIRECT JOIN", table="prices")],
            label=[field("label", table="prices")],
        ),
    ),
    event(
        "histogram",
        "raw.orders",
        "histogram",
        columns([field("price", "INDIRECT GROUP_BY")], n=[field("id", "DIRECT AGGREGATION")]),
    ),
    # Prices that decide one column: a CASE WHEN in `size`, not in `id`.
    event(
        "sizes",
        "raw.orders",
        "sizes",
        columns(
            id=[field("id", "DIRECT IDENTITY")],
            size=[field("price", "INDIRECT CONDITIONAL")],
        ),
    ),
    event("size_ids", "sizes", "size_ids", columns(id=[field("id", table="sizes")])),
    # No column lineage: kept, and what it writes is changed as a whole.
    event("legacy", "raw.orders", "old"),
    event("after_legacy", "old", "older", columns(x=[field("anything", table="old")])),
]
RUN = {
    *("clean", "rename", "daily_sum", "expensive", "days_of_expensive", "by_price", "histogram"),
    *("sizes", "legacy", "after_legacy"),
}
SKIPPED = {"ids", "count_ids", "cities", "size_ids"}
TOML = (
    '[project]\nnamespace = "shop"\n[[dataset]]\nname = "*"\ngrain = "day"\nstart = "2024-01-01"\n'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lineage-backfill.toml").write_text(TOML)
    (tmp_path / "events.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in ORDERS))
    return tmp_path


def impact(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    given = ["impact", "raw.orders", "--partitions", "2024-01-05", "--now", NOW, *arguments]
    assert main([*given, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def statuses(plan: Any) -> dict[str, str]:
    return {one["job"]["name"]: one["status"] for one in plan["jobs"]}


@pytest.mark.parametrize("columns", ["", " ", ",", "price,", ",price"])
def test_an_empty_column_is_refused_and_does_not_mean_all(
    folder: Path, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    given = ["impact", "raw.orders", "--partitions", "2024-01-05", "--events", "events.ndjson"]
    assert main([*given, "--columns", columns]) == 64
    assert "--columns holds an empty name" in capsys.readouterr().err


def test_readers_of_none_of_the_columns_are_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = impact(capsys, "--columns", "price", "--events", "events.ndjson")
    assert statuses(plan) == dict.fromkeys(RUN, "planned") | dict.fromkeys(SKIPPED, "skipped")
    reasons = {one["job"]["name"]: one["reason"].get("text") for one in plan["jobs"]}
    assert reasons["ids"] == reasons["cities"] == "it reads none of the changed columns"
    assert (
        plan["warnings"][0]
        == "planned despite --columns, because their column lineage is unknown: shop:legacy"
    )
    assert statuses(impact(capsys, "--events", "events.ndjson")) == dict.fromkeys(
        RUN | SKIPPED, "planned"
    )


@pytest.mark.parametrize(
    ("column", "run"),
    [
        (
            "ID",
            RUN - {"daily_sum", "by_price", "days_of_expensive"} | {"ids", "count_ids", "size_ids"},
        ),
        ("address", {"clean", "cities", "legacy", "after_legacy"}),
        ("address.city", {"clean", "cities", "legacy", "after_legacy"}),
        ("address.zip", {"legacy", "after_legacy"}),
    ],
)
def test_each_column_goes_its_own_way(
    folder: Path, capsys: pytest.CaptureFixture[str], column: str, run: set[str]
) -> None:
    plan = impact(capsys, "--columns", column, "--events", "events.ndjson")
    assert {name for name, status in statuses(plan).items() if status == "planned"} == run


def test_a_column_that_nothing_knows_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["impact", "raw.orders", "--partitions", "2024-01-05", "--now", NOW]
    assert main([*given, "--columns", "prise", "--events", "events.ndjson"]) == 64
    said = " ".join(capsys.readouterr().err.split())
    assert "dataset shop:raw.orders has no known column prise" in said
    assert "Its known columns are address.city, id, price." in said


def test_a_user_reads_which_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["impact", "raw.orders", "--partitions", "2024-01-05", "--now", NOW]
    assert main([*given, "--columns", "price", "--events", "events.ndjson"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "planned despite --columns, because their column lineage is unknown: shop:legacy" in said
    assert main([*given, "--columns", "price", "--events", "events.ndjson", "--why", "ids"]) == 0
    assert "it reads none of the changed columns" in " ".join(capsys.readouterr().out.split())


def test_marquez_and_a_saved_snapshot_say_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--columns", "price")
    expected = statuses(impact(capsys, *asked, "--events", "events.ndjson"))
    assert main(["lineage", "pull", "--events", "events.ndjson", "--out", "saved.gz"]) == 0
    capsys.readouterr()
    assert statuses(impact(capsys, *asked, "--snapshot", "saved.gz")) == expected
    with FakeMarquez(ORDERS).serve() as address:
        assert statuses(impact(capsys, *asked, "--marquez", address)) == expected
