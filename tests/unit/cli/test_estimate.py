"""How long a plan takes, as people and programs see it, and what is left of it."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from lineage_backfill.cli.main import main
from lineage_backfill.cli.output.progress import LiveProgress, progress
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.ports import Start
from lineage_backfill.runs.estimate import Estimate
from lineage_backfill.runs.watching import _Watch
from lineage_backfill.show.words import lasting
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.workspace import Workspace
from tests.unit.cli import plans
from tests.unit.test_estimate import project
from tests.unit.web.shop import Shop

ASKED = ["impact", "raw", "--partitions", "2024-01-02..2024-01-04"]
ASKED += ["--now", "2024-02-20T00:00:00Z"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_preview_says_how_long_the_whole_takes(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("table", "tree", "markdown"):
        assert main([*ASKED, "--format", form]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "~2.2 min" in shown


def test_what_is_not_known_is_said_to_be_unknown(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = shop / "events.ndjson"
    lines = events.read_text().splitlines()
    events.write_text("\n".join(line for line in lines if '"daily-2"' not in line))
    assert main(ASKED) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "~1.7 min; 1 job not estimated (fewer than 3 past runs)" in shown
    events.write_text("\n".join(line for line in lines if '-2"' not in line))
    assert main(ASKED) == 0
    assert "time not estimated (fewer than 3 past runs)" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_says_that_the_engine_starts_and_how_long_it_took(terminal: bool) -> None:
    plan = plans.real()
    file = io.StringIO()
    console = Console(file=file, width=160, markup=False, highlight=False, force_terminal=terminal)
    reporter = progress(console, Estimate(runs={}, usual={}, parallel=4))
    what = "an application on the cluster"
    with reporter.showing():
        reporter.backfill_started("b-1", plan, "")
        for seconds in (1, 12):
            reporter.engine_starting(Start(what=what, seconds=seconds))
        if isinstance(reporter, LiveProgress):
            reporter._bars.refresh()
        reporter.engine_starting(Start(what=what, seconds=13, is_over=True))
    said = file.getvalue()
    starting = f"{what} (12 s)" if terminal else f"{what}; this usually takes 10 to 60 s"
    assert f"starting {starting}" in " ".join(said.split())
    assert f"started {what} in 13 s" in said


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_says_of_several_starts_which_goes_on_for_the_longest_time(terminal: bool) -> None:
    plan = plans.real()
    file = io.StringIO()
    console = Console(file=file, width=160, markup=False, highlight=False, force_terminal=terminal)
    reporter = progress(console, Estimate(runs={}, usual={}, parallel=4))

    def told(*starts: Start) -> str:
        begin = len(file.getvalue())
        for start in starts:
            reporter.engine_starting(start)
        if isinstance(reporter, LiveProgress):
            reporter._bars.refresh()
        return " ".join(file.getvalue()[begin:].split())

    with reporter.showing():
        reporter.backfill_started("b-1", plan, "")
        assert f"starting x{' (9 s)' if terminal else ';'}" in told(
            Start(what="x", seconds=9, id=1)
        )
        second = told(Start(what="x", seconds=12, id=1), Start(what="x", seconds=3, id=2))
        assert ("starting x (12 s)" in second) == terminal  # plain output has printed it already
        assert "(3 s)" not in second
        over = told(Start(what="x", seconds=14, id=1, is_over=True))
        assert "started x in 14 s" in over
        assert ("starting x (3 s)" in over) == terminal
        failed = told(Start(what="x", seconds=5, id=2, is_over=True, has_failed=True))
        assert "start" not in failed
        assert f"starting x{' (2 s)' if terminal else ';'}" in told(
            Start(what="x", seconds=2, id=3)
        )


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_says_what_is_left(terminal: bool) -> None:
    plan = plans.real()
    assert plan.runs
    runs = Counter(run.job for run in plan.runs)
    file = io.StringIO()
    console = Console(file=file, width=120, markup=False, highlight=False, force_terminal=terminal)
    reporter = progress(console, Estimate(runs=runs, usual=dict.fromkeys(runs, 600.0), parallel=1))
    with reporter.showing():
        reporter.backfill_started("b-1", plan, "")
        run = plan.runs[0]
        reporter.run_started(run, 1)
        reporter.run_finished(run, RunState.SUCCEEDED, "")
    assert f"~{lasting(600 * (runs.total() - 1))} left" in file.getvalue()


@pytest.mark.parametrize(
    ("again", "max_parallel", "typical"), [(False, 1, 30.0), (True, 1, 40.0), (True, 2, 20.0)]
)
def test_what_is_left_of_a_backfill_is_estimated_from_its_own_runs(
    again: bool, max_parallel: int, typical: float, tmp_path: Path
) -> None:
    shop = Shop.of(tmp_path)
    runs = shop.backfill()
    shop.drive(runs[:20], RunState.SUCCEEDED, took=10)
    shop.drive(runs[20:21], RunState.FAILED, took=3, error="no such column")
    takes = Backfills(Workspace(shop.project)).estimate_left(again=again, max_parallel=max_parallel)
    assert takes.left.seconds == typical
    assert [job.name for job in takes.left.unknown] == [runs[-1].job.name]


@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_who_goes_on_is_told_what_is_left(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop.of(tmp_path)
    runs = shop.backfill()
    shop.drive(runs[:20], RunState.SUCCEEDED, took=60)
    shop.leave()
    monkeypatch.chdir(tmp_path)
    assert main([verb]) == 3  # for `blind`, which is stale and blocked
    said = capsys.readouterr().err
    told = r"succeeded clean 2024-01-02T2\d in .* \[(\d/\d+), ~.* left\]"
    assert re.findall(told, said) == ["1/5", "2/5", "3/5"], said


def test_who_watches_is_told_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop.of(tmp_path)
    runs = shop.backfill()
    shop.drive(runs[:20], RunState.SUCCEEDED, took=60)
    monkeypatch.chdir(tmp_path)
    look = _Watch.look

    def one_more_and_no_further(watch: _Watch) -> None:
        if "b-1" in shop.leases:
            shop.drive(runs[20:21], RunState.SUCCEEDED)
            shop.end(BackfillState.PAUSED)
            del shop.leases["b-1"]
        look(watch)

    monkeypatch.setattr(_Watch, "look", one_more_and_no_further)
    main(["watch"])
    said = capsys.readouterr().err
    assert re.search(r"succeeded clean 2024-01-02T20 .*\[1/5, ~.* left\]", said), said
