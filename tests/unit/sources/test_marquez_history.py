"""The event history is read in full, whatever moves meanwhile, and only once."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.http import Answer
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.sources.marquez import history
from lineage_backfill.sources.parsing import parse
from tests.fake_marquez import FakeMarquez
from tests.unit.sources.marquez_reads import dataset, event, names, read

START = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_PAGE", 3)
    monkeypatch.setattr(history, "_LARGE_PAGE", 3)


def pages(server: FakeMarquez) -> list[dict[str, str]]:
    """The requests for pages of events since the last call."""
    asked = [query for path, query in server.asked if path == "events/lineage"]
    server.asked.clear()
    return [query for query in asked if int(query["limit"]) > 1]


def at_request(server: FakeMarquez, number: int, change: Callable[[], object]) -> None:
    """Change the server just before it answers that request."""

    def watch(path: str, query: dict[str, str]) -> None:
        if len(server.asked) == number:
            change()

    server.before_answer = watch


def same(one: LineageSnapshot, other: LineageSnapshot) -> bool:
    return (one.jobs, one.datasets, one.history) == (other.jobs, other.datasets, other.history)


def test_actions_of_one_application_that_come_in_two_reads_are_one_run(tmp_path: Path) -> None:
    def action(number: int) -> dict[str, Any]:
        parent = {"job": {"namespace": "n", "name": "app"}, "run": {"runId": "p"}}
        run = {"runId": f"r{number}", "facets": {"parent": parent}}
        return event(number, run=run, job={"namespace": "n", "name": "app.append"})

    for early, late in ((1, 9), (9, 1)):  # in order, and the earlier one late
        server, cache = FakeMarquez([action(early), *map(event, range(2, 8))]), tmp_path / f"{late}"
        for expected in ({f"d{early}"}, {"d1", "d9"}):
            snapshot = read(server, cache=cache)
            job = snapshot.jobs[JobRef("n", "app.append")]
            assert {ref.name for ref in job.writes} == expected
            if len(expected) == 1:
                server.post(action(late))


def whole(server: FakeMarquez, cache: Path) -> bool:
    """Return whether a read with the cache says what one without it does."""
    cached = read(server, cache=cache)
    return same(cached, read(server))


def test_an_event_that_was_removed_is_forgotten(tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(9)])
    assert whole(server, tmp_path)
    del server.events[4]
    assert whole(server, tmp_path)
    # One less here and one more there are as many in all.
    del server.events[1]
    server.post(event(20, 6))
    assert whole(server, tmp_path)


@pytest.mark.parametrize("late", [1, 2, 5])
def test_late_events_do_not_hide_that_one_was_removed(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_PAGE", 6)
    server = FakeMarquez([event(n) for n in range(9)])
    assert whole(server, tmp_path)
    del server.events[2]
    for n in range(late + 1):
        server.post(event(20 + n, 2))
    assert whole(server, tmp_path)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_any_event_removed_at_the_time_of_the_newest_is_forgotten(
    gone: int, tmp_path: Path
) -> None:
    newest = [event(n, 9, outputs=[{"namespace": "n", "name": f"d{n}"}]) for n in (5, 6, 7)]
    server = FakeMarquez([event(1), event(2), *newest])
    assert whole(server, tmp_path)
    server.events.remove(newest[gone])
    assert whole(server, tmp_path)


def test_a_server_whose_database_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(9)])
    assert whole(server, tmp_path)
    server.events[4] = event(4, outputs=[{"namespace": "n", "name": "other"}])
    server.namespaces["default"]["createdAt"] = "2024-05-01T00:00:00Z"
    assert whole(server, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_kept", [False, True])
def test_two_servers_at_one_address_are_never_mixed(is_kept: bool, tmp_path: Path) -> None:
    one = FakeMarquez([event(n) for n in range(20)])
    other = FakeMarquez([event(n, outputs=[dataset(f"x{n}")]) for n in range(20)])
    other.namespaces["default"]["createdAt"] = "2024-05-01T00:00:00Z"
    pure = [read(server).jobs for server in (one, other)]
    for last in range(0, 50, 5):
        cache = tmp_path / str(last) if is_kept else None
        if cache:
            read(one, cache=cache)
        one.asked.clear()

        def instead(path: str, query: dict[str, str], last: int = last) -> Any:
            return other.answer(path, query) if len(one.asked) > last else None

        one.before_answer = instead
        with suppress(LineageError):
            assert read(one, cache=cache).jobs in pure
        one.before_answer = lambda *_: None
        assert read(one, cache=cache).jobs == pure[0]


def test_more_events_at_one_time_than_fit_on_a_page() -> None:
    server = FakeMarquez([event(1), *(event(n, 5) for n in range(2, 9)), event(9)])
    assert len(names(read(server))) == 9


@pytest.mark.parametrize("equal", [False, True], ids=["one by one", "all at one time"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_every_number_of_events_is_read_whole(count: int, equal: bool) -> None:
    server = FakeMarquez([event(n, 5 if equal else None) for n in range(count)])
    assert len(names(read(server))) == count


def test_while_a_page_is_parsed_the_next_one_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeMarquez([event(n) for n in range(12)])
    arrived = threading.Event()

    def watch(path: str, query: dict[str, str]) -> None:
        if path == "events/lineage" and len([one for one in server.asked if full(one)]) == 2:
            arrived.set()

    def full(asked: tuple[str, dict[str, str]]) -> bool:
        return asked[0] == "events/lineage" and asked[1]["limit"] not in ("0", "1")

    def patient(answer: Answer, read: Callable[[bytes], Any] = parse) -> Any:
        value = read(answer.body)
        if len(value.get("events", ())) == 3:
            assert arrived.wait(10), "the second page was not asked for"
        return value

    server.before_answer = watch
    monkeypatch.setattr(Answer, "json", patient)
    assert len(names(read(server))) == 12


def test_events_that_vanish_between_two_pages_hide_no_other() -> None:
    server = FakeMarquez([event(n) for n in range(12)])

    def watch(path: str, query: dict[str, str]) -> None:
        second = "2024-01-01T00:00:01.999Z"
        if path == "events/lineage" and query["limit"] == "3" and query["after"] == second:
            server.purge("2024-01-01T00:00:03Z")

    server.before_answer = watch
    assert len(names(read(server))) == 12
    assert len(server.events) == 9


@pytest.mark.parametrize("crowd", [1, 10**6, 10**9], ids=["near", "weeks away", "decades away"])
def test_events_of_which_one_lies_far_from_the_others_are_read_whole(crowd: int) -> None:
    for seconds in ([0, *range(crowd, crowd + 20)], [*range(20), crowd + 20]):
        times = [START + timedelta(seconds=second) for second in seconds]
        events = [event(n, eventTime=when.isoformat()) for n, when in enumerate(times)]
        assert len(names(read(FakeMarquez(events)))) == 21


@pytest.mark.parametrize("counting", [False, True], ids=["before", "amid"])
@pytest.mark.parametrize("second", [1, 3, 4, 8])
@pytest.mark.parametrize("number", range(1, 11))
def test_an_event_that_comes_late_while_pages_are_read_is_not_missed(
    number: int, second: int, counting: bool, tmp_path: Path
) -> None:
    server = FakeMarquez([event(n) for n in range(12)])
    late = event(50, second)

    def come() -> None:
        if late not in server.events:
            server.post(late)

    at_request(server, number, come)
    if counting:
        server.before_answer = lambda *_: None
        server.before_count = lambda: come() if len(server.asked) == number else None
    snapshot = read(server, cache=tmp_path)
    # In the last requests, nobody asks for that time any more: then the next read has it.
    assert late not in server.events or "j50" in names(read(server, cache=tmp_path))
    assert "j50" in names(snapshot) or number > 8 or late not in server.events


@pytest.mark.parametrize("page", range(4))
def test_an_event_counted_and_not_shown_is_read_with_the_window_before_its_own(page: int) -> None:
    server = FakeMarquez([event(n) for n in range(12)])
    late: list[Any] = []
    mine = threading.local()  # pages are read at once

    def begin(_path: str, query: dict[str, str]) -> None:
        mine.query = query

    def come() -> None:  # just after the events of a page were found, into that page's own time
        query = mine.query
        asked = [one for path, one in server.asked if path.endswith("lineage") and "after" in one]
        is_page = int(query["limit"]) > 1 and "after" in query
        second = int(query["after"][17:19]) + 2 if is_page else 0
        number = sum(int(one["limit"]) > 1 for one in asked)
        if is_page and second < 12 and number > page and not late:
            late.append(event(50, second))
            server.post(late[0])

    server.before_answer = begin
    server.before_count = come
    snapshot = read(server)
    assert late
    assert "r50" in [run.run_id for run in snapshot.history]
    assert snapshot.warnings == ()  # the catalogue was not asked for what the events say


@pytest.mark.parametrize("second", [1, 5, 30], ids=["early", "amid", "newer"])
def test_what_streams_into_the_server_stops_no_read(second: int, tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(12)])

    def keep_coming(path: str, query: dict[str, str]) -> None:
        if path == "events/lineage":
            server.post(event(100 + len(server.asked), second))

    server.before_answer = keep_coming
    for _ in range(2):  # the second time from the cache
        snapshot = read(server, cache=tmp_path)
        assert {f"j{n}" for n in range(12)} <= set(names(snapshot))
    server.before_answer = lambda *_: None
    assert whole(server, tmp_path)


def test_a_job_that_runs_all_the_time_is_read_up_to_the_beginning_of_the_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "_PAGE", 100)  # more than arrive meanwhile
    server = FakeMarquez([event(n) for n in range(12)])
    arriving = count(12)

    def run_again(path: str, query: dict[str, str]) -> None:
        if path == "search" or path.startswith("namespaces/n/jobs/j1/"):
            number = next(arriving)
            inputs = [dataset(f"a{number % 2}")]
            server.post(event(1, number, run={"runId": f"again{number}"}, inputs=inputs))

    server.before_answer = run_again
    snapshot = read(server)
    assert next(arriving) > 13, "runs ended meanwhile"
    assert snapshot.jobs == read(FakeMarquez([event(n) for n in range(12)])).jobs
    server.before_answer = lambda *_: None
    (ref,) = read(server).jobs[JobRef("n", "j1")].reads
    assert ref.name == f"a{next(arriving) % 2}", "the next read has the last run"


@pytest.mark.parametrize("left", [0, 1], ids=["nothing", "half"])
def test_a_server_that_never_shows_what_it_counts_is_refused(left: int) -> None:
    server = FakeMarquez([event(n) for n in range(12)])

    def lying(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path != "events/lineage" or int(query["limit"]) < 2:
            return None
        server.before_answer = lambda *_: None
        status, body = server.answer(path, query)
        server.before_answer = lying
        rows = body["events"]
        return status, body | {"events": rows[: left * len(rows) // 2]}

    server.before_answer = lying
    with pytest.raises(LineageError, match="cannot be read in full") as caught:
        read(server)
    assert "Try again" in caught.value.hint


# What is kept on disk


def test_what_was_read_is_not_asked_for_again(tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(30)])
    first = read(server, cache=tmp_path)
    assert len(pages(server)) > 10
    again = read(server, cache=tmp_path)
    assert len(pages(server)) <= 2  # the last one, and whether the namespace's first event exists
    assert same(again, first)
    assert again.warnings == first.warnings


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("new events", lambda server: [server.post(event(n)) for n in range(30, 40)]),
        ("a late event", lambda server: server.post(event(77, 4))),
        ("several late ones", lambda server: [server.post(event(n + 60, n)) for n in (1, 9, 20)]),
        ("one older than all", lambda server: server.post(event(77, 0))),
        ("retention", lambda server: server.purge("2024-01-01T00:00:10Z")),
        (
            "retention and as many late ones",
            lambda server: [
                server.purge("2024-01-01T00:00:05Z"),
                [server.post(event(n + 60, n)) for n in range(8, 12)],
            ],
        ),
        ("a repeated event", lambda server: server.post(event(7))),
        ("another history", lambda server: server.__init__([event(n + 50, 9) for n in range(3)])),
        (
            "another one that began at the same time and goes on for longer",
            lambda server: server.__init__([event(1), event(50, 40)]),
        ),
        (
            "another one that began at the same time and ended before",
            lambda server: server.__init__([event(1), event(50, 2)]),
        ),
        ("none any more", lambda server: server.__init__()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_with_what_is_kept_a_read_gives_what_one_without_it_gives(
    what: str, change: Callable[[FakeMarquez], object], tmp_path: Path
) -> None:
    server = FakeMarquez([event(n) for n in range(1, 30)])
    read(server, cache=tmp_path)
    change(server)
    assert same(read(server, cache=tmp_path / "."), read(server)), what
    # And what is kept now is right as well.
    assert same(read(server, cache=tmp_path), read(server))


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def rewrite(file: Path, change: Callable[[list[Any]], object]) -> None:
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    change(lines)
    file.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(gzip.compress(b"[]\n")),
        lambda file: rewrite(file, lambda lines: lines[0].update(version=0)),
        lambda file: rewrite(file, lambda lines: lines.pop(3)),
        lambda file: rewrite(file, lambda lines: lines.clear()),
        lambda file: rewrite(file, lambda lines: lines[1].append("more")),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["cut", "empty", "nothing", "version", "a line gone", "no line", "other form", "a folder"],
)
def test_a_damaged_file_is_read_past(damage: Callable[[Path], object], tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(12)])
    first = read(server, cache=tmp_path)
    damage(only_file(tmp_path))
    assert same(read(server, cache=tmp_path), first)


def test_servers_and_users_do_not_share_what_is_kept(tmp_path: Path) -> None:
    one, other = (FakeMarquez([event(n) for n in range(k, k + 9)]) for k in (10, 30))
    read(one, cache=tmp_path)
    read(other, cache=tmp_path, headers={"X-Tenant": "b"})
    assert len(list(tmp_path.iterdir())) == 2
    assert "j12" not in names(read(other, cache=tmp_path, headers={"X-Tenant": "b"}))


def test_a_short_history_is_not_kept(tmp_path: Path) -> None:
    read(FakeMarquez([event(1)]), cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_kept_the_lineage_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, no folder")
    snapshot = read(FakeMarquez([event(n) for n in range(12)]), cache=tmp_path / "cache")
    assert len(snapshot.jobs) == 12
    assert any("cannot be kept for next time" in warning for warning in snapshot.warnings)


def test_all_that_events_say_comes_back_from_disk(tmp_path: Path) -> None:
    facets = {
        "columnLineage": {
            "fields": {"x": {"inputFields": [{"namespace": "n", "name": "a", "field": "y"}]}}
        },
        "symlinks": {"identifiers": [{"namespace": "n", "name": "alias", "type": "TABLE"}]},
    }
    output = {"namespace": "n", "name": "b", "facets": facets}
    child = {
        "runId": "c",
        "facets": {
            "parent": {"run": {"runId": "p"}, "job": {"namespace": "n", "name": "dag"}},
            "nominalTime": {"nominalStartTime": "2024-01-01T00:00:00Z"},
            "lineageBackfill_run": {"keys": ["2024-01-01"], "backfillId": "b-1"},
        },
    }
    server = FakeMarquez([event(n, eventType="FAIL") for n in range(9)])
    server.post(event(20, run=child, outputs=[output], eventTime="2024-01-01T00:00:20"))
    server.post(event(21, job={"namespace": "n", "name": ""}))
    owners = {"ownership": {"owners": [{"name": "team"}]}}
    server.post(event(22, job={"namespace": "n", "name": "owned", "facets": owners}))
    first = read(server, cache=tmp_path)
    again = read(server, cache=tmp_path)
    assert same(again, first)
    assert (again.column_edges, again.warnings) == (first.column_edges, first.warnings)
    assert len(again.column_edges) == 1
    assert len(again.warnings) == 4
