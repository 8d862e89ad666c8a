"""What people mistype, and what the command line tells them to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.plans.plan import Decision

MISTAKES = {
    # Another writing of a key.
    "impact raw_orders --from 2024-03-10": "--from 2024-03-10T00 --to 2024-03-10T23",
    "impact raw_orders --from 20-03-2024": "--from 2024-03-20T00 --to 2024-03-20T23",
    "impact raw_orders --from 20.03.2024": "--from 2024-03-20T00 --to 2024-03-20T23",
    "impact raw_orders --from 5/6/2024": "for 2024-06-05: --from 2024-06-05T00 --to 2024-06-05T23",
    "impact raw_orders --from 20240310": "--from 2024-03-10T00 --to 2024-03-10T23",
    "impact raw_orders --from 2024/3/1": "--from 2024-03-01T00 --to 2024-03-01T23",
    "impact raw_orders --from 2024-03": "--from 2024-03-01T00 --to 2024-03-31T23",
    "impact raw_orders --from 2024": "--from 2024-01-01T00 --to 2024-12-31T23",
    "impact raw_orders --from 2024-03-10T10:30": "Did you mean 2024-03-10T10?",
    "impact raw_orders --from 2024-03-10T10:30:00Z": "Did you mean 2024-03-10T10?",
    "impact raw_orders --partitions 2024-03-10-2024-03-12": "--to 2024-03-12T23",
    "impact raw_orders --partitions 2024-03-10T22:2024-03-11T00": "--from 2024-03-10T22",
    "impact raw_orders --from yesterday": "The newest key is 2024-03-31T21.",
    "impact sales_daily --from today": "The newest key is 2024-03-31.",
    "impact sales_daily --from yesterday --to 2024-03-31": "The newest key is 2024-03-31.",
    "impact sales_daily --from 2024-W10": "--from 2024-03-04 --to 2024-03-10",
    "impact sales_daily --from 2024-Q1": "--from 2024-01-01 --to 2024-03-31",
    "impact sales_daily --partitions 2024-03-10/2024-03-12": "--from 2024-03-10 --to 2024-03-12",
    "impact raw_orders --from 20-11-2024": "--from 2024-11-20T00 --to 2024-11-20T23",
    "impact raw_orders --from 2024-02-30T10": "Write it like 2024-06-15T14.",
    "impact sales_weekly --from 2024-W60": "Write it like 2024-W24.",
    "impact raw_orders --partitions hour=2024-03-10T22": "its keys are plain.",
    "impact raw_orders --partitions @keys.json": "Check the path.",
    "impact sales_daily --from 2024-03-10T10": "Did you mean 2024-03-10?",
    "impact sales_weekly --from 2024-03-10": "Did you mean 2024-W10?",
    "impact raw_orders --to 2024-03-10T22": "Add --from with the first key.",
    "impact raw_orders --from 2024-03-11T00 --to 2024-03-10T22": "Give the earlier key first.",
    "impact raw_orders --partitions 2099-01-01T00": "the newest key is 2024-03-31T21.",
    # Another name.
    "impact RAW_ORDERS --from 2024-03-10T22": "Did you mean raw_orders",
    "impact raw-orders --from 2024-03-10T22": "Did you mean raw_orders",
    "impact shop.raw_orders --from 2024-03-10T22": "Did you mean raw_orders?",
    "impact raw_orders@2024-03-10T22": "raw_orders --partitions 2024-03-10T22",
    "impact daily_sales --from 2024-03-10T22": "--job daily_sales",
    "impact --job sales_daily": "It is written by shop:daily_sales.",
    "impact --job raw_orders": "For all that reads it, write it without --job.",
    "impact --job daily": "Did you mean daily_sales?",
    "impact RAW.ORDERS --from 2024-03-10T22": "Did you mean raw_orders",
    "impact raw_orders --from 2024-03-10T22 --namespace shopp": "Did you mean shop?",
    "impact raw_orders --from 2024-03-10T22 --exclude rollin_week": "Did you mean rolling_week?",
    "impact raw_orders --from 2024-03-10T22 --why sales_daily": "written by shop:daily_sales.",
    "impact raw_orders --from 2024-03-10T22 --why daily_sale": "Did you mean daily_sales",
    "impact raw_orders --from 2024-03-10T22 --config no.toml": "Name another file with --config.",
    "impact raw_orders --from 2024-03-10T22 --events no": "Name a file, a directory or a glob",
    "graph raw_order": "Did you mean raw_orders",
    "impact raw_orders --from 2024-03-10T22 --select mart": "lineage show` lists all names.",
    # Another value of an option.
    "impact raw_orders --changed-since 2hours": "or as a length: 7d or 12h.",
    "impact raw_orders --from 2024-03-10T22 --now yesterday": "Write it like 2024-06-15T00:00Z.",
    "impact raw_orders --from 2024-03-10T22 --json --format tree": "Drop one of them.",
    "run raw_orders --from 2024-03-10T22 --timeout 5": "Write it as 90s, 30m, 2h",
    "run raw_orders --from 2024-03-10T22 --parameter debug": "Write it as NAME=VALUE.",
    "run raw_orders --from 2024-03-10T22 --detach --timeout 5m": "`watch --timeout` follows",
    "status --state done": "is not one of 'pending'",
    "status --failed --jobs daily_sales": "Possible options: --job",
    # Another word for a command, or for an option.
    "ipmact raw_orders": "Did you mean 'impact'?",
    "impact raw_orders --form 2024-03-10T22": "Possible options: --format, --from, --to",
    "logs": "`status --failed --log` prints logs.",
    "rollback": "Use `undo`.",
    "ui": "Use `serve`.",
    "resume": "or go to the folder of the project file.",
    "impact raw_orders --start 2024-03-10T22": "Write --from KEY.",
    "impact raw_orders --from 2024-03-10T22 --until 2024-03-11T00": "Write --to KEY.",
    "impact raw_orders --keys 2024-03-10T22": "Write --partitions KEYS.",
    "impact raw_orders --from 2024-03-10T22 --format json": "Use --json.",
    "stale --format json": "Write --json.",
    "stale --job daily_sales": "Write --select JOB.",
    "run raw_orders --from 2024-03-10T22 --dry-run": "`impact` takes the same arguments.",
    "backfill raw_orders": "Use `run`.",
    "preview raw_orders": "Use `impact`.",
    "list": "Use `history`.",
    "retry --yes": "This command asks nothing: leave out --yes.",
    "validate": "Use `config check`.",
    "status latest": "Without an id it is the newest one.",
    "status b-1": "`lineage-backfill history` lists them.",
    "run plan.json": "`impact … --out PLAN.json` saves a plan.",
    "impact": "Name a dataset",
    "init --example": "Pass --force to replace it",
}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--example"]) == 0


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_what_to_write(
    mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(mistake.split()) == 64
    assert MISTAKES[mistake] in capsys.readouterr().err


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("verb", ["stale", "catchup"])
def test_a_gate_fails_where_nothing_can_be_judged(verb: str) -> None:
    assert main([verb]) == 3


@pytest.mark.usefixtures("example")
def test_a_gate_fails_where_all_is_blocked(capsys: pytest.CaptureFixture[str]) -> None:
    project = Path("lineage-backfill.toml")
    project.write_text(project.read_text().replace('name = "*orders"', 'name = "raw*"'))
    change = ["impact", "raw_orders", "--from", "2024-03-10T22", "--json"]
    assert main([*change, "--detailed-exitcode"]) == 3
    assert main(change) == 0
    capsys.readouterr()


@pytest.mark.usefixtures("example")
def test_a_backfill_whose_calendar_moved_is_not_resumed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = Path("lineage-backfill.toml")
    before = project.read_text()
    failing = before.replace('argv = ["echo"', 'argv = ["false"')
    project.write_text(failing)
    assert main(["run", "raw_orders", "--partitions", "2024-03-10T22", "--yes"]) == 3
    project.write_text(before.replace('zone = "Europe/Berlin"', 'zone = "America/New_York"'))
    capsys.readouterr()
    for verb in ("resume", "retry"):
        assert main([verb]) == 5
        message = capsys.readouterr().err
        assert (
            "sales_daily was by day in Europe/Berlin and is by day in America/New_York" in message
        )
    project.write_text(before.replace('end = "2024-03-31"', 'end = "2024-03-30"'))
    assert main(["retry"]) == 0, "another newest key is no other calendar"


@pytest.mark.usefixtures("example")
def test_a_title_hides_nothing_and_strict_gives_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fix = ["run", "raw_orders", "--partitions", "2024-03-10T22", "--yes", "--depth", "1"]
    assert main([*fix, "--strict", "--title", "VAT fix"]) == 3
    reason = "--strict: left out by the request, and stale: daily_sales, rolling_week, weekly_sales"
    assert reason in capsys.readouterr().err
    assert main(["history"]) == 0
    shown = capsys.readouterr().out
    assert "VAT fix" in shown
    assert "raw_orders 2024-03-10T22" in shown
    assert main(["status", "VAT fix"]) == 0
    assert "daily_sales" not in capsys.readouterr().out
    for typed in ("VAT", "b-"):  # a shell completes both
        monkeypatch.setenv("_LINEAGE_BACKFILL_COMPLETE", "complete_zsh")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"lineage-backfill report {typed}")
        with pytest.raises(SystemExit):
            main([])
        assert '"VAT fix"' in capsys.readouterr().out


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_a_machine_on_which_no_run_was_started_is_refused(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "raw_orders", "--partitions", "2024-03-10T22", "--yes"]) == 0
    assert main([verb, "--machine-gone", "TYPO"]) == 64
    assert "was started on machine TYPO" in capsys.readouterr().err


@pytest.mark.usefixtures("example")
def test_strict_fails_where_the_lineage_may_lead_to_jobs_that_the_plan_leaves_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = Decision(kind="inner", text="not planned: they read it within themselves: shop:mail")
    monkeypatch.setattr("lineage_backfill.workspace.planning.left_out", lambda *_: [left])
    fix = ["run", "raw_orders", "--partitions", "2024-03-10T22", "--yes"]
    assert main(fix) == 0
    capsys.readouterr()
    assert main([*fix, "--strict"]) == 3
    assert f"--strict: {left.text}" in capsys.readouterr().err
