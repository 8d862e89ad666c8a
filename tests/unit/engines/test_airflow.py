"""The steps of an attempt in Airflow follow from what it shows; what does not fit is refused."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import responses

from lineage_backfill.engines import create_engine
from lineage_backfill.engines.airflow.api import AirflowApi
from lineage_backfill.engines.airflow.dag import Dag
from lineage_backfill.engines.airflow.slice import (
    Act,
    Mark,
    TaskView,
    choose,
    decide,
    in_force,
    slice_of,
)
from lineage_backfill.errors import (
    ConfigError,
    EngineError,
    EngineRefusalError,
    ServiceUnreachableError,
)
from lineage_backfill.ports import Origin
from lineage_backfill.project.declarations import DagTasks
from lineage_backfill.workspace.configuration import load_project

SINCE = datetime(2026, 11, 23, 12, tzinfo=UTC)
EARLY, LATE = SINCE - timedelta(seconds=1), SINCE + timedelta(seconds=1)
ONE = DagTasks(dag="d", tasks=("t",))
ADOPTED = Origin.ADOPTED
MARK = Mark("tok", SINCE, "backfill b-1, run r-1")
URL = "http://127.0.0.1:1"


def run(state: str = "running", name: str = "scheduled__1") -> dict[str, Any]:
    return {"dag_id": "d", "dag_run_id": name, "state": state}


def view(
    state: str | None, tries: int = 1, note: str = "", started: datetime | None = EARLY
) -> TaskView:
    return TaskView("t", state, tries, note, started, None)


ENDED_LATER = TaskView("t", "success", 1, "", EARLY, LATE + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("found", "shown", "act"),
    [
        (None, [], Act.CREATE),
        (run("success"), [view("success")], Act.CLEAR),
        (run("failed"), [view("failed")], Act.CLEAR),
        (run("failed"), [view("skipped", 0, started=None)], Act.CLEAR),
        (run("success"), [view(None)], Act.CLEAR),
        (run("success"), [view("success", started=LATE)], Act.ADOPT),
        (run("failed"), [view("failed", started=LATE)], Act.CLEAR),
        (run(), [view("running")], Act.WAIT),
        (run(), [view("running", started=LATE)], Act.ADOPT),
        (run(), [view("up_for_retry")], Act.WAIT),
        # The start of a task that was cleared is that of its last try.
        (run(), [view(None)], Act.ADOPT),
        (run("queued"), [view("queued")], Act.ADOPT),
        (run("queued", "lb__other"), [view(None, 0)], Act.WAIT),
        (run("queued"), [], Act.FOLLOW),
        (run("success"), [], Act.FAIL),
        (run("success", "lb__tok"), [], Act.FAIL),
        (run("queued", "lb__tok"), [view(None, 0)], Act.FOLLOW),
        (run("success", "lb__tok"), [view("success")], Act.SUCCEED),
        (run("success", "lb__tok"), [view("success", 0)], Act.FAIL),
        (run("failed", "lb__tok"), [view("upstream_failed")], Act.FAIL),
        (run(), [view(None, 2, "lineage-backfill tok after t=2")], Act.FOLLOW),
        (run(), [view("running", 3, "lineage-backfill tok after t=2")], Act.FOLLOW),
        (run(), [view("success", 3, "lineage-backfill tok after t=2")], Act.SUCCEED),
        (run(), [view("success", 2, "lineage-backfill tok after t=2")], Act.FAIL),
        # The run was just ending when its task was cleared.
        (run("success"), [view(None, 2, "lineage-backfill tok after t=2")], Act.CLEAR),
        (run(), [view("success", 3, "lineage-backfill other after t=2")], Act.CLEAR),
    ],
)
def test_the_next_step(found: dict[str, Any] | None, shown: list[TaskView], act: Act) -> None:
    assert decide(found, shown, ONE, MARK).act is act


def test_the_note_of_a_clear_tells_the_tries_before_it() -> None:
    step = decide(run("success"), [view("success", 4)], ONE, MARK)
    assert step.text == "lineage-backfill tok after t=4 for backfill b-1, run r-1"
    adopted = decide(run(), [view("running", 4, started=LATE)], ONE, MARK)
    assert adopted.text == "lineage-backfill tok adopted after t=3 for backfill b-1, run r-1"


OWN, OTHER = "for backfill b-1, run r-1", "for backfill b-1, run r-10"


@pytest.mark.parametrize(
    ("name", "of_run", "note", "origin", "owned"),
    [
        ("lb__tok", "", "", Origin.CREATED, True),
        ("scheduled__1", "", "", None, False),
        ("scheduled__1", "", f"lineage-backfill tok after t=1 {OWN}", Origin.RERUN, True),
        ("scheduled__1", "", f"lineage-backfill tok adopted after t=1 {OWN}", ADOPTED, False),
        # Those of other attempts.
        ("lb__old", f"x {OWN}", "", None, True),
        ("lb__old", f"x {OTHER}", "", None, False),
        ("theirs", f"x {OWN}", "", None, False),
        ("lb__old", f"x {OWN}", f"lineage-backfill tok after t=1 {OWN}", Origin.RERUN, True),
        (
            "lb__old",
            f"x {OWN}",
            f"lineage-backfill tok continued after t=1 {OWN}",
            Origin.CREATED,
            True,
        ),
        ("scheduled__1", "", f"lineage-backfill old after t=1 {OWN}", None, True),
        ("scheduled__1", "", f"lineage-backfill old after t=1 {OTHER}", None, False),
        ("scheduled__1", "", "lineage-backfill tok after t=1", Origin.RERUN, True),
        ("scheduled__1", "", f"lineage-backfill old adopted after t=1 {OWN}", None, False),
        (
            "scheduled__1",
            "",
            f"lineage-backfill tok continued after t=1 {OWN}",
            Origin.RERUN,
            True,
        ),
    ],
)
def test_who_has_started_what_an_attempt_runs_as(
    name: str, of_run: str, note: str, origin: Origin | None, owned: bool
) -> None:
    shown = [view("running", 2, note)]
    found = {**run(name=name), "note": of_run}
    assert MARK.origin(found, shown) is origin
    assert MARK.owns(found, shown) is owned


def test_without_tasks_only_a_run_that_was_created_is_ours() -> None:
    assert MARK.origin(run(), []) is None
    assert not MARK.owns(run(), [])
    assert MARK.origin(run(name="lb__tok"), []) is Origin.CREATED
    assert MARK.owns(run(name="lb__tok"), [])


def test_several_tasks_are_cleared_together_once_all_have_ended() -> None:
    two = DagTasks(dag="d", tasks=("t", "u"))
    other = TaskView("u", "success", 7, "", EARLY, None)
    assert decide(run(), [view("running"), other], two, MARK).act is Act.WAIT
    step = decide(run("success"), [view("success"), other], two, MARK)
    assert step.text == "lineage-backfill tok after t=1 u=7 for backfill b-1, run r-1"


@pytest.mark.parametrize(
    ("shown", "other", "act"),
    [
        (view("success"), view("running"), Act.WAIT),
        (view("running", started=LATE), view(None), Act.WAIT),
        (view("success"), view("success"), Act.CLEAR),
        (view("success", started=LATE), view("success"), Act.ADOPT),
        # It ended after the newest one had begun.
        (view("success", started=LATE), ENDED_LATER, Act.CLEAR),
        (view("running", started=LATE), ENDED_LATER, Act.WAIT),
        (view("success", 3, "lineage-backfill tok after t=2"), view("running"), Act.SUCCEED),
    ],
)
def test_another_run_of_the_key_is_waited_for_and_counts_against_this_one(
    shown: TaskView, other: TaskView, act: Act
) -> None:
    assert decide(run("success"), [shown], ONE, MARK, {"other": [other]}).act is act


def test_what_waits_in_a_run_that_has_ended_is_not_waited_for() -> None:
    views = [view(None), view("success")]
    assert in_force(run("failed"), views) == views[1:]
    assert in_force(run("queued"), views) == views


def test_the_run_that_an_attempt_has_begun_is_chosen_and_else_the_newest() -> None:
    runs = [run(name="c"), run(name="b"), run(name="a")]
    views = {name: [view("success")] for name in "abc"}
    assert choose(runs, views, MARK) == runs[0]
    assert (
        choose(runs, {**views, "a": [view(None, 1, "lineage-backfill tok after t=1")]}, MARK)
        == (runs[2])
    )
    assert choose([*runs, run(name="lb__tok")], views, MARK) == run(name="lb__tok")
    assert choose([], {}, MARK) is None


def spec(**more: Any) -> dict[str, Any]:
    key = {"key": "2026-11-21", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"}
    return {"job": {"name": "j"}, "keys": [{**key, **more}]}


DAY, NEXT = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("interval", (DAY, DAY, NEXT, None)),
        ("logical_date", (DAY, None, None, None)),
        ("logical_date + 26h", (NEXT + timedelta(hours=2), None, None, None)),
        ("partition_key", (None, None, None, "2026-11-21")),
        ("partition_key %d.%m.%Y", (None, None, None, "21.11.2026")),
        ("conf", (None, None, None, None)),
    ],
)
def test_a_key_is_a_slice(kind: str, expected: tuple[Any, ...]) -> None:
    found = slice_of(kind, spec())
    assert (found.logical_date, found.start, found.end, found.key) == expected


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("interval", {**spec(), "keys": []}, "has 0 keys"),
        ("interval", {**spec(), "keys": spec()["keys"] * 2}, "has 2 keys"),
        ("interval", spec(start=None, end=None), "not intervals of time"),
        ("partition_key", spec(key={"day": "2026-11-21"}), "several dimensions"),
        ("partition_key %Y", spec(key="eu"), "has no time"),
        ("partition_key %Y-%m-%dT%H", spec(key="2024-11-03T01-0400"), "is a repeated hour"),
    ],
)
def test_a_key_that_is_no_slice(kind: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said) as refused:
        slice_of(kind, given)
    assert refused.value.hint


def test_a_run_of_another_interval_does_not_fit() -> None:
    wanted = slice_of("interval", spec())
    whole = {"data_interval_start": "2026-11-21T00:00:00Z"}
    assert wanted.fits({**whole, "data_interval_end": "2026-11-22T00:00:00Z"})
    assert not wanted.fits({**whole, "data_interval_end": "2026-11-21T00:00:00Z"})
    assert not wanted.fits({"data_interval_start": None, "data_interval_end": None})


def test_tasks_above_the_wanted_one_count_as_done_and_the_others_are_skipped() -> None:
    below = {"a": ["b"], "b": ["t"], "t": ["c"], "c": [], "d": []}
    dag = Dag({}, {name: {"downstream_task_ids": ids} for name, ids in below.items()}, frozenset())
    expected = {"a": "success", "b": "success", "c": "skipped", "d": "skipped"}
    assert dag.others(ONE) == expected


@pytest.mark.parametrize(
    ("v2", "v1", "said"),
    [
        (
            (404, "Airflow 404"),
            (200, '{"version": "2.7.3"}'),
            "Airflow 2.7.3 at .* is not supported",
        ),
        ((404, "Airflow 404"), (401, '{"detail": null}'), "Airflow 2 at .* is not supported"),
        ((404, "Not Found"), (404, "Not Found"), "is not an api-server of Airflow 3"),
        ((200, "<html>welcome</html>"), None, "is not an api-server of Airflow 3"),
        ((200, '{"version": "4.0.0"}'), None, "Airflow 4.0.0 at .* is not supported"),
        ((200, '{"version": "3.3.2"}'), None, ""),
    ],
)
def test_only_airflow_3_is_supported(
    v2: tuple[int, str], v1: tuple[int, str] | None, said: str
) -> None:
    with responses.RequestsMock() as server:
        server.get(f"{URL}/api/v2/version", status=v2[0], body=v2[1])
        if v1 is not None:
            server.get(f"{URL}/api/v1/version", status=v1[0], body=v1[1])
        api = AirflowApi(URL, username="u", password="p")
        if said:
            with pytest.raises(EngineError, match=said) as refused:
                api.refuse_other_versions()
            assert refused.value.hint
        else:
            api.refuse_other_versions()
        api.close()


def test_a_version_that_only_an_account_may_see_is_asked_for_with_it() -> None:
    with responses.RequestsMock() as server:
        server.get(f"{URL}/api/v2/version", status=401)
        server.post(f"{URL}/auth/token", status=201, json={"access_token": "new"})
        server.get(f"{URL}/api/v2/version", json={"version": "2.9.0"})
        api = AirflowApi(URL, username="u", password="p")
        with pytest.raises(EngineError, match=r"Airflow 2\.9\.0 at .* is not supported"):
            api.refuse_other_versions()
        api.close()


def test_a_stale_token_is_renewed_once() -> None:
    with responses.RequestsMock() as server:
        stale = {"detail": "Invalid JWT token"}
        server.get(f"{URL}/api/v2/version", status=403, json=stale)
        server.post(f"{URL}/auth/token", status=201, json={"access_token": "new"})
        server.get(f"{URL}/api/v2/version", json={"version": "3.3.2"})
        api = AirflowApi(URL, username="u", password="p", token="old")
        assert api.get("/version") == {"version": "3.3.2"}
        assert server.calls[2].request.headers["Authorization"] == "Bearer new"
        api.close()


def test_a_refusal_for_want_of_rights_is_said_at_once() -> None:
    with responses.RequestsMock() as server:
        server.post(f"{URL}/api/v2/dags/d/dagRuns", status=403, json={"detail": "Forbidden"})
        api = AirflowApi(URL, username="u", password="p", token="t")
        with pytest.raises(EngineRefusalError, match=r"\(403\): Forbidden") as refused:
            api.post("/dags/d/dagRuns", {})
        assert "Op or User" in refused.value.hint
        api.close()


@pytest.mark.parametrize(
    ("status", "is_refused"), [(204, False), (404, False), (405, False), (403, True)]
)
def test_what_an_older_airflow_does_not_have_need_not_be_deleted(
    status: int, is_refused: bool
) -> None:
    with responses.RequestsMock() as server:
        body = {} if status == 204 else {"json": {"detail": "Not Found"}}
        server.delete(f"{URL}/api/v2/x/state-store", status=status, **body)
        api = AirflowApi(URL, token="t")
        with pytest.raises(EngineRefusalError) if is_refused else nullcontext():
            api.delete("/x/state-store")
        api.close()


def test_what_changes_something_is_sent_once_and_the_rest_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with responses.RequestsMock() as server:
        posted = server.post(f"{URL}/api/v2/dags/d/dagRuns", status=503)
        asked = server.get(f"{URL}/api/v2/version", status=503)
        api = AirflowApi(URL, token="t")
        with pytest.raises(ServiceUnreachableError, match="answers 503"):
            api.post("/dags/d/dagRuns", {})
        with pytest.raises(ServiceUnreachableError, match="answers 503"):
            api.get("/version")
        assert (posted.call_count, asked.call_count) == (1, 3)
        api.close()


@pytest.mark.parametrize("status", [200, 401, 404, 502])
def test_what_a_proxy_answers_for_airflow_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with responses.RequestsMock() as server:
        page = {"status": status, "body": "<html>Back soon</html>"}
        server.get(f"{URL}/api/v2/version", **page)
        server.post(f"{URL}/api/v2/dags/d/dagRuns", **page)
        server.delete(f"{URL}/api/v2/x/state-store", **page)
        api = AirflowApi(URL, token="t")
        for ask in (
            lambda: api.find("/version"),
            lambda: api.post("/dags/d/dagRuns", {}),
            lambda: api.delete("/x/state-store"),
        ):
            with pytest.raises(ServiceUnreachableError, match=f"answers {status}: <html>Back"):
                ask()
        api.close()


def test_a_login_that_a_proxy_answers_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with responses.RequestsMock() as server:
        server.post(f"{URL}/auth/token", status=502, body="Bad Gateway")
        server.post(f"{URL}/auth/token", status=201, json={"access_token": "new"})
        server.get(f"{URL}/api/v2/version", json={"version": "3.3.2"})
        api = AirflowApi(URL, username="u", password="p")
        assert api.get("/version") == {"version": "3.3.2"}
        api.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs the setting"),
        ({"url": "localhost:8080", "token": "t"}, "must begin with"),
        ({"url": URL}, "airflow needs `username` and `password`, or `token`"),
        ({"url": URL, "username": "u"}, "airflow needs `username` and `password`, or `token`"),
        ({"url": URL, "token": "t", "poll": 0}, "`poll` is 0"),
        ({"url": URL, "token": "t", "pol": 1}, "has no setting 'pol'"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create_engine("airflow", settings, project=tmp_path, state_dir=tmp_path)


def read(tmp_path: Path, lines: str) -> DagTasks | None:
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(f'[[job]]\nname = "j"\n{lines}\n')
    project = load_project(file=file, environ={}, user_file=tmp_path / "none")
    return project.declarations.jobs[0].airflow


def test_a_job_names_its_task(tmp_path: Path) -> None:
    assert read(tmp_path, "") is None
    assert read(tmp_path, 'dag = "d"\ntask = "t"') == ONE
    named = read(tmp_path, 'dag = "d"\ntask = ["t", "u"]\nslice = "logical_date + 26h"')
    assert named == DagTasks(dag="d", tasks=("t", "u"), slice="logical_date + 26h")
    keyed = read(tmp_path, 'slice = "partition_key %Y-%m"')
    assert keyed == DagTasks(dag="", tasks=(), slice="partition_key %Y-%m")
    assert read(tmp_path, 'slice = "conf"') == DagTasks(dag="", tasks=(), slice="conf")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('dag = "d"', "`dag` and `task` go together"),
        ('dag = "d"\ntask = "t"\nslice = "day"', "`slice` is 'day'"),
        ('dag = "d"\ntask = "t"\nslice = "logical_date + lots"', "`slice` is"),
        ('dag = "d"\ntask = "t"\nslice = "interval + 1h"', "`slice` is"),
        ('dag = "d"\ntask = "t"\nslice = "partition_key day"', "`slice` is"),
        ('dag = "d"\ntask = "t"\nslice = "interval %Y"', "`slice` is"),
    ],
)
def test_a_job_names_its_task_in_one_way(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, lines)
