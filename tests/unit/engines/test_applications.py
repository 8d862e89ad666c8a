"""Warm applications without Spark: who feeds them, what they begin, and when they end."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign
from lineage_backfill.engines.spark.application import (
    Application,
    Ownership,
    Requested,
    Terms,
    is_alive,
)
from lineage_backfill.engines.spark.applications import OnCluster
from lineage_backfill.engines.spark.yarn import Yarn
from lineage_backfill.errors import EngineError, EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.ports import AttemptState
from spark_runtime.application import Channel, Host
from spark_runtime.errors import Cancelled, Stranded
from spark_runtime.job.attempt import describe_error
from tests.contract.test_engine import Bench, make
from tests.fakes import log_of

FOLDERS = ("inbox", "taken", "withdrawn", "cancel", "answers")


class Folder:
    """The folder of an application that this process is itself."""

    def __init__(self, path: Path, **terms: Any) -> None:
        self.path = path
        for name in FOLDERS:
            (path / name).mkdir(parents=True)
        given = {"key": "k", "secret": "s", "orphan_seconds": 0.5, "max_runs": 9, **terms}
        (path / "application.json").write_text(json.dumps(given))

    def ask(self, name: str, secret: str = "s") -> None:
        request = {"op": "run", "id": name, "spec": "none", "secret": secret}
        (self.path / "inbox" / f"{name}.json").write_text(json.dumps(request))

    def answer(self, name: str) -> Any:
        return json.loads((self.path / "answers" / f"{name}.json").read_text())

    def begun(self) -> list[str]:
        """Be the application until it ends; return what it has begun."""
        with closing(Channel(self.path)) as channel:
            recorder = Recorder(channel)
            assert recorder.serve() == 0
        return recorder.begun


class Recorder(Host):
    """An application that does nothing, and remembers what it was asked."""

    def __init__(self, channel: Channel, wait: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(channel)
        self.begun: list[str] = []
        self._wait = wait

    def answer(self, request: Mapping[str, Any], seat: int) -> Mapping[str, Any]:
        self.begun.append(request["id"])
        self._wait(request["id"])
        return {"op": "finished", "id": request["id"], "seat": seat}


def test_an_application_that_has_lost_its_tool_ends(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    owner = LifeSign(tmp_path / "owner").give()
    threading.Timer(0.6, owner.close).start()
    began = time.monotonic()
    assert folder.begun() == []
    assert time.monotonic() - began >= 0.7


def test_a_far_application_goes_by_a_file_that_changes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, is_far=True, orphan_seconds=1.2)
    lock = LifeSign(tmp_path / "owner").give()  # is not seen on another machine
    assert folder.begun() == []
    lock.close()
    owner, closed = Ownership(tmp_path), threading.Event()

    def close() -> None:
        closed.set()
        owner.close()

    # Both later than an application without a tool ends.
    threading.Timer(2.0, folder.ask, ["a"]).start()
    threading.Timer(2.6, close).start()
    assert folder.begun() == ["a"]
    assert closed.is_set()
    (tmp_path / "beat").write_text('{"now": "x", "secret": "of another"}')
    assert folder.begun() == []


class FakeCluster(Yarn):
    """A cluster with one application, which does not answer while its state is ""."""

    def __init__(self, state: AttemptState | str | None) -> None:
        super().__init__(lambda _: "")
        self.state = state
        self.stopped: list[str] = []

    def look(self, token: str) -> AttemptState | None:
        if isinstance(self.state, str) and not isinstance(self.state, AttemptState):
            raise ServiceUnreachableError("it does not answer")
        return self.state

    def stop(self, token: str) -> None:
        self.stopped.append(token)


@pytest.mark.parametrize(
    ("state", "lives"),
    [
        (AttemptState.QUEUED, True),
        (AttemptState.RUNNING, True),
        ("", True),
        (AttemptState.SUCCEEDED, False),
        (AttemptState.CANCELLED, False),
        (None, False),
    ],
)
def test_the_cluster_tells_whether_a_far_application_lives(
    tmp_path: Path, state: AttemptState | str | None, lives: bool
) -> None:
    folder, cluster = Folder(tmp_path / "app1"), FakeCluster(state)
    place = OnCluster(cluster)
    assert place.lives(folder.path) is lives
    place.kill(folder.path)
    assert cluster.stopped == (["app1"] if lives else [])
    if not lives:
        cluster.state = AttemptState.RUNNING
        assert not place.lives(folder.path)
    with closing(LifeSign(folder.path / "alive").give()):  # spark-submit waits for its end
        assert place.lives(folder.path)


def test_a_cluster_that_answers_slowly_is_asked_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Slow(FakeCluster):
        def look(self, token: str) -> AttemptState | None:
            asked.append(now[0])
            now[0] += 3
            return super().look(token)

    place = OnCluster(Slow(AttemptState.RUNNING))
    for _each_second in range(20):
        assert place.lives(tmp_path / "app1")
        now[0] += 1
    assert asked == [100.0, 118.0]


def test_an_application_that_has_ended_leaves_what_is_asked_of_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.begun() == []
    folder.ask("late")
    assert not is_alive(tmp_path)
    assert Requested(tmp_path, "late").withdraw()


def test_it_begins_each_request_once_and_no_more_than_it_may(tmp_path: Path) -> None:
    folder = Folder(tmp_path, max_runs=2)
    for name in ("a", "b", "c"):
        folder.ask(name)
    assert folder.begun() == ["a", "b"]
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == ["c.json"]
    assert not Requested(tmp_path, "a").withdraw()
    assert Requested(tmp_path, "c").withdraw()


def test_it_does_not_begin_what_was_withdrawn(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert Requested(tmp_path, "a").withdraw()
    folder.ask("a")
    folder.ask("c")
    assert folder.begun() == ["c"]
    assert folder.answer("a")["op"] == "withdrawn"
    assert Requested(tmp_path, "a").withdraw()


FOREIGN = {
    "no JSON": "{",
    "no text": b"\xff\xfe",
    "nothing": "",
    "no object": '["s"]',
    "no secret": '{"op": "run", "id": "b"}',
    "another secret": '{"op": "run", "id": "b", "secret": "other"}',
    "a secret of another kind": '{"op": "run", "id": "b", "secret": {"s": 1}}',
    "another name": '{"op": "run", "id": "c", "secret": "s"}',
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_no_request_and_leaves_the_application(
    tmp_path: Path, text: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "inbox" / "b.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    folder.ask("d")
    assert folder.begun() == ["d"]
    assert "not a request of this application's tool" in caplog.text
    assert not list((tmp_path / "answers").glob("b.json"))
    assert not Requested(tmp_path, "b").is_taken


def test_what_is_no_file_and_what_was_begun_already_is_not_begun(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "inbox" / "a.json").mkdir()
    (tmp_path / "inbox" / "b.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "taken" / "c.json").touch()
    folder.ask("c")
    folder.ask("d")
    assert folder.begun() == ["d"]


def test_the_time_of_an_orphan_counts_from_its_first_look(tmp_path: Path) -> None:
    folder = Folder(tmp_path, orphan_seconds=0.1)
    folder.ask("d")
    with closing(Channel(tmp_path)) as channel:
        time.sleep(0.3)  # it takes long to start
        recorder = Recorder(channel)
        assert recorder.serve() == 0
    assert recorder.begun == ["d"]


@pytest.mark.parametrize("place", ["close", "withdrawn/a", "cancel/a"])
def test_a_foreign_file_ends_stops_and_withdraws_nothing(tmp_path: Path, place: str) -> None:
    folder = Folder(tmp_path)
    (tmp_path / place).touch()
    folder.ask("a")
    with closing(Channel(tmp_path)) as channel:
        assert not channel.is_cancelled("a")
    assert folder.begun() == ["a"]
    assert folder.answer("a")["op"] == "finished"


@pytest.mark.parametrize("at_once", [1, 3])
def test_it_does_as_many_at_once_as_it_may(tmp_path: Path, at_once: int) -> None:
    folder = Folder(tmp_path, at_once=at_once, orphan_seconds=0.3)
    for name in "abcd":
        folder.ask(name)
    most: list[int] = []
    at_work: set[str] = set()

    def work(name: str) -> None:
        at_work.add(name)
        most.append(len(at_work))
        time.sleep(0.4)
        at_work.remove(name)

    with closing(Channel(tmp_path)) as channel:
        owner = LifeSign(tmp_path / "owner").give()
        threading.Timer(2.5, owner.close).start()
        assert Recorder(channel, work).serve() == 0
    assert max(most) == at_once
    assert {folder.answer(name)["seat"] for name in "abcd"} == set(range(at_once))


def test_a_run_that_takes_long_does_not_make_its_application_an_orphan(tmp_path: Path) -> None:
    """Its tool dies right before the end of the run: the next one finds it warm."""
    folder = Folder(tmp_path, orphan_seconds=0.8)
    owner = LifeSign(tmp_path / "owner").give()

    def work(name: str) -> None:
        if name == "a":
            time.sleep(1)
            owner.close()
            threading.Timer(0.3, folder.ask, ["b"]).start()

    folder.ask("a")
    with closing(Channel(tmp_path)) as channel:
        recorder = Recorder(channel, work)
        assert recorder.serve() == 0
    assert recorder.begun == ["a", "b"]


def test_an_application_that_is_stranded_ends_with_its_runs(tmp_path: Path) -> None:
    folder = Folder(tmp_path, orphan_seconds=30)
    began = time.monotonic()

    class Stranded(Recorder):
        def is_stranded(self) -> bool:
            return time.monotonic() - began > 0.5

    def work(name: str) -> None:
        while time.monotonic() < began + 20:
            time.sleep(0.01)

    for name in "ab":
        folder.ask(name)
    with closing(Channel(tmp_path)) as channel:
        assert Stranded(channel, work).serve() == 0
    assert time.monotonic() - began < 10
    answer = folder.answer("a")
    assert (answer["op"], answer["is_last"]) == ("raised", True)
    assert "lost its executors" in answer["error"]["message"]
    assert "ends" not in answer  # it was not the run that ended it
    assert Requested(tmp_path, "b").withdraw()


def test_a_run_whose_application_is_stranded_may_be_tried_again() -> None:
    assert describe_error(Stranded()).transient
    assert not describe_error(Cancelled()).transient


def test_cancel_stops_one_of_the_runs_that_go_at_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, at_once=2)
    for name in "ab":
        folder.ask(name)

    def work(name: str) -> None:
        until = time.monotonic() + (1 if name == "b" else 20)
        while time.monotonic() < until:
            time.sleep(0.01)

    with closing(Channel(tmp_path)) as channel:
        cancel = json.dumps({"secret": "s"})
        place = tmp_path / "cancel" / "a"
        threading.Timer(0.3, place.write_text, [cancel]).start()
        began = time.monotonic()
        assert Recorder(channel, work).serve() == 0
    assert time.monotonic() - began < 10
    assert folder.answer("a")["op"] == "raised"
    assert folder.answer("b")["op"] == "finished"


def test_a_foreign_answer_is_not_believed(bench: Bench) -> None:
    path = bench.spec("sleep", seconds=1)
    handle = bench.engine.submit(path, "t-1")
    while bench.engine.poll(handle).state is AttemptState.QUEUED:
        time.sleep(0.01)
    (folder,) = applications(bench)
    (taken,) = (folder / "taken").iterdir()
    (folder / "answers" / taken.name).write_text('{"op": "finished", "id": "x", "secret": ""}')
    time.sleep(0.3)
    assert bench.engine.poll(handle).state is AttemptState.RUNNING
    assert bench.wait(handle) is AttemptState.SUCCEEDED


def test_a_request_of_a_folder_that_is_gone_may_have_been_begun(tmp_path: Path) -> None:
    gone = Requested(tmp_path / "gone", "a")
    assert not gone.withdraw()
    assert not gone.is_open


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make("reuse", tmp_path, orphan_seconds=5), tmp_path)
    yield bench
    bench.engine.close()


def applications(bench: Bench) -> list[Path]:
    return list((bench.folder / "state" / "applications").iterdir())


def test_runs_share_an_application_of_one_tool(bench: Bench) -> None:
    for token in ("t-1", "t-2", "t-3"):
        assert bench.wait(bench.submit("succeed", token=token)) is AttemptState.SUCCEEDED
    (folder,) = applications(bench)
    key = json.loads((folder / "application.json").read_text())["key"]
    assert Application.idle(folder, key) is None  # it has a tool
    assert folder.stat().st_mode & 0o077 == 0
    bench.engine.close()
    assert not is_alive(folder)


def test_other_code_gets_another_application_and_the_idle_one_ends(bench: Bench) -> None:
    assert bench.wait(bench.submit("succeed", token="t-1")) is AttemptState.SUCCEEDED
    (first,) = applications(bench)
    (bench.folder / "other.py").write_text("x = 1\n")
    path = bench.spec("succeed", token="t-2")
    spec = json.loads(path.read_text())
    spec["job"]["entrypoint"] = "other:succeed"
    path.write_text(json.dumps(spec))
    assert bench.wait(bench.engine.submit(path, "t-2")) is AttemptState.SUCCEEDED
    assert len(applications(bench)) == 2
    assert not is_alive(first)


def test_an_application_ends_after_its_last_run(tmp_path: Path) -> None:
    bench = Bench(make("reuse", tmp_path, max_runs_per_application=2), tmp_path)
    for token in ("t-1", "t-2", "t-3"):
        assert bench.wait(bench.submit("succeed", token=token)) is AttemptState.SUCCEEDED
    bench.engine.close()
    assert len(applications(bench)) == 2
    assert len(bench.journal()) == 3


@pytest.mark.parametrize("action", ["crash", "lose"])
def test_a_run_that_ends_two_applications_has_failed(bench: Bench, action: str) -> None:
    assert bench.wait(bench.submit("succeed", token="t-1")) is AttemptState.SUCCEEDED
    outcomes = []
    for attempt in (1, 2):
        path = attempt_of(bench, action, attempt)
        handle = bench.engine.submit(path, f"t-deadly-{attempt}")
        assert bench.wait(handle) is AttemptState.FAILED
        outcomes.append(bench.engine.poll(handle).transient)
        bench.engine.close()  # the next tool knows it as well
        bench = Bench(make("reuse", bench.folder), bench.folder)
    assert outcomes == [True, False]
    assert len(applications(bench)) == 2
    assert bench.wait(bench.submit("succeed", token="t-4")) is AttemptState.SUCCEEDED
    bench.engine.close()


def attempt_of(
    bench: Bench, action: str, attempt: int, run: str = "deadly", **parameters: object
) -> Path:
    """Write the spec of an attempt where the executor does, beside those before it."""
    path = bench.spec(action, token=f"t-{run}-{attempt}", attempt=attempt, **parameters)
    folder = bench.folder / "runs" / "all"
    folder.mkdir(exist_ok=True)
    text = path.read_text().replace("result.json", f"result-{run}-{attempt}.json")
    path.write_text(text)
    return path.rename(folder / f"r-{run}-{attempt}.spec.json")


def test_the_next_tool_goes_on_with_an_application(bench: Bench) -> None:
    path = bench.spec("sleep", seconds=2)
    handle = bench.engine.submit(path, "t-1")
    while bench.engine.poll(handle).state is AttemptState.QUEUED:
        time.sleep(0.01)
    bench.engine.close()
    later = Bench(make("reuse", bench.folder), bench.folder)
    assert later.engine.find(path, "t-1") == handle
    (folder,) = applications(bench)
    with pytest.raises(EngineError, match="held by another"):
        LifeSign(folder / "owner").give()
    assert later.wait(handle) is AttemptState.SUCCEEDED
    assert later.wait(later.submit("succeed", token="t-2")) is AttemptState.SUCCEEDED
    assert applications(bench) == [folder]
    later.engine.close()
    assert not is_alive(folder)


def test_an_application_that_looks_for_its_tool_just_then_is_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    Application.start(["sleep", "30"], Terms("k", 7, 3), folder, cwd=tmp_path).let_go()
    with (folder / "owner").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.005, fcntl.flock, [looking, fcntl.LOCK_UN]).start()
        taken = Application.idle(folder, "k")
    assert taken is not None
    taken.kill()
    taken.close()


def test_the_next_tool_goes_on_with_an_application_that_still_starts(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    started = Application.start(["sleep", "30"], Terms("k", 7, 3), folder, cwd=tmp_path)
    assert Application.idle(folder, "k") is None  # it has a tool
    started.let_go()
    taken = Application.idle(folder, "k")
    assert taken is not None
    assert taken.is_busy
    taken.kill()
    with pytest.raises(EnvironmentMissingError, match="did not start"):
        taken.wait_until_ready()
    taken.close()


def test_a_driver_elsewhere_that_does_not_see_the_folder_is_told_how(tmp_path: Path) -> None:
    folder, place = tmp_path / "one", OnCluster(FakeCluster(None))
    started = Application.start(["false"], Terms("k", 7, 3), folder, place, cwd=tmp_path)
    with pytest.raises(EnvironmentMissingError, match="did not start") as raised:
        started.wait_until_ready()
    assert f"did not open {folder}" in raised.value.hint
    assert "reuse = false" in raised.value.hint
    started.close()


def test_what_was_claimed_and_not_begun_is_given_up(bench: Bench) -> None:
    """A tool sleeps right before it sends a request, and another one takes over."""
    assert bench.wait(bench.submit("succeed", token="t-1")) is AttemptState.SUCCEEDED
    (folder,) = applications(bench)
    path = bench.spec("succeed", token="t-2")
    AttemptFiles(path).claim(Requested(folder, "r").claim())
    later = make("reuse", bench.folder)
    assert later.find(path, "t-2") is None
    with pytest.raises(EngineError, match="abandoned"):
        AttemptFiles(path).claim({})
    secret = json.loads((folder / "application.json").read_text())["secret"]
    request = {"op": "run", "id": "r", "spec": str(path), "secret": secret}
    (folder / "inbox" / "r.json").write_text(json.dumps(request))
    while not (answer := Requested(folder, "r").answer()):
        time.sleep(0.01)
    assert answer["op"] == "withdrawn"
    assert bench.journal() == ["r-1 t-1"]
    later.close()


def test_terms_are_those_of_the_settings(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    command = ["sh", "-c", "exit 3"]
    started = Application.start(command, Terms("k", 7.5, 3), folder, cwd=tmp_path)
    with pytest.raises(Exception, match="exit code 3"):
        started.wait_until_ready()
    terms = json.loads((folder / "application.json").read_text())
    assert (terms["key"], terms["orphan_seconds"], terms["max_runs"]) == ("k", 7.5, 3)
    assert (terms["at_once"], terms["stranded_seconds"]) == (1, 120)
    started.close()


@pytest.fixture
def fair(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make("reuse", tmp_path, runs_at_once=2), tmp_path)
    yield bench
    bench.engine.close()


def test_runs_meet_in_one_application_and_keep_their_logs_apart(fair: Bench) -> None:
    """The second one waits for the application that the first one starts."""
    handles = {fair.submit("meet", token=token) for token in ("t-1", "t-2")}
    assert {fair.ended.get(timeout=20) for _ in handles} == handles
    assert len(applications(fair)) == 1
    for handle in handles:
        assert fair.engine.poll(handle).state is AttemptState.SUCCEEDED
        assert log_of(handle).count("running r-1") == 1
        assert Path(handle).with_name("log.txt").stat().st_mode & 0o077 == 0


def test_what_runs_beside_a_run_that_ends_their_application_may_run_again(fair: Bench) -> None:
    handles = [
        fair.engine.submit(attempt_of(fair, "sleep", 1, "innocent"), "t-innocent-1"),
        fair.engine.submit(attempt_of(fair, "crash", 1, "deadly", seconds=1), "t-deadly-1"),
    ]
    assert {fair.ended.get(timeout=20) for _ in handles} == set(handles)
    assert [fair.engine.poll(handle).transient for handle in handles] == [True, True]
    handles = [
        fair.engine.submit(attempt_of(fair, "succeed", 2, "innocent"), "t-innocent-2"),
        fair.engine.submit(attempt_of(fair, "crash", 2, "deadly"), "t-deadly-2"),
    ]
    assert {fair.ended.get(timeout=20) for _ in handles} == set(handles)
    good, bad = (fair.engine.poll(handle) for handle in handles)
    assert (good.state, bad.state) == (AttemptState.SUCCEEDED, AttemptState.FAILED)
    assert "two applications in a row" in (bad.error or "")
    assert not bad.transient
    assert len(applications(fair)) == 3


def test_cancel_of_one_run_leaves_the_one_beside_it(fair: Bench) -> None:
    other = fair.submit("sleep", token="t-1", seconds=2)
    stopped = fair.submit("sleep", token="t-2", seconds=60)
    for handle in (other, stopped):
        while fair.engine.poll(handle).state is AttemptState.QUEUED:
            time.sleep(0.01)
    fair.engine.cancel(stopped)
    states = {}
    for _ in range(2):
        handle = fair.ended.get(timeout=40)
        states[handle] = fair.engine.poll(handle).state
    assert states == {other: AttemptState.SUCCEEDED, stopped: AttemptState.CANCELLED}
    assert len(applications(fair)) == 1


def test_the_next_tool_goes_on_with_all_runs_of_an_application(fair: Bench) -> None:
    paths = [fair.spec("sleep", token=f"t-{n}", seconds=3) for n in range(2)]
    for n, path in enumerate(paths):
        handle = fair.engine.submit(path, f"t-{n}")
        while fair.engine.poll(handle).state is AttemptState.QUEUED:
            time.sleep(0.01)
    fair.engine.close()
    later = Bench(make("reuse", fair.folder, runs_at_once=2), fair.folder)
    assert [later.engine.find(path, f"t-{n}") for n, path in enumerate(paths)] == list(
        map(str, paths)
    )
    # Both seats are taken: this one waits, and no second application is started for it.
    third = later.submit("succeed", token="t-3")
    for _ in range(3):
        assert later.engine.poll(later.ended.get(timeout=20)).state is AttemptState.SUCCEEDED
    assert later.engine.poll(third).state is AttemptState.SUCCEEDED
    assert len(applications(fair)) == 1
    later.engine.close()


def test_an_application_is_not_closed_under_a_run_when_another_was_its_last(tmp_path: Path) -> None:
    settings = {"runs_at_once": 2, "max_runs_per_application": 2}
    bench = Bench(make("reuse", tmp_path, **settings), tmp_path)
    handles = [bench.submit("sleep", token="t-1", seconds=3)]
    handles += [bench.submit("succeed", token=token) for token in ("t-2", "t-3")]
    assert {bench.ended.get(timeout=20) for _ in handles} == set(handles)
    assert {bench.engine.poll(handle).state for handle in handles} == {AttemptState.SUCCEEDED}
    bench.engine.close()
    assert len(applications(bench)) == 2


def test_a_run_that_does_not_stop_takes_none_with_it(tmp_path: Path) -> None:
    """Its application is killed once the one beside it is done; what comes gets another one."""
    settings = {"runs_at_once": 2, "slots": 2}
    bench = Bench(make("reuse", tmp_path, **settings), tmp_path)
    stubborn = bench.submit("stubborn", token="t-1")
    beside = bench.submit("sleep", token="t-2", seconds=9)
    for handle in (stubborn, beside):
        while bench.engine.poll(handle).state is AttemptState.QUEUED:
            time.sleep(0.01)
    bench.engine.cancel(stubborn)
    time.sleep(6)  # by now it is to be killed
    later = bench.submit("succeed", token="t-3")
    ends = [bench.ended.get(timeout=30) for _ in range(3)]
    assert set(ends) == {stubborn, beside, later}
    states = [bench.engine.poll(handle).state for handle in (stubborn, beside, later)]
    succeeded = AttemptState.SUCCEEDED
    assert states == [AttemptState.CANCELLED, succeeded, succeeded]
    assert len(applications(bench)) == 2
    bench.engine.close()
