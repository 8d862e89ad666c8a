"""What a builder has folded survives as records, all of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lineage_backfill.lineage.events import builder_state as state
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.events.folded import UNREADABLE, Dataset, Job, Run
from lineage_backfill.lineage.snapshot import AirflowTask
from lineage_backfill.model import JobRef

DATA = Path(__file__).parents[2] / "data" / "lineage"
FILES = sorted(DATA.glob("*.ndjson.gz"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_builder_made_of_records_goes_on_as_the_first_would(file: Path) -> None:
    events = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    half = len(events) // 2
    whole, first = LineageBuilder(), LineageBuilder()
    for event in events:
        whole.add(event)
    for event in events[:half]:
        first.add(event)
    text = [json.dumps(record) for record in state.dump(first)]
    again = state.load(json.loads(line) for line in text)
    assert [json.dumps(record) for record in state.dump(again)] == text
    for event in events[half:]:
        again.add(event)
    one, other = again.snapshot(), whole.snapshot()
    assert (one.jobs, one.datasets, one.column_edges) == (
        other.jobs,
        other.datasets,
        other.column_edges,
    )
    assert one.history == other.history
    assert again.newest == whole.newest


def test_all_that_jobs_and_datasets_hold_is_kept() -> None:
    # `last_columns` is found again by its value, and a `ref` is its name. Whatever is added here,
    # `state` has to keep.
    again = {"ref", "last_columns"}
    kept = {"columns", "facets", "name"}
    assert set(Dataset.__slots__) - again == kept
    kept = {"declared", "facets", "name", "parent", "runs", "spark", "is_test", "modes"}
    assert set(Job.__slots__) - again == kept
    assert set(Run.__slots__) - again == set(Run.MEMBERS)


def test_the_details_of_jobs_runs_and_datasets_are_kept() -> None:
    condition = {"type": "location", "locations": ["/o/ds=2024-01-01"]}
    table = {"namespace": "n", "name": "t"}
    told = {"subset": {"outputCondition": condition}}
    source = {"namespace": "n", "name": "s", "field": "x"}
    columns = {"columnLineage": {"fields": {"y": {"inputFields": [source]}}}}
    builder = LineageBuilder()
    builder.add(
        {
            "eventType": "COMPLETE",
            "eventTime": "2024-01-01T00:00:00Z",
            "run": {
                "runId": "r",
                "facets": {
                    "airflow": {
                        "dagRun": {"run_type": "manual"},
                        "dag": {"dag_id": "d", "timetable": {"expression": "@daily"}},
                        "task": {"task_id": "t", "outlets": "[{'uri': 's3://b/t'}]"},
                    },
                },
            },
            "job": {"namespace": "n", "name": "j"},
            "outputs": [table | {"outputFacets": told, "facets": columns}],
        }
    )
    again = state.load(json.loads(json.dumps(record)) for record in state.dump(builder))
    was, now = builder.snapshot(), again.snapshot()
    assert (now.jobs, now.datasets, now.history) == (was.jobs, was.datasets, was.history)
    assert now.jobs[JobRef("n", "j")].airflow == AirflowTask(
        dag="d", task="t", outlets=("s3://b/t",), timetable={"expression": "@daily"}
    )
    assert all(run.written for run in now.history)
    assert now.column_edges == was.column_edges != ()


def test_what_facets_say_is_kept_as_it_was_read() -> None:
    def facets(producer: str) -> dict[str, object]:
        return {
            "schema": {"_producer": producer, "fields": [{"name": "x", "type": "INT"}]},
            "tags": {"tags": [{"key": "k", "value": "v"}]},
            "lineageBackfill_partitioning": {"_producer": producer, "grain": ["day"]},
            "symlinks": {"identifiers": [{"namespace": "n", "name": "alias"}]},
            "ownership": {"owners": 3},
        }

    builder = LineageBuilder()
    table = {"namespace": "n", "name": "t", "facets": facets("p")}
    builder.add({"eventTime": "2024-01-01T00:00:00Z", "dataset": table})
    again = state.load(json.loads(json.dumps(record)) for record in state.dump(builder))
    kept = again._datasets["n", "t"].facets
    assert kept == builder._datasets["n", "t"].facets
    assert {name: told for name, (_, told) in kept.items()} == {
        "schema": ("x",),
        "tags": ("k=v",),
        "lineageBackfill_partitioning": {"grain": ["day"]},
        "symlinks": (("n", "alias"),),
        "ownership": UNREADABLE,
    }
    was, now = builder.snapshot(), again.snapshot()
    assert (now.datasets, now.warnings) == (was.datasets, was.warnings)
    assert now.warnings == ("n:t: facet `ownership` cannot be read; left out",)


def test_records_that_end_too_early_are_refused() -> None:
    records = list(state.dump(LineageBuilder()))
    with pytest.raises(ValueError, match="the end of the state is missing"):
        state.load(records[:-1])


def test_records_of_another_form_are_refused() -> None:
    records = list(state.dump(LineageBuilder()))
    records[0] = ["form", "other"]
    with pytest.raises(ValueError, match="another form"):
        state.load(records)
