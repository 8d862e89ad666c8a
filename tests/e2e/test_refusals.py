"""What an engine or another backfill refuses: its exit code, and that nothing is left of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fake_airflow
from tests.e2e.test_cli import FIX, Shop, wait_for
from tests.e2e.test_drive import drivers, end

pytestmark = pytest.mark.e2e

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with fake_airflow.serve(tmp_path_factory.mktemp("airflow")) as url:
        yield url


def in_airflow(shop: Shop, url: str, dag: str, task: str = "build") -> None:
    """Let the job `clean` be a task of a DAG."""
    project = shop.folder / "lineage-backfill.toml"
    job = f'[[job]]\nname = "clean"\nengine = "af"\ndag = "{dag}"\ntask = "{task}"\n'
    engine = f'[engines.af]\nkind = "airflow"\nurl = "{url}"\nusername = "op"\npassword = "p"\n'
    project.write_text(project.read_text() + engine + job + 'slice = "conf"\n')


def left(shop: Shop) -> list[str]:
    return [one["id"] for one in shop.document("history", schema="history")["backfills"]]


@pytest.mark.parametrize("how", [(), ("--detach",)])
@pytest.mark.parametrize(
    ("dag", "task", "said"),
    [
        ("paused", "build", "DAG paused is paused"),
        ("only_scheduled", "build", "allows no manual runs"),
        ("nowhere", "build", "has no DAG nowhere"),
        ("one", "built", "has no task built"),
    ],
)
def test_a_run_that_its_engine_refuses_is_wrong_usage_before_anything_is_kept(
    shop: Shop, airflow: str, how: tuple[str, ...], dag: str, task: str, said: str
) -> None:
    in_airflow(shop, airflow, dag, task)
    refused = shop("run", *FIX, "--yes", *how, code=64)
    assert said in refused.stderr
    assert refused.stdout == ""
    assert left(shop) == []


def test_a_drive_is_given_nothing_that_its_engine_refuses(shop: Shop, airflow: str) -> None:
    in_airflow(shop, airflow, "paused")
    process = shop.start("drive")
    try:
        wait_for(lambda: bool(drivers(shop)))
        assert "DAG paused is paused" in shop("run", *FIX, "--yes", "--detach", code=64).stderr
        assert left(shop) == []
    finally:
        end(process)


def test_an_account_without_rights_is_not_allowed(shop: Shop, airflow: str) -> None:
    in_airflow(shop, airflow, "one")
    project = shop.folder / "lineage-backfill.toml"
    project.write_text(project.read_text().replace('"op"', '"viewer"'))
    for how in ((), ("--detach",)):
        assert "(403)" in shop("run", *FIX, "--yes", *how, code=4).stderr


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_an_engine_that_does_not_answer_is_unreachable(shop: Shop, how: tuple[str, ...]) -> None:
    in_airflow(shop, NOWHERE, "one")
    assert "cannot be reached" in shop("run", *FIX, "--yes", *how, code=7).stderr
    assert shop.journal() == []


MISSING = [
    ('kind = "local"\nenv = { JAVA_HOME = "/nowhere" }', 1, "no Java found in JAVA_HOME"),
    ('kind = "local"\npython = "/nowhere/python"', 64, "/nowhere/python cannot be started"),
    (
        'kind = "spark"\nmaster = "yarn"\ndeploy_mode = "cluster"\nspark_home = "/nowhere"',
        1,
        "there is no /nowhere/bin/spark-submit",
    ),
    ('kind = "spark-submit"', 64, "there is no engine of kind 'spark-submit' any more"),
    ('kind = "command"\nargv = ["no-such-program"]', 64, "no-such-program cannot be started"),
    ('kind = "command"\nargv = ["./{entrypoint}"]', 64, "./any:thing cannot be started"),
    ('kind = "command"\nargv = ["/etc/passwd"]', 64, "/etc/passwd cannot be started"),
    ('kind = "command"\nargv = ["env"]\nenv = { PATH = "/nowhere" }', 64, "env cannot be started"),
]


def lacks(shop: Shop, engine: str) -> None:
    """Let the jobs have an engine that lacks something on this machine."""
    project = shop.folder / "lineage-backfill.toml"
    other = f"[engines.here]\n{engine}\n[engines.other]\n"
    project.write_text(project.read_text().replace("[engines.here]\n", other))


@pytest.mark.parametrize("how", [(), ("--detach",)])
@pytest.mark.parametrize(("engine", "code", "said"), MISSING)
def test_what_is_missing_here_is_found_before_anything_is_kept(
    shop: Shop, how: tuple[str, ...], engine: str, code: int, said: str
) -> None:
    lacks(shop, engine)
    refused = shop("run", *FIX, "--yes", *how, code=code)
    assert said in refused.stderr
    assert (refused.stdout, left(shop)) == ("", [])


def test_a_drive_may_have_what_is_missing_here(shop: Shop) -> None:
    process = shop.start("drive")
    try:
        wait_for(lambda: bool(drivers(shop)))
        lacks(shop, MISSING[0][0])
        assert "The `drive` service picks it up." in shop("run", *FIX, "--yes", "--detach").stderr
    finally:
        end(process)


@pytest.mark.parametrize("verb", ["resume", "retry", "cancel", "drive"])
@pytest.mark.parametrize("name", ["", " "])
def test_a_machine_without_a_name_is_not_gone(shop: Shop, verb: str, name: str) -> None:
    shop("run", *FIX, "--yes")
    refused = shop(verb, "--machine-gone", name, code=64)
    assert "--machine-gone names no machine" in refused.stderr


def test_a_secret_in_a_pipe_is_refused_by_its_place(shop: Shop) -> None:
    os.mkfifo(shop.folder / "key")
    refused = shop("run", *FIX, "--yes", "--parameter", "key=secret:file:key", code=64).stderr
    assert "parameter `key`: " in refused
    assert "it is a pipe" in refused
    assert "--config" not in refused


def test_a_failure_is_told_even_if_quiet(shop: Shop) -> None:
    shop.does({"clean": "fail"})
    told = shop("run", *FIX, "--yes", "-q", code=3).stderr.splitlines()
    assert told == [
        "Stopped: 1 of 2 runs failed; 4 partitions are still stale.",
        "clean 2024-01-02T00..2024-01-02T02: ValueError: no [such] column",
    ]


def left_id(told: str) -> str:
    """Return the id of the backfill in the message."""
    found = re.search(r"b-[\d-]+-[0-9a-f]+", told)
    assert found
    return found[0]


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_a_backfill_in_the_way_is_a_conflict_and_the_refused_one_is_forgotten(
    shop: Shop, how: tuple[str, ...]
) -> None:
    shop.does({"clean": "wait"})
    first = shop("run", *FIX, "--yes", "--detach").stdout.strip()
    wait_for(lambda: bool(shop.journal()))
    refused = shop("run", *FIX, "--yes", *how, code=6)
    assert (refused.stdout, left(shop)) == ("", [first])
    second = shop("run", *FIX, "--yes", "--detach", "--wait").stdout.strip()
    shop.go()
    shop("watch", second)
    assert left(shop) == [second, first]
