"""The fake Marquez is held to what real servers answered, as far as our source looks at it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.marquez_replay import VERSIONS, body_of, load, scenarios, stages
from tests.fake_marquez import FakeMarquez

_API = "/api/v1/"
#: What the fake does not do: parents that rename jobs, symlinks, renaming, namespaces that break.
BEYOND = {
    "dataset_symlinks",
    "events_without_run",
    "parent_facet.2_twin",
    "parent_facet.3_kinds",
    "poisoned_namespace.2_after_bad_output",
    "renamed_job.2_renamed",
    "renamed_job.3_event_under_old_name",
    "spark_listener",
}
#: Recorded for requests that our source does not send.
OTHER_REQUESTS = {"errors", "event_paging", "paging.2_moved"}
#: Whose names Marquez cannot tell apart in the id of a node.
ODD_NAMES = "ambiguous_names"


@pytest.mark.parametrize(
    "scenario", [name for name in scenarios() if name not in BEYOND | OTHER_REQUESTS]
)
def test_the_fake_answers_as_the_real_servers(scenario: str) -> None:
    fake = FakeMarquez()
    for stage in stages(VERSIONS[1], scenario):
        for write in stage["writes"]:
            if write["method"] == "DELETE":
                fake.delete(write["path"].removeprefix(_API))
            elif write["status"] in (201, 400):
                assert fake.post(stage["events"][write["event"]]) == write["status"]
    document = load(VERSIONS[1], scenario)
    compared = 0
    for one in document["exchanges"]:
        path, query, status = one["path"].removeprefix(_API), one["query"], one["status"]
        if _is_asked(path, query) and not (scenario == ODD_NAMES and path == "lineage"):
            compared += 1
            real = _seen(path, body_of(document, one)) if status == 200 else None
            answered, body = fake.answer(path, query)
            ours = _seen(path, body) if answered == 200 else None
            assert (path, query, answered, ours) == (path, query, status, real)
    assert compared


def _is_asked(path: str, query: dict[str, str]) -> bool:
    """Return whether it is a request of the form that the source uses."""
    match path.split("/"):
        case ["lineage"]:
            return query["nodeId"].startswith("job:") and query.get("depth", "").isdigit()
        case ["events", "lineage"]:
            return query.keys() == {"after", "before", "sortDirection", "limit", "offset"}
        case ["search"]:
            return query.keys() == {"q", "filter", "limit"} and query["q"] == "%"
        case ["namespaces"] | ["namespaces", _, "jobs", _, "runs"]:
            return query.keys() == {"limit", "offset"}
        case ["namespaces", _, "jobs" | "datasets", _, "versions"]:
            return query.keys() == {"limit", "offset"}
        case ["namespaces", _, "jobs" | "datasets", name]:
            return bool(name)
        case ["jobs", "runs", _]:
            return True
    return False


def _seen(path: str, body: Any) -> Any:
    """Return the part of an answer that the source looks at, without its order."""
    match path.split("/"):
        case ["lineage"]:
            return sorted(
                (node["id"], _ends(node, "inEdges"), _ends(node, "outEdges"))
                for node in body["graph"]
            )
        case ["events", "lineage"]:
            return [event["run"]["runId"] for event in body["events"]], body["totalCount"]
        case ["search"]:
            return _names(body["results"])
        case ["namespaces"]:
            return sorted((row["name"], row["isHidden"]) for row in body["namespaces"])
        case [*_, "runs"]:
            return [_run(run) for run in body["runs"]]
        case ["jobs", "runs", _]:
            return _run(body)
        case [*_, "jobs", _, "versions"]:
            rows = [row for row in body["versions"] if row["latestRun"] is None]
            return sorted((_names(row["inputs"]), _names(row["outputs"])) for row in rows)
        case [*_, "versions"]:
            told = [row for row in body["versions"] if row["createdByRun"] is None]
            return sorted(
                (row["createdAt"][:19], sorted(row["facets"])) for row in told if row["facets"]
            )
        case [*_, "datasets", _]:
            return body["name"]
    return body["name"], _names(body["inputs"]), _names(body["outputs"])


def _ends(node: Any, side: str) -> list[tuple[str, str]]:
    return sorted((edge["origin"], edge["destination"]) for edge in node[side])


def _names(rows: Any) -> list[tuple[str, str]]:
    return sorted((row["namespace"], row["name"]) for row in rows)


def _run(run: Any) -> Any:
    sides = (run["inputDatasetVersions"], run["outputDatasetVersions"])
    named = [_names(version["datasetVersionId"] for version in side) for side in sides]
    return run["id"], run["state"], named
