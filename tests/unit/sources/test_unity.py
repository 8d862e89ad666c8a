"""Exports of Unity Catalog's system tables as lineage: jobs, runs, and parts that are missing."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.packages import create_source

Row = dict[str, Any]
TOML = """
[lineage]
sources = [{ source = "unity", tables = "tables.jsonl" }]

[[dataset]]
name = "*"
namespace = "*"
grain = "none"
"""


def row(
    entity: str, source: str | None, target: str | None, at: str = "02T05:00", **more: Any
) -> Row:
    """Return a row of `table_lineage`; the entity is TYPE/ID/RUN, or empty if it is not known."""
    kind, name, run = entity.split("/") if entity else (None, None, None)
    return {
        "workspace_id": "1",
        "entity_type": kind,
        "entity_id": name,
        "entity_run_id": run,
        "source_table_full_name": source,
        "source_path": None,
        "target_table_full_name": target,
        "target_path": None,
        "event_time": f"2024-06-{at}:00.000Z",
        "entity_metadata": None,
        **more,
    }


def job(run: str) -> Row:
    return {
        "entity_metadata": {"job_info": {"job_id": "11", "job_run_id": run}, "notebook_id": "7"}
    }


ROWS = [
    # A notebook in a job: bronze, then silver from it; its older run read another table.
    row("NOTEBOOK/7/a1", "s.raw.old", "s.lake.bronze", "01T03:00", **job("r1")),
    row("NOTEBOOK/7/a2", "s.raw.orders", "s.lake.bronze", "02T03:00", **job("r2")),
    row("NOTEBOOK/7/a2", "s.lake.bronze", "s.lake.silver", "02T03:01", **job("r2")),
    row("NOTEBOOK/7/a2", "s.ref.countries", "s.lake.silver", "02T03:01", **job("r2")),
    row("NOTEBOOK/7/a2", "s.ref.flags", None, "02T03:02", **job("r2")),
    row("JOB/12/r3", "s.lake.silver", "s.marts.sales"),
    row("PIPELINE/p/u1", "s.marts.sales", "s.marts.by_day"),
    row("NOTEBOOK/78/x1", "s.marts.sales", "s.marts.top"),
    row("", "s.marts.top", "s.marts.mailing"),
    row("JOB/13/r4", "s.marts.mailing", None),
    row("DASHBOARD_V3/d/", "s.marts.sales", None),
    row("NOTEBOOK/79/x2", "s.marts.sales", None),
    row("JOB/14/r5", None, "s.lake.files", source_path="s3://lake/landing/files/"),
]


def lines(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


def read(folder: Path, rows: Iterable[Row] = ROWS, **settings: Any) -> LineageSnapshot:
    (folder / "tables.jsonl").write_text(lines(rows))
    return create_source("unity", {"tables": "tables.jsonl", **settings}, project=folder).read()


def edges(snapshot: LineageSnapshot) -> dict[str, tuple[list[str], list[str]]]:
    return {
        ref.name: ([one.name for one in node.reads], [one.name for one in node.writes])
        for ref, node in snapshot.jobs.items()
        if "." not in ref.name.partition("/")[2] and (node.reads or node.writes)
    }


def test_a_plan_follows_jobs_pipelines_and_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables.jsonl").write_text(lines(ROWS))
    (tmp_path / "lineage-backfill.toml").write_text(TOML)

    def planned(table: str) -> list[str]:
        assert main(["impact", table, "--json", "--now", "2024-06-20T12:00:00Z"]) == 0
        return [one["job"]["name"] for one in json.loads(capsys.readouterr().out)["jobs"]]

    below = ["job/12", "notebook/78", "pipeline/p", "unknown/s.marts.mailing", "job/13"]
    assert planned("s.lake.silver") == below
    # What the parts of a run hand to one another is no input; what one of them only reads is.
    for table in ("s.raw.orders", "s.ref.countries", "s.ref.flags"):
        assert planned(table) == ["job/11", *below]
    assert planned("s3://lake:landing/files") == ["job/14"]
    # Only an older run read it.
    assert planned("s.raw.old") == []


def test_what_is_left_out_and_what_is_not_named_is_stated(tmp_path: Path) -> None:
    assert read(tmp_path).warnings == (
        "Unity Catalog: 2 of them (dashboard_v3/d, notebook/79): left out, as no table is written",
        "Unity Catalog: unknown/s.marts.mailing: the writer is not named",
    )


def test_runs_have_the_times_of_their_events(tmp_path: Path) -> None:
    runs = [run for run in read(tmp_path).history if run.job.name == "job/11"]
    assert [(run.run_id, run.state) for run in runs] == [("r1", "COMPLETE"), ("r2", "COMPLETE")]
    last = runs[1]
    assert last.started_at is not None
    assert last.ended_at is not None
    assert (last.ended_at - last.started_at).seconds == 120


def test_a_csv_has_the_same_lineage(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        for one in ROWS:
            about = one["entity_metadata"]
            writer.writerow({**one, "entity_metadata": about and json.dumps(about)})
    source = create_source("unity", {"tables": "t.csv", "rows": len(ROWS)}, project=tmp_path)
    assert edges(source.read()) == edges(read(tmp_path))


def test_columns_are_those_of_the_column_table(tmp_path: Path) -> None:
    columns = {"source_column_name": "amount", "target_column_name": "revenue"}
    (tmp_path / "c.jsonl").write_text(lines([{**ROWS[5], **columns}]))
    (edge,) = read(tmp_path, columns="c.jsonl").column_edges
    assert (edge.input.name, edge.input_column, edge.output_column) == (
        *("s.lake.silver", "amount", "revenue"),
    )


def test_a_table_and_its_location_are_one(tmp_path: Path) -> None:
    path = "abfss://lake@acct.dfs.core.windows.net/silver"
    snapshot = read(tmp_path, [row("JOB/1/r", "s.a", "s.b", source_path=path)])
    (node,) = (node for ref, node in snapshot.datasets.items() if ref.name == "s.a")
    assert [str(one) for one in node.aliases] == ["abfs://lake@acct.dfs.core.windows.net:silver"]


def test_a_merge_reads_its_target_and_writes_it(tmp_path: Path) -> None:
    rows = [row("JOB/1/r", source, "s.b") for source in ("s.a", "s.b")]
    snapshot = read(tmp_path, [*rows, row("JOB/2/r", "s.b", "s.c")])
    (node,) = (node for node in snapshot.jobs.values() if len(node.reads) == 2)
    assert [ref.name for ref in node.writes] == ["s.b"]
    assert [mode for _, mode in node.modes] == ["merge"]


@pytest.mark.parametrize(
    ("text", "settings", "fault"),
    [
        ("", {}, "no rows"),
        (lines(ROWS), {"rows": 14}, "13 rows, not 14"),
        (lines(ROWS[5:6] * 1000), {}, "exactly 1,000 rows, the limit of an editor or client"),
        (lines(ROWS)[:-9], {}, "row 13: "),
        ('{"entity_type": "JOB"}\n', {}, "row 1: it has no entity_id, entity_run_id"),
        ("[]\n", {}, "row 1: "),
        (lines([{**ROWS[5], "event_time": "soon"}]), {}, "row 1: Invalid isoformat"),
        (lines(ROWS), {"columns": "none.jsonl"}, "none.jsonl: no such file"),
        (
            lines(ROWS[6:]),
            {"columns": "c.jsonl"},
            "a run of job/12 writes s.marts.sales, and t.jsonl has no such row",
        ),
    ],
)
def test_a_part_of_an_export_is_refused(
    tmp_path: Path, text: str, settings: dict[str, Any], fault: str
) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    columns = {"source_column_name": "a", "target_column_name": "b"}
    (tmp_path / "c.jsonl").write_text(lines([{**ROWS[5], **columns}]))
    with pytest.raises(LineageError, match=fault):
        create_source("unity", {"tables": "t.jsonl", **settings}, project=tmp_path).read()


def test_a_csv_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join(ROWS[0]) + "\n1,JOB,12\n")
    with pytest.raises(LineageError, match="row 1: it is cut off"):
        create_source("unity", {"tables": "t.csv"}, project=tmp_path).read()
