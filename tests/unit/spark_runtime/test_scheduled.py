"""What a run means that was started without a run spec: its keys, and what it is told."""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.errors import (
    BackfillError,
    DeclarationError,
    KeyFormatError,
    MissingKeyError,
    SpecError,
    UsageError,
)
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.text import expand
from lineage_backfill.project.declarations import DimensionMapping, ReadDeclaration
from lineage_backfill.project.settings import Project
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import RunSpec
from spark_runtime.configuration import load_project
from spark_runtime.errors import InputMissingError, NothingToRunError
from spark_runtime.job.arguments import add_arguments, interval, read_request
from spark_runtime.job.dagrun import DagRun, read_dag_run
from spark_runtime.job.datasets import (
    Calendar,
    Dataset,
    Dimension,
    Read,
    Write,
    all_partitions,
    calendar_of,
    offset,
    window,
)
from spark_runtime.job.scheduled import DeclaredJob, StartRequest, declare, resolve, run_specs

#: A Saturday; the week before began on Monday the 3rd.
NOW = datetime(2024, 6, 15, 14, 30, tzinfo=UTC)
OUT = Dataset("out", grain="none", location="/out")
SALES = (
    Dimension("day", grain="day", column="ds"),
    Dimension("region", keys=("eu", "us"), column="region"),
)


def labels(
    calendar: Calendar, asked: StartRequest | None = None, now: datetime = NOW, dimensions: Any = ()
) -> list[str]:
    project = load_project(Path("/"))
    job = declare(
        project, "the_job", writes=[Write(OUT, mode="merge")], calendar=dimensions or calendar
    )
    resolver, keys = resolve(job, asked or StartRequest(), now)
    run_calendar = resolver.job(job.ref).calendar
    assert run_calendar is not None
    return [text(key.label) for key in expand(run_calendar, keys)]


def text(label: Any) -> str:
    named = label.items() if isinstance(label, dict) else ()
    return "/".join(f"{name}={key}" for name, key in named) or label


def run_spec(job: DeclaredJob, project: Project, asked: StartRequest, now: datetime) -> RunSpec:
    """The run spec of a run that is one."""
    (spec,) = run_specs(job, project, asked, now)
    return spec


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the runtime has said aloud; another thread may have had something to say, too."""
    return [one.getMessage() for one in caplog.records if one.name == "spark_runtime.job.scheduled"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("calendar", "key"),
    [
        # The last complete period in the calendar's own zone, never today's.
        (Calendar(grain="hour"), "2024-06-15T13"),
        (Calendar(grain="day"), "2024-06-14"),
        (Calendar(grain="week"), "2024-W23"),
        (Calendar(grain="month"), "2024-05-01"),
        (Calendar(grain="quarter"), "2024-01-01"),
        (Calendar(grain="year"), "2023-01-01"),
        (Calendar(grain="day", zone="Pacific/Auckland"), "2024-06-15"),  # it is Sunday there
        (Calendar(grain="hour", zone="Asia/Kolkata"), "2024-06-15T19"),  # it is 20:00 there
        (Calendar(cron="30 * * * *"), "2024-06-15T13:30"),
        (Calendar(every="8m", start="2024-06-15"), "2024-06-15T14:16"),
        # data_lag goes so many periods back, an end holds the last one.
        (Calendar(grain="day", data_lag=1), "2024-06-13"),
        (Calendar(grain="month", data_lag=2), "2024-03-01"),
        (Calendar(grain="day", data_lag=-1), "2024-06-15"),  # delivered while it runs
        (Calendar(keys="runtime"), "*"),
        (Calendar(grain="day", end="2024-06-01"), "2024-06-01"),
        (Calendar(grain="day", start="2024-06-14"), "2024-06-14"),
    ],
)
def test_without_a_key_a_run_means_the_newest_one_and_says_so(
    calendar: Calendar, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert labels(calendar) == [key]
    (text,) = said(caplog)
    assert "derived from the clock (2024-06-15T14:30:00+00:00" in text
    assert text.endswith(key)
    assert caplog.records[-1].levelno == logging.WARNING


def test_of_a_product_the_newest_period_has_every_static_key() -> None:
    assert labels(Calendar(), dimensions=SALES) == [
        "day=2024-06-14/region=eu",
        "day=2024-06-14/region=us",
    ]


def test_unpartitioned_data_has_one_key_and_nothing_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert labels(Calendar(grain="none")) == ["*"]
    assert not said(caplog)


@pytest.mark.parametrize(
    ("calendar", "asked", "error", "complaint"),
    [
        # Static keys have no newest one, and a job without a calendar no key at all.
        (Calendar(keys=("eu", "us")), StartRequest(), UsageError, "static keys have no newest one"),
        (Calendar(keys=("eu",)), StartRequest(keys=["us"]), MissingKeyError, "'us' is not a key"),
        (
            Calendar(grain="day"),
            StartRequest(keys=["2024-W24"]),
            KeyFormatError,
            "not a key of this",
        ),
        (
            Calendar(grain="day"),
            StartRequest(keys=["2024-06-16"]),
            MissingKeyError,
            "does not exist",
        ),
        (
            Calendar(grain="day", start="2024-06-10", end="2024-06-12"),
            StartRequest(keys=["2024-06-13"]),
            MissingKeyError,
            "does not exist",
        ),
        (
            Calendar(grain="day", start="2024-06-10"),
            StartRequest(keys=["2024-06-09"]),
            MissingKeyError,
            "does not exist",
        ),
        (
            Calendar(grain="day", start="2024-06-15"),
            StartRequest(),
            NothingToRunError,
            "exists yet",
        ),
        (
            Calendar(grain="day"),
            StartRequest(interval=(at("2024-06-14T05:00"), at("2024-06-14T06:00"))),
            NothingToRunError,
            "between 2024-06-14T05:00",
        ),
        (
            Calendar(grain="day", zone="Mars"),
            StartRequest(),
            DeclarationError,
            "is not a time zone",
        ),
        (Calendar(cron="61 * * * *"), StartRequest(), DeclarationError, "cron expression"),
        (Calendar(every="8m"), StartRequest(), DeclarationError, "`every` needs a start"),
    ],
)
def test_where_no_key_can_be_meant_the_run_says_why(
    calendar: Calendar, asked: StartRequest, error: type[BackfillError], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        labels(calendar, asked)


def test_keys_that_are_named_are_taken_and_an_incomplete_one_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = StartRequest(keys=["2024-06-01", "2024-06-15"])
    assert labels(Calendar(grain="day"), asked) == ["2024-06-01", "2024-06-15"]
    assert said(caplog) == ["2024-06-15 is not complete yet"]
    one = StartRequest(keys=["day=2024-06-01/region=us"])
    assert labels(Calendar(), one, dimensions=SALES) == ["day=2024-06-01/region=us"]
    for wrong in ("2024-06-01", "day=2024-06-01", "day=2024-06-01/region=asia"):
        with pytest.raises((KeyFormatError, MissingKeyError)):
            labels(Calendar(), StartRequest(keys=[wrong]), dimensions=SALES)


@pytest.mark.parametrize(
    ("calendar", "start", "end", "keys"),
    [
        # Airflow's data interval of a daily run at midnight, and at six in the morning.
        (Calendar(grain="day"), "2024-06-13T00:00", "2024-06-14T00:00", ["2024-06-13"]),
        (Calendar(grain="day"), "2024-06-13T06:00", "2024-06-14T06:00", ["2024-06-13"]),
        # Of a run that fires on weekdays only: Monday's covers the weekend.
        (
            Calendar(grain="day"),
            "2024-06-07T06:00",
            "2024-06-10T06:00",
            ["2024-06-07", "2024-06-08", "2024-06-09"],
        ),
        # Hourly partitions of a daily run.
        (
            Calendar(grain="hour"),
            "2024-06-13T00:00",
            "2024-06-13T03:00",
            ["2024-06-13T00", "2024-06-13T01", "2024-06-13T02"],
        ),
        # A trigger without an interval: start and end are one instant.
        (Calendar(grain="day"), "2024-06-14T06:00", "2024-06-14T06:00", ["2024-06-13"]),
        # What comes late is asked for late.
        (Calendar(grain="day", data_lag=1), "2024-06-13T06:00", "2024-06-14T06:00", ["2024-06-12"]),
        # A calendar that has ended, or not begun.
        (
            Calendar(grain="day", start="2024-06-09", end="2024-06-09"),
            "2024-06-07T06:00",
            "2024-06-12T06:00",
            ["2024-06-09"],
        ),
    ],
)
def test_a_data_interval_means_the_keys_that_became_complete_in_it(
    calendar: Calendar, start: str, end: str, keys: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert labels(calendar, StartRequest(interval=(at(start), at(end)))) == keys
    assert not said(caplog)


@pytest.mark.parametrize(
    ("now", "schedule", "keys"),
    [
        # Monday's run covers Friday, Saturday and Sunday; Tuesday's Monday alone.
        ("2024-06-17T06:00", "0 6 * * 1-5", ["2024-06-14", "2024-06-15", "2024-06-16"]),
        ("2024-06-18T06:02", "0 6 * * 1-5", ["2024-06-17"]),
        # Several firings a day: the first one finds the day before, the others nothing.
        ("2024-06-18T00:10", "0 */6 * * *", ["2024-06-17"]),
    ],
)
def test_a_schedule_means_the_keys_since_its_firing_before(
    now: str, schedule: str, keys: list[str]
) -> None:
    assert labels(Calendar(grain="day"), StartRequest(schedule=schedule), at(now)) == keys


def test_a_schedule_has_its_own_zone_and_finds_at_least_the_newest_key() -> None:
    daily, monday = Calendar(grain="day"), at("2024-06-17T04:30")
    weekdays = StartRequest(schedule="0 6 * * 1-5", schedule_zone="Europe/Berlin")
    assert labels(daily, weekdays, monday) == ["2024-06-14", "2024-06-15", "2024-06-16"]
    every_six_hours = StartRequest(schedule="0 */6 * * *")
    assert labels(daily, every_six_hours, at("2024-06-18T06:10")) == ["2024-06-17"]


#: One delivery file a calendar day, picked up at six from Monday to Friday; it corrects three days.
DELIVERIES = """
[[dataset]]
name = "files"
grain = "day"
data_lag = -1
column = "d"
location = "/files"

[[dataset]]
name = "loaded"
grain = "day"
start = "2024-06-01"
data_lag = -1
column = "d"
location = "/loaded"

[[job]]
name = "load"
schedule = "0 0 6 ? * 2-6"
schedule_zone = "Europe/Berlin"
collect_schedule_gaps = true

[[job.reads]]
dataset = "files"

[[job.writes]]
dataset = "loaded"
lookback = 3
"""


def test_a_data_interval_may_end_a_day_after_a_slow_clock() -> None:
    ahead = (at("2024-06-15T00:00"), at("2024-06-16T00:00"))
    assert labels(Calendar(grain="day"), StartRequest(interval=ahead)) == ["2024-06-15"]


@pytest.mark.parametrize("end", ["2024-06-16T14:31", "2199-01-01T00:00", "9998-12-31T00:00"])
def test_a_data_interval_far_in_the_future_is_refused(end: str) -> None:
    ahead = (at("2024-06-13T00:00"), at(end))
    with pytest.raises(SpecError, match=f"ends at {end}.*, and now it is 2024-06-15T14:30"):
        labels(Calendar(grain="hour"), StartRequest(interval=ahead))
    # The keys of a cleared run of the current period are known.
    asked = StartRequest(interval=ahead, keys=["2024-06-15T14"])
    assert labels(Calendar(grain="hour"), asked) == ["2024-06-15T14"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0001-01-01T00:00Z", "the year of .* is out of range"),
        ("9999-12-31T00:00Z", "the year of .* is out of range"),
        ("9999-12-31T23:59-14:00", "the year of .* is out of range"),
        ("2024-06-15T00:00", "has no UTC offset"),
        ("yesterday", "is not a time"),
    ],
)
def test_what_is_no_instant_is_refused(text: str, said: str) -> None:
    for given in ((text, "2024-06-15T00:00Z"), ("2024-06-13T00:00Z", text)):
        with pytest.raises(UsageError, match=said):
            interval(*given)
        run: dict[str, Any] = {"conf": None, "clear_number": 0}
        run |= {"data_interval_start": given[0], "data_interval_end": given[1]}
        with pytest.raises(UsageError, match=said):
            read_dag_run(json.dumps(run))


FRI, SAT, SUN, MON, TUE, WED = (f"2024-06-{day}" for day in range(14, 20))


@pytest.mark.parametrize(
    ("now", "asked", "lookback", "wanted"),
    [
        # It is six in Berlin.
        (f"{MON}T04:00", StartRequest(), 3, f"{FRI}..{MON}"),
        (f"{WED}T04:00", StartRequest(), 3, f"{SUN}..{WED}"),
        (f"{WED}T04:00", StartRequest(keys=[SAT]), 3, f"2024-06-12..{SAT}"),
        (f"{MON}T04:00", StartRequest(), 0, f"{SAT}..{MON}"),
        (f"{TUE}T04:00", StartRequest(), 0, TUE),
        # A late attempt stands for the same firing.
        (f"{TUE}T03:59", StartRequest(), 0, f"{SAT}..{MON}"),
        (f"{MON}T04:00", StartRequest(exact=True), 3, MON),
        (f"{WED}T04:00", StartRequest(keys=[SAT], exact=True), 3, SAT),
        # A data interval and a schedule on the command line say it by themselves.
        (f"{MON}T04:00", StartRequest(interval=(at(f"{SUN}T00:00"), at(f"{MON}T00:00"))), 0, MON),
        (
            f"{WED}T04:00",
            StartRequest(schedule="0 6 * * MON", schedule_zone="UTC"),
            0,
            f"2024-06-11..{MON}",
        ),
        (f"{WED}T04:00", StartRequest(schedule="@weekly", exact=True), 0, SUN),
    ],
)
def test_a_schedule_of_the_project_file_fills_the_gaps_of_runs_without_keys(
    now: str, asked: StartRequest, lookback: int, wanted: str, tmp_path: Path
) -> None:
    text = DELIVERIES.replace("lookback = 3", f"lookback = {lookback}")
    (tmp_path / "lineage-backfill.toml").write_text(text, encoding="utf-8")
    project = load_project(tmp_path)
    spec = run_spec(declare(project, "load"), project, asked, at(now))
    assert spec.partitions == (wanted,)
    assert [part.key for part in spec.outputs[0].scope] == [key.key for key in spec.keys]


def test_a_schedule_means_the_same_keys_on_the_run_and_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "lineage-backfill.toml").write_text(DELIVERIES, encoding="utf-8")
    in_file = load_project(tmp_path)
    bare = DELIVERIES.replace("collect_schedule_gaps = true", "")
    (tmp_path / "lineage-backfill.toml").write_text(bare, encoding="utf-8")
    on_run = load_project(tmp_path)
    asked = StartRequest(schedule="0 0 6 ? * 2-6", schedule_zone="Europe/Berlin")
    for day in (MON, "2024-06-19"):
        specs = [
            run_spec(declare(project, "load"), project, request, at(f"{day}T04:00"))
            for project, request in ((in_file, StartRequest()), (on_run, asked))
        ]
        assert specs[0].partitions == specs[1].partitions
        assert len(specs[0].outputs[0].scope) == 4


def test_a_schedule_that_collects_no_gaps_leaves_the_newest_key(tmp_path: Path) -> None:
    text = DELIVERIES.replace("gaps = true", "gaps = false").replace("lookback = 3", "")
    (tmp_path / "lineage-backfill.toml").write_text(text, encoding="utf-8")
    project = load_project(tmp_path)
    job = declare(project, "load")
    assert run_spec(job, project, StartRequest(), at(f"{MON}T04:00")).partitions == (MON,)
    assert run_spec(job, project, StartRequest(), at(f"{SUN}T04:00")).partitions == (SUN,)


@pytest.mark.parametrize(
    "mistaken",
    [
        lambda: window("days", before=1_000_000),
        lambda: offset("days", -1_000_000_000),
        lambda: Write("days", lookback=1_000_000_000).declaration(DatasetRef("n", "days")),
        lambda: calendar_of(Calendar(grain="day", data_lag=-2), "job j"),
        lambda: window("days", before=1.5),  # type: ignore[arg-type]
        lambda: offset("days", "-1"),
        lambda: Write("days", lookback=True).declaration(DatasetRef("n", "days")),
        lambda: calendar_of(Calendar(cron="0 0 6 * * 1-5"), "job j"),
    ],
)
def test_what_code_declares_has_the_bounds_of_the_project_file(mistaken: Any) -> None:
    with pytest.raises(UsageError, match=r"must be at|whole number|has 6 fields"):
        mistaken()


HOURS = Dataset("hours", grain="hour", columns={"h": "%Y-%m-%dT%H"}, location="/hours")
DAYS = Dataset("days", grain="day", column="day", location="/days", start="2024-06-01")
NAMES = Dataset("names", grain="day", column="d", location="/names")


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    return load_project(tmp_path)


def test_a_job_may_declare_everything_itself(nowhere: Project) -> None:
    job = declare(
        nowhere,
        "totals",
        reads=[
            Read(HOURS),
            window(DAYS, before=1),
            all_partitions(NAMES),
        ],
        writes=[Write(Dataset("totals", grain="day", column="day", table="db.totals"))],
    )
    spec = run_spec(job, nowhere, StartRequest(), NOW)
    assert spec.backfill_id == ""
    assert (spec.job.name.namespace, spec.job.name.name) == ("default", "totals")
    assert spec.partitions == ("2024-06-14",)
    (output,) = spec.outputs
    assert (output.table, [part.values for part in output.scope]) == (
        "db.totals",
        [{"day": "2024-06-14"}],
    )
    hours, days, names = spec.inputs
    assert hours.partitions is not None
    assert [part.key for part in hours.partitions][::23] == ["2024-06-14T00", "2024-06-14T23"]
    assert days.partitions is not None
    assert [part.key for part in days.partitions] == ["2024-06-13", "2024-06-14"]
    assert names.partitions is None
    assert spec.lineage.outbox is None
    facets = spec.lineage.facets
    assert facets["job"]["partitioning"]["reads"] == [
        {"dataset": {"namespace": "default", "name": "days"}, "mapping": "window", "before": 1},
        {"dataset": {"namespace": "default", "name": "names"}, "mapping": "all"},
    ]
    assert facets["datasets"][0]["partitioning"] == {
        "grain": "hour",
        "zone": "UTC",
        "columns": {"h": "%Y-%m-%dT%H"},
    }


def test_two_runs_of_one_key_are_two_runs(nowhere: Project) -> None:
    job = declare(nowhere, "totals", writes=[Write(DAYS)])
    one, other = (run_spec(job, nowhere, StartRequest(), NOW) for _ in range(2))
    assert one.token != other.token
    assert one.run_id != other.run_id


def test_a_lookback_corrects_the_keys_before_unless_it_is_exact(nowhere: Project) -> None:
    job = declare(nowhere, "totals", reads=[Read(HOURS)], writes=[Write(DAYS, lookback=2)])
    asked = StartRequest(keys=["2024-06-10"])
    spec = run_spec(job, nowhere, asked, NOW)
    assert spec.partitions == ("2024-06-08..2024-06-10",)
    # Each of them depends on the two deliveries after it.
    assert spec.inputs[0].partitions is not None
    assert len(spec.inputs[0].partitions) == 5 * 24
    exact = run_spec(job, nowhere, StartRequest(keys=["2024-06-10"], exact=True), NOW)
    assert exact.partitions == ("2024-06-10",)
    first = run_spec(job, nowhere, StartRequest(keys=["2024-06-01"]), NOW)
    assert first.partitions == ("2024-06-01",)


@pytest.mark.parametrize(
    ("reads", "writes", "complaint"),
    [
        (
            [Read("elsewhere")],
            [Write(DAYS)],
            "partitioning of default:elsewhere is unknown",
        ),
        ([], [], "declares no output"),
        ([Read(NAMES), offset(NAMES, -1)], [Write(DAYS)], "reads default:names in two ways"),
        (
            [Read(NAMES), Read(replace(NAMES, location="/other"))],
            [Write(DAYS)],
            "default:names is declared in two ways",
        ),
        ([Read(NAMES), Read("names")], [Write(DAYS)], None),
        ([], [Write(DAYS), Write(HOURS)], "its outputs have different calendars"),
        (
            [],
            [Write(Dataset("d", grain="day", column="d"))],
            "no location is declared for dataset default:d",
        ),
        ([], [Write(Dataset("d", grain="day", location="/d"))], "columns are not declared"),
        ([Read(DAYS)], [Write(DAYS)], "reads its own output default:days, and how is not"),
        ([], [Write(DAYS, mode="full")], "would replace all of its output"),
        ([all_partitions(DAYS)], [Write(HOURS)], None),
        ([offset(DAYS, -1)], [Write(DAYS)], None),
    ],
)
def test_what_a_run_needs_to_know_and_nobody_says_is_an_error(
    nowhere: Project, reads: list[Read], writes: list[Write], complaint: str | None
) -> None:
    def spec() -> Any:
        job = declare(nowhere, "totals", reads=reads, writes=writes)
        return run_spec(job, nowhere, StartRequest(), NOW)

    if complaint is None:
        assert spec().outputs
        return
    with pytest.raises(DeclarationError, match=complaint):
        spec()


def test_a_key_that_an_input_no_longer_holds_is_not_run(nowhere: Project) -> None:
    days = Dataset("days", grain="day", column="day", location="/days", retention=3)
    made = replace(days, name="made", location="/made", retention=None)
    job = declare(nowhere, "copy", reads=[Read(days)], writes=[Write(made)])
    now = at("2024-06-10T12:00")
    run_spec(job, nowhere, StartRequest(keys=["2024-06-07"]), now)
    with pytest.raises(InputMissingError, match=r"needs 2024-06-06 of default:days, which is past"):
        run_spec(job, nowhere, StartRequest(keys=["2024-06-06"]), now)


@pytest.mark.parametrize("hour", ["00", "13", "23"], ids=["its first", "within", "its last"])
def test_a_run_never_replaces_a_partition_by_a_part_of_it(nowhere: Project, hour: str) -> None:
    hourly = Calendar(grain="hour")
    asked = StartRequest(keys=[f"2024-06-14T{hour}"])
    job = declare(nowhere, "totals", writes=[Write(DAYS)], calendar=hourly)
    with pytest.raises(DeclarationError, match="coarser than its run calendar"):
        run_spec(job, nowhere, asked, NOW)
    merged = declare(nowhere, "totals", writes=[Write(DAYS, mode="merge")], calendar=hourly)
    assert [p.key for p in run_spec(merged, nowhere, asked, NOW).outputs[0].scope] == ["2024-06-14"]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_window_over_its_own_output_ends_where_the_key_starts(
    nowhere: Project, after: int
) -> None:
    reads = [window(DAYS, before=2, after=after)]
    job = declare(nowhere, "totals", reads=reads, writes=[Write(DAYS)])
    (own,) = run_spec(job, nowhere, StartRequest(keys=["2024-06-10"]), NOW).inputs
    assert [part.key for part in own.partitions or ()] == ["2024-06-08", "2024-06-09"]


@pytest.mark.parametrize(
    ("grain", "form", "key", "said"),
    [
        ("day", "%Y-%m", "2024-06-15", "2024-06-13 and 2024-06-14"),
        ("day", "%d", "2024-06-15", "2024-05-14 and 2024-06-14"),
        ("day", "%m-%d", "2024-06-15", "2023-06-14 and 2024-06-14"),
        ("hour", "%FT%I", "2024-06-15T03", "2024-06-15T03 and 2024-06-15T15"),
        ("hour", "%FT%H", "2023-10-29T02+0200", r"2023-10-29T02\+0200 and 2023-10-29T02\+0100"),
        ("hour", "%FT%H", "2023-10-29T02+0100", r"2023-10-29T02\+0100 and 2023-10-29T02\+0200"),
        ("hour", "%FT%H", "2023-10-29T03", None),
        ("week", "%G-W%V", "2024-W20", None),
        ("month", "%Y%m", "2024-05-01", None),
    ],
)
def test_a_run_never_clears_what_other_keys_wrote_into_its_partition(
    nowhere: Project, grain: Any, form: str, key: str, said: str | None
) -> None:
    made = Dataset("made", grain=grain, zone="Europe/Berlin", columns={"p": form}, location="/made")
    job = declare(nowhere, "j", writes=[Write(made)])
    if said is None:
        assert run_spec(job, nowhere, StartRequest(keys=[key]), NOW).outputs
        return
    with pytest.raises(DeclarationError, match=f"{said} of .* are one partition of its table"):
        run_spec(job, nowhere, StartRequest(keys=[key]), NOW)
    merged = declare(nowhere, "j", writes=[Write(made, mode="merge")])
    assert run_spec(merged, nowhere, StartRequest(keys=[key]), NOW).outputs


BY_CUSTOMER = Dataset(
    "by_customer",
    dimensions=(
        Dimension("day", grain="day", column="ds"),
        Dimension("customer", keys="runtime", column="customer"),
    ),
    location="/by_customer",
)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        # A column that is left out stands for every present and future value.
        ((), {"ds": "2024-06-14"}),
        (("day=2024-06-14/customer=*",), {"ds": "2024-06-14"}),
        (("day=2024-06-14/customer=acme",), {"ds": "2024-06-14", "customer": "acme"}),
    ],
)
def test_runtime_keys_may_be_named_and_are_all_where_none_is(
    nowhere: Project, keys: tuple[str, ...], values: dict[str, str]
) -> None:
    copy = replace(BY_CUSTOMER, name="copy", location="/copy")
    job = declare(nowhere, "j", reads=[Read(BY_CUSTOMER)], writes=[Write(copy)])
    spec = run_spec(job, nowhere, StartRequest(keys=keys), NOW)
    (output,) = spec.outputs
    (source,) = spec.inputs
    assert [dict(part.values) for part in output.scope] == [values]
    assert source.partitions is not None
    assert [dict(part.values) for part in source.partitions] == [values]
    assert parse_spec(spec.to_dict() | {"result_path": "/r"}).outputs == spec.outputs


def test_a_map_may_name_runtime_keys(nowhere: Project) -> None:
    copy = replace(BY_CUSTOMER, name="copy", location="/copy")
    of_big = DimensionMapping(mapping="map", map={"big": ("acme", "ajax")})
    how = ReadDeclaration(dataset="", dimensions={"customer": of_big})
    job = declare(nowhere, "j", reads=[Read(BY_CUSTOMER, how)], writes=[Write(copy)])
    spec = run_spec(job, nowhere, StartRequest(keys=["day=2024-06-14/customer=big"]), NOW)
    (source,) = spec.inputs
    assert source.partitions is not None
    assert [part.values["customer"] for part in source.partitions] == ["acme", "ajax"]


def test_a_run_of_every_runtime_key_stands_beside_no_run_of_one(nowhere: Project) -> None:
    """`*` rewrites what the run of a named key writes: of a day they are one run."""
    copy = replace(BY_CUSTOMER, name="copy", location="/copy")
    job = declare(nowhere, "j", reads=[Read(BY_CUSTOMER)], writes=[Write(copy)])
    keys = ["day=2024-06-13/customer=acme", "day=2024-06-12..2024-06-13/customer=*"]
    made = run_specs(job, nowhere, StartRequest(keys=keys), NOW, batch="key")
    assert [run.partitions for run in made] == [
        ({"day": [day], "customer": ["*"]},) for day in ("2024-06-12", "2024-06-13")
    ]


def test_a_job_that_computes_key_by_key_is_run_key_by_key(nowhere: Project) -> None:
    asked = StartRequest(keys=["2024-06-10", "2024-06-11"])
    plain = declare(nowhere, "totals", reads=[Read(HOURS)], writes=[Write(DAYS)])
    (both,) = run_specs(plain, nowhere, asked, NOW)
    assert both.partitions == ("2024-06-10..2024-06-11",)
    one_by_one = run_specs(plain, nowhere, asked, NOW, batch="key")
    assert [run.partitions for run in one_by_one] == [("2024-06-10",), ("2024-06-11",)]
    # What builds on its own output of the key before goes key by key whatever it says.
    chained = declare(nowhere, "totals", reads=[offset(DAYS, -1)], writes=[Write(DAYS)])
    first, second = run_specs(chained, nowhere, asked, NOW)
    (before,) = second.inputs[0].partitions or ()
    assert (before.key, first.partitions) == ("2024-06-10", ("2024-06-10",))
    with pytest.raises(SpecError, match="does its 2 keys in as many runs"):
        run_specs(chained, nowhere, StartRequest(keys=asked.keys, result_path="/result.json"), NOW)


def dag_run(spec: Any = None, *, clears: int = 0, interval: Any = None) -> DagRun:
    """A run of Airflow as its template writes it."""
    start, end = interval or (None, None)
    conf = {} if spec is None else {"lineage_backfill": {"key": "k", "spec": spec}}
    run = {"data_interval_start": start, "data_interval_end": end, "clear_number": clears}
    return read_dag_run(json.dumps({**run, "conf": conf, "partition_key": None}))


#: The first day of a job with lookback, by the run spec of a backfill and by a data interval.
HANDED = {"token": "t-1", "backfill_id": "b-1", "run_id": "r-1", "result_path": "/r"}
TENTH = ("2024-06-10T00:00:00Z", "2024-06-11T00:00:00Z")


@pytest.mark.parametrize(
    ("name", "clears", "interval", "backfill", "keys"),
    [
        ("totals", 0, None, "b-1", ["2024-06-10"]),
        ("totals", 0, TENTH, "b-1", ["2024-06-10"]),
        # The attempt of the run spec has ended: its keys are computed by a run of their own.
        ("totals", 1, None, "", ["2024-06-10"]),
        # The run spec of another job of the DAG says nothing of this one.
        ("others", 0, TENTH, "", ["2024-06-08..2024-06-10"]),
        (None, 3, TENTH, "", ["2024-06-08..2024-06-10"]),
    ],
)
def test_a_run_of_airflow_holds_a_run_spec_or_an_interval(
    nowhere: Project, name: str | None, clears: int, interval: Any, backfill: str, keys: list[str]
) -> None:
    job = declare(
        nowhere, "totals", entrypoint="j:t", reads=[Read(HOURS)], writes=[Write(DAYS, lookback=2)]
    )
    asked = StartRequest(keys=["2024-06-10"], exact=True)
    handed = run_spec(job, nowhere, asked, NOW).to_dict() | HANDED
    handed["job"] = handed["job"] | {"name": name, "entrypoint": ""}
    run = dag_run(handed if name else None, clears=clears, interval=interval)
    spec = run_spec(job, nowhere, StartRequest(dag_run=run, interval=run.interval), NOW)
    assert (spec.backfill_id, [*spec.partitions]) == (backfill, keys)
    assert (spec.token == "t-1") is bool(backfill)
    assert spec.job.entrypoint == "j:t"


def test_a_run_of_airflow_for_another_job_has_no_keys_for_this_one(nowhere: Project) -> None:
    job = declare(nowhere, "totals", reads=[Read(HOURS)], writes=[Write(DAYS)])
    handed = run_spec(job, nowhere, StartRequest(keys=["2024-06-10"]), NOW).to_dict() | HANDED
    run = dag_run({**handed, "job": handed["job"] | {"name": "other"}})
    with pytest.raises(SpecError, match=r"is for job .*other, and its task does .*totals"):
        run_specs(job, nowhere, StartRequest(dag_run=run), NOW)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"conf": {}, "data_interval_start": 1}'])
def test_what_is_no_run_of_airflow_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="a run of Airflow cannot be read"):
        read_dag_run(text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ["2024-06-14"]),
        ("None", ["2024-06-14"]),
        ("2024-06-01", ["2024-06-01"]),
        (" 2024-06-01 , 2024-06-03,", ["2024-06-01", "2024-06-03"]),
        ("2024-06-01..2024-06-02", ["2024-06-01", "2024-06-02"]),
        (",", None),
        (" , ", None),
        ("  ", None),
    ],
)
def test_only_an_empty_key_counts_as_not_given(text: str, keys: list[str] | None) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    asked = read_request(parser.parse_args([f"--backfill_key={text}"]))
    if keys is None:
        with pytest.raises(KeyFormatError, match="no partition key was given"):
            labels(Calendar(grain="day"), asked)
    else:
        assert labels(Calendar(grain="day"), asked) == keys


@pytest.mark.parametrize("more", [{}, {"keys": ["2024-06-01"]}, {"interval": (NOW, NOW)}])
def test_a_schedule_zone_without_a_schedule_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a schedule zone, but without a schedule"):
        labels(Calendar(grain="day"), StartRequest(schedule_zone="UTC", **more))
    asked = StartRequest(schedule_zone="UTC", schedule="@daily", **more)
    assert labels(Calendar(grain="day"), asked)


def test_a_schedule_zone_may_go_with_the_schedule_of_the_project_file(tmp_path: Path) -> None:
    (tmp_path / "lineage-backfill.toml").write_text(DELIVERIES, encoding="utf-8")
    project = load_project(tmp_path)
    asked = StartRequest(schedule_zone="UTC")
    assert run_spec(declare(project, "load"), project, asked, at(f"{MON}T06:00")).partitions


def test_airflows_run_is_an_argument_like_the_others(nowhere: Project) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = json.dumps(
        {"conf": None, "data_interval_start": TENTH[0], "data_interval_end": TENTH[1]}
        | {"clear_number": 0}
    )
    given = read_request(parser.parse_args(["--airflow-run", text]))
    assert given.interval == (at("2024-06-10T00:00"), at("2024-06-11T00:00"))
    assert read_request(parser.parse_args(["--airflow_run", "None"])).interval is None


def test_a_run_spec_is_an_argument_like_the_others(nowhere: Project, tmp_path: Path) -> None:
    job = declare(nowhere, "totals", reads=[Read(HOURS)], writes=[Write(DAYS)])
    handed = run_spec(job, nowhere, StartRequest(keys=["2024-06-10"]), NOW).to_dict() | HANDED
    (tmp_path / "spec.json").write_text(json.dumps(handed))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    path = f"--lineage_backfill_spec={tmp_path / 'spec.json'}"
    given = read_request(parser.parse_args([path, "--backfill_key=2024-06-01"]))
    assert run_spec(job, nowhere, given, NOW).token == handed["token"]
    empty = parser.parse_args(["--lineage_backfill_spec=", "--backfill_key=2024-06-01"])
    assert run_spec(job, nowhere, read_request(empty), NOW).partitions == ("2024-06-01",)


@pytest.mark.parametrize("word", ["reads", "writes"])
def test_a_glob_that_names_no_edge_of_the_job_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, word: str
) -> None:
    text = f'[[job]]\nname = "load"\n[[job.{word}]]\ndataset = "day_*"\n'
    (tmp_path / "lineage-backfill.toml").write_text(text, encoding="utf-8")
    project = load_project(tmp_path)
    job = declare(project, "load", reads=[Read(NAMES)], writes=[Write(DAYS)])
    run_spec(job, project, StartRequest(keys=["2024-06-10"]), NOW)
    used = "default:names" if word == "reads" else "default:days"
    assert f"job default:load {word} no 'day_*' as declared, but {used}" in caplog.messages


@pytest.mark.parametrize(
    ("table", "warned"),
    [
        ('[[job]]\nname = "load_names_dayly"\nprotected = true', "load_names_daily"),
        ('[[job]]\nname = "load_names_weekly"\nprotected = true', ""),  # another job
        ('[[job]]\nname = "load_names_daily"\n[[job]]\nname = "load_names_dayly"', ""),
    ],
)
def test_a_table_whose_name_is_nearly_that_of_the_job_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, warned: str
) -> None:
    """Which other jobs the lineage has is not known here."""
    (tmp_path / "lineage-backfill.toml").write_text(f"{table}\n", encoding="utf-8")
    project = load_project(tmp_path)
    job = declare(project, "load_names_daily", reads=[Read(NAMES)], writes=[Write(DAYS)])
    run_spec(job, project, StartRequest(keys=["2024-06-10"]), NOW)
    found = [text for text in said(caplog) if "is not known" in text]
    assert len(found) == bool(warned)
    assert all(warned in text for text in found)


def test_without_an_output_a_similar_table_is_named(tmp_path: Path) -> None:
    text = '[[job]]\nname = "wim"\n[[job.writes]]\ndataset = "days"\n'
    (tmp_path / "lineage-backfill.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DeclarationError, match="declares no output") as caught:
        declare(load_project(tmp_path), "win")
    assert caught.value.hint == "Declare it in [[job.writes]]. Did you mean wim?"


@pytest.mark.parametrize(
    ("name", "given", "reads", "writes"),
    [
        ("load", {"reads": [Read(NAMES)], "writes": [Write(DAYS)]}, "names more", "days sums"),
        ("l*", {"reads": [Read(NAMES)], "writes": [Write(DAYS)]}, "names more", "days sums"),
        ("l*", {"writes": [Write(DAYS)]}, "more", "days sums"),
        ("l*", {"reads": [Read(NAMES)]}, "names more", "sums"),
        ("l*", {}, "more", "sums"),
        ("x*", {"writes": [Write(DAYS)]}, "", "days"),
    ],
)
def test_a_table_adds_its_edges_to_each_job_that_it_matches(
    tmp_path: Path, name: str, given: dict[str, Any], reads: str, writes: str
) -> None:
    edges = '[[job.reads]]\ndataset = "more"\n[[job.writes]]\ndataset = "sums"\n'
    text = f'[[job]]\nname = "{name}"\n{edges}'
    (tmp_path / "lineage-backfill.toml").write_text(text, encoding="utf-8")
    job = declare(load_project(tmp_path), "load", **given)
    assert " ".join(ref.name for ref in job.lineage.reads(job.ref)) == reads
    assert " ".join(ref.name for ref in job.lineage.writes(job.ref)) == writes


def test_a_run_after_the_end_of_its_output_corrects_the_last_partitions(nowhere: Project) -> None:
    made = Dataset("made", grain="day", end="2024-06-10", column="ds", location="/made")
    late = Calendar(grain="day", end="2024-06-12")
    writes = [Write(made, lookback=2)]
    job = declare(nowhere, "j", reads=[Read(DAYS)], writes=writes, calendar=late)
    spec = run_spec(job, nowhere, StartRequest(keys=["2024-06-11"]), NOW)
    assert [part.key for part in spec.outputs[0].scope] == ["2024-06-09", "2024-06-10"]
    assert [part.key for part in spec.inputs[0].partitions or ()][-1] == "2024-06-12"
    with pytest.raises(DeclarationError, match="2024-06-11 writes no partition"):
        run_spec(job, nowhere, StartRequest(keys=["2024-06-11"], exact=True), NOW)


def test_late_deliveries_correct_a_closed_table_in_a_plan_and_on_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lineage-backfill.toml").write_text("""
[project]
namespace = "n"
[lineage]
events = "none.ndjson"
[[dataset]]
name = "raw"
grain = "day"
start = "2024-01-01"
column = "ds"
location = "raw"
[[dataset]]
name = "closed"
grain = "day"
start = "2024-01-01"
end = "2024-01-05"
column = "ds"
location = "closed"
[[job]]
name = "close"
engine = "local"
entrypoint = "pipeline:close"
grain = "day"
start = "2024-01-01"
end = "2024-01-07"
reads = [{ dataset = "raw" }]
writes = [{ dataset = "closed", lookback = 2 }]
""")
    Path("none.ndjson").touch()
    asked = ["--from", "2024-01-06", "--to", "2024-01-07", "--now", "2024-02-01T00:00:00Z"]
    assert main(["impact", "raw", *asked, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    days = ("2024-01-04", "2024-01-05")
    assert [run["writes"][0]["partitions"] for run in runs] == [[day] for day in days]
    assert [run["reads"][0]["partitions"] for run in runs] == [
        ["2024-01-04..2024-01-06"],
        ["2024-01-05..2024-01-07"],
    ]
    found = load_project(tmp_path)
    spec = run_spec(declare(found, "close"), found, StartRequest(keys=["2024-01-06"]), NOW)
    assert tuple(part.key for part in spec.outputs[0].scope) == days
    assert [part.key for part in spec.inputs[0].partitions or ()] == [
        f"2024-01-0{day}" for day in range(4, 8)
    ]
