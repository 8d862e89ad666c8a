"""Warm applications where files fail for a moment, tools meet, and what seemed dead is not."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import spark_runtime.application as runtime
from lineage_backfill.engines.attempt import AttemptFiles, LifeSign
from lineage_backfill.engines.spark import application as tool
from lineage_backfill.engines.spark.application import (
    Application,
    Ownership,
    Place,
    Requested,
    Terms,
)
from lineage_backfill.engines.spark.applications import ReusingEngine
from lineage_backfill.engines.spark.pool import NotBegun
from lineage_backfill.ports import AttemptState
from spark_runtime.application import Channel
from spark_runtime.output import by_thread
from tests.contract.test_engine import Bench, make
from tests.unit.engines.test_applications import Folder, Recorder, applications, attempt_of

FAILURES = {
    "a full disk": errno.ENOSPC,
    "a stale handle": errno.ESTALE,
    "an input or output error": errno.EIO,
}
failures = pytest.mark.parametrize("number", FAILURES.values(), ids=FAILURES)


class Far(Place):
    """A place that shares files with this machine, but not locks."""

    is_far = True

    def __init__(self, *, lives: bool = True) -> None:
        self._lives = lives

    def lives(self, folder: Path) -> bool:
        return self._lives

    def kill(self, folder: Path) -> None:
        raise AssertionError("nothing is to be killed")


def failing(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int, when: Callable[..., bool]
) -> list[str]:
    """Make the calls of a function fail for which `when` is true; return what they were given."""
    real, failed = getattr(owner, name), []

    def call(*given: Any, **named: Any) -> Any:
        if when(*given):
            failed.append(str(given[0]))
            raise OSError(number, "for a moment")
        return real(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return failed


def once(suffix: str) -> Callable[..., bool]:
    """Return a condition that is true for the first path that ends so."""
    done: list[Path] = []

    def when(path: Path, *_: object, **__: object) -> bool:
        if done or not str(path).endswith(suffix):
            return False
        done.append(path)
        return True

    return when


@failures
def test_a_reply_that_cannot_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    folder = Folder(tmp_path, at_once=2, orphan_seconds=5)
    failed = failing(monkeypatch, runtime, "write_atomically", number, once("answers/a.json"))
    owner = LifeSign(tmp_path / "owner").give()
    for name in "ab":
        folder.ask(name)
    close = json.dumps({"secret": "s"})
    threading.Timer(1.2, (tmp_path / "close").write_text, [close]).start()
    with closing(Channel(tmp_path)) as channel:
        recorder = Recorder(channel, lambda name: time.sleep(0.1 if name == "a" else 1))
        assert recorder.serve() == 0
    owner.close()
    assert len(failed) == 1
    assert [folder.answer(name)["op"] for name in "ab"] == ["finished", "finished"]
    assert sorted(recorder.begun) == ["a", "b"]


def test_an_application_that_can_never_reply_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, orphan_seconds=0.5)
    failing(
        monkeypatch, runtime, "write_atomically", errno.ENOSPC, lambda path, _: path.stem == "a"
    )
    folder.ask("a")
    with closing(Channel(tmp_path)) as channel, pytest.raises(OSError, match="for a moment"):
        Recorder(channel).serve()


@failures
@pytest.mark.parametrize("step", ["read_bytes", "rename", "exists", "glob"])
def test_a_request_that_cannot_be_taken_is_taken_later_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    folder = Folder(tmp_path, orphan_seconds=0.6)
    suffix = {"exists": "taken/a.json", "glob": "inbox"}.get(step, "inbox/a.json")
    folder.ask("a")
    failed = failing(monkeypatch, Path, step, number, once(suffix))
    assert folder.begun() == ["a"]
    assert len(failed) == 1
    assert folder.answer("a")["op"] == "finished"


def test_a_tool_that_cannot_be_looked_for_once_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Folder(tmp_path, orphan_seconds=5)
    failing(monkeypatch, Path, "open", errno.ESTALE, once("owner"))
    with closing(Channel(tmp_path)) as channel:
        assert not channel.is_orphan
        assert not channel.is_orphan


def test_a_run_whose_log_cannot_be_opened_goes_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    request = {"op": "run", "id": "a", "spec": "none", "secret": "s"}
    request["log"] = str(tmp_path / "no folder" / "log.txt")
    (tmp_path / "inbox" / "a.json").write_text(json.dumps(request))
    with by_thread():
        assert folder.begun() == ["a"]
    assert folder.answer("a")["op"] == "finished"


@failures
def test_a_tool_that_could_not_show_itself_once_goes_on_showing_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    Folder(tmp_path, is_far=True, orphan_seconds=0.4)
    failed = failing(monkeypatch, tool, "_write", number, once("beat"))
    with closing(Ownership(tmp_path)):
        while not (tmp_path / "beat").exists():
            time.sleep(0.01)
    assert len(failed) == 1


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of the tool in the main thread are those of another machine, which none sees."""
    give, made = LifeSign.give, iter(range(100))
    monkeypatch.setattr(
        LifeSign, "give", lambda self: give(LifeSign(self.path.with_name(f"owner-{next(made)}")))
    )


def far_folder(path: Path) -> Folder:
    folder = Folder(path, is_far=True, orphan_seconds=0.8)
    (path / "process.json").write_text('{"pid": 1}')
    (path / "ready.json").write_text('{"op": "ready", "secret": "s"}')
    return folder


@pytest.mark.usefixtures("unseen")
def test_an_application_whose_tool_on_another_machine_lives_is_not_taken_over(
    tmp_path: Path,
) -> None:
    far_folder(tmp_path)
    owner = Ownership(tmp_path)
    assert Application.idle(tmp_path, "k", Far()) is None
    owner.close()
    taken = Application.idle(tmp_path, "k", Far())
    assert taken is not None
    taken.let_go()


@pytest.mark.usefixtures("unseen")
def test_an_application_is_taken_over_though_the_next_heartbeat_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_folder(tmp_path)
    with closing(Ownership(tmp_path)):
        while not (tmp_path / "beat").exists():
            time.sleep(0.01)
    late = time.monotonic() + 1.2
    failing(
        monkeypatch,
        tool,
        "_write",
        errno.EIO,
        lambda path: path.name == "beat" and time.monotonic() < late,
    )
    taken = Application.idle(tmp_path, "k", Far())
    assert taken is not None
    taken.let_go()


@pytest.mark.usefixtures("unseen")
def test_of_two_tools_that_take_an_application_over_at_once_at_most_one_has_it(
    tmp_path: Path,
) -> None:
    far_folder(tmp_path)
    taken: list[Application | None] = []
    tools = [
        threading.Thread(target=lambda: taken.append(Application.idle(tmp_path, "k", Far())))
        for _ in range(2)
    ]
    for thread in tools:
        thread.start()
    for thread in tools:
        thread.join()
    owners = [one for one in taken if one is not None]
    assert len(owners) <= 1
    for one in owners:
        one.let_go()


@contextmanager
def claimed(folder: Path, place: Place) -> Iterator[Application]:
    """Give the application of a folder, with a request that is about to be sent."""
    found = Application(folder, "k", Ownership(folder), place)
    found.log_path.touch()
    found.claim("r")
    try:
        yield found
    finally:
        found.let_go()


def test_an_application_that_only_seemed_dead_does_not_begin_what_it_was_asked(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    with claimed(tmp_path, Far(lives=False)) as found, pytest.raises(NotBegun):
        found.ask({"op": "run", "id": "r", "spec": "none"})
    assert folder.begun() == []
    assert folder.answer("r")["op"] == "withdrawn"


def test_an_application_that_is_dead_has_not_begun_what_it_never_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Folder(tmp_path)
    failing(monkeypatch, tool, "_write", errno.ENOSPC, once("withdrawn/r"))
    with claimed(tmp_path, Far(lives=False)) as found, pytest.raises(NotBegun):
        found.ask({"op": "run", "id": "r", "spec": "none"})


def test_a_request_that_was_never_sent_does_not_keep_its_application_busy(tmp_path: Path) -> None:
    Folder(tmp_path)
    (tmp_path / "ready.json").write_text('{"op": "ready", "secret": "s"}')
    with claimed(tmp_path, Far()) as found:
        found.wait_until_ready()
        assert not found.is_busy


def test_a_stop_is_told_by_force_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Folder(tmp_path)
    (tmp_path / "taken" / "r.json").touch()
    killed = threading.Event()

    class Deadly(Far):
        def lives(self, folder: Path) -> bool:
            return not killed.is_set()

        def kill(self, folder: Path) -> None:
            killed.set()

    monkeypatch.setattr(tool, "_CANCEL", 0.1)
    failing(monkeypatch, tool, "_write", errno.ENOSPC, lambda path: path.parent.name == "cancel")
    Requested(tmp_path, "r", Deadly()).cancel()
    assert killed.wait(10)


# --- which application ----------------------------------------------------------------------------


def engine(folder: Path, **settings: Any) -> ReusingEngine:
    made = make("reuse", folder, **settings)
    assert isinstance(made, ReusingEngine)
    return made


def key(found: ReusingEngine, bench: Bench, entrypoint: str) -> str:
    path = bench.spec("succeed")
    spec = json.loads(path.read_text())
    spec["job"]["entrypoint"] = entrypoint
    path.write_text(json.dumps(spec))
    return found.key(AttemptFiles(path))


@pytest.mark.parametrize("changed", ["common.py", "lib/deep/common.py"])
def test_code_beside_that_changed_between_two_tools_makes_another_application(
    tmp_path: Path, changed: str
) -> None:
    bench = Bench(engine(tmp_path), tmp_path)
    place = tmp_path / changed
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("x = 1\n")
    first, entrypoint = engine(tmp_path), "jobs:succeed"
    before = key(first, bench, entrypoint)
    assert key(engine(tmp_path), bench, entrypoint) == before
    place.write_text("x = 10\n")
    assert key(first, bench, entrypoint) == before  # as its archives are those it first made
    assert key(engine(tmp_path), bench, entrypoint) != before
    bench.engine.close()


@pytest.mark.parametrize("other", [".venv/a.py", "venv/lib/a.py", "notes.txt", "state/a.py"])
def test_what_a_driver_does_not_import_makes_no_other_application(
    tmp_path: Path, other: str
) -> None:
    bench = Bench(engine(tmp_path), tmp_path)
    before = key(engine(tmp_path), bench, "jobs:succeed")
    place = tmp_path / other
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("x = 1\n")
    if other.startswith("venv"):
        (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert key(engine(tmp_path), bench, "jobs:succeed") == before
    bench.engine.close()


def test_scripts_share_an_application(tmp_path: Path) -> None:
    bench = Bench(engine(tmp_path), tmp_path)
    for name in ("a.py", "b.py", "c.sql"):
        (tmp_path / name).write_text("")
    found = engine(tmp_path)
    assert len({key(found, bench, name) for name in ("a.py", "b.py", "c.sql")}) == 1
    bench.engine.close()


def test_an_application_for_other_numbers_of_runs_at_once_is_another(tmp_path: Path) -> None:
    bench = Bench(engine(tmp_path), tmp_path)
    fair = {"conf": {"spark.scheduler.mode": "FAIR"}}
    found = {
        key(engine(tmp_path, runs_at_once=number, **fair), bench, "jobs:succeed")
        for number in (1, 2, 4)
    }
    assert len(found) == 3
    bench.engine.close()


def test_an_application_of_its_own_does_one_run(tmp_path: Path) -> None:
    bench = Bench(engine(tmp_path), tmp_path)
    for attempt in (1, 2):
        handle = bench.engine.submit(attempt_of(bench, "crash", attempt), f"t-deadly-{attempt}")
        assert bench.wait(handle) is AttemptState.FAILED
    found = {
        json.loads((one / "application.json").read_text())["max_runs"]
        for one in applications(bench)
    }
    assert found == {1000, 1}
    bench.engine.close()


def test_another_machine_can_tell_of_an_application_on_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(engine(tmp_path), tmp_path)
    found = engine(tmp_path)
    path = bench.spec("succeed", token="t-1")
    folder = tmp_path / "state" / "applications" / "one"
    AttemptFiles(path).claim(Requested(folder, "r").claim())
    assert not found.can_tell(path, "t-1")  # a driver of another machine's own
    monkeypatch.setattr(found, "_place", Far())
    assert not found.can_tell(path, "t-1")  # its folder is not seen here
    Folder(folder)
    assert found.can_tell(path, "t-1")
    bench.engine.close()


def test_terms_of_a_far_application_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    started = Application.start(["sleep", "30"], Terms("k", 7, 3), folder, Far(), cwd=tmp_path)
    terms = json.loads((folder / "application.json").read_text())
    assert terms["is_far"]
    assert started.is_new
    tool.kill(folder)
    started.let_go()
