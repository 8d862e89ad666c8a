"""The drafted project file: what the lineage tells stands in it, and the rest is asked."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.critic.draft import Draft, draft, quoted
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.sources.events import EventSource
from lineage_backfill.workspace.configuration import load_project
from tests.unit.planning.world import dataset, job, lineage

NOW = datetime(2024, 4, 1, tzinfo=UTC)
EDGES = "raw > clean > tidy"
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
        "dataset": [
            {"name": "tidy", "grain": "hour", "zone": "UTC"},
            {"name": "raw", "grain": "?"},
        ],
    }
    assert (made.jobs, made.datasets, made.known) == (1, 2, 1)
    assert (
        '# Inferred: the nominal times of 5 runs are each one hour in UTC (job "clean").\n'
        "[[dataset]]\n"
    ) in made.text
    assert '#? start = "2024-03-01T00"' in made.text


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ((), 'written by "clean"; 0 recorded runs show no one grain'),
        (
            runs("clean", 2, timedelta(minutes=90)),
            'written by "clean"; 2 recorded runs show no one grain',
        ),
        (
            runs("clean", 48, timedelta(hours=1))[::6],
            "the nominal times of 8 runs are each one hour in UTC, but only at hours 00, 06,",
        ),
        (
            runs("clean", 3, timedelta(hours=1)) + runs("other", 3, timedelta(days=1)),
            "its writers disagree: day and hour",
        ),
    ],
)
def test_an_unknown_grain_is_asked_with_the_reason(
    history: tuple[ObservedRun, ...], why: str
) -> None:
    node = DatasetNode(ref=dataset("tidy"), fields=("id", "region"))
    edges = lineage("raw > clean > tidy\nraw > other > tidy" if "disagree" in why else EDGES)
    made = drafted(LineageSnapshot.of(edges.jobs.values(), [node], history=history))
    assert f'name = "tidy"\ngrain = "?"  # {why}' in made.text
    assert 'name = "raw"\ngrain = "?"  # no job writes it; read by "clean"' in made.text
    assert '#? column = "ds"  # one of id, region\n' in made.text
    assert made.known == 0


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
    assert 'grain = "?"  # the partitioning sent with the lineage cannot be read\n' in made.text


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


def test_jobs_that_airflow_runs_get_its_engine_with_dag_and_task() -> None:
    text = drafted(EventSource([str(DATA / "airflow_recorded.ndjson.gz")]).read()).text
    assert '[engines.airflow]\nkind = "airflow"\nurl = "http://localhost:8080"' in text
    task = 'engine = "airflow"\ndag = "kinds"\ntask = "by_hook"\nbatch = "key"\n'
    assert f'name = "kinds.by_hook"\nnamespace = "prod"\n{task}' in text
    assert 'engine = "local"' not in text


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


def test_of_several_namespaces_each_name_has_its_own() -> None:
    ref = DatasetRef("s3://lake", "raw/orders")
    made = drafted(LineageSnapshot.of([JobNode(ref=JobRef("etl", "load"), writes=(ref,))]))
    assert "project" in tomllib.loads(made.text)
    assert "namespace" not in tomllib.loads(made.text)["project"]
    assert answered(made)["dataset"][1] == {
        "name": "raw/orders",
        "namespace": "s3://lake",
        "grain": "?",
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
    declared, asked = tomllib.loads(made.text)["dataset"]
    assert asked["grain"] == "?"
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
