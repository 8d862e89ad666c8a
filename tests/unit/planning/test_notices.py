"""What a plan warns of: keys that an input's calendar does not hold yet."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lineage_backfill.plans.notice import Notice
from tests.unit.planning.world import lineage, plan, request, runs_of

HOURS = """
[[dataset]]
name = "hours"
grain = "hour"
start = "2024-03-01T00"
data_lag = {lag}

[[dataset]]
name = "days"
grain = "day"
start = "2024-03-01"
{running}
"""


@pytest.mark.parametrize(
    ("lag", "day", "now", "late", "read"),
    [
        (0, "2024-03-31", datetime(2024, 4, 1, 1, tzinfo=UTC), None, "T23"),
        (2, "2024-03-31", datetime(2024, 4, 1, 0, 30, tzinfo=UTC), "T22..2024-03-31T23", "T23"),
        # the running day, of which the calendar holds all complete hours
        (0, "2024-04-01", datetime(2024, 4, 1, 22, 30, tzinfo=UTC), "T22..2024-04-01T23", "T22"),
    ],
)
def test_keys_that_a_calendar_does_not_hold_yet_are_told(
    lag: int, day: str, now: datetime, late: str | None, read: str
) -> None:
    toml = HOURS.format(lag=lag, running="data_lag = -1" if day == "2024-04-01" else "")
    made = plan(request(jobs={"total": day}), "hours > total > days", toml, now=now)
    (run,) = runs_of(made, "total")
    assert run.reads[0].keys == (f"{day}T00..{day}{read}",)
    warned = (
        f"total {day} reads 22 of 24 keys of w:hours: {day}{late} not in its calendar yet;"
        " rows already there are read"
    )
    assert [text for text in made.warnings if "keys of" in text] == [warned][: late is not None]


def test_the_future_of_a_window_is_told_and_not_read() -> None:
    toml = (
        HOURS.format(lag=0, running="")
        + """
[[dataset]]
name = "smooth"
grain = "day"
start = "2024-03-01"
[[job]]
name = "smoothed"
[[job.reads]]
dataset = "days"
mapping = "window"
before = 1
after = 1
"""
    )
    now = datetime(2024, 4, 1, 12, tzinfo=UTC)
    made = plan(request(jobs={"smoothed": "2024-03-31"}), "days > smoothed > smooth", toml, now=now)
    assert "smoothed 2024-03-31 reads 2 of 3 keys of w:days" in made.warnings[0]
    (run,) = runs_of(made, "smoothed")
    assert run.reads[0].keys == ("2024-03-30..2024-04-01",)  # today has begun


def test_all_keys_that_read_too_early_are_told_and_no_other() -> None:
    toml = """
    [[dataset]]
    name = "late"
    grain = "day"
    data_lag = 3
    [[dataset]]
    name = "made"
    grain = "day"
    """
    now = datetime(2024, 4, 1, 12, tzinfo=UTC)
    made = plan(request(jobs={"j": "2024-03-20..2024-03-31"}), "late > j > made", toml, now=now)
    (said,) = [text for text in made.warnings if "keys of" in text]
    assert said == (
        "j 2024-03-29..2024-03-31 read 0 of 3 keys of w:late: 2024-03-29..2024-03-31 not in its"
        " calendar yet; rows already there are read"
    )


def test_warnings_that_differ_in_a_name_are_one_line_after_what_is_left_out() -> None:
    toml = HOURS.format(lag=2, running="") + '[[dataset]]\nname = "days_*"\ngrain = "day"\n'
    names = [f"total_{number}" for number in range(5)]
    edges = "\n".join(f"hours > {name} > days_{number}" for number, name in enumerate(names))
    edges += "\nhours > late > days"
    now = datetime(2024, 4, 1, 0, 30, tzinfo=UTC)
    keys = dict.fromkeys(names, "2024-03-31") | {"late": "2024-04-01"}
    first, *others = plan(request(jobs=keys), edges, toml, now=now).warnings
    assert first == "job w:late: not planned, not in its calendar yet: 2024-04-01"
    among = "5 of them (total_0, total_1, total_2 and 2 more) 2024-03-31 reads 22 of 24 keys"
    assert [text[: len(among)] for text in others if "keys of" in text] == [among]


def test_warnings_of_the_lineage_that_bear_on_the_plan_are_named_and_the_others_counted() -> None:
    found = (
        *(Notice(": facet `tags` cannot be read; left out", f"w:far_{n}") for n in range(7)),
        *(Notice(": facet `tags` cannot be read; left out", f"w:{name}") for name in ("j", "raw")),
        Notice(": deleted in Marquez, the events are left out", "w:gone", leaves_out=True),
        Notice("2 event times have no time zone; taken as UTC"),
    )
    days = '[[dataset]]\nname = "*"\ngrain = "day"\n'
    known = lineage("raw > j > days\nfar > k > away", notices=found)
    first, *others = plan(request({"raw": "2024-03-10"}), known, days).warnings
    assert first == "w:gone: deleted in Marquez, the events are left out"
    assert others[:3] == [
        "2 of them (w:j, w:raw): facet `tags` cannot be read; left out",
        "2 event times have no time zone; taken as UTC",
        "the lineage has 7 more warnings, on other names: `lineage show`",
    ]
    assert known.warnings[1].startswith("9 of them (w:far_0, w:far_1, w:far_2 and 6 more): facet")
