"""Lists of runs in one application, on the engines that take them, without Spark or a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lineage_backfill.engines import create_engine, lists
from lineage_backfill.engines.spark import spark_submit
from lineage_backfill.errors import ConfigError, EngineError
from lineage_backfill.ports import AttemptState, Engine
from lineage_backfill.testing import Bench
from tests.contract.test_engine import NoApplications, make
from tests.fake_databricks import VOLUME, FakeWorkspace, serve
from tests.fakes import log_of

GOOD, BAD = AttemptState.SUCCEEDED, AttemptState.FAILED


@dataclass
class Place:
    """The folder of a backfill, and the engines of one kind at work in it."""

    kind: str
    fake: FakeWorkspace
    url: str
    folder: Path
    engines: list[Engine] = field(default_factory=list)

    def at_work(self) -> Bench:
        """Return a new engine at work."""
        given = {"host": self.url, "token": "dapi-1", "poll": 0.05, "lists": True}
        given |= {"volume": VOLUME, "cluster": {"existing_cluster_id": "c-1"}}
        self.engines.append(
            make("cluster", self.folder, lists=True)
            if self.kind == "cluster"
            else create_engine(
                "databricks", given, project=self.folder, state_dir=self.folder / "state"
            )
        )
        return Bench(self.engines[-1], self.folder)

    def specs(self, *actions: str, name: str = "t-1", **parameters: object) -> dict[str, Path]:
        """Write the run specs of a list by their tokens, one for each action."""
        made = {}
        (self.folder / "runs").mkdir(exist_ok=True)
        for number, action in enumerate(actions, start=1):
            path = self.folder / "runs" / f"{name}-{number}.spec.json"
            spec = {
                "run_id": f"r-{number}",
                "attempt": 1,
                "token": f"{name}.{number}",
                "job": {"namespace": "n", "name": "j", "entrypoint": f"fake:{action}"},
                "parameters": parameters if action == "sleep" else {},
                "result_path": str(path).replace("spec", "result"),
            }
            path.write_text(json.dumps(spec), encoding="utf-8")
            made[f"{name}.{number}"] = path
        return made

    def begun(self) -> list[str]:
        """Return the tokens of the runs that did their work, in order."""
        path = self.folder / "journal"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line.split()[1] for line in lines]


@pytest.fixture(params=["cluster", "databricks"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setattr(lists, "_LOOK", 0.05)
    monkeypatch.setattr(spark_submit, "resource_manager", lambda *_: NoApplications(()))
    fake = FakeWorkspace(tmp_path)
    with serve(fake) as url:
        made = Place(str(request.param), fake, url, tmp_path)
        yield made
        for engine in made.engines:
            engine.close()


def ends(bench: Bench, handles: Sequence[str]) -> list[AttemptState]:
    """Return how attempts ended, once all have."""
    while not all(bench.engine.poll(one).state.is_final for one in handles):
        assert bench.ended.get(timeout=20)
    return [bench.engine.poll(one).state for one in handles]


def test_one_application_does_all_runs_and_each_has_its_own_result(place: Place) -> None:
    bench = place.at_work()
    handles = bench.engine.submit_list(place.specs("succeed", "fail", "succeed"))
    assert ends(bench, handles) == [GOOD, BAD, GOOD]
    assert place.begun() == ["t-1.1", "t-1.3"]
    first, second, _ = (bench.engine.poll(one) for one in handles)
    assert first.result is not None
    assert first.result["token"] == "t-1.1"
    assert (second.error, second.transient) == ("ValueError: no such column", False)
    assert "running r-3" in log_of(handles[1]), "they share a log"
    found = bench.engine.identify(handles[0])
    assert found is not None
    assert [bench.engine.identify(one) for one in handles] == [found] * 3
    if place.kind == "databricks":
        (run,) = place.fake.runs.values()
        assert run.token == "t-1"


def test_a_run_ends_once_its_result_is_there_while_those_after_it_go_on(place: Place) -> None:
    bench = place.at_work()
    first, second = bench.engine.submit_list(place.specs("succeed", "sleep", seconds=60))
    assert ends(bench, [first]) == [GOOD]
    assert not bench.engine.poll(second).state.is_final
    bench.engine.cancel(second)
    assert ends(bench, [second]) == [AttemptState.CANCELLED]
    assert bench.engine.poll(first).state is GOOD


def test_a_list_is_stopped_once_all_of_its_runs_are(place: Place) -> None:
    bench = place.at_work()
    handles = bench.engine.submit_list(place.specs("sleep", "succeed", seconds=0.5))
    bench.engine.cancel(handles[1])
    assert ends(bench, handles) == [GOOD, GOOD], "one alone is not"
    again = bench.engine.submit_list(place.specs("sleep", "sleep", name="t-2", seconds=60))
    for one in again:
        bench.engine.cancel(one)
    assert ends(bench, again) == [AttemptState.CANCELLED] * 2


def test_what_comes_after_a_crash_may_be_tried_again(place: Place) -> None:
    bench = place.at_work()
    handles = bench.engine.submit_list(place.specs("succeed", "crash", "succeed"))
    assert ends(bench, handles) == [GOOD, BAD, BAD]
    for one in handles[1:]:
        outcome = bench.engine.poll(one)
        assert outcome.transient
        assert "its list ended without its result: " in (outcome.error or "")
        assert "signal 9" in (outcome.error or "")
    assert place.begun() == ["t-1.1"]


def test_the_next_executor_finds_the_list_by_each_of_its_runs(place: Place) -> None:
    bench = place.at_work()
    specs = place.specs("succeed", "sleep", "succeed", seconds=1)
    handles = bench.engine.submit_list(specs)
    assert ends(bench, handles[:1]) == [GOOD]
    bench.engine.close()
    other = place.at_work()
    found = [other.engine.find(path, token) for token, path in specs.items()]
    assert found == handles
    assert ends(other, handles) == [GOOD] * 3
    later = place.at_work()
    assert [later.engine.find(path, token) for token, path in specs.items()] == handles
    assert ends(later, handles) == [GOOD] * 3
    assert place.begun() == ["t-1.1", "t-1.2", "t-1.3"]


def test_an_executor_that_was_replaced_begins_no_list(place: Place) -> None:
    """It sleeps right before the submission, and another one has asked for a run of the list."""
    specs = place.specs("succeed", "succeed")
    successor = place.at_work()
    found = [successor.engine.find(path, token) for token, path in specs.items()]
    with pytest.raises(EngineError, match="another executor"):
        place.at_work().engine.submit_list(specs)
    if place.kind == "cluster":
        assert found == [None, None]
        assert place.begun() == []
        return
    # The workspace may have had the request, so it is repeated, with the run that was known then.
    first, second = (str(one) for one in found)
    assert ends(successor, [first, second]) == [GOOD, BAD]
    assert successor.engine.poll(second).transient
    assert place.begun() == ["t-1.1"]
    assert len(place.fake.runs) == 1


def test_a_single_run_is_no_list(place: Place) -> None:
    bench = place.at_work()
    handle = bench.submit("succeed")
    assert ends(bench, [handle]) == [GOOD]
    assert bench.engine.find(Path(handle), "t-1") == handle
    assert bench.engine.can_tell(Path(handle), "t-1")
    slow = bench.running("sleep", token="t-2", seconds=60)
    bench.engine.cancel(slow)
    assert ends(bench, [slow]) == [AttemptState.CANCELLED]


def test_workers_take_no_lists(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='`lists` has no meaning with deploy_mode = "client"'):
        make("local", tmp_path, lists=True)
