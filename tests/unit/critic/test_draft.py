"""The drafted project file: what the lineage tells stands in it, and the rest is asked."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lineage_backfill.critic.draft import Draft, draft, quoted
from lineage_backfill.lineage.identity.families import find_families
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.sources.events import EventSource
from lineage_backfill.workspace.configuration import load_project
from tests.unit.planning.world import dataset, job, lineage

NOW = datetime(2024, 4, 1, tzinfo=UTC)
DATA = Path(__file__).parents[2] / "data" / "lineage"


def drafted(snapshot: LineageSnapshot) -> Draft:
    return draft(snapshot, {"events": ["events.ndjson"]}, now=NOW)


def answered(made: Draft) -> dict[str, Any]:
    """Return the file once each question is answered as its example does."""
    return tomllib.loads("\n".join(line.removeprefix("#? ") for line in made.text.splitlines()))


def runs(name: str, number: int, step: timedelta, **rest: Any) -> tuple[ObservedRun, ...]:
    """Return complete runs of a job with nominal times, one step each."""
    first = datetime(2024, 3, 1, tzinfo=UTC)
    return tuple(
        ObservedRun(
            job=job(name),
            run_id=f"{name}-{one}",
            state="COMPLETE",
            nominal_start=first + one * step,
            nominal_end=first + (one + 1) * step,
            **rest,
        )
        for one in range(number)
    )


def test_what_is_inferred_is_declared_with_its_evidence() -> None:
    snapshot = lineage("raw > clean > tidy", history=runs("clean", 5, timedelta(hours=1)))
    made = drafted(snapshot)
    assert tomllib.loads(made.text) == {
        "project": {"namespace": "w"},
        "lineage": {"events": ["events.ndjson"]},
        "dataset": [{"name": "tidy", "grain": "hour", "zone": "UTC"}],
    }
    assert (made.jobs, made.datasets, made.known) == (1, 2, 1)
    assert (
        '# Inferred: the nominal times of 5 runs are each one hour in UTC (job "clean").\n'
        "[[dataset]]\n"
    ) in made.text
    assert '#? start = "2024-03-01T00"' in made.text


def test_what_is_unknown_is_asked_with_the_clues_there_are() -> None:
    history = runs("clean", 2, timedelta(minutes=90), partition_key="eu")
    node = DatasetNode(ref=dataset("tidy"), fields=("id", "region"))
    edges = lineage("raw > clean > tidy\n tidy > use > used").jobs.values()
    made = drafted(LineageSnapshot.of(edges, [node], history=history))
    assert '# "tidy": written by "clean", read by "use".\n# Keys of its runs: "eu".\n' in made.text
    assert "newest run: 2024-03-01T01:30Z to 2024-03-01T03:00Z." in made.text
    assert '#? column = "ds"  # one of id, region\n' in made.text
    assert "dataset" not in tomllib.loads(made.text)
    assert [one["name"] for one in answered(made)["dataset"]] == ["*", "raw", "tidy", "used"]


def test_runs_that_skip_periods_are_a_clue() -> None:
    every_six = runs("clean", 48, timedelta(hours=1))[::6]
    made = drafted(lineage("raw > clean > tidy", history=every_six))
    assert made.known == 0
    assert (
        "# Not inferred: the nominal times of 8 runs are each one hour in UTC, but only at hours"
        ' 00, 06, 12, 18 (job "clean").\n'
    ) in made.text


def test_writers_that_disagree_are_told() -> None:
    history = runs("a", 3, timedelta(hours=1)) + runs("b", 3, timedelta(days=1))
    made = drafted(lineage("x > a > y\n x > b > y", history=history))
    assert made.known == 0
    assert "# Its writers disagree: day and hour.\n" in made.text


def test_what_is_sent_with_the_lineage_is_told_and_not_declared_again() -> None:
    facet = {"grain": "day", "zone": "Europe/Berlin", "start": "2024-01-01"}
    boxes = {"dimensions": [{"name": "d", "grain": "day"}, {"name": "r", "keys": ["eu", "us"]}]}
    nodes = [
        DatasetNode(ref=dataset("x"), partitioning=facet),
        DatasetNode(ref=dataset("y"), partitioning=boxes),
        DatasetNode(ref=dataset("z"), partitioning={"grain": "fortnight"}),
    ]
    made = drafted(LineageSnapshot.of(lineage("x > a > y\n y > b > z").jobs.values(), nodes))
    assert (made.datasets, made.known) == (3, 2)
    assert '#   "x": day in Europe/Berlin from 2024-01-01\n' in made.text
    assert '#   "y": d (day in UTC), r (keys eu, us)\n' in made.text
    assert "# The partitioning sent with the lineage cannot be read.\n" in made.text


def test_a_job_that_reads_its_own_output_is_asked_how() -> None:
    made = drafted(lineage("x, total > sum > total", history=runs("sum", 3, timedelta(days=1))))
    (_, own) = answered(made)["job"]
    assert own == {
        "name": "sum",
        "reads": [{"dataset": "total", "mapping": "offset", "by": -1}],
    }


def test_a_job_whose_outputs_differ_is_asked_for_its_own_keys() -> None:
    nodes = [
        DatasetNode(ref=dataset("d"), partitioning={"grain": "day", "start": "2024-01-01"}),
        DatasetNode(ref=dataset("h"), partitioning={"grain": "hour", "start": "2024-01-01T00"}),
    ]
    made = drafted(LineageSnapshot.of(lineage(" > both > d, h").jobs.values(), nodes))
    assert '# "both": its outputs have different calendars.\n' in made.text
    assert answered(made)["job"][1:] == [{"name": "both", "grain": "day"}]


def test_a_parent_is_asked_whether_it_is_run_as_a_whole() -> None:
    parent = JobNode(ref=job("dag"))
    child = JobNode(ref=job("dag.load"), reads=(dataset("x"),), parent=parent.ref)
    made = drafted(LineageSnapshot.of([parent, child]))
    assert '# "dag" runs "dag.load".\n' in made.text
    assert answered(made)["job"][1:] == [{"name": "dag"}]


def test_names_that_look_like_partitions_are_asked_as_one_dataset(tmp_path: Path) -> None:
    snapshot = lineage(
        """raw > load1 > o_20240101
        raw > load2 > o_20240102
        o_20240102 > sums > mart"""
    )
    made = drafted(snapshot)
    assert '# 2 names look like partitions of one dataset, as "o_20240102". Are they?' in made.text
    assert '#? pattern = "o_{day:%Y%m%d}"' in made.text
    assert "20240101" not in made.text
    assert (made.datasets, made.known) == (3, 0)
    written = tmp_path / "lineage-backfill.toml"
    written.write_text("\n".join(line.removeprefix("#? ") for line in made.text.splitlines()))
    tables = load_project(file=written, environ={}, user_file=tmp_path / "no").declarations.datasets
    (family,) = [one for one in tables if one.pattern]
    assert (family.name, family.calendar and family.calendar.grain) == ("o", "day")
    assert "o" in [one.dataset.name for one in find_families(snapshot)]


SQL = [
    ("sum(x) over (order by d rows between 6 preceding and current row)", 6, "6 preceding"),
    ("where d > now() - INTERVAL '7 days'", 7, "INTERVAL '7 days'"),
    ("where d > now() - interval  '30' day", 30, "interval '30' day"),
    ("where d >= date_sub(current_date, 14)", 14, "date_sub(current_date, 14)"),
    ("where d >= date_add(ds, -3) or d > date_sub(ds, 2)", 3, "date_add(ds, -3)"),
    ("where d >= dateadd(day, -5, getdate())", 5, "dateadd(day, -5"),
    ("where d > date_sub(current_date(), 14)", 14, "date_sub(current_date(), 14)"),
    ("where d > date_add(to_date(now()), -28)", 28, "date_add(to_date(now()), -28)"),
    ("where d > add_months(now(), -3)", 3, "add_months(now(), -3)"),
    ("where d > current_date - 7", 7, "current_date - 7"),
    ("where d > today() - 7 and n - 9 > 0", 7, "today() - 7"),
    ("where d > now() - '7 days'::interval", 7, "'7 days'::interval"),
    ("where d > now() - cast('2 weeks' as interval)", 2, "'2 weeks' as interval"),
    ("where d > now() - make_interval(days => 14)", 14, "make_interval(days => 14"),
    ("x - lag(x, 3, 0) over (order by d)", 3, "lag(x, 3"),
    ("x - lag(x1) over (order by d)", 1, "lag(x1"),
    ("select 7 days, preceding, interval from date_sub", None, ""),
    ("select flag(x, 3), current_date - 20240101, current_date - 1 * y", None, ""),
    ("rows between 0 preceding and current row", None, ""),
    ("where d < date_add(ds, 1) + interval '1 parsec'", None, ""),
]


@pytest.mark.parametrize(("query", "before", "text"), SQL, ids=[case[0] for case in SQL])
def test_a_span_in_the_sql_is_asked_and_never_guessed(
    query: str, before: int | None, text: str
) -> None:
    made = lineage("raw, rates > sums > mart", history=runs("sums", 5, timedelta(days=1)))
    node = replace(made.jobs[job("sums")], query=query)
    snapshot = LineageSnapshot.of([node], history=made.history)
    found = drafted(snapshot)
    assert "before" not in str(tomllib.loads(found.text))
    asked = [one for one in answered(found)["job"] if one["name"] == "sums"]
    wanted = [{"dataset": "rates", "mapping": "window", "before": before}]
    assert asked == ([{"name": "sums", "reads": wanted}] if before else [])
    assert (f'The SQL of "sums" has {quoted(text)}' in found.text) == bool(before)
    assert ('# or "raw"' in found.text) == bool(before)


def test_of_several_namespaces_each_name_has_its_own() -> None:
    ref = DatasetRef("s3://lake", "raw/orders")
    made = drafted(LineageSnapshot.of([JobNode(ref=JobRef("etl", "load"), writes=(ref,))]))
    assert "project" in tomllib.loads(made.text)
    assert "namespace" not in tomllib.loads(made.text)["project"]
    assert answered(made)["dataset"][1] == {
        "name": "raw/orders",
        "namespace": "s3://lake",
        "grain": "day",
        "start": "2024-01-01",
        "column": "ds",
        "location": "s3://lake/raw/orders",
    }


@pytest.mark.parametrize("file", sorted(DATA.glob("*.gz")), ids=lambda path: path.name)
def test_drafts_of_recorded_lineage_are_whole_project_files(file: Path, tmp_path: Path) -> None:
    made = drafted(EventSource([str(file)]).read())
    written = tmp_path / "lineage-backfill.toml"
    written.write_text(made.text)
    nowhere = tmp_path / "none"
    assert load_project(file=written, environ={}, user_file=nowhere).lineage.events
    written.write_text("\n".join(line.removeprefix("#? ") for line in made.text.splitlines()))
    tables = load_project(file=written, environ={}, user_file=nowhere).declarations.datasets
    assert len(tables) == 1 + made.datasets


NAMES = st.text(min_size=1, max_size=12)


@given(NAMES, NAMES, NAMES)
def test_whatever_a_name_holds_it_stays_a_name(space: str, read: str, written: str) -> None:
    source, target = DatasetRef(space, read), DatasetRef(space + "x", written)
    history = tuple(
        ObservedRun(
            job=JobRef(space, written),
            run_id=str(day),
            state="COMPLETE",
            nominal_start=datetime(2024, 3, day, tzinfo=UTC),
            nominal_end=datetime(2024, 3, day + 1, tzinfo=UTC),
            partition_key=read,
        )
        for day in (1, 2, 3)
    )
    node = JobNode(ref=JobRef(space, written), reads=(source,), writes=(target,))
    fields = DatasetNode(ref=source, fields=(written, read))
    made = drafted(LineageSnapshot.of([node], [fields], history=history))
    (declared,) = tomllib.loads(made.text)["dataset"]
    assert sorted(declared) == ["grain", "name", "namespace", "zone"]
    questions = answered(made)
    assert len(questions["dataset"]) == 3
    assert len(questions["job"]) == 1


def test_a_declared_name_means_itself_although_it_has_the_signs_of_a_glob(tmp_path: Path) -> None:
    odd, other = DatasetRef("w", "a[1]*"), DatasetRef("w", "a1x")
    nodes = [JobNode(ref=job(ref.name), writes=(ref,)) for ref in (odd, other)]
    history = runs("a[1]*", 3, timedelta(days=1))
    snapshot = LineageSnapshot.of(nodes, history=history)
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(drafted(snapshot).text)
    declarations = load_project(file=file, environ={}, user_file=file / "no").declarations
    resolver = Resolver(snapshot, declarations, now=NOW)
    assert resolver.dataset(odd).origin == "declared"
    assert resolver.dataset(other).origin is None


def test_what_no_file_can_hold_is_replaced() -> None:
    assert tomllib.loads("a = " + quoted('x\ud800\u202e\x7f"\\'))["a"] == 'x\ufffd\u202e\x7f"\\'


def test_a_source_with_a_password_is_not_written_down() -> None:
    text = draft(lineage("x > a > y"), {}, now=NOW).text
    assert tomllib.loads(text)["lineage"] == {}
    assert "LINEAGE_BACKFILL_LINEAGE_MARQUEZ" in text
