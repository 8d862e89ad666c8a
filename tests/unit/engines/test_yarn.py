"""YARN's REST interface: where it is, and what its answers mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import responses

from lineage_backfill.engines.spark.yarn import Yarn, resource_manager
from lineage_backfill.errors import EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.ports import AttemptState

RM = "http://rm:8088/ws/v1/cluster"
TOKEN = "b0ac-1F"


@pytest.fixture
def web() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as web:
        yield web


def configuration(folder: Path, **files: dict[str, str]) -> dict[str, str]:
    """Write Hadoop's configuration files, and return an environment that names them."""
    for name, settings in files.items():
        items = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in settings.items()
        )
        text = f"<configuration>{items}</configuration>"
        (folder / f"{name}-site.xml").write_text(text)
    return {"HADOOP_CONF_DIR": str(folder)}


def yarn(folder: Path, **settings: str) -> Yarn:
    given = {"yarn.resourcemanager.hostname": "rm"} | {
        name.replace("__", "-").replace("_", "."): value for name, value in settings.items()
    }
    return Yarn(resource_manager(configuration(folder, yarn=given), {}))


def apps(*found: dict[str, Any]) -> dict[str, Any]:
    common = {"applicationTags": TOKEN.lower(), "finalStatus": "UNDEFINED"}
    return {"apps": {"app": [{**common, **one} for one in found]}}


def asks(web: responses.RequestsMock, body: Any, status: int = 200, rm: str = RM) -> None:
    web.get(f"{rm}/apps", json=body, status=status)
    web.get(f"{rm}/info", json={"clusterInfo": {"haState": "ACTIVE"}})


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"apps": {}}, None),
        ({"apps": None}, None),
        ({"apps": {"app": []}}, None),
        (apps({"id": "a", "state": "ACCEPTED"}), AttemptState.QUEUED),
        (apps({"id": "a", "state": "RUNNING"}), AttemptState.RUNNING),
        (apps({"id": "a", "state": "FINISHED"}), AttemptState.FAILED),
        (
            apps({"id": "a", "state": "FINISHED", "finalStatus": "SUCCEEDED"}),
            AttemptState.SUCCEEDED,
        ),
        (apps({"id": "a", "state": "KILLED", "finalStatus": "KILLED"}), AttemptState.CANCELLED),
        # Of several, one that runs counts, then one that has succeeded.
        (
            apps({"id": "a", "state": "KILLED"}, {"id": "b", "state": "RUNNING"}),
            AttemptState.RUNNING,
        ),
        (
            apps(
                {"id": "a", "state": "FAILED"},
                {"id": "b", "state": "FINISHED", "finalStatus": "SUCCEEDED"},
            ),
            AttemptState.SUCCEEDED,
        ),
        # A server that does not know the question answers with all applications.
        (apps({"id": "a", "state": "RUNNING", "applicationTags": "other"}), None),
        (apps({"id": "a", "state": "RUNNING", "applicationTags": ""}), None),
        (
            apps({"id": "a", "state": "RUNNING", "applicationTags": f"x,{TOKEN.lower()}"}),
            AttemptState.RUNNING,
        ),
    ],
)
def test_the_state_of_the_application_with_a_tag(
    tmp_path: Path, web: responses.RequestsMock, answer: Any, state: AttemptState | None
) -> None:
    asks(web, answer)
    assert yarn(tmp_path).look(TOKEN) is state
    assert web.calls[0].request.url == f"{RM}/apps?applicationTags={TOKEN}"


def test_what_yarn_says_of_an_end_comes_with_the_state(
    tmp_path: Path, web: responses.RequestsMock
) -> None:
    said = "User application exited with status 137"
    asks(web, apps({"id": "a", "state": "FINISHED", "diagnostics": said}))
    assert yarn(tmp_path).reason(TOKEN) == said
    # Of several, one that has not ended.
    other = {"id": "b", "state": "KILLED", "diagnostics": "killed by user"}
    ours = {"id": "a", "state": "RUNNING", "diagnostics": said}
    web.replace("GET", f"{RM}/apps", json=apps(ours, other))
    assert yarn(tmp_path).reason(TOKEN) == said


def test_an_application_that_another_machine_submitted_has_its_name(
    tmp_path: Path, web: responses.RequestsMock
) -> None:
    asks(web, apps({"id": "application_1_0002", "state": "RUNNING"}))
    cluster = yarn(tmp_path)
    assert cluster.name(TOKEN) == "application_1_0002"
    assert len(web.calls) == 1
    web.replace("GET", f"{RM}/apps", status=500)
    assert cluster.name(TOKEN) is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {}),
        (403, {}),
        (404, {}),
        (302, {}),
        (500, {}),
        (200, {"about": "something else"}),
        (200, ["a list"]),
        (200, {"apps": {"app": [{"id": "no state"}]}}),
        (200, "<html>"),
    ],
)
def test_what_rest_does_not_tell_is_unknown_and_not_lost(
    tmp_path: Path, web: responses.RequestsMock, status: int, body: Any
) -> None:
    web.get(f"{RM}/apps", body=body if body == "<html>" else json.dumps(body), status=status)
    with pytest.raises(ServiceUnreachableError, match="YARN does not answer"):
        yarn(tmp_path).look(TOKEN)


@pytest.mark.parametrize("info", [{"clusterInfo": {"haState": "INITIALIZING"}}, {}, []])
def test_one_that_has_not_recovered_its_applications_yet_does_not_know_them(
    tmp_path: Path, web: responses.RequestsMock, info: Any
) -> None:
    web.get(f"{RM}/apps", json={"apps": {}})
    web.get(f"{RM}/info", json=info)
    with pytest.raises(ServiceUnreachableError):
        yarn(tmp_path).look(TOKEN)


def test_what_runs_is_killed_and_no_other(tmp_path: Path, web: responses.RequestsMock) -> None:
    asks(
        web,
        apps(
            {"id": "a", "state": "RUNNING"},
            {"id": "b", "state": "FAILED"},
            {"id": "c", "state": "RUNNING", "applicationTags": "other"},
        ),
    )
    web.put(f"{RM}/apps/a/state", json={"state": "RUNNING"}, status=202)
    yarn(tmp_path).stop(TOKEN)
    assert [call.request.method for call in web.calls] == ["GET", "PUT"]
    assert web.calls[1].request.body == b'{"state": "KILLED"}'


def test_a_cluster_without_open_rest_is_refused(tmp_path: Path) -> None:
    cluster = Yarn(None)
    with pytest.raises(EnvironmentMissingError, match="no open REST interface") as no:
        cluster.check({})
    assert "yarn.resourcemanager.webapp.address" in no.value.hint
    with pytest.raises(ServiceUnreachableError):
        cluster.look(TOKEN)
    assert cluster.name(TOKEN) is None


def test_the_driver_s_log_is_named(tmp_path: Path, web: responses.RequestsMock) -> None:
    where = "http://node:8042/node/containerlogs/container_1_2/me"
    asks(web, apps({"id": "a", "state": "RUNNING", "amContainerLogs": where}))
    assert yarn(tmp_path).log_place(TOKEN) == where


def test_of_two_resource_managers_the_active_one_is_asked_and_then_first(
    tmp_path: Path, web: responses.RequestsMock
) -> None:
    web.get("http://one:8088/ws/v1/cluster/apps", status=307, headers={"Location": "http://two/"})
    asks(web, {"apps": {}}, rm="http://two:9000/ws/v1/cluster")
    cluster = yarn(
        tmp_path,
        yarn_resourcemanager_ha_enabled="true",
        yarn_resourcemanager_ha_rm__ids="rm1, rm2",
        yarn_resourcemanager_hostname_rm1="one",
        yarn_resourcemanager_webapp_address_rm2="two:9000",
    )
    cluster.look(TOKEN)
    cluster.look(TOKEN)
    assert [str(call.request.url).split("/")[2] for call in web.calls] == [
        "one:8088",
        *["two:9000"] * 6,
    ]


@pytest.mark.parametrize(
    ("core", "site", "conf", "address"),
    [
        ({}, {"yarn.resourcemanager.hostname": "rm"}, {}, "http://rm:8088"),
        (
            {"my.domain": "example.org"},
            {
                "yarn.resourcemanager.hostname": "rm.${my.domain}",
                "yarn.resourcemanager.webapp.address": "${yarn.resourcemanager.hostname}:80",
            },
            {},
            "http://rm.example.org:80",
        ),
        (
            {},
            {"yarn.http.policy": "HTTPS_ONLY", "yarn.resourcemanager.hostname": "rm"},
            {},
            "https://rm:8090",
        ),
        (
            {},
            {"yarn.resourcemanager.hostname": "rm"},
            {"spark.hadoop.yarn.resourcemanager.webapp.address": "other:1"},
            "http://other:1",
        ),
        # It names none, or shows and stops nothing for somebody it does not know.
        ({}, {}, {}, None),
        (
            {"hadoop.security.authentication": "kerberos"},
            {"yarn.resourcemanager.hostname": "rm"},
            {},
            None,
        ),
        ({}, {"yarn.acl.enable": "true", "yarn.resourcemanager.hostname": "rm"}, {}, None),
    ],
)
def test_hadoops_own_configuration_says_where_it_is(
    tmp_path: Path,
    web: responses.RequestsMock,
    core: dict[str, str],
    site: dict[str, str],
    conf: dict[str, str],
    address: str | None,
) -> None:
    environment = configuration(tmp_path, core=core, yarn=site)
    manager = resource_manager(environment, conf)
    if address is None:
        assert manager is None
        return
    assert manager is not None
    asks(web, {"apps": {}}, rm=f"{address}/ws/v1/cluster")
    assert manager.find(TOKEN) == []


def test_a_broken_configuration_names_no_address(tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration><property>")
    assert resource_manager({"YARN_CONF_DIR": str(tmp_path)}, {}) is None
    assert resource_manager({"YARN_CONF_DIR": str(tmp_path / "none")}, {}) is None
    assert resource_manager({}, {}) is None
