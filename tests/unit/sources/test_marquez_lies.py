"""One answer in many is wrong: a read gives all of the graph or an error, never less of it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import pytest

from lineage_backfill.errors import HTTPStatusError, LineageError, ServiceUnreachableError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.marquez import MarquezSource, View, api, history, source
from lineage_backfill.sources.web import Answer
from tests.fake_marquez import FakeMarquez
from tests.sampling import a_part
from tests.unit.sources.marquez_reads import dataset, event, names, read

VIEWS: tuple[View, ...] = get_args(View)


def server() -> FakeMarquez:
    """A server with something for every request: what events tell, and what only pages do."""
    old = [event(n, n, inputs=[dataset(f"d{n - 1}")]) for n in range(1, 7)]
    made = FakeMarquez([*old, event(1, 9, run={"runId": "again"}, inputs=[dataset("d0")])])
    made.purge("2024-01-01T00:00:04Z")
    for n in range(11, 15):
        begun = event(n, n, eventType="START", inputs=[dataset(f"d{n - 1}")], outputs=[])
        made.post(begun)
        made.post(event(n, n + 20))
    bare = event(21, 45, job={"namespace": "n", "name": "j4"}, eventType="START", outputs=[])
    made.post(bare)
    for n in (1, 2):
        told = event(n, 50 + n, inputs=[dataset(f"d{n}"), dataset("d9")])
        told["job"] = {"namespace": "n", "name": f"told{n}"}
        del told["run"], told["eventType"]
        made.post(told)
    made.post({"eventTime": "2024-01-01T00:00:55Z", "dataset": dataset("alone")})
    made.post(event(30, 56, job={"namespace": "gone", "name": "j30"}))
    made.post(event(31, 57))
    made.delete("namespaces/n/jobs/j31")
    made.delete("namespaces/gone")
    return made


def lists(body: Any, change: Callable[[list[Any]], list[Any]], *, counted: bool = True) -> Any:
    """Change the lists of an answer; without `counted` its count fits what is left."""
    left = {name: change(rows) if isinstance(rows, list) else rows for name, rows in body.items()}
    if "totalCount" in body and not counted:
        (number,) = [len(rows) for rows in left.values() if isinstance(rows, list)]
        whole = next(len(rows) for rows in body.values() if isinstance(rows, list))
        left["totalCount"] = body["totalCount"] - whole + number
    return left


def nothing(_: list[Any]) -> list[Any]:
    return []


def first_half(rows: list[Any]) -> list[Any]:
    return rows[: len(rows) // 2]


def first_row_twice(rows: list[Any]) -> list[Any]:
    """Return as many rows: the first one again in place of the last."""
    return rows[:1] + rows[:-1]


def last_half(rows: list[Any]) -> list[Any]:
    return rows[(len(rows) + 1) // 2 :]


class Client:
    """Takes the place of the HTTP client, and spoils some of what the server answers."""

    def __init__(self, made: FakeMarquez, fault: str, is_hit: Callable[[int], bool]) -> None:
        self._server = made
        self._fault = fault
        self._is_hit = is_hit
        self._lock = threading.Lock()
        self._last: dict[str, Any] = {}
        self.asked = self.hits = 0

    def get(self, path: str, query: dict[str, str]) -> Any:
        return self.ask(path, query).value()

    def ask(self, path: str, query: dict[str, str]) -> Answer:
        with self._lock:
            path = path.removeprefix("api/v1/")
            is_hit = self._is_hit(self.asked)
            self.asked += 1
            self.hits += is_hit
            if is_hit:
                return self._spoilt(path, query)
            return Answer(path, json.dumps(self._truth(path, query)).encode())

    def _truth(self, path: str, query: dict[str, str]) -> Any:
        status, body = self._server.answer(path, query)
        if status != 200:
            raise HTTPStatusError(path, status)
        self._last[path] = body
        return body

    def _spoilt(self, path: str, query: dict[str, str]) -> Answer:
        before = self._last.get(path)
        match self._fault:
            case "broken":
                raise HTTPStatusError(path, 500)
            case "not found":
                raise HTTPStatusError(path, 404)
            case "slow":
                raise ServiceUnreachableError(path)
            case "next page" if "limit" in query:
                step = int(query["limit"]) if "offset" in query else 0
                query = query | {"offset": str(int(query.get("offset", "0")) + step)}
        body = self._truth(path, query)
        match self._fault:
            case "cut":
                return Answer(path, json.dumps(body).encode()[:-9])
            case "other shape":
                body = {"data": body}
            case "other rows":
                body = lists(body, lambda rows: [str(row) for row in rows] or [1])
            case "page again" if before is not None:
                body = before
            case "empty" | "empty and counted so":
                body = lists(body, nothing, counted=self._fault == "empty")
            case "first half" | "first half and counted so":
                body = lists(body, first_half, counted=self._fault == "first half")
            case "last half" | "last half and counted so":
                body = lists(body, last_half, counted=self._fault == "last half")
            case "counts too few" if "totalCount" in body:
                body = body | {"totalCount": max(0, body["totalCount"] - 1)}
            case "first row twice" if path in ("events/lineage", "search"):
                body = lists(body, first_row_twice)
        return Answer(path, json.dumps(body).encode())

    def close(self) -> None:
        """Nothing is open."""


FAULTS = [
    *("broken", "not found", "slow", "cut", "other shape", "other rows"),
    *("next page", "page again", "empty", "empty and counted so"),
    *("first half", "first half and counted so", "last half", "last half and counted so"),
    *("first row twice", "counts too few"),
]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_PAGE", 3)
    monkeypatch.setattr(history, "_LARGE_PAGE", 6)
    monkeypatch.setattr(history, "_WORTH_SPLITTING", 6)
    monkeypatch.setattr(api, "LIST_PAGE", 4)


def graph(snapshot: LineageSnapshot) -> Any:
    return snapshot.jobs, snapshot.datasets, snapshot.column_edges, snapshot.history


def ask(client: Client, view: View, folder: Path | None) -> LineageSnapshot:
    with patch.object(source, "WebClient", lambda *_: client):
        return MarquezSource("http://marquez.test", view=view, cache=folder).read()


@cache
def told(view: View) -> Any:
    """What a view says of the server, and how many answers that takes."""
    client = Client(server(), "none", lambda _: False)
    snapshot = ask(client, view, None)
    assert (len(snapshot.jobs), len(snapshot.datasets)) == (12, 16), "all that is there"
    return graph(snapshot), client.asked


#: So many of the answers of a read are spoilt, one after the other in the suite.
PLACES = 120
CASES = [
    (view, kept, fault, place)
    for place in range(PLACES)
    for fault in FAULTS
    for view in VIEWS
    for kept in ("no cache", "first with a cache", "from the cache")
]


@pytest.mark.parametrize(("view", "kept", "fault", "place"), a_part(CASES, every=73))
def test_one_answer_that_is_wrong_makes_no_graph_smaller(
    view: View, kept: str, fault: str, place: int, tmp_path: Path
) -> None:
    expected, asked = told(view)
    made, folder = server(), None if kept == "no cache" else tmp_path
    if kept == "from the cache":
        ask(Client(made, "none", lambda _: False), view, folder)
    client = Client(made, fault, lambda number: number == place * asked // PLACES)
    with contextlib.suppress(LineageError):
        assert graph(ask(client, view, folder)) == expected
    if folder and client.hits:
        clean = Client(made, "none", lambda _: False)
        assert graph(ask(clean, view, folder)) == expected, "nothing wrong is kept"


@pytest.mark.parametrize("every", [5, 7, 23])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("view", VIEWS)
def test_one_wrong_answer_in_so_many_makes_no_graph_smaller(
    view: View, fault: str, every: int
) -> None:
    client = Client(server(), fault, lambda number: number % every == every - 1)
    with contextlib.suppress(LineageError):
        assert graph(ask(client, view, None)) == told(view)[0]
    assert client.hits


def test_a_list_that_lacks_a_job_with_events_is_refused() -> None:
    made = FakeMarquez([event(n) for n in range(3)])

    def short(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        return (200, {"results": [], "totalCount": 0}) if path == "search" else None

    made.before_answer = short
    with pytest.raises(LineageError, match="n:j0 has a page in Marquez, but is missing"):
        read(made)


@pytest.mark.parametrize("view", ["both", "graph"])
def test_a_list_shorter_than_its_count_is_refused(view: View) -> None:
    made = FakeMarquez([event(n) for n in range(3)])

    def short(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        return (200, {"results": [], "totalCount": 3}) if path == "search" else None

    made.before_answer = short
    with pytest.raises(LineageError, match="a list of 0 rows from 0 on, where it counts 3 in all"):
        read(made, view=view)


@pytest.mark.parametrize("kind", ["job", "dataset"])
def test_a_list_is_asked_for_once_where_it_is_as_long_as_counted(kind: str) -> None:
    made = FakeMarquez([event(n) for n in range(3)])
    read(made)
    searches = [query for path, query in made.asked if path == "search"]
    assert [query["filter"] for query in searches].count(kind) == 1


@pytest.mark.parametrize("kind", ["job", "dataset"])
def test_a_list_that_another_answer_counts_longer_is_asked_for_again(kind: str) -> None:
    made = FakeMarquez([event(n) for n in range(3)])
    expected = graph(read(made, view="graph"))
    wrong: list[tuple[int, Any]] = [(200, {"results": [], "totalCount": 0})]

    def short(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        return wrong.pop() if wrong and query.get("filter") == kind else None

    made.before_answer = short
    assert graph(read(made, view="graph")) == expected
    assert not wrong


def test_a_list_of_jobs_is_not_taken_for_one_of_datasets() -> None:
    made = FakeMarquez([event(n) for n in range(3)])

    def jobs(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path == "search" and query["filter"] == "dataset":
            return made.answer(path, query | {"filter": "job"})
        return None

    made.before_answer = jobs
    with pytest.raises(LineageError, match="a list of datasets that holds others"):
        read(made)


def test_answers_that_differ_each_time_are_refused() -> None:
    made = FakeMarquez([event(n) for n in range(3)])
    numbers = count()

    def other(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        rows = [{"namespace": "n", "name": f"j{next(numbers)}"}]
        return (200, {"results": rows, "totalCount": 1}) if path == "search" else None

    made.before_answer = other
    with pytest.raises(LineageError, match="search: the server's answer differs each time"):
        read(made, view="graph")


def test_a_server_that_contradicts_itself_is_asked_more_often() -> None:
    declared = [event(n, inputs=[dataset("d0")]) for n in (1, 2, 3)]
    made = FakeMarquez([{k: e[k] for k in e.keys() - {"run", "eventType"}} for e in declared])
    expected = graph(read(made, view="graph"))
    wrong = {"namespaces/n/jobs/j1": 1, "namespaces/n/jobs/j2": 2, "namespaces/n/jobs/j3": 2}

    def without_inputs(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if not wrong.get(path):
            return None
        wrong[path] -= 1
        left = wrong.pop(path)
        status, body = made.answer(path, query)
        wrong[path] = left
        return status, body | {"inputs": []}

    made.before_answer = without_inputs
    assert graph(read(made, view="graph")) == expected
    assert not any(wrong.values())


@pytest.mark.parametrize("view", VIEWS)
def test_a_row_that_hides_another_makes_no_graph_smaller(view: View) -> None:
    expected, asked = told(view)
    for place in range(asked):
        with contextlib.suppress(LineageError):
            client = Client(server(), "first row twice", place.__eq__)
            assert graph(ask(client, view, None)) == expected, place


def test_a_wrong_count_does_not_look_like_events_that_are_not_shown() -> None:
    def plain() -> FakeMarquez:
        made = FakeMarquez([event(n) for n in range(9)])
        made.delete("namespaces/n/jobs/j4")  # which the events alone do not tell
        return made

    whole = Client(plain(), "none", lambda _: False)
    expected = graph(ask(whole, "events", None))
    for place in range(whole.asked):
        with contextlib.suppress(LineageError):
            client = Client(plain(), "counts too few", place.__eq__)
            assert graph(ask(client, "events", None)) == expected, place


def test_events_counted_in_all_are_missed_if_a_part_counts_none() -> None:
    made = server()

    def none_after_the_runs(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        is_end = query.get("after", "").startswith("2024-01-01T00:00:57.0")
        is_end = is_end and query["before"].startswith("9999")
        return (200, {"events": [], "totalCount": 0}) if is_end else None

    late = event(40, 59)
    del late["run"], late["eventType"]
    made.post(late)
    made.before_answer = none_after_the_runs
    with pytest.raises(LineageError, match="counts 19 events, but only 18"):
        read(made, view="events")


@pytest.mark.parametrize("view", ["both", "graph"])
def test_a_page_that_alone_tells_of_a_job_is_not_believed_from_two_answers(view: View) -> None:
    made = server()
    left = count()

    def without_inputs(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path != "namespaces/n/jobs/told1" or next(left) > 1:
            return None
        made.before_answer = lambda *_: None
        status, body = made.answer(path, query)
        made.before_answer = without_inputs
        return status, body | {"inputs": []}

    made.before_answer = without_inputs
    with pytest.raises(LineageError, match="differs each time"):
        read(made, view=view)


def test_what_changes_with_each_event_is_not_compared() -> None:
    made = server()
    numbers = count()
    expected = read(made, view="graph")

    def moving(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path not in ("namespaces/n/jobs/told1", "search"):
            return None
        made.before_answer = lambda *_: None
        status, body = made.answer(path, query)
        made.before_answer = moving
        number = next(numbers)
        when = {"updatedAt": f"2024-01-09T00:00:00.{number:03}Z"}
        if path == "search":
            return status, body | {"results": [row | when for row in body["results"]]}
        newest = {"id": f"r{number}", "state": "RUNNING"}
        return status, body | when | {"latestRun": newest, "latestRuns": [newest]}

    made.before_answer = moving
    assert read(made, view="graph").jobs == expected.jobs
    assert next(numbers) > 1


def other_inputs(body: Any, number: int) -> Any:
    """Another input in each answer."""
    return body | {"inputs": [{"namespace": "n", "name": f"d{number}"}]}


def uncounted(body: Any, number: int) -> Any:
    """A run that is counted before it is shown."""
    return body | {"totalCount": body["totalCount"] + 1}


#: A page, and what of it is stored first.
STEPS = {
    "inputs": ("namespaces/n/jobs/told1", other_inputs),
    "runs": ("namespaces/n/jobs/j4/runs", uncounted),
    "names": ("search", uncounted),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_event_that_is_stored_in_steps_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    asked, change = STEPS[step]
    made = server()
    expected = read(made, view="graph")
    pauses: list[float] = []
    monkeypatch.setattr(api, "_PAUSES", (0.0, 1.0, 2.0, 3.0))
    monkeypatch.setattr("lineage_backfill.sources.marquez.api.sleep", pauses.append)
    numbers = count()

    def stored(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path != asked or len(pauses) > 2 or query.get("filter") == "dataset":
            return None
        made.before_answer = lambda *_: None
        status, body = made.answer(path, query)
        made.before_answer = stored
        return status, change(body, next(numbers))

    made.before_answer = stored
    assert read(made, view="graph").jobs == expected.jobs
    assert pauses == [0.0, 1.0, 2.0]


def test_no_names_are_asked_for_once_the_events_cannot_be_read() -> None:
    made = FakeMarquez([event(n) for n in range(3)])

    def late(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path == "namespaces":
            time.sleep(0.3)
        return (404, {}) if path == "events/lineage" else None

    made.before_answer = late
    with pytest.raises(HTTPStatusError, match="events/lineage"):
        read(made)
    asked = list(made.asked)
    time.sleep(0.3)
    assert made.asked == asked, "nothing is asked after the read"
    assert {path for path, _ in asked} <= {"events/lineage", "namespaces", "namespaces/default"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, {}), "search.*answers 404"),
        ((200, {"rows": []}), "not of Marquez's shape: KeyError"),
        ((200, {"results": [1], "totalCount": 1}), "not of Marquez's shape: TypeError"),
    ],
)
def test_an_error_in_names_that_are_asked_for_meanwhile_is_one_of_the_read(
    answer: tuple[int, Any], said: str
) -> None:
    made = FakeMarquez([event(n) for n in range(3)])
    wrong = [answer, answer, answer]

    def once(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        return wrong.pop() if wrong and query.get("filter") == "job" else None

    made.before_answer = once
    with pytest.raises(LineageError, match=said):
        read(made)


@pytest.mark.parametrize("view", ["both", "events"])
def test_events_that_arrive_before_the_first_count_are_not_missed(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_PAGE", 50)
    made = FakeMarquez([event(n) for n in range(9)])
    arriving = [event(n) for n in range(20, 25)]

    def arrive() -> None:
        if arriving:
            made.post(arriving.pop(0))

    made.before_count = arrive
    assert {"j0", "j8"} <= set(names(read(made, view=view)))
