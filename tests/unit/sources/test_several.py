"""Several sources are one lineage, or none at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import BackfillError, ConfigError
from lineage_backfill.lineage.joined import joined
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.workspace.configuration import lineage_origin
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.lineage import ProjectLineage

A, B, C = (DatasetRef("n", name) for name in "abc")
JOB = JobRef("n", "job")


def project(folder: Path, sources: str) -> ProjectLineage:
    """Return the lineage of a project with these sources."""
    file = folder / "lineage-backfill.toml"
    file.write_text(f"[lineage]\nsources = [{sources}]\n")
    return ProjectLineage(open_project(file))


def events(file: Path, *jobs: tuple[str, Sequence[str], Sequence[str]]) -> None:
    """Write a completed run of each job, with its inputs and outputs."""
    file.write_text(
        "".join(json.dumps(event(number, *job)) + "\n" for number, job in enumerate(jobs))
    )


def event(number: int, job: str, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, Any]:
    """Return the end of a run."""
    sides = {"inputs": inputs, "outputs": outputs}
    named = {
        side: [{"namespace": "n", "name": one} for one in names] for side, names in sides.items()
    }
    return {
        "eventType": "COMPLETE",
        "eventTime": f"2024-06-01T00:00:{number:02}Z",
        "run": {"runId": f"{job}-{number}"},
        "job": {"namespace": "n", "name": job},
        **named,
    }


FILES = '{ source = "events", paths = ["a.ndjson"] }, { source = "events", paths = "b.ndjson" }'


def test_the_newest_run_counts_whichever_file_has_it(tmp_path: Path) -> None:
    events(tmp_path / "a.ndjson", ("job", "a", "b"), ("other", "b", "c"))
    events(tmp_path / "b.ndjson", ("first", "c", "a"), ("job", "c", "b"))
    snapshot = project(tmp_path, FILES).read()
    node = snapshot.jobs[JOB]
    assert (node.reads, node.former_reads) == ((C,), (A,))
    assert len(snapshot.jobs) == 3
    assert snapshot.source == "events"


def test_an_unreachable_source_names_itself_and_leaves_no_lineage(tmp_path: Path) -> None:
    events(tmp_path / "a.ndjson", ("job", "a", "b"))
    for other in (
        '{ source = "events", paths = "none.ndjson" }',
        '{ source = "marquez", url = "http://127.0.0.1:9" }',
        '{ source = "snapshot", path = "a.ndjson" }',
    ):
        lineage = project(tmp_path, f'{{ source = "events", paths = "a.ndjson" }}, {other}')
        kind = other.split('"')[1]
        with pytest.raises(BackfillError, match=rf"source 2 of \[lineage\] \({kind}\): "):
            lineage.read()


@pytest.mark.parametrize(
    ("sources", "fault"),
    [
        ('{ paths = ["a"] }', "must be a table with its kind as `source`"),
        ('"events"', "must be a table with its kind as `source`"),
        ('{ source = "events" }', r"\(events\) needs `paths`"),
        ('{ source = "events", path = "a" }', r"\(events\) has no setting `path`"),
        ('{ source = "marquez", url = "localhost" }', "`marquez` is not an http address"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, sources: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        project(tmp_path, sources)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("datahub", "Another catalog"), ("databricks", "unity")],
)
def test_a_catalog_without_a_source_says_what_to_read(tmp_path: Path, kind: str, hint: str) -> None:
    lineage = project(tmp_path, f'{{ source = "{kind}" }}')
    with pytest.raises(ConfigError, match=f"no lineage source of kind '{kind}'") as raised:
        lineage.read()
    assert hint in raised.value.hint


def test_one_setting_names_the_sources(tmp_path: Path) -> None:
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(f'[lineage]\nevents = ["a"]\nsources = [{FILES}]\n')
    with pytest.raises(ConfigError, match="has `events` and `sources`"):
        open_project(file)
    file.write_text(f"[lineage]\nsources = [{FILES}]\n")
    assert lineage_origin(open_project(file)).startswith("from lineage.sources of ")
    chosen = open_project(file, lineage={"snapshot": "taken"}).lineage
    assert (chosen.kind, chosen.sources) == ("snapshot", ()), "an option takes their place"


def test_secrets_of_a_source_are_read_and_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret-of-this-test")
    table = '{ source = "marquez", url = "http://m", api_key = "env:KEY" }'
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(f"[lineage]\nsources = [{table}]\n")
    opened = open_project(file)
    assert opened.lineage.parts[0].api_key == "secret-of-this-test"
    (shown,) = (one.shown for one in opened.settings if one.name == "lineage.sources")
    assert "secret" not in shown


def part(node: JobNode, ended: str | None = None, *datasets: DatasetNode) -> LineageSnapshot:
    """Return the lineage of one job, whose run ended then."""
    runs = [
        ObservedRun(
            job=node.ref, run_id=ended, state="COMPLETE", ended_at=datetime.fromisoformat(ended)
        )
        for ended in (ended,)
        if ended
    ]
    return LineageSnapshot.of([node], datasets, history=tuple(runs))


def test_edges_of_the_last_run_count_and_those_of_no_run_are_added() -> None:
    old = part(JobNode(ref=JOB, reads=(A,), writes=(B,)), "2024-06-01T00:00:00Z")
    new = part(JobNode(ref=JOB, reads=(C,), writes=(B,)), "2024-06-02T00:00:00Z")
    declared = part(JobNode(ref=JOB, reads=(B,), owners=("me",)))
    (node,) = joined([old, new]).jobs.values()
    assert (node.reads, node.writes, node.former_reads) == ((C,), (B,), (A,))
    (node,) = joined([declared, old]).jobs.values()
    assert (node.reads, node.writes, node.owners) == ((A, B), (B,), ("me",))
    assert len(joined([old, new, old]).history) == 2


def test_what_is_left_out_is_stated_first(tmp_path: Path) -> None:
    events(tmp_path / "a.ndjson", ("job", "a", "b"))
    (tmp_path / "source.py").write_text(
        "from lineage_backfill import LineageSnapshot, Notice\n"
        "LOST = Notice(': lost', 'crm:job', leaves_out=True)\n"
        "class Crm:\n"
        "    def read(self):\n"
        "        return LineageSnapshot.of([], notices=(Notice('odd'), LOST, Notice('even')))\n"
    )
    files = FILES.replace("b.ndjson", "a.ndjson")
    lineage = project(tmp_path, f'{files}, {{ source = "source.py" }}')
    assert lineage.read().warnings == ("crm:job: lost", "odd", "even")
