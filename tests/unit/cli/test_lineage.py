"""`lineage show`, `lineage pull` and `graph`: what they print, save and refuse."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lineage_backfill.cli.main import main
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.show.words import age
from lineage_backfill.sources.snapshot import SnapshotSource, save_snapshot
from tests.unit.cli.documents import fits

FOOD = Path(__file__).parents[2] / "data" / "lineage" / "food_delivery.json.gz"
AIRFLOW = FOOD.with_name("airflow_recorded.ndjson.gz")
EVIL = 'a"]; <b>\x1b[2J & `x`\\ {1}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run the command and return what it says on stdout."""
    assert main(arguments) == code
    said = capsys.readouterr()
    return said.out if code in (0, 2) else said.err


# --- show ---------------------------------------------------------------------------------------

DECLARED = """
[project]
namespace = "shop"

[[job]]
name = "clean"
reads = [{ dataset = "raw" }, { dataset = "codes" }]
writes = [{ dataset = "orders" }]
"""


def test_show_has_declared_edges_without_any_lineage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "lineage-backfill.toml").write_text(DECLARED)
    said = told(capsys, "lineage", "show")
    assert "raw (declared)" in said
    assert "1 job, 3 datasets, 2 of them written by no job; from the project file alone" in said
    assert "Read by  clean (declared)" in told(capsys, "lineage", "show", "codes")


def test_show_marks_only_what_the_project_file_adds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "lineage-backfill.toml").write_text(DECLARED)
    nodes = [JobNode(ref=JobRef("shop", "clean"), reads=(DatasetRef("shop", "raw"),))]
    save_snapshot(LineageSnapshot.of(nodes), folder / "taken.json.gz")
    source = ("--snapshot", "taken.json.gz")
    page = told(capsys, "lineage", "show", "clean", *source)
    assert [line.split() for line in page.splitlines()[1:]] == [
        ["Reads", "raw"],
        ["codes", "(declared)"],
        ["Writes", "orders", "(declared)"],
    ]
    document = json.loads(told(capsys, "lineage", "show", "--json", *source))
    assert fits(document, "lineage")
    (job,) = document["jobs"]
    assert [ref["name"] for ref in job["reads"]] == ["raw", "codes"]
    assert [ref["name"] for ref in job["declared_reads"]] == ["codes"]
    assert [ref["name"] for ref in job["declared_writes"]] == ["orders"]
    pulled = told(capsys, "lineage", "pull", "--out", "again.json.gz", *source)
    assert "1 job, 1 dataset" in pulled  # a snapshot holds what was sent


# --- pull ---------------------------------------------------------------------------------------


def test_pull_saves_what_plans_are_then_made_from_offline(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(capsys, "lineage", "pull", "--events", str(FOOD))
    size = (folder / "lineage.json.gz").stat().st_size
    assert said == f"lineage.json.gz: 13 jobs, 13 datasets, 13 runs from events; {size:,} bytes\n"
    document = json.loads(
        told(capsys, "lineage", "pull", "--events", str(FOOD), "--out", "b/x.gz", "--json")
    )
    assert fits(document, "lineage_pull")
    assert (document["file"], document["bytes"]) == ("b/x.gz", size)
    assert document["hash"] == SnapshotSource(folder / "b/x.gz").read().content_hash

    asked = ["impact", "public.orders", "--now", "2020-02-25T00:00:00Z", "--snapshot"]
    plan = told(capsys, *asked, "lineage.json.gz")
    assert "from a lineage snapshot of 2020-02-22 22:58:02 UTC, 2 days old" in plan
    shown = told(capsys, "lineage", "show", "--snapshot", "lineage.json.gz")
    assert "a snapshot of 2020-02-22 22:58:02 UTC, " in " ".join(shown.split())


def test_a_snapshot_that_cannot_be_written_is_no_half_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").write_text("")
    for out in ("file/x.gz", ".", "x" * 300):
        arguments = ["lineage", "pull", "--events", str(FOOD), "--out", out]
        assert f"{out} cannot be written" in told(capsys, *arguments, code=64)
        assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_snapshot_that_is_damaged_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "lineage", "pull", "--events", str(FOOD))
    file = folder / "lineage.json.gz"
    file.write_bytes(file.read_bytes()[:-40])
    said = told(capsys, "impact", "public.orders", "--snapshot", file.name, code=1)
    assert "not a valid lineage snapshot" in said
    assert "lineage pull" in said
    file.unlink()
    os.mkfifo(file)
    said = told(capsys, "impact", "public.orders", "--snapshot", file.name, code=1)
    assert "snapshot: it is a pipe, a socket or a device" in said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "new"), (-5, "new"), (61, "1 minute old"), (7200, "2 hours old"), (86_400, "1 day old")],
)
def test_age(seconds: int, words: str) -> None:
    from datetime import timedelta

    assert age(timedelta(seconds=seconds)) == words


def ref(name: str) -> DatasetRef:
    return DatasetRef("n", name)


def lineage(*jobs: tuple[str, str, str], **more: Any) -> LineageSnapshot:
    nodes = [
        JobNode(
            ref=JobRef("n", name),
            reads=tuple(map(ref, reads.split("|"))),
            writes=tuple(map(ref, writes.split("|"))),
        )
        for name, reads, writes in jobs
    ]
    return LineageSnapshot.of(nodes, **more)


# --- graph --------------------------------------------------------------------------------------

FOOD_GRAPH = ("graph", "--events", str(FOOD))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["etl_orders"],
        ["public.discounts", "--up", "--depth", "2"],
        ["--select", "etl_orders*"],
        ["etl_orders", "--format", "mermaid", "--depth", "1"],
    ],
    ids=" ".join,
)
def test_graph(
    arguments: list[str], capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert told(capsys, *FOOD_GRAPH, *arguments) == snapshot


def test_a_graph_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(told(capsys, *FOOD_GRAPH, "etl_orders", "--json"))
    assert fits(document, "graph")
    nodes = {node["id"]: node for node in document["nodes"]}
    assert [node["name"] for node in nodes.values() if node["start"]] == ["etl_orders"]
    assert all(
        nodes[edge["from"]]["layer"] < nodes[edge["to"]]["layer"] for edge in document["edges"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("lineage", "pull", "--events", str(FOOD)),
        ("init", "--events", str(FOOD), "--force"),
    ],
)
def test_a_full_disk_is_no_wrong_usage(
    arguments: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(capsys, *arguments, "--out", "/dev/full", code=1)
    assert "/dev/full cannot be written: No space left on device\n  Free disk space" in said


@pytest.mark.parametrize("form", ["table", "mermaid"])
def test_hostile_names_and_circles_are_drawn_as_text(
    folder: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = lineage(("one", EVIL, "b"), ("two", "b", f"{EVIL}|c"), ("own", "c", "c"))
    save_snapshot(taken, folder / "s")
    shown = told(capsys, "graph", "--snapshot", "s", "--format", form)
    assert "\x1b" not in shown
    assert all(name in shown for name in ("one", "two", "own"))
    assert "<b>" not in shown or form == "table"


def test_declared_edges_are_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_snapshot(lineage(("j", "a", "b")), folder / "s")
    (folder / "lineage-backfill.toml").write_text(
        '[project]\nnamespace = "n"\n[[job]]\nname = "j"\n[[job.reads]]\ndataset = "extra"\n'
    )
    assert "extra" in told(capsys, "graph", "j", "--up", "--snapshot", "s")


def test_a_name_of_a_job_and_a_dataset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_snapshot(lineage(("orders", "raw", "orders"), ("report", "orders", "page")), folder / "s")
    said = told(capsys, "graph", "orders", "--snapshot", "s", code=64)
    assert "dataset:orders or job:orders" in said
    assert "raw" in told(capsys, "graph", "job:orders", "--up", "--snapshot", "s")
    assert "report" in told(capsys, "graph", "dataset:orders", "--snapshot", "s")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "no dataset or job is named 'nobody'"),
        (["--up"], "need a start"),
        (["--depth", "2"], "need a start"),
        (["etl_orders", "--select", "x"], "both set the starting points"),
        (["--select", "x"], "matches no job"),
        (["--format", "gif"], "'gif' is not one of 'table', 'mermaid'."),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in told(capsys, *FOOD_GRAPH, *arguments, code=64)


# --- show ---------------------------------------------------------------------------------------

DATA = FOOD.parent


def at(day: int, **more: Any) -> dict[str, Any]:
    """Return the event of a job of the 2024-01-DAY; with all that an event can tell."""
    facets = {
        "nominalTime": {
            "nominalStartTime": f"2024-01-{day:02}T00:00:00Z",
            "nominalEndTime": f"2024-01-{day + 1:02}T00:00:00Z",
        },
        "parent": {"run": {}, "job": {"namespace": "n", "name": "dag"}},
    }
    column = {"namespace": "n", "name": "raw", "field": "a"}
    return {
        "eventType": "COMPLETE",
        "eventTime": f"2024-01-{day:02}T05:00:00Z",
        "run": {"runId": f"r{day}", "facets": facets},
        "job": {
            "namespace": "n",
            "name": "clean",
            "facets": {
                "ownership": {"owners": [{"name": "me\x1b"}]},
                "tags": {"tags": [{"key": "pii"}]},
                "jobType": {"processingType": "BATCH"},
                "sql": {"query": "INSERT INTO orders\nSELECT a AS b FROM raw"},
                "lineageBackfill_partitioning": {"grain": "day"},
            },
        },
        "inputs": [{"namespace": "n", "name": "raw"}],
        "outputs": [
            {
                "namespace": "n",
                "name": "orders",
                "facets": {
                    "schema": {"fields": [{"name": "a"}, {"name": "b"}]},
                    "symlinks": {
                        "identifiers": [{"namespace": "hive", "name": "db.orders", "type": "TABLE"}]
                    },
                    "columnLineage": {"fields": {"b": {"inputFields": [column]}}},
                    "tags": {"tags": [{"key": "gold"}]},
                },
            }
        ],
    } | more


@pytest.fixture
def told_all(folder: Path) -> None:
    start = at(2, eventType="START", eventTime="2024-01-02T04:59:00Z", inputs=[], outputs=[])
    old = at(1, inputs=[{"namespace": "n", "name": "older"}])
    (folder / "e.ndjson").write_text("\n".join(map(json.dumps, [old, start, at(2)])))


@pytest.mark.usefixtures("told_all")
@pytest.mark.parametrize("name", ["clean", "orders", "hive:db.orders", "raw", "dag", "early"])
def test_show_of_one_name(
    name: str,
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = 64 if name == "early" else 0
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        said = told(capsys, "lineage", "show", name, "--events", "e.ndjson", code=code)
    time.tzset()
    assert said == snapshot


def test_show_names_the_airflow_task_that_a_job_is(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["lineage", "show", "kinds.by_hook", "--events", str(AIRFLOW)]
    assert "task by_hook of DAG kinds" in told(capsys, *arguments)
    document = json.loads(told(capsys, *arguments, "--json"))
    assert fits(document, "lineage")
    (job,) = document["jobs"]
    assert job["airflow"] == {"dag": "kinds", "task": "by_hook"}


@pytest.mark.usefixtures("told_all")
def test_show_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(told(capsys, "lineage", "show", "--events", "e.ndjson", "--json"))
    assert fits(document, "lineage")
    clean = next(job for job in document["jobs"] if job["job"]["name"] == "clean")
    assert clean["owners"] == ["me\x1b"]
    assert clean["query"] == "INSERT INTO orders\nSELECT a AS b FROM raw"
    one = json.loads(told(capsys, "lineage", "show", "raw", "--events", "e.ndjson", "--json"))
    assert [job["job"]["name"] for job in one["jobs"]] == ["clean"]
    assert [data["dataset"]["name"] for data in one["datasets"]] == ["raw"]
    for recorded in DATA.glob("*.gz"):
        shown = told(capsys, "lineage", "show", "--events", str(recorded), "--json")
        assert fits(json.loads(shown), "lineage")


@pytest.mark.usefixtures("told_all")
def test_selectors_go_by_the_tags_of_what_a_job_writes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for selector in ("tag:pii", "tag:gold", "owner:me*"):
        asked = ["graph", "--events", "e.ndjson", "--select", selector, "--format", "table"]
        assert "clean" in told(capsys, *asked)


def test_show_tells_of_names_that_look_like_partitions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_snapshot(lineage(("j", "raw", "o_20240101|o_20240102")), folder / "s")
    assert main(["lineage", "show", "--snapshot", "s"]) == 0
    assert '    pattern = "o_{day:%Y%m%d}"\n' in capsys.readouterr().err
    document = json.loads(told(capsys, "lineage", "show", "--snapshot", "s", "--json"))
    assert fits(document, "lineage")
    (family,) = document["families"]
    assert family == {
        "dataset": {"namespace": "n", "name": "o"},
        "pattern": "o_{day:%Y%m%d}",
        "names": ["o_20240101", "o_20240102"],
    }


# --- runs that are left out ---------------------------------------------------------------------


def test_a_plan_says_which_runs_its_lineage_is_without(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(run_id: str, when: str, reads: str) -> str:
        names = [{"namespace": "n", "name": name} for name in (reads, "out", "j")]
        event = {"eventType": "COMPLETE", "eventTime": when, "run": {"runId": run_id}}
        return json.dumps(event | {"inputs": names[:1], "outputs": names[1:2], "job": names[2]})

    events = [run("good", "2024-01-01T00:00:00Z", "raw"), run("bad", "yesterday", "other")]
    (folder / "events.ndjson").write_text("\n".join(events))
    file = folder / "lineage-backfill.toml"
    text = '[lineage]\nevents = ["events.ndjson"]\n' + "".join(
        f'[[dataset]]\nname = "{name}"\nnamespace = "n"\ngrain = "day"\nstart = "2024-01-01"\n'
        for name in ("raw", "out")
    )
    asked = (
        "impact",
        "n:raw",
        "--from",
        "2024-01-02",
        "--to",
        "2024-01-02",
        "--now",
        "2024-02-01T00:00Z",
    )
    file.write_text(text)
    assert "not an OpenLineage event" in told(capsys, *asked, code=1)
    file.write_text(text.replace("[lineage]", '[lineage]\nignore_runs = ["bad"]', 1))
    said = "`ignore_runs` leaves these runs out of the lineage: bad"
    plan = json.loads(told(capsys, *asked, "--json"))
    assert fits(plan, "plan")
    assert plan["request"]["ignored_runs"] == ["bad"]
    assert said in plan["warnings"]
    assert plan["totals"]["runs"] == 1
    assert said in told(capsys, "lineage", "show", "--json")
    changed = {"dataset": {"namespace": "n", "name": "raw"}, "partitions": ["2024-01-02"]}
    request = {"changed": [changed], "ignored_runs": ["bad", "worse"]}
    (folder / "request.json").write_text(json.dumps(request))
    from_file = ("impact", "--request", "request.json", *asked[-2:], "--json")
    said = told(capsys, *from_file, code=64)
    assert "the request ignores runs that the project file does not: worse" in said
    assert "`ignore_runs` of [lineage]" in said
    file.write_text(file.read_text().replace('["bad"]', '["worse", "bad"]'))
    plan = json.loads(told(capsys, *from_file))
    assert sorted(plan["request"]["ignored_runs"]) == ["bad", "worse"]
    assert plan["totals"]["runs"] == 1
    file.write_text(text)
    told(capsys, "lineage", "pull", code=1)
    file.write_text(text.replace("[lineage]", '[lineage]\nignore_runs = ["bad"]', 1))
    told(capsys, "lineage", "pull")
    file.write_text('[lineage]\nsnapshot = "lineage.json.gz"\nignore_runs = ["good"]\n')
    assert "`ignore_runs` changes no saved snapshot" in told(capsys, "lineage", "show", "--json")


# --- requests for a target ----------------------------------------------------------------------


@pytest.mark.parametrize("verb", [["impact"], ["impact", "--why", "j"]])
def test_a_request_for_another_target_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    save_snapshot(lineage(("j", "raw", "out")), folder / "s")
    (folder / "lineage-backfill.toml").write_text(
        '[lineage]\nsnapshot = "s"\n[target.stage.run]\nretries = 1\n'
        '[[dataset]]\nname = "*"\ngrain = "day"\nstart = "2024-01-01"\n'
    )
    changed = {"dataset": {"namespace": "n", "name": "raw"}, "partitions": ["2024-01-02"]}
    asked = (*verb, "--request", "request.json", "--now", "2024-02-01T00:00Z")

    def request(**more: str) -> None:
        (folder / "request.json").write_text(json.dumps({"changed": [changed], **more}))

    request(target="x")
    assert "the request is for target 'x', not for no target" in told(capsys, *asked, code=64)
    said = told(capsys, *asked, "--target", "stage", code=64)
    assert "the request is for target 'x', not for target 'stage'" in said
    request(target="stage")
    told(capsys, *asked, "--target", "stage")
    assert "Pass --target stage" in told(capsys, *asked, code=64)
    request()
    told(capsys, *asked)
    told(capsys, *asked, "--target", "stage")
