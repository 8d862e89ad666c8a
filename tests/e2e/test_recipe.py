"""What the published recipe for backfills with Marquez gets wrong, each shown absent here.

The recipe (https://openlineage.io/blog/backfilling-airflow-dags-using-marquez/) walks the answer of
Marquez's lineage endpoint with a script and starts `airflow dags backfill` for each job it meets.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import responses

import lineage_backfill
from lineage_backfill.cli.main import main
from lineage_backfill.model import JobRef
from lineage_backfill.sources.marquez import MarquezSource
from tests.contract.marquez_replay import ADDRESS, VERSIONS, Replay
from tests.e2e.test_cli import FIX, Shop
from tests.fake_marquez import FakeMarquez

pytestmark = [pytest.mark.e2e, pytest.mark.core]

ROOT = Path(__file__).parents[2]
FOOD = ROOT / "tests/data/lineage/food_delivery.json.gz"
NOW = "2020-03-01T00:00:00Z"
DAYS = '[project]\nnamespace = "{}"\n[[dataset]]\nname = "*"\ngrain = "day"\nstart = "2020-01-01"\n'
BELOW_ORDERS = [
    *("etl_orders_7_days", "etl_delivery_7_days", "delivery_times_7_days"),
    *("email_discounts", "orders_popular_day_of_week"),
]

Impact = Callable[..., Any]


def event(job: str, reads: str, writes: str, namespace: str = "n") -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": "2020-02-01T00:00:00Z",
        "run": {"runId": f"00000000-0000-4000-8000-{sum(job.encode()):012}"},
        "job": {"namespace": namespace, "name": job},
        "inputs": [{"namespace": "n", "name": name} for name in reads.split()],
        "outputs": [{"namespace": "n", "name": name} for name in writes.split()],
    }


@pytest.fixture
def impact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Impact:
    """Plans from edges and a project file, and gives what `impact --json` prints."""

    def plan(*arguments: str, jobs: Any = (), toml: str = DAYS.format("n")) -> Any:
        (tmp_path / "lineage-backfill.toml").write_text(toml)
        events = tmp_path / "events.ndjson"
        events.write_text("".join(json.dumps(event(*job)) + "\n" for job in jobs))
        given = ["--config", str(tmp_path / "lineage-backfill.toml"), "--now", NOW]
        if not {"--events", "--marquez", "--snapshot"} & set(arguments):
            given += ["--events", str(events)]
        assert main(["impact", *arguments, *given, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return plan


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def wait_for(shop: Shop, job: str) -> None:
    """Return once the job has begun."""
    deadline = time.monotonic() + 60
    while job not in shop.started():
        assert time.monotonic() < deadline, shop.journal()
        time.sleep(0.05)


def keys(plan: Any) -> dict[str, list[str]]:
    return {one["job"]["name"]: one["partitions"] for one in plan["jobs"]}


def test_30_the_end_date_is_not_the_start_date(impact: Impact) -> None:
    plan = impact(
        *("public.orders", "--from", "2020-02-10", "--to", "2020-02-12", "--events", str(FOOD)),
        toml=DAYS.format("food_delivery"),
    )
    assert keys(plan) == {name: ["2020-02-10..2020-02-12"] for name in BELOW_ORDERS}
    assert plan["totals"] == {"jobs": 5, "runs": 15, "partitions": 15}


def test_31_a_job_that_many_paths_lead_to_runs_once(impact: Impact) -> None:
    jobs = []
    for number in range(20):  # a million paths to the last one
        jobs += [
            (f"left_{number}", f"t{number}", f"l{number}"),
            (f"right_{number}", f"t{number}", f"r{number}"),
            (f"join_{number}", f"l{number} r{number}", f"t{number + 1}"),
        ]
    plan = impact("t0", "--partitions", "2020-02-10", jobs=jobs)
    assert len(plan["jobs"]) == len(plan["runs"]) == 60
    assert all(run["partitions"] == ["2020-02-10"] for run in plan["runs"])


def test_32_a_join_below_a_diamond_waits_for_both_of_its_branches(impact: Impact) -> None:
    jobs = [
        ("short", "raw", "a"),
        ("long_1", "raw", "b"),
        ("long_2", "b", "c"),
        ("join", "a c", "d"),
    ]
    plan = impact("raw", "--partitions", "2020-02-10", jobs=jobs)
    runs = {run["job"]["name"]: run for run in plan["runs"]}
    assert set(runs["join"]["upstream"]) == {runs["short"]["id"], runs["long_2"]["id"]}
    assert runs["join"]["wave"] == 3
    order = [one["job"]["name"] for one in plan["jobs"]]
    assert order.index("join") > max(order.index("short"), order.index("long_2"))


def test_32_a_join_is_started_once_both_of_its_branches_have_ended(shop: Shop) -> None:
    shop.does({"long_2": "wait"})
    shop.lineage(
        ("short", "feed", "ca"),
        ("long_1", "feed", "cb"),
        ("long_2", "cb", "cc"),
        ("join", "ca cc", "daily"),
    )
    process = shop.start("run", *FIX, "--yes")
    wait_for(shop, "long_2")
    time.sleep(1)  # what does not wait has begun by then
    assert sorted(shop.started()) == ["long_1", "long_2", "short"]
    shop.go()
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert shop.started()[-1] == "join"


def test_33_a_cycle_comes_to_an_end_and_is_named(impact: Impact) -> None:
    jobs = [("one", "raw b", "a"), ("two", "a", "b"), ("after", "b", "c")]
    plan = impact("raw", "--partitions", "2020-02-10", jobs=jobs)
    statuses = {one["job"]["name"]: one["status"] for one in plan["jobs"]}
    assert (statuses["one"], statuses["two"]) == ("blocked", "blocked")
    said = json.dumps(plan["jobs"])
    assert "cycle" in said
    assert plan["runs"] == []


def test_34_each_job_gets_dates_of_its_own(impact: Impact) -> None:
    toml = DAYS.format("n") + (
        '[[dataset]]\nname = "weeks"\ngrain = "week"\n'
        '[[dataset]]\nname = "months"\ngrain = "month"\n'
        '[[job]]\nname = "next_day"\n[[job.reads]]\ndataset = "raw"\nmapping = "offset"\nby = -1\n'
    )
    jobs = [("weekly", "raw", "weeks"), ("monthly", "raw", "months"), ("next_day", "raw", "shift")]
    plan = impact("raw", "--from", "2020-01-31", "--to", "2020-02-02", jobs=jobs, toml=toml)
    assert keys(plan) == {
        "weekly": ["2020-W05"],
        "monthly": ["2020-01-01..2020-02-01"],
        "next_day": ["2020-02-01..2020-02-03"],
    }


def test_35_later_windows_that_hold_the_bad_days_run_too(impact: Impact) -> None:
    toml = DAYS.format("food_delivery") + (
        '[[job]]\nname = "etl_orders_7_days"\n'
        '[[job.reads]]\ndataset = "public.orders"\nmapping = "window"\nbefore = 6\n'
    )
    plan = impact("public.orders", "--partitions", "2020-02-10", "--events", str(FOOD), toml=toml)
    assert keys(plan) == {name: ["2020-02-10..2020-02-16"] for name in BELOW_ORDERS}


def test_36_only_what_the_changed_partitions_reach_runs(impact: Impact) -> None:
    toml = DAYS.format("n") + (
        '[[dataset]]\nname = "old"\ngrain = "day"\nstart = "2020-01-01"\nend = "2020-01-31"\n'
        '[[dataset]]\nname = "months"\ngrain = "month"\n'
        '[[job]]\nname = "reference"\n[[job.reads]]\ndataset = "raw"\nmapping = "none"\n'
    )
    jobs = [
        ("archive", "raw", "old"),
        ("monthly", "raw", "months"),
        ("reference", "raw", "notes"),
        ("elsewhere", "other", "more"),
    ]
    plan = impact("raw", "--partitions", "2020-02-10", jobs=jobs, toml=toml)
    planned = {
        one["job"]["name"]: one["partitions"] for one in plan["jobs"] if one["status"] == "planned"
    }
    assert planned == {"monthly": ["2020-02-01"]}


@pytest.mark.parametrize(
    "source",
    [
        *("events", "snapshot", "fake", *VERSIONS),
    ],
)
def test_the_recipes_example_is_planned_exactly_from_every_source(
    impact: Impact, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = DAYS.format("food_delivery")
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        if source == "events":
            given = ["--events", str(FOOD)]
        elif source == "snapshot":
            given = ["--snapshot", str(tmp_path / "saved.gz")]
            assert main(["lineage", "pull", "--events", str(FOOD), "--out", given[1]]) == 0
            capsys.readouterr()
        else:
            replay = Replay(VERSIONS[0] if source == "fake" else source, "food_delivery")
            if source == "fake":
                server = FakeMarquez(replay.posted)
                mock.add_callback(responses.GET, re.compile(re.escape(ADDRESS)), callback=server)
            else:
                replay.install(mock)
            given = ["--marquez", ADDRESS]
        plan = impact("--job", "etl_orders", "--partitions", "2020-02-10", *given, toml=toml)
        below = impact("public.orders", "--partitions", "2020-02-10", *given, toml=toml)
    assert [one["job"]["name"] for one in plan["jobs"]] == ["etl_orders", *BELOW_ORDERS]
    assert [one["job"]["name"] for one in below["jobs"]] == BELOW_ORDERS
    assert [run["job"]["name"] for run in below["runs"]] == BELOW_ORDERS


def test_37_a_job_waits_for_what_it_reads_and_is_believed_by_its_result(shop: Shop) -> None:
    shop.does({"clean": "wait", "daily": "fail"})  # ends with 0, and says that it failed
    shop.lineage(("clean", "feed", "clean"), ("daily", "clean", "daily"), ("last", "daily", "d2"))
    shop.declare('[[dataset]]\nname = "d2"\ngrain = "day"\nstart = "2024-01-01"\n')
    shop.declare('column = "day"\nlocation = "data/d2"\n')
    process = shop.start("run", *FIX, "--yes")
    wait_for(shop, "clean")
    time.sleep(1)  # what does not wait has begun by then
    assert shop.started() == ["clean"]
    shop.go()
    process.communicate(timeout=120)
    assert process.returncode == 3
    assert shop.started() == ["clean", "daily"]


def test_38_a_failure_stops_its_followers_alone_and_a_retry_repeats_nothing(shop: Shop) -> None:
    shop.does({"clean": "fail"})
    shop.lineage(
        ("clean", "feed", "clean"), ("daily", "clean", "daily"), ("copy", "feed", "copied")
    )
    shop("run", *FIX, "--yes", code=3)
    assert set(shop.started()) == {"clean", "copy"}
    shop.does({})
    shop("retry")
    ran = shop.started()
    assert sorted(ran) == ["clean", "clean", "copy", "daily"]


def test_39_names_are_whole_with_colons_and_of_other_namespaces(impact: Impact) -> None:
    jobs = [("team:etl:orders", "raw", "a", "s3://b"), ("orders", "a", "b", "n")]
    plan = impact("raw", "--partitions", "2020-02-10", jobs=jobs)
    assert [one["job"] for one in plan["jobs"]] == [
        {"namespace": "s3://b", "name": "team:etl:orders"},
        {"namespace": "n", "name": "orders"},
    ]


def test_40_an_empty_answer_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "lineage-backfill.toml"
    config.write_text(DAYS.format("n"))
    given = ["impact", "raw", "--partitions", "2020-02-10", "--config", str(config)]
    with FakeMarquez([]).serve() as address:
        assert main([*given, "--marquez", address]) == 64
        assert "raw" in capsys.readouterr().err
    (tmp_path / "empty.ndjson").touch()
    assert main([*given, "--events", str(tmp_path / "empty.ndjson")]) == 64


def test_41_an_error_answer_says_what_it_was_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "lineage-backfill.toml"
    config.write_text(DAYS.format("n"))
    server = FakeMarquez([event("one", "raw", "a")])
    server.answer = lambda path, query: (500, {"code": 500, "message": "broken"})  # type: ignore[method-assign]
    with server.serve() as address:
        given = ["--marquez", address, "--config", str(config)]
        assert main(["impact", "raw", "--partitions", "2020-02-10", *given]) == 7
    said = " ".join(capsys.readouterr().err.split())
    assert "answers 500" in said
    assert "Check the address" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("version", VERSIONS)
def test_42_what_lies_far_downstream_is_not_missing(version: str) -> None:
    replay = Replay(version, "depth_cut")
    found = []
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        replay.install(mock)
        found.append(MarquezSource(ADDRESS).read())
    with FakeMarquez(replay.posted).serve() as address:
        found.append(MarquezSource(address).read())
    for graph in (snapshot.graph() for snapshot in found):
        jobs = [node for node in nx.topological_sort(graph) if isinstance(node, JobRef)]
        assert len(jobs) == 45
        assert set(jobs[1:]) < nx.descendants(graph, jobs[0])


def test_43_nothing_runs_unseen_unasked_or_without_a_limit_and_all_is_recorded(shop: Shop) -> None:
    shop("impact", *FIX)
    shop("run", *FIX, code=9)  # off a terminal nobody could be asked
    shop.declare("[limits]\nmax_runs = 1\n")
    shop("run", *FIX, "--yes", code=9)
    assert shop.journal() == []
    text = (shop.folder / "lineage-backfill.toml").read_text()
    protected = '[[job]]\nname = "daily"\nprotected = true\nengine = "here"\nentrypoint = "any:x"\n'
    text = text.replace("max_runs = 1", "max_runs = 9").replace("[[job]]", f"{protected}[[job]]", 1)
    (shop.folder / "lineage-backfill.toml").write_text(text)
    shop("run", *FIX, "--yes", code=3)
    assert shop.started() == ["clean"]
    (backfill,) = shop.document("history", schema="history")["backfills"]
    assert backfill["started_at"]
    plan = shop.document("impact", *FIX, "--reason", "three bad hours", schema="plan")
    assert plan["request"]["reason"] == "three bad hours"


def test_44_two_at_once_never_write_the_same_partition(shop: Shop) -> None:
    """Two backfills; that one waits for a scheduled run is shown in test_cli.py."""
    shop.does({"clean": "wait"})
    first = shop.start("run", *FIX, "--yes")
    wait_for(shop, "clean")
    second = shop("run", *FIX, "--yes", code=6)
    assert "clean" in second.stderr
    shop.go()
    first.communicate(timeout=120)
    assert first.returncode == 0
    assert sorted(shop.started()) == ["clean", "daily"]


def test_45_no_command_of_an_orchestrator_is_made_up(shop: Shop) -> None:
    """What is run stands in the project file; there is no `airflow` of any version to be right."""
    programs = shop.folder / "bin"
    programs.mkdir()
    (programs / "airflow").write_text(f"#!/bin/sh\ntouch {shop.folder}/airflow-was-called\n")
    (programs / "airflow").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    process = shop.start("run", *FIX, "--yes", env=environment)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert not (shop.folder / "airflow-was-called").exists()
    source = "".join(
        file.read_text(encoding="utf-8")
        for file in Path(lineage_backfill.__file__).parent.rglob("*.py")
    )
    assert not re.search(r"airflow[\"', ]+(dags[\"', ]+)?(backfill|trigger)", source)
