"""Event files in every form, whole or not at all."""

from __future__ import annotations

import gzip
import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources import events as module
from lineage_backfill.sources.events import EventSource

DATA = Path(__file__).parents[2] / "data" / "lineage"
NEWEST = datetime(2024, 1, 1, tzinfo=UTC)  # the time of the newest event


def read(*paths: Path | str) -> LineageSnapshot:
    return EventSource(paths).read()


def made(job: str, **more: Any) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": "2024-01-01T00:00:00Z",
        "run": {"runId": job},
        "job": {"namespace": "n", "name": job},
        "inputs": [{"namespace": "n", "name": "in"}],
        "outputs": [{"namespace": "n", "name": job}],
    } | more


def jobs(snapshot: LineageSnapshot) -> list[str]:
    return [ref.name for ref in snapshot.jobs]


ONE, TWO = json.dumps(made("one")), json.dumps(made("two"))
FORMS = {
    "one a line": f"{ONE}\n{TWO}\n",
    "no newline at the end": f"{ONE}\n{TWO}",
    "blank lines, windows ends": f"\r\n{ONE}\r\n\r\n{TWO}\r\n",
    "byte order mark": f"\ufeff{ONE}\n{TWO}\n",
    "an array": f"[{ONE}, {TWO}]",
    "an array over lines": json.dumps([made("one"), made("two")], indent=2),
    "an array a line": f"[{ONE}]\n[{TWO}]\n",
    "an export of /events/lineage": json.dumps(
        {"events": [made("one"), made("two")], "totalCount": 2}
    ),
    "the same, pretty": json.dumps({"events": [made("one"), made("two")]}, indent=1),
    "events over lines": json.dumps(made("one"), indent=2)
    + "\n"
    + json.dumps(made("two"), indent=2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_of_file(
    tmp_path: Path, form: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 100)  # so that events lie across chunks
    data = FORMS[form].encode()
    file = tmp_path / "events.json"
    file.write_bytes(gzip.compress(data) if packed else data)
    snapshot = read(file)
    assert jobs(snapshot) == ["one", "two"]
    assert (snapshot.source, snapshot.taken_at, snapshot.warnings) == ("events", NEWEST, ())


KCAT = {"topic": "lineage", "partition": 0, "offset": 7}


@pytest.mark.parametrize(
    "records",
    [
        [json.dumps(KCAT | {"payload": text}) for text in (ONE, TWO, None)],
        [json.dumps({"schema": None, "payload": made(job)}) for job in ("one", "two")],
        [f"CreateTime:1704067200000\tPartition:0\trun:n/one\t{text}" for text in (ONE, TWO)],
    ],
)
def test_a_dump_with_more_around_its_events_is_read_as_a_log(
    tmp_path: Path, records: list[str]
) -> None:
    log, strict = tmp_path / "dump.log", tmp_path / "dump.ndjson"
    for file in (log, strict):
        file.write_text("".join(f"{one}\n" for one in records))
    assert jobs(read(log)) == ["one", "two"]
    with pytest.raises(LineageError, match=r"dump\.ndjson:1: ") as raised:
        EventSource([strict], allow_torn=True).read()
    assert "is read if its name ends with .log" in raised.value.hint


def test_directories_and_globs(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one.ndjson").write_text(ONE)
    (tmp_path / "a" / "b" / "two.json.gz").write_bytes(gzip.compress(TWO.encode()))
    (tmp_path / "a" / ".three.json").write_text("half written")
    (tmp_path / "a" / "notes.txt").write_text("hello")
    snapshot = read(tmp_path / "a")
    assert jobs(snapshot) == ["one", "two"]
    assert [w for w in snapshot.warnings if "notes.txt" in w] == list(snapshot.warnings)
    assert jobs(read(f"{tmp_path}/a/*.ndjson")) == ["one"]
    assert jobs(read(f"{tmp_path}/**/*.gz", tmp_path / "a" / "one.ndjson")) == ["one", "two"]


@pytest.mark.parametrize("torn", [TWO[:50], TWO[:-1], '{"eventTy'])
def test_a_last_line_that_is_cut_off_is_refused_unless_that_is_allowed(
    tmp_path: Path, torn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0)
    file = tmp_path / "events.ndjson"
    file.write_text(f"{ONE}\n{torn}")
    with pytest.raises(LineageError, match=r":2: the last line is incomplete") as refused:
        read(file)
    assert "--allow-torn-events" in refused.value.hint
    snapshot = EventSource([file], allow_torn=True).read()
    assert jobs(snapshot) == ["one"]
    (warning,) = snapshot.warnings
    assert warning.startswith(f"{file}:2: the incomplete last line is left out")


@pytest.mark.parametrize("last", ['{"eventType": nothing}', f"{TWO}}}", "three", '"a"'])
def test_a_whole_last_line_that_is_no_event_is_never_left_out(tmp_path: Path, last: str) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text(f"{ONE}\n{last}")
    with pytest.raises(LineageError, match=r":2: not "):
        EventSource([file], allow_torn=True).read()


def test_a_writer_is_given_time_to_end_its_line(tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text(f"{ONE}\n{TWO[:50]}")

    def end() -> None:
        time.sleep(0.3)
        with file.open("a") as stream:
            stream.write(f"{TWO[50:]}\n")

    writer = threading.Thread(target=end)
    writer.start()
    try:
        assert jobs(read(file)) == ["one", "two"]
    finally:
        writer.join()


def test_a_line_cut_off_within_a_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0)
    file = tmp_path / "events.ndjson"
    text = json.dumps(made("zwei_ü"), ensure_ascii=False).encode()
    file.write_bytes(ONE.encode() + b"\n" + text[: text.index("ü".encode()) + 1])
    assert jobs(EventSource([file], allow_torn=True).read()) == ["one"]


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{ONE}\n{TWO[:50]}\n{TWO}\n".encode(), r":2: not JSON"),
        (f"{ONE}\n{{}}\n".encode(), r":2: not an OpenLineage event"),
        (f"{ONE}\n3\n".encode(), r":2: not an OpenLineage event"),
        (b'{"events": null}', r":1: not an OpenLineage event"),
        (f"[{ONE},\n{TWO}".encode(), r":2: the array is incomplete"),
        (f"[{ONE},\n{TWO[:50]}".encode(), r":2: not JSON"),
        (b"hello\n", r":1: not JSON"),
        (b'{"eventTime": NaN}\n{}', r":1: not JSON: NaN"),
        (b"[" * 100_000, r":1: the array is incomplete"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", r":1: not JSON"),
        (json.dumps(made("x")).replace('"in"', '"i\\u0000"').encode() + b"\n", r":1: not an Open"),
        (ONE.encode().replace(b'"one"', b'"\xff"') + b"\n", r":1: .*control characters"),
        (packed(f"{ONE}\n{TWO}\n" * 99)[:-20], r": cannot be read from here on"),
        (packed(ONE)[:-4] + b"oops", r": cannot be read from here on"),
    ],
)
def test_a_file_that_is_not_whole_is_an_error_with_its_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "events.json"
    file.write_bytes(content)
    with pytest.raises(LineageError, match=message) as caught:
        read(file)
    assert str(file) in str(caught.value)
    assert caught.value.hint


def test_an_event_beyond_the_limit_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_EVENT", 100)
    monkeypatch.setattr(module, "_CHUNK", 10)
    for number, content in enumerate([f"{ONE}\n{TWO}\n", f"[{ONE}]"]):
        file = tmp_path / f"{number}.json"
        file.write_text(content)
        with pytest.raises(LineageError, match="not JSON"):
            read(file)


@pytest.mark.parametrize("path", ["gone.json", "*.ndjson", "empty"])
def test_nothing_to_read_is_an_error_and_no_empty_lineage(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LineageError, match="no lineage events at") as caught:
        read(tmp_path / path)
    assert "Name a file" in caught.value.hint
    assert caught.value.exit_code == 64


FIVE = {
    "etl_orders_7_days",
    "etl_delivery_7_days",
    "delivery_times_7_days",
    "email_discounts",
    "orders_popular_day_of_week",
}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("etl_orders", FIVE),
        ("etl_menus", FIVE),
        ("etl_customers", FIVE - {"etl_orders_7_days"}),
        ("delivery_times_7_days", {"email_discounts", "orders_popular_day_of_week"}),
    ],
)
def test_downstream_of_the_food_delivery_jobs(start: str, expected: set[str]) -> None:
    snapshot = read(DATA / "food_delivery.json.gz")
    assert (len(snapshot.jobs), len(snapshot.datasets), snapshot.warnings) == (13, 13, ())
    below = nx.descendants(snapshot.graph(), JobRef("food_delivery", start))
    assert {node.name for node in below if isinstance(node, JobRef)} == expected


def test_jobs_that_changed_their_inputs() -> None:
    apples = read(DATA / "apples")
    pie = next(node for ref, node in apples.jobs.items() if "pie" in ref.name)
    assert pie.reads
    assert set(pie.reads).isdisjoint(pie.former_reads)
    assert any(node.former_reads for node in apples.jobs.values())


def test_events_for_edge_cases() -> None:
    snapshot = read(DATA / "events")
    assert "myjob.buggy_task🕷" in {ref.name for ref in snapshot.jobs}
    assert any("no time zone" in warning for warning in snapshot.warnings)


def test_recorded_airflow_tasks_keep_their_datasets_and_their_dag() -> None:
    snapshot = read(DATA / "airflow_bq_gcs.ndjson.gz")
    upload = snapshot.jobs[JobRef("airflow", "BQ.upload")]
    assert upload.parent == JobRef("airflow", "BQ")
    assert upload.reads
    assert upload.writes
    dag = snapshot.jobs[JobRef("airflow", "BQ")]
    assert (dag.reads, dag.writes, dag.owners) == ((), (), ("***",))


def test_recorded_spark_column_lineage() -> None:
    edges = read(DATA / "spark_cll.ndjson.gz").column_edges
    kinds = {(e.input.name[-1], e.input_column, e.output_column): e.direct for e in edges}
    assert kinds[("1", "a", "ident")] is True
    assert kinds[("1", "b", "trans")] is True
    assert kinds[("1", "b", "*")] is False, "grouped by: told of each column, it is of all rows"


def test_recorded_hive_tables_are_known_by_both_names() -> None:
    snapshot = read(DATA / "spark_hive.ndjson.gz", DATA / "spark_bigquery_to_file.ndjson.gz")
    table = DatasetRef("hdfs://dataproc-producer-test-m", "/user/hive/warehouse/t1")
    assert snapshot.datasets[table].aliases == (
        DatasetRef("hive://dataproc-producer-test-m:9083", "default.t1"),
    )


def test_events_of_runs_that_are_to_be_ignored_are_left_out(tmp_path: Path) -> None:
    job = {"namespace": "n", "name": "j"}
    good = {"eventType": "COMPLETE", "eventTime": "2024-01-01T00:00:00Z", "run": {"runId": "good"}}
    bad = {"eventType": "COMPLETE", "eventTime": "yesterday", "run": {"runId": "bad"}}
    file = tmp_path / "events.ndjson"
    file.write_text("".join(json.dumps(one | {"job": job}) + "\n" for one in (good, bad)))
    with pytest.raises(LineageError):
        EventSource([file]).read()
    (run,) = EventSource([file], ignore=["bad"]).read().history
    assert run.run_id == "good"


def test_a_linked_folder_is_read_once_and_a_part_that_leads_nowhere_is_refused(
    tmp_path: Path,
) -> None:
    folder, far = tmp_path / "events", tmp_path / "far"
    far.mkdir()
    (folder / "day").mkdir(parents=True)
    (folder / "day" / "a.ndjson").write_text(ONE)
    (far / "b.ndjson").write_text(TWO)
    (folder / "latest").symlink_to("day")
    (folder / "far").symlink_to(far)
    (folder / "back").symlink_to(folder)
    (folder / "notes").symlink_to("nowhere")  # no event file: it is only named
    source = EventSource([folder])
    assert jobs(source.read()) == ["one", "two"]
    (folder / "c.ndjson.gz").symlink_to("nowhere")
    with pytest.raises(LineageError, match=r"c\.ndjson\.gz: cannot be read: No such file"):
        source.read()
    with pytest.raises(LineageError, match="cannot be read"):
        EventSource([folder / "*.gz"]).read()
