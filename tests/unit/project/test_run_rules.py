"""How runs are made, as a project file says it: read, laid over each other and refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.project.run_rules import RunRules, RunWindow
from lineage_backfill.project.settings import Project
from lineage_backfill.runs.drive.retry import RetryPolicy
from lineage_backfill.workspace.configuration import load_project


def load(folder: Path, text: str, **environ: str) -> Project:
    (folder / "lineage-backfill.toml").write_text(text)
    return load_project(folder, environ=environ, user_file=folder / "none.toml")


EVERY = """
[project]
zone = "Europe/Berlin"

[run]
timeout = "2h"
retries = 5
retry_wait = "1m"
retry_on = ["transient", "timeout"]
only_between = "20:00-06:00"
max_failures = 3

[[job]]
name = "night"

[[job]]
name = "own"
timeout = "90s"
retries = 0
only_between = "22:00-24:00 UTC"
"""


def test_what_a_job_does_not_say_is_what_all_runs_say(tmp_path: Path) -> None:
    project = load(tmp_path, EVERY)
    night, own = (project.declarations.rules_of(one) for one in project.declarations.jobs)
    assert night == project.declarations.rules_of(None)
    assert (night.timeout, night.retries) == (timedelta(hours=2), 5)
    assert (night.retry_wait, night.retry_on) == (timedelta(minutes=1), ("transient", "timeout"))
    assert str(night.only_between) == "20:00-06:00 Europe/Berlin"
    assert (own.timeout, own.retries, own.retry_on) == (timedelta(seconds=90), 0, night.retry_on)
    assert str(own.only_between) == "22:00-00:00 UTC"
    assert project.max_failures == 3


def test_without_a_word_runs_are_made_as_ever(tmp_path: Path) -> None:
    project = load(tmp_path, "")
    assert project.declarations.rules_of(None) == RunRules(
        retries=2, retry_wait=timedelta(seconds=1), retry_on=("transient",)
    )
    assert project.max_failures is None


def test_the_environment_says_it_too(tmp_path: Path) -> None:
    given = {"RUN_FAIL_FAST": "true", "RUN_RETRY_ON": "timeout, failure", "RUN_RETRIES": "0"}
    project = load(tmp_path, "", **{f"LINEAGE_BACKFILL_{name}": one for name, one in given.items()})
    rules = project.declarations.rules_of(None)
    assert (project.max_failures, rules.retries) == (1, 0)
    assert rules.retry_on == ("timeout", "failure")


def test_a_run_may_be_retried_without_a_wait(tmp_path: Path) -> None:
    rules = load(tmp_path, "[run]\nretry_wait = '0s'").declarations.rules_of(None)
    assert rules.retry_wait == timedelta()
    delay = RetryPolicy.of(rules).delay(2, failure="transient", chance=0.5)
    assert delay == timedelta()


@pytest.mark.parametrize("place", ["[run]", "[[job]]\nname = 'a'"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("timeout = '2 weeks'", "`timeout` is '2 weeks', which is not a duration"),
        ("timeout = '0s'", "`timeout` is '0s', but must be more than 0"),
        ("timeout = 60", "`timeout` must be a string"),
        ("retries = -1", "`retries` is -1, but must be at least 0"),
        ("retry_wait = 'soon'", "`retry_wait` is 'soon'"),
        ("retry_on = ['timeouts']", "`retry_on` is 'timeouts', but must be one of transient"),
        ("only_between = '20-06'", "`only_between` is '20-06', which is not a window"),
        ("only_between = '20:00-20:00'", "which is not a window"),
        ("only_between = '25:00-06:00'", "which is not a window"),
        ("only_between = '20:00-06:00 Berlin'", "names 'Berlin', which is not a time zone"),
        ("retry = 1", "unknown key `retry`"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, place: str, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, f"{place}\n{line}\n")
    assert said in str(caught.value)
    assert place.partition("\n")[0].strip("[]") in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_failures = 0", "must be at least 1"),
        ("fail_fast = 1", "must be true or false"),
        ("fail_fast = true\nmax_failures = 2", "has `fail_fast` and `max_failures`"),
    ],
)
def test_what_is_wrong_of_a_backfill_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(tmp_path, f"[run]\n{line}\n")


@pytest.mark.parametrize(
    ("window", "instant", "is_open"),
    [
        ("20:00-06:00 UTC", "2024-01-01T20:00", True),
        ("20:00-06:00 UTC", "2024-01-01T05:59", True),
        ("20:00-06:00 UTC", "2024-01-01T06:00", False),
        ("08:00-12:00 UTC", "2024-01-01T08:00", True),
        ("08:00-12:00 UTC", "2024-01-01T12:00", False),
        ("20:00-24:00 UTC", "2024-01-01T23:59", True),
        ("20:00-24:00 UTC", "2024-01-02T00:00", False),
        ("20:00-06:00 Europe/Berlin", "2024-01-01T19:00", True),  # winter: an hour ahead
        ("20:00-06:00 Europe/Berlin", "2024-07-01T18:00", True),  # summer: two
        ("20:00-06:00 Europe/Berlin", "2024-07-01T17:59", False),
    ],
)
def test_a_window_goes_by_the_clocks_of_its_zone(window: str, instant: str, is_open: bool) -> None:
    found = RunWindow.read(window)
    assert found is not None
    assert found.is_open(datetime.fromisoformat(instant).replace(tzinfo=UTC)) is is_open
