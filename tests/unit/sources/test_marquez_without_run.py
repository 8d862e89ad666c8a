"""What events of jobs and datasets said, which Marquez counts and does not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from tests.fake_marquez import FakeMarquez
from tests.unit.sources.marquez_reads import dataset, event, read


def at(second: int, **more: Any) -> dict[str, Any]:
    """An event without a run."""
    return {"eventTime": f"2024-01-01T00:00:{second:02d}Z"} | more


def owned(second: int, name: str, owner: str) -> dict[str, Any]:
    facets = {"ownership": {"owners": [{"name": owner, "type": "team"}]}}
    return at(second, dataset=dataset(name) | {"facets": facets})


def declared(second: int, job: str, reads: list[str], writes: list[str]) -> dict[str, Any]:
    ends = {"inputs": list(map(dataset, reads)), "outputs": list(map(dataset, writes))}
    return at(second, job={"namespace": "n", "name": job}, **ends)


def versions(server: FakeMarquez) -> list[str]:
    """Which versions were asked for so far."""
    return [path for path, _ in server.asked if path.endswith("/versions")]


def owners(snapshot: LineageSnapshot, name: str) -> tuple[str, ...]:
    return snapshot.datasets[DatasetRef("n", name)].owners


def test_names_told_of_a_dataset_alone_join_what_writes_it_and_what_reads_it() -> None:
    links = {"identifiers": [dataset("alias") | {"type": "TABLE"}]}
    server = FakeMarquez([event(1), event(2, inputs=[dataset("alias")])])
    before = read(server)
    server.post(at(3, dataset=dataset("d1") | {"facets": {"symlinks": links}}))
    after = read(server)
    reader = JobRef("n", "j2")
    assert before.jobs[reader].reads == (DatasetRef("n", "alias"),)
    assert after.jobs[reader].reads == (DatasetRef("n", "d1"),)


def test_what_is_declared_of_a_job_after_its_runs_is_followed() -> None:
    server = FakeMarquez([event(1), declared(5, "j1", ["new"], ["d1", "more"])])
    node = read(server).jobs[JobRef("n", "j1")]
    assert [ref.name for ref in (*node.reads, *node.writes)] == ["new", "d1", "more"]


def test_what_was_declared_before_a_run_is_former() -> None:
    server = FakeMarquez([declared(1, "j3", ["old"], ["d3"]), event(3, inputs=[dataset("new")])])
    server.jobs["n", "j3"].facets["ownership"] = {"owners": [{"name": "us", "type": "team"}]}
    node = read(server).jobs[JobRef("n", "j3")]
    assert [ref.name for ref in node.reads] == ["new"]
    assert node.owners == ("us",)


def test_datasets_without_any_job_say_who_owns_them() -> None:
    server = FakeMarquez([event(1), owned(2, "alone", "us")])
    assert owners(read(server), "alone") == ("us",)
    assert owners(read(server), "alone") == ("us",)


def test_where_all_events_are_shown_no_version_is_asked_for(tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(12)])
    read(server, cache=tmp_path)
    for number in range(12, 15):
        server.post(event(number))
        read(server, cache=tmp_path)
    assert versions(server) == []


@pytest.mark.parametrize("second", [0, 1, 5, 11, 12])
@pytest.mark.parametrize("number", [1, 2, 3, 6, 12])
def test_one_event_that_is_not_shown_is_found_wherever_it_is(number: int, second: int) -> None:
    server = FakeMarquez([event(n) for n in range(number)])
    server.post(owned(second, "d0", "us"))
    assert owners(read(server), "d0") == ("us",)


def test_answers_are_kept_until_there_are_more_such_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineage_backfill.sources.marquez.history._PAGE", 3)
    server = FakeMarquez([*(event(n) for n in range(5)), owned(9, "d1", "us")])
    first = read(server, cache=tmp_path)
    asked = versions(server)
    again = read(server, cache=tmp_path)
    assert (versions(server), again.datasets) == (asked, first.datasets)
    server.post(owned(10, "d2", "them"))
    later = read(server, cache=tmp_path)
    assert (owners(later, "d1"), owners(later, "d2")) == (("us",), ("them",))
    assert len(versions(server)) > len(asked)


def test_answers_of_another_history_with_as_many_such_events_are_not_used(tmp_path: Path) -> None:
    runs = [event(n) for n in range(5)]
    read(FakeMarquez([*runs, owned(9, "d1", "us")]), cache=tmp_path)
    runs[3] = event(3, inputs=[dataset("new")])
    later = read(FakeMarquez([*runs, owned(9, "d2", "them")]), cache=tmp_path)
    assert (owners(later, "d1"), owners(later, "d2")) == ((), ("them",))


def test_a_damaged_file_of_answers_is_asked_for_again(tmp_path: Path) -> None:
    server = FakeMarquez([event(1), owned(9, "d1", "us")])
    read(server, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    assert owners(read(server, cache=tmp_path), "d1") == ("us",)


@pytest.mark.parametrize("page", ["datasets/d1/versions", "jobs/j1"])
@pytest.mark.parametrize("answer", [(500, {}), (200, {})])
def test_versions_that_cannot_be_read_are_an_error_and_not_kept(
    page: str, answer: tuple[int, dict[str, str]], tmp_path: Path
) -> None:
    server = FakeMarquez([event(1), event(2), owned(3, "d2", "us")])
    server.before_answer = lambda path, _: answer if path.endswith(page) else None
    with pytest.raises(LineageError):
        read(server, cache=tmp_path)
    assert not list(tmp_path.iterdir())
    server.before_answer = lambda *_: None
    assert owners(read(server, cache=tmp_path), "d2") == ("us",)


def test_a_server_that_knows_no_run_is_not_empty() -> None:
    snapshot = read(FakeMarquez([declared(1, "j", ["a"], ["b"])]))
    (node,) = snapshot.jobs.values()
    assert [ref.name for ref in (*node.reads, *node.writes)] == ["a", "b"]
