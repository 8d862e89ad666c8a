"""Shells complete names as they were last seen here: quickly, harmlessly, without any error."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.model import BackfillState
from lineage_backfill.ports import BackfillRecord
from lineage_backfill.store.sql import SqlRunStore
from tests.events import event, write_events

PROJECT = """
[project]
namespace = "shop"
[lineage]
events = ["events.ndjson"]
"""
READS = ("raw_orders", "raw_prices", "two words", "a$(touch evil)", "-x", "größe")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lineage-backfill.toml").write_text(PROJECT)
    far = event("clean", ("raw_orders", "only_there"), namespace="far")
    write_events(tmp_path / "events.ndjson", event("clean", READS), far)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shell: str = "bash",
) -> list[str]:
    """Return what a shell is told for a line, whose last word is the one to complete."""
    monkeypatch.setenv("_LINEAGE_BACKFILL_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", f"lineage-backfill {line}")
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ") + 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"lineage-backfill {line}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit) as ended:
        main([])
    said = capsys.readouterr()
    assert (ended.value.code, said.err) == (0, "")
    return said.out.splitlines()


LINES = [
    ("a verb", "sta", ["stale", "status"]),
    ("a dataset", "impact raw_p", ["raw_prices"]),
    ("the one of this project has the bare name", "impact raw_o", ["raw_orders"]),
    ("another one its name in full", "impact far:raw_", ["far:raw_orders"]),
    ("a bare name where only one has it", "impact only", ["only_there"]),
    ("letters of all kinds", "impact grö", ["größe"]),
    ("no name that a shell would evaluate", "impact a", []),
    ("no name with a blank", "impact two", []),
    ("no name that looks like an option", "impact --job clean -x", []),
    ("a job", "impact --job cl", ["clean"]),
    ("a job to be explained", "impact raw_orders --why cl", ["clean"]),
    ("a value of an option", "impact raw_orders --format tr", ["tree"]),
    ("an option of every verb", "impact raw_orders --qui", ["--quiet"]),
    ("a dataset or a job", "graph c", ["clean"]),
    ("another project", "impact --config nowhere.toml raw", []),
]


@pytest.mark.parametrize(("what", "line", "names"), LINES, ids=[case[0] for case in LINES])
def test_words(
    what: str,
    line: str,
    names: list[str],
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [one for one in completed(line, monkeypatch, capsys) if one] == names


SHELLS = [
    ("zsh", """_arguments '*: :(("raw_prices"))'"""),
    ("fish", "raw_prices"),
]


@pytest.mark.parametrize(("shell", "told"), SHELLS)
def test_other_shells(
    shell: str,
    told: str,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert completed("impact raw_p", monkeypatch, capsys, shell) == [told]


def test_names_are_those_last_read_and_no_service_is_asked(
    shop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project, cache = shop / "lineage-backfill.toml", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert main(["lineage", "show"]) == 0
    capsys.readouterr()
    (shop / "events.ndjson").write_text("{")  # what is kept is not read again
    assert completed("impact raw_p", monkeypatch, capsys) == ["raw_prices"]
    project.write_text('[project]\nnamespace = "shop"\n[lineage]\nmarquez = "http://localhost:1"\n')
    assert completed("impact raw_p", monkeypatch, capsys) == ["raw_prices"]
    assert sorted(one.name for one in shop.iterdir()) == ["cache", "events.ndjson", project.name]
    (kept,) = (cache / "lineage-backfill").iterdir()
    kept.write_text("[broken")
    assert completed("impact raw_p", monkeypatch, capsys) == [""]
    kept.unlink()
    assert completed("impact raw_p", monkeypatch, capsys) == [""]
    project.write_text("no project file")
    assert completed("impact raw_p", monkeypatch, capsys) == [""]


def test_backfills_are_those_of_the_run_store_the_newest_first(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed("status 2", monkeypatch, capsys) == [""]  # none is made to look into it
    assert not (shop / ".lineage-backfill" / "runs.db").exists()
    (shop / ".lineage-backfill").mkdir(exist_ok=True)
    store = SqlRunStore(f"sqlite:///{shop}/.lineage-backfill/runs.db")
    for day in (1, 2):
        at = datetime(2024, 1, day, tzinfo=UTC)
        state = BackfillState.SUCCEEDED
        record = BackfillRecord(
            id=f"2024-{day}",
            plan_id="p",
            state=state,
            title="VAT fix",
            submitted_at=at,
            updated_at=at,
        )
        store.create(record, {}, ())
    store.close()
    assert completed("status 2", monkeypatch, capsys) == ["2024-2", "2024-1"]
    told = completed("status 2024-2", monkeypatch, capsys, "fish")
    assert told == ["2024-2\tsucceeded: VAT fix"]


def test_completing_a_name_imports_little(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["lineage", "show"]) == 0
    program = (
        "import sys\nfrom lineage_backfill.cli.main import main\n"
        "try:\n    main([])\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    monkeypatch.setenv("_LINEAGE_BACKFILL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "lineage-backfill impact raw_p")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "raw_prices\n"
    slow = {
        "sqlalchemy",
        "networkx",
        "requests",
        "rich.progress",
        "lineage_backfill.lineage.events.build",
    }
    assert not slow & set(done.stderr.split())
