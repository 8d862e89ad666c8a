"""`stale` and `catchup` over tables whose logs are written by hand; jobs need no Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from tests.delta_logs import METADATA, Log, add, ours
from tests.events import event, write_events
from tests.unit.cli.documents import fits

START = datetime(2024, 1, 5, tzinfo=UTC)
NOW = ["--now", "2024-01-06T00:00:00Z"]  # five days are complete
PROGRAM = """
import json, sys
from pathlib import Path
spec = json.loads(Path(sys.argv[1]).read_text())
with Path("journal").open("a") as journal:
    journal.write(f"{spec['job']['name']} {' '.join(spec['partitions'])}\\n")
"""


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_events(
            folder / "events.ndjson",
            event("clean", ["raw"], ["tidy"], namespace="s"),
            event("totals", ["tidy"], ["sums"], namespace="s"),
        )
        (folder / "program.py").write_text(PROGRAM)
        tables = "".join(
            f'[[dataset]]\nname = "{name}"\ngrain = "day"\nstart = "2024-01-01"\n'
            f'column = "day"\nlocation = "{name}"\n'
            for name in ("raw", "tidy", "sums")
        )
        self.project = folder / "lineage-backfill.toml"
        self.project.write_text(
            '[project]\nnamespace = "s"\n[lineage]\nevents = ["events.ndjson"]\n'
            f'[engines.here]\nkind = "command"\nargv = ["{sys.executable}", "program.py", '
            f'"{{spec}}"]\n[[job]]\nname = "*"\nengine = "here"\nentrypoint = "a:b"\n'
            f'batch = "range"\n{tables}'
        )

    def table(self, name: str, *commits: tuple[int, str]) -> Log:
        """Write the log of a table: in each commit, at that hour, these days."""
        log = Log(self.folder / name)
        log.commit(METADATA, {"commitInfo": {"operation": "CREATE TABLE"}})
        for number, (_, days) in enumerate(commits):
            adds = [add(f"{number}-{day}", f"2024-01-0{day}") for day in days]
            log.commit(*adds, {"commitInfo": {"operation": "WRITE"}})
        for version, hour in enumerate([0, *(hour for hour, _ in commits)]):
            at = (START + timedelta(hours=hour)).timestamp()
            os.utime(log.path(version), (at, at))
        return log

    def declare(self, text: str) -> None:
        with self.project.open("a", encoding="utf-8") as file:
            file.write(text)

    @property
    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path)


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def ask(*arguments: str, code: int = 0) -> Any:
        assert main(["stale", *NOW, "--json", *arguments]) == code
        document = json.loads(capsys.readouterr().out)
        assert fits(document, "stale")
        return document

    return ask


def said(document: Any) -> dict[str, dict[str, Any]]:
    """Return what is said of each job, without what is empty."""
    found = {}
    for one in document["jobs"]:
        older = {what["dataset"]["name"]: what["partitions"] for what in one["older"]}
        parts = {what: one[what] for what in ("missing", "running", "unjudged", "why") if one[what]}
        found[one["job"]["name"]] = {**parts, **({"older": older} if older else {})}
    return found


def test_first_deployment(shop: Shop, asked: Callable[..., Any]) -> None:
    shop.table("raw", (1, "12345"))
    document = asked("--detailed-exitcode", code=2)
    assert said(document) == {
        "clean": {"missing": ["2024-01-01..2024-01-05"]},
        "totals": {"missing": ["2024-01-01..2024-01-05"]},
    }
    assert document["stale"] == 10
    assert document["to_run"] == {"jobs": 2, "partitions": 10, "runs": 2}


@pytest.mark.parametrize(
    ("raw", "tidy", "found"),
    [
        ([(1, "123")], [(2, "13")], {"missing": ["2024-01-02"]}),
        ([(1, "123")], [], {"missing": ["2024-01-01", "2024-01-02", "2024-01-03"]}),
        ([(1, "123")], [(2, "123")], {}),
        # The last write of one key does not make the others newer.
        ([(1, "123"), (3, "2")], [(2, "123"), (4, "1")], {"older": {"raw": ["2024-01-02"]}}),
    ],
)
def test_runtime_keys_are_those_of_the_tables(
    shop: Shop,
    asked: Callable[..., Any],
    raw: list[tuple[int, str]],
    tidy: list[tuple[int, str]],
    found: dict[str, Any],
) -> None:
    days = 'grain = "day"\nstart = "2024-01-01"'
    shop.project.write_text(shop.project.read_text().replace(days, 'keys = "runtime"'))
    shop.table("raw", *raw)
    shop.table("tidy", *tidy)
    assert said(asked("--select", "clean")) == {"clean": found}


def test_only_the_rest_and_what_follows_from_it(
    shop: Shop, asked: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.table("raw", (1, "12345"), (7, "2"))
    shop.table("tidy", (2, "1235"))
    shop.table("sums", (3, "12345"))
    document = asked()
    assert said(document) == {
        "clean": {"missing": ["2024-01-04"], "older": {"raw": ["2024-01-02"]}},
        "totals": {},
    }
    (older,) = document["jobs"][0]["older"]
    assert (older["version"], older["changed_at"]) == (2, "2024-01-05T07:00:00.000Z")
    assert document["to_run"] == {"jobs": 2, "partitions": 4, "runs": 4}

    assert main(["stale", *NOW]) == 0
    row = "+  clean  2024-01-04  never written"
    assert row in capsys.readouterr().out
    assert main(["catchup", *NOW]) == 9  # no one to ask
    assert row not in capsys.readouterr().err, "the plan lists what can run"
    assert main(["catchup", *NOW, "--yes", "--max-parallel", "1"]) == 0
    assert sorted(shop.journal) == [
        "clean 2024-01-02",
        "clean 2024-01-04",
        "totals 2024-01-02",
        "totals 2024-01-04",
    ]
    assert main(["history"]) == 0
    assert "Catch up 1 job: fill 1 partition, refresh 1 partition" in capsys.readouterr().out


def test_what_waits_for_an_input_is_not_run(
    shop: Shop, asked: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.table("raw", (1, "13"))
    shop.table("tidy", (2, "1"))
    shop.table("sums", (3, "1"))
    document = asked("--detailed-exitcode", code=2)
    assert {one["job"]["name"]: one["waiting"] for one in document["jobs"]} == {
        "clean": ["2024-01-02", "2024-01-04..2024-01-05"],
        "totals": ["2024-01-02", "2024-01-04..2024-01-05"],
    }
    assert (document["stale"], document["to_run"]["runs"]) == (8, 2)
    assert main(["catchup", *NOW, "--yes", "--max-parallel", "1"]) == 0
    assert shop.journal == ["clean 2024-01-03", "totals 2024-01-03"]
    said = capsys.readouterr().err
    assert "not run: an input was never written" in said


def test_where_all_waits_for_an_input_nothing_is_run(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.table("raw", (1, "1"))
    shop.table("tidy", (2, "1"))
    shop.table("sums", (3, "1"))
    assert main(["catchup", *NOW, "--yes"]) == 3
    assert "Nothing can run until the inputs are written." in capsys.readouterr().err
    assert shop.journal == []
    assert main(["stale", *NOW, "--detailed-exitcode"]) == 2


def test_what_a_backfill_has_made_is_known_although_the_tables_do_not_tell(
    shop: Shop, asked: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.table("raw", (1, "12345"))
    assert main(["catchup", *NOW, "--yes"]) == 0
    assert len(shop.journal) == 2
    capsys.readouterr()
    # The program has written nothing: that it was run is in the run store.
    assert said(asked()) == {"clean": {}, "totals": {}}
    assert main(["catchup", *NOW]) == 0
    assert "Nothing is stale." in capsys.readouterr().err
    assert len(shop.journal) == 2


def test_only_some_jobs_or_keys(shop: Shop, asked: Callable[..., Any]) -> None:
    shop.table("raw", (1, "12345"))
    assert said(asked("--select", "clean")) == {"clean": {"missing": ["2024-01-01..2024-01-05"]}}
    assert asked("--select", "clean")["to_run"] == {"jobs": 1, "partitions": 5, "runs": 1}
    newest = {"clean": {"missing": ["2024-01-04..2024-01-05"]}}
    assert said(asked("--select", "clean", "--since", "2d")) == newest
    assert said(asked("--exclude", "totals", "--since", "2024-01-04T00:00:00Z")) == newest


def test_what_cannot_be_known_is_said(
    shop: Shop, asked: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.table("tidy", (2, "12345"))
    (shop.folder / "raw").mkdir()
    (shop.folder / "raw" / "file.csv").touch()
    document = asked("--select", "clean", code=3)
    assert said(document) == {"clean": {"why": ["it is not recorded when s:raw changed"]}}
    (silent,) = document["silent"]
    assert silent["dataset"]["name"] == "raw"
    assert "is not a Delta table" in silent["why"]
    assert main(["stale", *NOW]) == 0, "sums is judged"
    text = " ".join(capsys.readouterr().out.split())  # a long path breaks the line elsewhere
    assert "it is not recorded when s:raw changed" in text
    assert "is not a Delta table" in text


def test_times_are_local(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.table("raw", (1, "12345"), (7, "2"))
    shop.table("tidy", (2, "12345"))
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        assert main(["stale", *NOW]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "raw changed since, at 2024-01-05 02:00:00 EST, version 2" in said
    time.tzset()


def test_the_plan_can_be_saved_and_run(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.table("raw", (1, "12345"))
    shop.table("tidy", (2, "12345"))
    assert main(["stale", *NOW, "--out", "plan.json"]) == 0
    assert "never written" in capsys.readouterr().out
    assert main(["run", "plan.json", "--yes"]) == 0
    assert shop.journal == ["totals 2024-01-01..2024-01-05"]


def test_our_own_commits_tell_what_they_were_made_from(
    shop: Shop, asked: Callable[..., Any]
) -> None:
    shop.table("raw", (1, "12345"), (5, "3"))
    log = shop.table("tidy", (9, ""))
    partitions = [[[f"2024-01-0{day}"], 1, f"f{day}"] for day in range(1, 6)]
    adds = [add(f"t-{day}", f"2024-01-0{day}") for day in range(1, 6)]
    # Committed after both versions of its input, and made from the first one.
    log.commit(*adds, ours("t", *partitions, job="s:clean", inputs=[["s:raw", 1]]))
    assert said(asked("--select", "clean")) == {"clean": {"older": {"raw": ["2024-01-03"]}}}


def test_parquet_tables_tell_what_is_stale_too(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.project.write_text(
        shop.project.read_text().replace('column = "day"\n', 'column = "day"\nformat = "parquet"\n')
    )
    days = [f"2024-01-0{day}" for day in range(1, 6)]
    raw = shop.folder / "raw"
    for day in days:
        (raw / f"day={day}").mkdir(parents=True)
        (raw / f"day={day}" / "feed.parquet").touch()  # somebody else writes these
        os.utime(raw / f"day={day}" / "feed.parquet", (START.timestamp(),) * 2)
    for name in ("tidy", "sums"):
        for day in days if name == "tidy" else days[:4]:
            (shop.folder / name / f"day={day}").mkdir(parents=True)
            (shop.folder / name / f"day={day}" / "made.parquet").touch()
    assert main(["stale", "--json", *NOW]) == 0
    before = {one["job"]["name"]: one for one in json.loads(capsys.readouterr().out)["jobs"]}
    assert before["totals"]["missing"] == ["2024-01-05"]
    assert before["clean"]["older"] == before["clean"]["missing"] == []
    later = datetime.now(UTC) + timedelta(minutes=5)
    os.utime(raw / "day=2024-01-02" / "feed.parquet", (later.timestamp(),) * 2)
    assert main(["stale", "--json", *NOW]) == 0
    document = json.loads(capsys.readouterr().out)
    after = {one["job"]["name"]: one for one in document["jobs"]}
    (older,) = after["clean"]["older"]
    assert (older["dataset"]["name"], older["partitions"]) == ("raw", ["2024-01-02"])
    assert older["version"] is None
    assert document["silent"] == []


def test_a_driver_of_its_own_that_fails_at_once_has_begun(shop: Shop) -> None:
    shop.table("raw", (1, "12345"))
    (shop.folder / "program.py").write_text("raise SystemExit(1)")
    program = (
        "import sys; from lineage_backfill.cli.main import main\n"
        "from lineage_backfill.workspace import runner\n"
        "runner.POLL = 4.0  # it is over by then\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    asked = [sys.executable, "-c", program, "catchup", *NOW, "--yes", "--detach"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("b-")
