"""The steps of an attempt in Airflow follow from what it shows; what does not fit is refused."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import responses
from msgspec import structs

from lineage_backfill.engines import create_engine
from lineage_backfill.engines.airflow.api import AirflowApi, AirflowSettings
from lineage_backfill.engines.airflow.slices import Slice, slice_for
from lineage_backfill.engines.airflow.step import Act, DagRun, TaskView, decide
from lineage_backfill.errors import (
    ConfigError,
    EngineError,
    EngineRefusalError,
    ServiceUnreachableError,
)
from lineage_backfill.partitions.grid import cron_grid
from lineage_backfill.project.declarations import DagTasks
from lineage_backfill.workspace.configuration import load_project
from lineage_backfill.workspace.environment import current_secret

ONE = DagTasks(dag="d", tasks=("t",))
URL = "http://127.0.0.1:1"


def client(**login: Any) -> AirflowApi:
    return AirflowApi(AirflowSettings(url=URL, **login))


def run(state: str = "running") -> dict[str, Any]:
    return {"dag_id": "d", "dag_run_id": "scheduled__1", "state": state}


def view(state: str | None, tries: int = 1, *, at: int = -1) -> TaskView:
    place: dict[str, Any] = {"dag_id": "d", "dag_run_id": "scheduled__1", "map_index": at}
    return TaskView(
        **place, task_id="t", state=state, try_number=tries, start_date=None, end_date=None
    )


FRESH: dict[str, Any] = {"tries": {"t": 1}}
BEGUN: dict[str, Any] = {"tries": {"t": 2}, "is_ours": True}
ACTED: dict[str, Any] = {**BEGUN, "has_acted": True}
PARTS: dict[str, Any] = {"tries": {"t[0]": 1, "t[1]": 1}, "is_ours": True}


@pytest.mark.parametrize(
    ("sentence", "found", "shown", "mark", "act"),
    [
        ("there is no run", None, [], FRESH, Act.CREATE),
        ("it ended before", run("success"), [view("success")], FRESH, Act.CLEAR),
        ("it failed before", run("failed"), [view("failed")], FRESH, Act.CLEAR),
        ("its task ended, others run", run(), [view("success")], FRESH, Act.CLEAR),
        ("it runs", run(), [view("running")], FRESH, Act.WAIT),
        ("it began too early", run(), [view("running")], FRESH, Act.WAIT),
        ("it waits", run("queued"), [view(None)], FRESH, Act.WAIT),
        ("it is tried again by Airflow", run(), [view("up_for_retry")], FRESH, Act.WAIT),
        ("its tasks are not there yet", run(), [], FRESH, Act.WAIT),
        ("its tasks never were there", run("success"), [], FRESH, None),
        ("it began later", run("success"), [view("success", 2)], FRESH, Act.SUCCEED),
        ("it failed later", run("failed"), [view("failed", 2)], FRESH, Act.CLEAR),
        ("it is about to be cleared", run("success"), [view("success", 2)], BEGUN, Act.CLEAR),
        ("it was cleared", run("queued"), [view(None, 2)], BEGUN, Act.WAIT),
        ("it was cleared while the run ended", run("success"), [view(None, 2)], ACTED, Act.CLEAR),
        ("it was cleared and is done", run("success"), [view("success", 3)], BEGUN, Act.SUCCEED),
        ("it was cleared and failed", run("failed"), [view("failed", 3)], BEGUN, None),
        ("it was skipped", run("success"), [view("skipped", 2)], ACTED, None),
        ("it was marked by hand", run("success"), [view("success", 2)], ACTED, None),
        (
            "an instance is still missing",
            run("success"),
            [view("success", 2, at=0), view("success", 1, at=1)],
            PARTS,
            Act.CLEAR,
        ),
        (
            "a mapped task skips some and has new ones",
            run("success"),
            [view("success", 2, at=0), view("skipped", 0, at=1), view("success", 1, at=2)],
            PARTS,
            Act.SUCCEED,
        ),
    ],
)
def test_the_next_step_where(
    sentence: str,
    found: dict[str, Any] | None,
    shown: list[TaskView],
    mark: dict[str, Any],
    act: Act | None,
) -> None:
    shown_run = None if found is None else DagRun(found, shown)
    found_act = decide(shown_run, ONE.tasks, **mark)
    assert isinstance(found_act, str) if act is None else found_act is act


@pytest.mark.parametrize(
    ("state", "seconds", "is_late"),
    [
        ("running", 1, True),
        ("running", -1, False),
        ("success", 0, False),
        ("queued", -1, True),  # its try before began then
        ("scheduled", None, True),
        (None, -1, False),  # cleared: Airflow has not counted its next try yet
        (None, None, False),
    ],
)
def test_a_try_is_late_if_it_begins_after_the_inputs_were_written(
    state: str | None, seconds: int | None, is_late: bool
) -> None:
    since = datetime(2026, 11, 23, 12, tzinfo=UTC)
    at = None if seconds is None else since + timedelta(seconds=seconds)
    assert structs.replace(view(state), start_date=at).is_late(since) is is_late


def test_why_an_attempt_fails() -> None:
    marked = decide(DagRun(run("success"), [view("success", 2)]), ONE.tasks, **ACTED)
    assert marked == "task t was marked a success and has not run"
    above = decide(DagRun(run("failed"), [view("upstream_failed", 2)]), ONE.tasks, **ACTED)
    assert above == "task t is upstream_failed after try 2"


def spec(**more: Any) -> dict[str, Any]:
    key = {"key": "2026-11-21", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"}
    return {"job": {"name": "j"}, "keys": [{**key, **more}]}


DAY, NEXT = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
LATER = NEXT + timedelta(hours=2)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("interval", (DAY, NEXT, None)),
        ("logical_date", (DAY, DAY, None)),
        ("logical_date + 26h", (LATER, LATER, None)),
        ("partition_key", (None, None, "2026-11-21")),
        ("partition_key %d.%m.%Y", (None, None, "21.11.2026")),
        ("conf", (None, None, None)),
        ("asset", (None, None, None)),
    ],
)
def test_a_key_is_a_slice(kind: str, expected: tuple[Any, ...]) -> None:
    found = slice_for(kind, spec(), "UTC", None)
    assert (found.start, found.end, found.key) == expected


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
        slice_for(kind, given, "UTC", None)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 0 * * *", ("2026-11-21T00", "2026-11-22T00")),
        ("0 9 * * *", ("2026-11-21T09", "2026-11-22T09")),
        ("0 15 * * *", ("2026-11-20T15", "2026-11-21T15")),
        ("0 12 * * *", None),
        ("0 * * * *", None),
        ("0 0 * * 1", None),
    ],
)
def test_the_interval_of_a_key_covers_most_of_it_and_little_else(
    cron: str, expected: tuple[str, str] | None
) -> None:
    grid = cron_grid(cron, "UTC")
    if expected is None:
        with pytest.raises(EngineError, match="no data interval of the DAG is for the key"):
            slice_for("interval", spec(), "UTC", grid)
    else:
        found = slice_for("interval", spec(), "UTC", grid)
        assert tuple(f"{end:%Y-%m-%dT%H}" for end in (found.start, found.end) if end) == expected


def test_hours_of_a_repeated_hour_keep_their_own_intervals() -> None:
    first = spec(key="k", start="2026-10-25T00:00:00Z", end="2026-10-25T01:00:00Z")
    zone = "Europe/Berlin"
    found = slice_for("interval", first, zone, cron_grid("0 * * * *", zone))
    assert found.start == datetime(2026, 10, 25, tzinfo=UTC)
    later = slice_for("logical_date + 1h", first, zone, None)
    assert later.start == datetime(2026, 10, 25, 1, tzinfo=UTC)


def test_a_run_is_found_by_overlap() -> None:
    wanted = slice_for("interval", spec(), "UTC", None)

    def shown(start: str, end: str, logical: str) -> dict[str, Any]:
        ends = {"data_interval_start": f"{start}:00:00Z", "data_interval_end": f"{end}:00:00Z"}
        return {**ends, "logical_date": f"{logical}:00:00Z"}

    by_hand = shown("2026-11-21T02", "2026-11-22T02", "2026-11-22T10")
    assert wanted.fits(by_hand)
    assert not wanted.fits(shown("2026-11-21T02", "2026-11-21T02", "2026-11-21T02"))
    assert not wanted.fits(shown("2026-11-20T20", "2026-11-21T10", "2026-11-21T00"))
    assert not wanted.fits(dict.fromkeys(("data_interval_start", "data_interval_end")))


def test_runs_of_a_backfill_share_their_id_and_those_by_conf_do_not() -> None:
    given = {**spec(), "token": "tok", "backfill_id": "b-1", "store": "0123456789abcdef"}
    wanted = slice_for("interval", given, "UTC", None)
    assert wanted.run_id(given) == "lb__0123456789ab.b-1__2026-11-21T00:00:00Z"
    assert Slice(kind="conf", label="x").run_id(given) == "lb__tok"


@pytest.mark.parametrize(
    ("status", "body", "named"),
    [
        (404, "Airflow 404", "no version"),
        (200, "<html>welcome</html>", "no version"),
        (200, '{"version": "4.0.0"}', "4.0.0"),
        (200, '{"version": "3.3.2"}', ""),
    ],
)
def test_only_airflow_3_is_supported(status: int, body: str, named: str) -> None:
    with responses.RequestsMock() as server:
        server.get(f"{URL}/api/v2/version", status=status, body=body)
        api = client(username="u", password="p")
        refused = pytest.raises(EngineError, match=f"Airflow 3: /api/v2/version names {named}")
        with refused if named else nullcontext():
            api.refuse_other_versions()
        api.close()


def test_a_version_that_only_an_account_may_see_is_asked_for_with_it() -> None:
    with responses.RequestsMock() as server:
        server.get(f"{URL}/api/v2/version", status=401)
        server.post(f"{URL}/auth/token", status=201, json={"access_token": "new"})
        server.get(f"{URL}/api/v2/version", json={"version": "2.9.0"})
        api = client(username="u", password="p")
        with pytest.raises(EngineError, match=r"/api/v2/version names 2\.9\.0"):
            api.refuse_other_versions()
        api.close()


def test_a_refusal_for_want_of_rights_is_said_at_once() -> None:
    with responses.RequestsMock() as server:
        server.post(f"{URL}/api/v2/dags/d/dagRuns", status=403, json={"detail": "Forbidden"})
        api = client(token=lambda: "t")
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
        api = client(token=lambda: "t")
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
        api = client(token=lambda: "t")
        with pytest.raises(ServiceUnreachableError, match="answers 503"):
            api.post("/dags/d/dagRuns", {})
        with pytest.raises(ServiceUnreachableError, match="answers 503"):
            api.get("/version")
        assert (posted.call_count, asked.call_count) == (1, 4)
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
        api = client(token=lambda: "t")
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
        api = client(username="u", password="p")
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
    given = read(tmp_path, 'conf = { day = "{key}", n = 3 }\nwhole_dag = true')
    assert given == DagTasks(conf={"day": "{key}", "n": "3"}, whole_dag=True)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('dag = "d"', "`dag` and `task` go together"),
        ('dag = "d"\ntask = "t"\nslice = "day"', "`slice` is 'day'"),
        ('dag = "d"\ntask = "t"\nslice = "logical_date + lots"', "`slice` is"),
        ('dag = "d"\ntask = "t"\nslice = "interval + 1h"', "`slice` is"),
        ('dag = "d"\ntask = "t"\nslice = "partition_key day"', "`slice` is"),
        ('dag = "d"\ntask = "t"\nslice = "interval %Y"', "`slice` is"),
        ('conf = { day = "{ds}" }', "names {ds}, which no run has"),
    ],
)
def test_a_job_names_its_task_in_one_way(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, lines)


def test_a_token_that_rotates_is_read_again_from_a_file_or_a_command(tmp_path: Path) -> None:
    def read_token(source: object) -> str:
        return current_secret(source, base=tmp_path, place="[engines.a]")

    sources = ("file:tok", {"command": ["cat", "tok"]})
    for text in ("first-token", "second-token"):
        (tmp_path / "tok").write_text(f"{text}\n")
        assert {read_token(source).strip() for source in sources} == {text}
    with pytest.raises(ServiceUnreachableError, match="command of `token` failed"):
        read_token({"command": ["cat", "none"]})
    with pytest.raises(ConfigError, match="a reference or a command"):
        read_token({"program": "cat"})
