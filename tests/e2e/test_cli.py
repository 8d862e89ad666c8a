"""The command line as a whole process: what it prints where, and what it exits with.

Jobs are a program without Spark, run by the engine `command`.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.show.text import UNKNOWN
from tests.events import event, write_events
from tests.fake_marquez import FakeMarquez
from tests.processes import Command
from tests.unit.cli.documents import fits

pytestmark = pytest.mark.e2e

FIX = ("feed", "--from", "2024-01-02T00", "--to", "2024-01-02T02", "--now", "2024-01-05T00:00:00Z")

PROGRAM = """
import json, sys, time
from pathlib import Path
spec = json.loads(Path(sys.argv[1]).read_text())
job = spec["job"]["name"]
does = json.loads(Path("does.json").read_text()).get(job, "")
with Path("journal").open("a") as journal:
    journal.write(f"{job} {spec['partitions'][0]}\\n")
if does.startswith("sleep"):
    time.sleep(float(does.split()[1]))
while does == "wait" and not Path("go").exists():
    time.sleep(0.05)
error = {"class": "ValueError", "message": "no [such] column", "transient": False}
error = error if does == "fail" else None
def touched(scope):
    one = {"rows_before": 1, "rows": 2, "fingerprint_before": "a", "fingerprint": "b"}
    return [{"key": key["key"], "emptied": False, **one} for key in scope]
outputs = [
    {"dataset": o["dataset"], "version": 1, "partitions": touched(o["scope"])}
    for o in spec["outputs"]
]
result = {
    "schema_version": 1, "run_id": spec["run_id"], "attempt": spec["attempt"],
    "token": spec["token"], "state": "failed" if error else "succeeded",
    "outputs": [] if error else outputs, "inputs": [], "error": error,
}
path = Path(spec["result_path"])
path.with_suffix(".tmp").write_text(json.dumps(result))
path.with_suffix(".tmp").replace(path)
"""


def table(name: str, calendar: str, column: str) -> str:
    """Return the declaration of a dataset whose keys stand so in its column."""
    return (
        f'[[dataset]]\nname = "{name}"\n{calendar}\n'
        f'columns = {{ key = "{column}" }}\nlocation = "data/{name.strip("*")}"\n'
    )


HOURS, DAYS = 'grain = "hour"\nstart = "2024-01-01T00"', 'grain = "day"\nstart = "2024-01-01"'
TABLES = "\n".join(
    [
        *(table(name, HOURS, "%Y-%m-%dT%H") for name in ("feed", "c*")),
        *(table(name, DAYS, "%Y-%m-%d") for name in ("daily*", "other")),
    ]
)
PROJECT = f"""
[project]
namespace = "shop"

[lineage]
events = ["events.ndjson"]

[engines.here]
kind = "command"
argv = [{json.dumps(sys.executable)}, "program.py", "{{spec}}"]
{TABLES}
[[job]]
name = "*"
engine = "here"
entrypoint = "any:thing"
batch = "range"
"""


class Shop:
    """A project folder, and the command line within it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "program.py").write_text(PROGRAM)
        (folder / "lineage-backfill.toml").write_text(PROJECT)
        self.lineage(("clean", "feed", "clean"), ("daily", "clean", "daily"))
        self.does({})
        (folder / "sub").mkdir()

    def lineage(self, *jobs: tuple[str, str, str]) -> None:
        events = [
            event(job, reads.split(), writes.split())
            for job, reads, writes in (*jobs, ("far", "elsewhere", "other"))
        ]
        write_events(self.folder / "events.ndjson", *events)

    def does(self, what: Mapping[str, str]) -> None:
        (self.folder / "does.json").write_text(json.dumps(what))

    def declare(self, text: str) -> None:
        with (self.folder / "lineage-backfill.toml").open("a") as file:
            file.write(text)

    def go(self) -> None:
        """Let the jobs go on that wait."""
        (self.folder / "go").touch()

    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def started(self) -> list[str]:
        """Return the jobs that have begun, in order."""
        return [line.split()[0] for line in self.journal()]

    def start(self, *arguments: str, **options: Any) -> Command:
        return Command(arguments, **(self.surroundings() | options))

    def surroundings(self) -> dict[str, Any]:
        """Return the folder and the environment of a command."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LINEAGE_BACKFILL")}
        root, home = str(Path(__file__).parents[2]), str(self.folder)
        return {
            "cwd": self.folder / "sub",  # the project file is found upward
            "env": {**environment, "PYTHONPATH": root, "COLUMNS": "80", "HOME": home},
        }

    def cold(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it in an interpreter that has just been started."""
        return subprocess.run(
            [sys.executable, "-m", "lineage_backfill", *arguments],
            **self.surroundings(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, (out, err)
        assert "Traceback" not in err
        return subprocess.CompletedProcess(arguments, code, out, err)

    def document(self, *arguments: str, schema: str, code: int = 0) -> dict[str, Any]:
        """Return what `--json` prints, once it fits its published schema."""
        done = self(*arguments, "--json", code=code)
        document: dict[str, Any] = json.loads(done.stdout)
        assert fits(document, schema)
        return document


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_each_verb_of_a_fix_starts_from_cold(shop: Shop) -> None:
    assert "Will run" in shop.cold("impact", *FIX).stdout
    assert "succeeded" in shop.cold("run", *FIX, "--yes").stderr
    assert "2 succeeded" in shop.cold("status").stdout
    assert "Every planned partition was rewritten, and no other." in shop.cold("report").stdout


@pytest.mark.core
def test_a_fix_is_previewed_run_and_reported(shop: Shop) -> None:
    done = shop("impact", *FIX)
    assert "feed: 3 partitions, 2024-01-02T00..T02" in done.stdout
    assert "far" not in done.stdout  # no data leads there
    assert done.stderr == ""

    plan = shop.document("impact", *FIX, schema="plan")
    assert [(job["job"]["name"], job["partitions"]) for job in plan["jobs"]] == [
        ("clean", ["2024-01-02T00..2024-01-02T02"]),
        ("daily", ["2024-01-02"]),
    ]
    assert not (shop.folder / ".lineage-backfill").exists()  # looking leaves nothing behind

    status = shop.document("run", *FIX, "--yes", schema="status")
    assert status["state"] == "succeeded"
    assert shop.journal() == ["clean 2024-01-02T00..2024-01-02T02", "daily 2024-01-02"]

    report = shop.document("report", status["id"][:20], schema="report")
    assert report["touched_is_planned"]
    assert [(one["touched"], one["rows_before"], one["rows"]) for one in report["outputs"]] == [
        ({"count": 3, "partitions": ["2024-01-02T00..2024-01-02T02"]}, 3, 6),
        ({"count": 1, "partitions": ["2024-01-02"]}, 1, 2),
    ]
    history = shop.document("history", schema="history")
    assert [one["id"] for one in history["backfills"]] == [status["id"]]
    assert "Every planned partition was rewritten, and no other." in shop("report").stdout
    assert "2 succeeded" in shop("status").stdout


def test_the_same_input_gives_the_same_bytes_also_in_a_file(shop: Shop) -> None:
    first, second = (shop.cold("impact", *FIX, "--json").stdout for _ in range(2))
    assert first == second
    out = shop.folder / "plan.json"
    assert shop("impact", *FIX, "--json", "--out", str(out)).stdout == out.read_text() == first


def test_why_a_job_would_run_and_why_not(shop: Shop) -> None:
    why = shop("impact", *FIX, "--why", "daily")
    assert "daily 2024-01-02 is planned" in why.stdout
    assert "clean 2024-01-02T00..2024-01-02T02" in why.stdout
    assert why.stderr == ""
    document = shop.document("impact", *FIX, "--why", "shop:daily@2024-01-02", schema="explanation")
    assert document["verdict"] == "planned"
    assert [(hop["job"]["name"], hop["dataset"]["name"]) for hop in document["hops"]] == [
        ("daily", "clean"),
        ("clean", "feed"),
    ]
    assert [one["dataset"]["name"] for one in document["changed"]] == ["feed"]
    not_reached = shop.document("impact", *FIX, "--why", "far", schema="explanation")
    assert (not_reached["verdict"], not_reached["hops"]) == ("not_reached", [])
    assert "it reads no changed partition" in shop("impact", *FIX, "--why=daily@2024-01-03").stdout
    assert "Did you mean daily" in shop("impact", *FIX, "--why", "dialy@2024-01-02", code=64).stderr
    assert "--out" in shop("impact", *FIX, "--why", "daily", "--out", "x.json", code=64).stderr


@pytest.mark.core
def test_a_saved_plan_is_run_as_it_is_and_refused_once_it_is_stale(shop: Shop) -> None:
    plan = shop.folder / "plan.json"
    shop("impact", *FIX, "--out", str(plan))
    assert "is a saved plan" in shop("run", str(plan), "--exact", code=64).stderr
    assert shop("run", str(plan), "--yes", "--quiet").stderr == ""
    assert len(shop.journal()) == 2

    shop.lineage(("clean", "feed", "clean"), ("daily", "clean extra", "daily"))
    refused = shop("run", str(plan), "--yes", code=5)
    assert "daily" in refused.stderr
    assert "impact" in refused.stderr
    assert len(shop.journal()) == 2


def test_a_stale_plan_names_all_that_moved(shop: Shop) -> None:
    plan = shop.folder / "plan.json"
    shop("impact", *FIX, "--out", str(plan))
    file = shop.folder / "lineage-backfill.toml"
    file.write_text(
        PROJECT.replace(
            'name = "daily*"\ngrain = "day"', 'name = "daily*"\nzone = "Asia/Tokyo"\ngrain = "day"'
        )
    )
    refused = shop("run", str(plan), "--yes", code=5)
    assert "hold for dataset shop:daily\n" in refused.stderr
    assert "a diff of the two files" in refused.stderr
    shop.lineage(("clean", "feed", "clean"), *((f"c{n}", "clean", f"c{n}") for n in range(9)))
    assert "and 12 more" in shop("run", str(plan), "--yes", code=5).stderr


def test_a_saved_plan_is_shown_as_it_was(shop: Shop) -> None:
    plan = shop.folder / "plan.json"
    shown = shop("impact", *FIX, "--out", str(plan)).stdout
    (shop.folder / "lineage-backfill.toml").unlink()  # a plan says all by itself
    # A plan holds neither other jobs, nor how many keys changed, nor how long it takes.
    own = " ".join(shown.split())
    for other in (
        "3 partitions, ",
        "; time not estimated (fewer than 3 past runs)",
    ):
        assert other in own
        own = own.replace(other, "", 1)
    assert " ".join(shop("plan", "show", str(plan)).stdout.split()) == own
    assert shop("plan", "show", str(plan), "--json").stdout == plan.read_text()
    (shop.folder / "none.json").write_text("[]")
    refused = shop("plan", "show", "../none.json", code=64)
    assert "../none.json: not a plan file" in refused.stderr


def test_a_plan_edited_by_hand_is_refused(shop: Shop) -> None:
    plan = shop.folder / "plan.json"
    shop("impact", *FIX, "--out", str(plan))
    plan.write_text(plan.read_text().replace("2024-01-02T02", "2024-01-02T03"))
    assert "it was edited" in shop("run", str(plan), "--yes", code=64).stderr


@pytest.mark.core
def test_a_failure_blocks_what_follows_and_retry_finishes_it(shop: Shop) -> None:
    shop.lineage(("clean", "feed", "clean"), ("daily", "clean", "daily"), ("c2", "feed", "c2"))
    shop.does({"clean": "fail"})
    failed = shop("run", *FIX, "--yes", code=3)
    assert "ValueError: no [such] column" in failed.stderr
    assert "retry b-" in failed.stderr
    status = shop.document("status", schema="status")
    states = {run["job"]["name"]: run["state"] for run in status["runs"]}
    assert states == {"clean": "failed", "c2": "succeeded", "daily": "blocked"}
    assert not shop.document("report", schema="report")["touched_is_planned"]
    assert "Not succeeded" in shop("report").stdout

    shop.does({})
    before = len(shop.journal())
    retried = shop.document("retry", schema="status")
    assert retried["state"] == "succeeded"
    assert [line.split()[0] for line in shop.journal()[before:]] == ["clean", "daily"]
    assert shop.document("report", schema="report")["touched_is_planned"]


def test_work_to_do_and_nothing_to_do(shop: Shop) -> None:
    shop("impact", *FIX, "--detailed-exitcode", code=2)
    nothing = ("other", "--from", "2024-01-02", "--now", "2024-01-05T00:00:00Z")
    assert "Will run   nothing" in shop("impact", *nothing, "--detailed-exitcode").stdout
    assert "Will run   nothing" in shop("run", *nothing).stderr
    assert not (shop.folder / ".lineage-backfill").exists()


def test_off_a_terminal_nobody_is_asked(shop: Shop) -> None:
    refused = shop("run", *FIX, code=9)
    assert "--yes" in refused.stderr
    assert shop.journal() == []


ASKED = [
    ("", "Run 2 runs?", "y", 0, 2),
    ("", "Run 2 runs?", "n", 130, 0),
    ("[limits]\nconfirm_above = 1", "Type the number to run them", "2", 0, 2),
    ("[limits]\nconfirm_above = 1", "Type the number to run them", "y", 130, 0),
    ("[limits]\nconfirm_above = 1", "Type the number to run them", "", 130, 0),
]


@pytest.mark.parametrize(("limits", "question", "answer", "code", "runs"), ASKED)
def test_on_a_terminal_a_person_is_asked(
    shop: Shop, limits: str, question: str, answer: str, code: int, runs: int
) -> None:
    shop.declare(limits)
    person, terminal = pty.openpty()
    process = shop.start("run", *FIX, stdin=terminal, stderr=terminal)
    os.close(terminal)
    seen = b""
    while question.encode() not in seen:
        seen += os.read(person, 4096)
    os.write(person, answer.encode() + b"\n")
    try:
        while part := os.read(person, 4096):
            seen += part
    except OSError:  # the other end has been closed
        pass
    assert process.wait(timeout=60) == code
    process.communicate()
    os.close(person)
    assert b"Will run" in seen
    assert len(shop.journal()) == runs


@pytest.mark.core
def test_interrupted_and_resumed(shop: Shop) -> None:
    shop.does({"clean": "sleep 30"})
    process = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "resume b-" in err

    shop.does({})
    assert shop.document("resume", schema="status")["state"] == "succeeded"


def test_when_the_time_is_up_what_runs_may_end_and_resume_goes_on(shop: Shop) -> None:
    shop.does({"clean": "sleep 3"})
    stopped = shop("run", *FIX, "--yes", "--timeout", "1s", code=8)
    assert "resume b-" in stopped.stderr
    assert [line.split()[0] for line in shop.journal()] == ["clean"]
    shop("resume")
    assert [line.split()[0] for line in shop.journal()] == ["clean", "daily"]


def test_paused_from_another_terminal_and_resumed(shop: Shop) -> None:
    shop.does({"clean": "wait"})
    process = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    assert "resume b-" in shop("pause").stderr
    read_until(process, "no new runs")
    shop.go()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert [line.split()[0] for line in shop.journal()] == ["clean"]

    again = shop.document("pause", schema="status")
    assert again["state"] == "paused"
    assert "nothing to pause" in shop("pause", again["id"][:10]).stderr
    assert shop.document("resume", schema="status")["state"] == "succeeded"
    assert "nothing to pause" in shop("pause").stderr
    assert "nothing to cancel" in shop("cancel").stderr
    assert "nothing to retry" in shop("retry").stderr
    assert "nothing to resume" in shop("resume").stderr
    assert shop.document("status", schema="status")["state"] == "succeeded"
    assert "no backfill" in shop("pause", "b-1", code=64).stderr


@pytest.mark.parametrize(
    ("options", "states"), [((), {"succeeded", "cancelled"}), (("--kill",), {"cancelled"})]
)
def test_cancelled_from_another_terminal_and_retried(
    shop: Shop, options: tuple[str, ...], states: set[str]
) -> None:
    shop.does({"clean": "wait"})
    process = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    assert "watch b-" in shop("cancel", *options).stderr
    read_until(process, "no new runs")
    if not options:
        shop.go()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3, err
    status = shop.document("cancel", *options, schema="status")
    assert status["state"] == "cancelled"
    assert {run["state"] for run in status["runs"]} == states

    shop.does({})
    assert shop.document("retry", schema="status")["state"] == "succeeded"
    assert len(shop.journal()) == (3 if options else 2)


def test_what_nobody_drives_is_cancelled_even_without_its_lineage(shop: Shop) -> None:
    shop.does({"clean": "sleep 3"})
    shop("run", *FIX, "--yes", "--timeout", "1s", code=8)
    (shop.folder / "events.ndjson").unlink()
    cancelled = shop("cancel")
    assert "retry b-" in cancelled.stderr
    assert "cancelled daily" in cancelled.stderr
    status = shop.document("status", schema="status")
    assert [run["state"] for run in status["runs"]] == ["succeeded", "cancelled"]


def test_watched_from_another_terminal(shop: Shop) -> None:
    shop.does({"clean": "wait", "daily": "fail"})
    process = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    assert "watch b-" in shop("watch", "--timeout", "0.5s", code=8).stderr
    watching = shop.start("watch")
    read_until(watching, "started clean")
    shop.go()
    out, watched = watching.communicate(timeout=60)
    assert (watching.returncode, out) == (3, "")
    assert "succeeded clean" in watched
    assert "failed daily" in watched
    assert "ValueError: no [such] column" in watched
    assert "retry b-" in watched
    process.communicate(timeout=60)
    assert shop.document("watch", schema="status", code=3)["state"] == "failed"
    shop.does({})
    shop("retry")
    assert "report b-" in shop("watch").stderr


def test_nobody_watches_for_ever_what_was_killed_and_another_terminal_goes_on(shop: Shop) -> None:
    shop.does({"clean": "wait"})
    process = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    running = shop.document("status", schema="status")
    assert running["driver"]["owner"].endswith(f"process {process.pid}")
    assert "driven by" in shop("status").stdout
    assert f"process {process.pid}" in shop("resume", code=6).stderr  # it lives
    watching = shop.start("watch")
    read_until(watching, "started clean")
    process.kill()
    process.communicate()
    _, watched = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert "Its driver process no longer exists" in watched
    assert "resume b-" in watched
    orphan = shop.document("status", schema="status")
    assert (orphan["state"], orphan["driver"]) == ("interrupted", None)
    assert shop.document("report", schema="report")["state"] == "interrupted"
    assert shop.document("history", schema="history")["backfills"][0]["state"] == "interrupted"
    assert "nothing to pause" in shop("pause").stderr
    shop.go()
    assert shop.document("resume", schema="status")["state"] == "succeeded"
    assert [line.split()[0] for line in shop.journal()] == ["clean", "daily"]
    assert shop.document("resume", schema="status")["state"] == "succeeded"


def test_a_backfill_is_named_by_its_fix_and_found_again(shop: Shop) -> None:
    done = shop("run", *FIX, "--yes", "--title", "VAT fix, INC-812", "--reason", "wrong rate")
    assert "VAT fix, INC-812 (b-" in done.stderr
    assert "\nRepaired: 2 tables, 4 partitions rewritten exactly as planned.\n" in done.stderr
    shop("run", *FIX, "--yes")
    made, given = "feed 2024-01-02T00..T02", "VAT fix, INC-812"
    listed = shop.document("history", schema="history")["backfills"]
    assert [one["title"] for one in listed] == [made, given]
    assert shop.document("status", given, schema="status")["title"] == given
    assert given in shop("report", given).stdout


def test_detached_watched_and_deleted(shop: Shop) -> None:
    shop.does({"clean": "wait"})
    details = (
        "--title",
        "VAT fix",
        "--description",
        "three bad hours",
        "--parameter",
        "rate=2",
    )
    done = shop("run", *FIX, "--yes", "--detach", *details)
    backfill = done.stdout.strip()
    assert f"watch {backfill}" in done.stderr
    wait_for(lambda: bool(shop.journal()))
    assert "is driven by" in shop("delete", backfill, code=6).stderr
    watching = shop.start("watch")
    read_until(watching, "started clean")
    shop.go()
    assert "succeeded daily" in watching.communicate(timeout=60)[1]
    log = shop.folder / ".lineage-backfill" / "backfills" / backfill / "driver.log"
    assert f"VAT fix ({backfill}): 2 runs" in (said := log.read_text())
    assert "succeeded" in said
    status = shop.document("status", schema="status")
    assert (status["description"], status["parameters"]) == ("three bad hours", {"rate": 2})
    spec, *_ = log.parent.glob("runs/*.spec.json")
    assert AttemptFiles(spec).spec()["parameters"]["rate"] == 2

    for _ in range(2):
        assert shop.document("delete", backfill, schema="status")["deleted"]
    listed = shop.document("history", schema="history")
    assert (listed["backfills"], listed["hidden"]) == ([], 1)
    assert "1 backfill deleted: --all shows them." in shop("history").stdout
    assert backfill in shop("history", "--all").stdout
    assert "all backfills here are deleted" in shop("status", code=64).stderr
    assert "no backfill" in shop("status", backfill[:-1], code=64).stderr
    assert "is deleted" in shop("resume", backfill, code=64).stderr
    assert shop.document("report", backfill, schema="report")["touched_is_planned"]
    assert "--timeout" in shop("run", *FIX, "--detach", "--timeout", "1s", code=64).stderr


def test_a_detached_driver_shows_no_password(shop: Shop) -> None:
    shop.does({"clean": "wait"})
    fake = FakeMarquez([event("clean", ["feed"], ["clean"]), event("daily", ["clean"], ["daily"])])
    with fake.serve() as address:
        url = address.replace("//", "//me:canary-9@")
        backfill = shop("run", *FIX, "--yes", "--detach", "--marquez", url).stdout.strip()
        wait_for(lambda: bool(shop.journal()))
        shown = [
            file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            for file in Path("/proc").glob("[0-9]*/cmdline")
            if file.exists()
        ]
        driver = [line for line in shown if f"resume {backfill}" in line]
        shop.go()
        shop("watch")
    assert len(driver) == 1
    assert not [line for line in shown if "canary-9" in line and "pytest" not in line]
    log = shop.folder / ".lineage-backfill" / "backfills" / backfill / "driver.log"
    assert "canary-9" not in log.read_text()


def test_a_run_that_fails_without_a_result_has_rewritten_an_unknown_number(shop: Shop) -> None:
    (shop.folder / "program.py").write_text("import sys; sys.exit('no disk')")
    shop("run", *FIX, "--yes", code=3)
    report = shop.document("report", schema="report")
    one = report["outputs"][0]
    assert (one["known"], one["exact"], one["missing"]["count"]) == (False, False, 3)
    row = next(line for line in shop("report").stdout.splitlines() if line.startswith("✗  clean "))
    assert row.split()[2:5] == ["3", UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("key", ["2024-01-02", "*", '{"day": "2024-01-02"}'])
def test_a_table_that_no_run_was_to_write_is_unexpected_and_fails_nothing(
    shop: Shop, key: str
) -> None:
    key = json.loads(key) if key.startswith("{") else key
    more = {"dataset": {"namespace": "shop", "name": "audit"}, "version": 1}
    more |= {"partitions": [{"key": key, "rows_before": 0, "rows": 7, "emptied": False}]}
    program = PROGRAM.replace("result = {", f"outputs.append({more!r})\nresult = {{", 1)
    (shop.folder / "program.py").write_text(program)
    shop("run", *FIX, "--yes")
    report = shop.document("report", schema="report")
    assert report["touched_is_planned"] is False
    found = {(one["job"]["name"], one["dataset"]["name"]): one for one in report["outputs"]}
    assert found["clean", "clean"]["exact"] is True
    audit = found["clean", "audit"]
    assert (audit["exact"], audit["planned"]["count"]) == (False, 0)
    named = key if isinstance(key, str) else {"day": [key["day"]]}
    assert audit["unexpected"] == {"count": 1, "partitions": [named]}
    assert "audit" in shop("report").stdout


def _told(said: str) -> list[str]:
    """Return the words of the last command that is named as the next step."""
    return shlex.split(said.rpartition("lineage-backfill ")[2].splitlines()[0])


def test_a_plan_and_a_backfill_are_of_one_target(shop: Shop) -> None:
    shop.declare("[target.prod.limits]\nmax_runs = 50\n[target.test.limits]\nmax_runs = 40\n")
    assert "Target     prod" in shop("impact", *FIX, "--target", "prod").stdout
    plan = shop.document("impact", *FIX, "--target", "prod", "--out", "p.json", schema="plan")
    assert plan["request"]["target"] == "prod"
    refused = shop("run", "p.json", "--yes", "--target", "test", code=64).stderr
    assert "the plan was made for target 'prod', not for target 'test'" in refused
    assert "not for no target" in shop("run", "p.json", "--yes", code=64).stderr
    assert shop.journal() == []
    said = shop("impact", *FIX, "--target", "prod", "--out", "p.json").stderr
    shop(*_told(said), "--yes")
    shop.does({"daily": "fail"})
    detached = shop("run", *FIX, "--yes", "--target", "prod", "--detach")
    failed = shop(*_told(detached.stderr), code=3).stderr
    backfill = detached.stdout.strip()
    assert "no backfill" in shop("retry", backfill, code=64).stderr  # other targets, other stores
    shop.does({})
    shop(*_told(failed))
    assert "ok" in shop.document("config", "check", "--target", "prod", schema="config_check")
    assert "prod" in shop("config", "check", "--target", "prd", code=64).stderr
    environment = shop.surroundings()["env"] | {"LINEAGE_BACKFILL_TARGET": "prod"}
    listing = shop.start("history", "--json", env=environment).communicate(timeout=60)[0]
    assert len(json.loads(listing)["backfills"]) == 2
    deleted = shop("delete", backfill, "--target", "prod").stderr
    assert _told(deleted) == ["undo", backfill, "--target=prod"]


def test_hooks_are_told_of_a_backfill_also_where_one_fails(shop: Shop) -> None:
    tell = "import sys, uuid; open(f'told-{uuid.uuid4()}', 'w').write(sys.stdin.read())"
    every = '["started", "failed", "finished"]'
    shop.declare(f"""
[[notify]]
on = {every}
command = {json.dumps([sys.executable, "-c", tell])}
[[notify]]
on = {every}
command = ["no-such-program"]
""")

    def told() -> dict[str, Any]:
        files = list(shop.folder.glob("told-*"))
        found = [json.loads(file.read_text()) for file in files]
        for file in files:
            file.unlink()
        assert all(fits(one, "notification") for one in found)
        return {one["event"]: one for one in found}

    shop.does({"clean": "fail"})
    done = shop("run", *FIX, "--yes", "--parameter", "password=no such", code=3)
    assert "no-such-program" in done.stderr
    found = told()
    assert found.keys() == {"started", "failed", "finished"}
    assert found["failed"]["run"]["job"]["name"] == "clean"
    assert found["failed"]["run"]["error"] == "ValueError: no [such] column"
    assert found["finished"]["state"] == "failed"
    shop.does({})
    assert shop("retry").stderr
    assert told()["finished"]["state"] == "succeeded"


def test_two_terminals_at_once_take_turns_or_the_second_is_refused(shop: Shop) -> None:
    shop.does({"clean": "wait"})
    first = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    assert "holds partitions of shop:clean" in shop("run", *FIX, "--yes", code=6).stderr
    second = shop.start("run", *FIX, "--yes", "--wait")
    read_until(second, "waiting:")
    shop.go()
    for process in (first, second):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert [line.split()[0] for line in shop.journal()] == ["clean", "daily", "clean", "daily"]


def test_what_a_run_leaves_is_for_its_owner_only_and_no_life_sign(shop: Shop) -> None:
    before = os.umask(0)
    try:
        shop.does({"clean": "fail"})
        shop("run", *FIX, "--yes", code=3)
        shop.does({})
        shop("retry")
    finally:
        os.umask(before)
    left = sorted((shop.folder / ".lineage-backfill").rglob("*"))
    assert {one.suffix for one in left} >= {".db", ".json", ".exit-code"}, left
    ours = [one for one in left if not one.name.endswith("result.json")]  # a job's own
    assert [one for one in ours if one.stat().st_mode & 0o077] == []
    assert [one for one in left if one.suffix == ".alive"] == []


def test_a_backfill_waits_for_its_time_and_for_runs_from_outside(shop: Shop) -> None:
    begun = event("clean", ["feed"], ["clean"])
    now = datetime.now(UTC)
    times = {
        "nominalStartTime": "2024-01-02T01:00:00Z",
        "nominalEndTime": "2024-01-02T02:00:00Z",
        "_producer": "https://example.org/",
        "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/NominalTimeRunFacet.json",
    }
    begun |= {"eventType": "START", "eventTime": now.isoformat()}
    begun["run"] = {"runId": "00000000-0000-4000-8000-1", "facets": {"nominalTime": times}}
    events = shop.folder / "events.ndjson"
    whole = events.read_text()
    events.write_text(whole + json.dumps(begun) + "\n")
    scheduled = shop("run", *FIX, "--yes", "--at", "1h", "--timeout", "1s", code=8)
    assert "waiting: it starts at" in scheduled.stderr
    assert shop.document("cancel", schema="status")["state"] == "cancelled"
    waited = shop("run", *FIX, "--yes", "--timeout", "1s", code=8)
    assert "waiting: shop:clean 2024-01-02T01 is being run by others since" in waited.stderr
    assert shop.journal() == []
    shop.declare('[run]\nlive_runs = "refuse"\n')
    assert "is being run by others" in shop("resume", code=6).stderr
    events.write_text(whole)
    assert shop.journal() == []
    assert shop.document("resume", schema="status")["state"] == "succeeded"


def test_a_blocked_job_makes_run_end_with_3(shop: Shop) -> None:
    shop.lineage(("clean", "feed", "clean"), ("mystery", "clean", "unheard_of"))
    blocked = shop("impact", *FIX)
    assert "1 job blocked: a declaration is missing" in blocked.stdout
    ended = shop("run", *FIX, "--yes", "--quiet", code=3)
    assert "Stale but not planned: 1 job." in ended.stderr  # why it is not 0
    status = shop.document("run", *FIX, "--yes", schema="status", code=3)
    assert status["state"] == "succeeded"
    assert status["blocked_jobs"] == [{"namespace": "shop", "name": "mystery"}]


@pytest.mark.parametrize(
    "left_out", [("--exclude", "daily"), ("--select", "clean"), ("--depth", "1")]
)
def test_what_is_left_out_on_purpose_is_no_failure(shop: Shop, left_out: tuple[str, str]) -> None:
    status = shop.document("run", *FIX, *left_out, "--yes", schema="status")
    assert status["excluded_jobs"] == [{"namespace": "shop", "name": "daily"}]
    assert (status["state"], status["blocked_jobs"]) == ("succeeded", [])
    shop("run", *FIX, *left_out, "--yes", "--strict", code=3)


def test_a_time_of_nothing_is_no_lack_of_a_limit(shop: Shop) -> None:
    shop("run", *FIX, "--yes")
    verbs = (("run", *FIX, "--yes"), ("resume",), ("retry",), ("undo", "--yes"), ("watch",))
    for verb in verbs:
        assert "more than 0" in shop(*verb, "--timeout", "0s", code=64).stderr
    assert shop.started() == ["clean", "daily"]


def test_a_request_that_leaves_every_job_out_is_as_strict(shop: Shop) -> None:
    everything = ("--exclude", "clean")  # and what reads it is left stale
    shop("run", *FIX, *everything, "--yes")
    shop("run", *FIX, *everything, "--yes", "--strict", code=3)
    shop("run", *FIX, "--select", "far", "--yes", "--strict", code=3)
    assert shop.journal() == []


def test_a_blocked_job_is_left_out_by_excluding_it(shop: Shop) -> None:
    shop.lineage(("clean", "feed", "clean"), ("mystery", "clean", "unheard_of"))
    shop("run", *FIX, "--exclude", "mystery", "--yes")


def test_what_a_backfill_leaves_is_for_its_owner_only(shop: Shop) -> None:
    shop("run", *FIX, "--yes")
    left = list(shop.folder.glob(".lineage-backfill/**/*"))
    kept = [one for one in left if one.is_file() and not one.name.endswith("result.json")]
    assert len([one for one in kept if one.name.endswith("spec.json")]) == 2
    assert {one.stat().st_mode & 0o077 for one in kept} == {0}
    folders = [shop.folder / ".lineage-backfill", *(one for one in left if one.is_dir())]
    assert {one.stat().st_mode & 0o777 for one in folders} == {0o700}


def test_a_stream_of_another_encoding_shows_what_it_can(shop: Shop) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "lineage_backfill", "impact", *FIX, "--format", "tree"],
        cwd=shop.folder,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert b"daily" in told.stdout


def test_a_job_given_as_a_dataset_is_told_the_option(shop: Shop) -> None:
    shop.lineage(("tidy", "feed", "clean"))
    refused = shop("impact", "tidy", code=64)
    assert "--job tidy" in refused.stderr


def test_too_many_runs_are_counted_and_refused(shop: Shop) -> None:
    (shop.folder / "lineage-backfill.toml").write_text(PROJECT + "[limits]\nmax_runs = 1\n")
    plan = shop.document("impact", *FIX, schema="plan")
    assert "runs" not in plan
    assert plan["totals"]["runs"] == 2
    refused = shop("run", *FIX, "--yes", code=9)
    assert "--allow-max-runs" in refused.stderr
    shop("run", *FIX, "--yes", "--allow-max-runs")


def test_a_job_without_an_engine_is_planned_and_not_run(shop: Shop) -> None:
    bare = PROJECT.replace('engine = "here"\n', "")
    (shop.folder / "lineage-backfill.toml").write_text(bare)
    assert "no engine" in shop("impact", *FIX).stdout
    refused = shop("run", *FIX, "--yes", code=64)
    assert "engine" in refused.stderr
    assert shop.journal() == []


def test_a_command_needs_no_entrypoint_and_no_tables(shop: Shop) -> None:
    project = PROJECT.replace('entrypoint = "any:thing"\n', "")
    project = "\n".join(x for x in project.split("\n") if not x.startswith(("location", "columns")))
    (shop.folder / "lineage-backfill.toml").write_text(project)
    shop("config", "check")
    assert shop.document("run", *FIX, "--yes", schema="status")["state"] == "succeeded"
    assert shop.document("report", schema="report")["touched_is_planned"] is None


def test_what_has_no_run_spec_is_refused_before_anything_starts(shop: Shop) -> None:
    spark = PROJECT.replace('entrypoint = "any:thing"', "").replace("here]", "other]")
    shop.folder.joinpath("lineage-backfill.toml").write_text(
        spark.replace('kind = "command"\nargv', 'kind = "command"\nundo = true\nargv').replace(
            'engine = "here"', 'engine = "other"'
        )
    )
    assert "no entrypoint" in shop("config", "check").stdout
    refused = shop("run", *FIX, "--yes", code=64)
    assert "the same for 1 more job" in refused.stderr
    assert "config check" in refused.stderr
    assert shop.started() == []
    assert "no backfill" in shop("status", code=64).stderr


def test_a_missing_environment_is_told_before_anything_is_recorded(shop: Shop) -> None:
    shop.declare('[engines.local]\npython = "/nowhere/python"\n')
    file = shop.folder / "lineage-backfill.toml"
    file.write_text(file.read_text().replace('engine = "here"', 'engine = "local"'))
    done = shop("run", *FIX, "--yes", code=64)
    assert "/nowhere/python" in done.stderr
    assert shop.document("history", schema="history")["backfills"] == []


def test_a_thousand_jobs_are_planned(shop: Shop) -> None:
    shop.lineage(
        *(
            (f"c{n}", " ".join({f"c{n // 2}" if n else "feed", f"c{n - n % 7}"}), f"c{n}")
            for n in range(1, 1000)
        ),
        ("c0", "feed", "c0"),
    )
    plan = json.loads(shop("impact", *FIX, "--json").stdout)
    assert len({one["job"]["name"] for one in plan["jobs"]}) == 1000


WRONG = [
    ("an unknown option", ("impact", "--colour"), "No such option"),
    ("an unknown verb", ("impct",), "impact"),
    ("no dataset", ("impact",), "no changed dataset or job is named"),
    ("an unknown dataset", ("impact", "fed"), "feed"),
    ("no keys for partitioned data", ("impact", "feed"), "--from"),
    ("a key that does not exist", ("impact", "feed", "--partitions", "1999-01-01T00"), "1999"),
    ("no key at all", ("impact", "feed", "--partitions", "soon"), "soon"),
    ("an instant without offset", ("impact", "feed", "--now", "2024-01-01"), "offset"),
    ("no such lineage", ("impact", "feed", "--snapshot", "nowhere.gz"), "nowhere.gz"),
    ("no such project file", ("status", "--config", "nowhere.toml"), "nowhere.toml"),
    ("no such backfill", ("status", "b-1"), "no backfill"),
    ("no backfill to watch", ("watch",), "no backfill"),
    ("no backfill to cancel", ("cancel", "--kill"), "no backfill"),
    ("no plan to show", ("plan", "show", "nowhere.json"), "nowhere.json"),
    ("a number that is none", ("run", "--max-parallel", "many"), "--max-parallel"),
]


@pytest.mark.parametrize(("what", "arguments", "message"), WRONG, ids=[one[0] for one in WRONG])
def test_wrong_usage(shop: Shop, what: str, arguments: tuple[str, ...], message: str) -> None:
    done = shop(*arguments, code=64)
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 3


def test_a_service_that_does_not_answer_is_7(shop: Shop) -> None:
    done = shop("impact", *FIX, "--marquez", "http://127.0.0.1:9", code=7)
    assert "127.0.0.1:9" in done.stderr


def test_debug_shows_where(shop: Shop) -> None:
    process = shop.start("impact", "fed", "--debug")
    said = process.communicate(timeout=60)[1]
    assert "Traceback" in said
    assert "error[LB-101]: no dataset is named 'fed'" in said
    assert process.returncode == 64


def test_no_color_and_no_escape_codes_off_a_terminal(shop: Shop) -> None:
    shop("impact", *FIX, "--out", "../plan.json")
    for arguments in (
        ("impact", *FIX),
        ("impact", *FIX, "--why", "clean"),
        ("plan", "show", "../plan.json"),
        ("--help",),
        ("impact", "--help"),
        ("config", "show"),
    ):
        assert "\x1b" not in shop(*arguments).stdout


def test_on_a_terminal_there_is_colour_except_with_no_color(shop: Shop) -> None:
    shop("run", *FIX, "--yes")
    colour = re.compile(r"\x1b\[[0-9;]*[349]\d")
    for arguments in (("impact", *FIX, "--why", "clean"), ("status",), ("watch",), ("cancel", "x")):
        assert colour.search(on_terminal(shop, *arguments, TERM="xterm-256color"))
        plain = on_terminal(shop, *arguments, TERM="xterm-256color", NO_COLOR="1")
        assert plain.strip()
        assert not colour.search(plain)


def test_what_there_is_to_see(shop: Shop) -> None:
    lineage = json.loads(shop("lineage", "show", "--json").stdout)
    assert {job["job"]["name"] for job in lineage["jobs"]} == {"clean", "daily", "far"}
    assert "daily" not in shop("lineage", "show", "feed").stdout
    shown = shop("config", "show", "--sources").stdout
    assert "lineage.events" in shown
    assert "command line" in shop("config", "show", "--sources", "--events", "x").stdout
    assert json.loads(shop("config", "show", "--json").stdout)["kind"] == "config"
    checks = json.loads(shop.start("doctor", "--json").communicate(timeout=60)[0])["checks"]
    found = {one["name"]: one["ok"] for one in checks}
    assert found.keys() == {
        *("project", "lineage", "store", "tables"),
        "spark",  # no job runs on Spark from here: neither Java nor jars are needed
    }
    assert found["project"]
    assert found["lineage"]
    assert all(one["fix"] for one in checks if not one["ok"])


HEAVY = ("pyspark", "pandas", "networkx", "sqlalchemy", "requests", "rich", "openlineage")


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [(("impact", *FIX, "--json"), HEAVY), (("--version",), (*HEAVY, "pydantic"))],
)
def test_nothing_heavy_is_imported_without_need(
    shop: Shop, arguments: tuple[str, ...], unused: tuple[str, ...]
) -> None:
    code = (
        "import sys; from lineage_backfill.cli.main import main; code = main(sys.argv[1:]);"
        f"print(sorted(set({unused!r}) & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=shop.folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"


def on_terminal(shop: Shop, *arguments: str, **environment: str) -> str:
    """Return what a terminal of 80 columns gets to see."""
    person, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", **environment}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = shop.start(
        *arguments, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    seen = b""
    with suppress(OSError):  # the other end has been closed
        while part := os.read(person, 4096):
            seen += part
    os.close(person)
    process.wait(timeout=60)
    return seen.decode()


def read_until(process: Command, text: str) -> None:
    """Wait until the process has said so on stderr."""
    assert process.stderr is not None
    assert any(text in line for line in process.stderr)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
