"""Lineage leaves in whole lines, and no endpoint, however ill, holds a run up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from openlineage.client.facet_v2 import (
    base_subset_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    schema_dataset,
)
from openlineage.client.serde import Serde

from lineage_backfill.engines.spark.shipping import pack_runtime
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import RunSpec
from spark_runtime.emit import lineage, outbox
from spark_runtime.emit.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.emit.outbox import Sent, replay
from spark_runtime.errors import EndpointError, Stopped
from spark_runtime.tables.state import TableState

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
NESTED = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": {"type": "array", "elementType": "long"}},
        {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "date"}},
    ],
}


def emit(run: RunSpec, *, state: TableState | None = None, fail: str | None = None) -> None:
    inputs = [InputSeen(spec=spec, state=state) for spec in run.inputs]
    outputs = [OutputSeen(spec=spec, state=state) for spec in run.outputs]
    emitter = Emitter(run, NOW)
    emitter.start(inputs, outputs)
    if fail is None:
        emitter.complete(inputs, outputs)
    else:
        emitter.fail(inputs, outputs, fail)


def lines(document: dict[str, Any]) -> list[dict[str, Any]]:
    files = Path(document["lineage"]["outbox"]).glob("*.ndjson")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_both_events_name_everything(document: dict[str, Any]) -> None:
    state = TableState(version=7, schema={"fields": [{"name": "x", "type": NESTED}]})
    emit(parse_spec(document), state=state)
    start, complete = lines(document)
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    identity = uuid.UUID(start["run"]["runId"])
    assert (identity.version, identity.variant) == (7, uuid.RFC_4122)
    assert identity.int >> 80 == int(NOW.timestamp() * 1000)
    for event in (start, complete):
        assert [d["name"] for d in event["inputs"]] == ["hours", "names"]
        (written,) = event["outputs"]
        condition = written["outputFacets"]["subset"]["outputCondition"]
        assert condition["partitions"] == [
            {"dimensions": {"day": "2024-01-01"}, "identifier": "2024-01-01"}
        ]
        assert "subset" not in event["inputs"][1].get("inputFacets", {})
        assert written["facets"]["version"]["datasetVersion"] == "7"
        (field,) = written["facets"]["schema"]["fields"]
        assert field["type"] == "struct<a:array<long>,m:map<string,date>>"
        assert event["run"]["facets"]["lineageBackfill_run"]["keys"] == ["2024-01-01"]
        assert event["run"]["facets"]["nominalTime"]["nominalEndTime"] == "2024-01-02T05:00:00Z"
        assert "parent" not in event["run"]["facets"]


def test_partitioning_facets_go_to_the_job_and_to_each_dataset(document: dict[str, Any]) -> None:
    document["lineage"]["facets"] = {
        "job": {"partitioning": {"grain": "day"}},
        "datasets": [
            {"dataset": {"namespace": "n", "name": "hours"}, "partitioning": {"grain": "hour"}}
        ],
    }
    emit(parse_spec(document))
    for event in lines(document):
        assert event["job"]["facets"]["lineageBackfill_partitioning"]["grain"] == "day"
        hours, names = event["inputs"]
        assert hours["facets"]["lineageBackfill_partitioning"]["grain"] == "hour"
        assert "lineageBackfill_partitioning" not in names["facets"]


def test_a_failure_says_why(document: dict[str, Any]) -> None:
    emit(parse_spec(document), fail="no such day")
    assert lines(document)[1]["run"]["facets"]["errorMessage"]["message"] == "no such day"


def test_a_run_without_addresses_emits_nothing(document: dict[str, Any], tmp_path: Path) -> None:
    document["lineage"] = {}
    emit(parse_spec(document))
    assert list(tmp_path.iterdir()) == []


def test_an_outbox_that_cannot_be_written_is_no_error(
    document: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    document["lineage"]["outbox"] = str(tmp_path / "file" / "outbox")
    emit(parse_spec(document))
    assert "is lost" in caplog.text


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it takes; answers with the first of `answers`, else takes it."""

    received: ClassVar[list[dict[str, Any]]] = []
    answers: ClassVar[list[int]] = []
    late: ClassVar[float] = 0
    #: Clear while it keeps its answers back.
    answering: ClassVar[threading.Event] = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.answers.pop(0) if self.answers else 201
        if answer == 201:
            key = self.headers.get("Authorization")
            self.received.append({"path": self.path, "key": key, **json.loads(body)})
        time.sleep(self.late)
        self.answering.wait(60)
        self.send_response(answer)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Be quiet."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Receiver.received, Receiver.answers = [], []
    Receiver.answering.set()
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_events_are_sent_in_order_before_the_run_ends(
    document: dict[str, Any], endpoint: str
) -> None:
    document["lineage"]["url"] = endpoint
    emit(parse_spec(document))
    assert sent(2) == ["START", "COMPLETE"]
    assert {event["path"] for event in Receiver.received} == {"/api/v1/lineage"}
    assert [event["eventType"] for event in lines(document)] == ["START", "COMPLETE"]


def test_an_endpoint_that_is_dead_or_hangs_costs_less_than_a_second(
    document: dict[str, Any],
) -> None:
    emit(parse_spec(document))  # what is imported once does not count
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        for url in ("http://127.0.0.1:9", f"http://127.0.0.1:{port}"):
            document["lineage"]["url"] = url
            started = time.monotonic()
            emit(parse_spec(document))
            assert time.monotonic() - started < 1
    assert len(lines(document)) == 6


def kinds() -> list[str]:
    return [event["eventType"] for event in Receiver.received]


def sent(number: int) -> list[str]:
    """The events that have arrived, once there are so many: no run waits long for its own."""
    for _ in range(200):
        if len(Receiver.received) >= number:
            break
        time.sleep(0.1)
    return kinds()


def test_what_was_not_sent_is_sent_later_in_order_and_once(
    document: dict[str, Any], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(document["lineage"]["outbox"])
    emit(parse_spec(document))
    emit(parse_spec({**document, "token": "t-2"}), fail="no such day")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    assert replay(folder, endpoint) == Sent(now=4)
    assert kinds() == ["START", "COMPLETE", "START", "FAIL"]
    assert {event["key"] for event in Receiver.received} == {"Bearer secret"}
    assert replay(folder, endpoint) == Sent(before=4)
    assert len(Receiver.received) == 4
    with pytest.raises(EndpointError, match="cannot be reached"):
        replay(folder, "http://127.0.0.1:9")  # another address has had nothing yet
    assert "secret" not in "".join(path.read_text() for path in folder.iterdir())


@pytest.mark.parametrize(
    ("answers", "sent", "taken"),
    [
        ([422], Sent(now=1, refused=1), ["COMPLETE"]),  # refused for good: passed over
        ([500], Sent(now=2), ["START", "COMPLETE"]),  # Marquez, once in a while
        ([500, 500], None, []),
        ([201, 401], None, ["START"]),
    ],
)
def test_an_endpoint_that_does_not_take_everything(
    document: dict[str, Any],
    endpoint: str,
    answers: list[int],
    sent: Sent | None,
    taken: list[str],
) -> None:
    folder = Path(document["lineage"]["outbox"])
    emit(parse_spec(document))
    Receiver.answers.extend(answers)
    if sent is None:
        with pytest.raises(EndpointError, match=f"answers {answers[-1]}"):
            replay(folder, endpoint)
    else:
        assert replay(folder, endpoint) == sent
    assert kinds() == taken
    replay(folder, endpoint)
    # Nothing is lost, whatever it took.
    assert kinds() == ["START", "COMPLETE"] if sent is None else taken


def test_an_event_without_an_answer_is_sent_again(
    document: dict[str, Any], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(document["lineage"]["outbox"])
    emit(parse_spec(document))
    Receiver.answering.clear()
    monkeypatch.setattr(outbox, "TIMEOUT_OF_REPLAY", 0.2)
    with pytest.raises(EndpointError, match=r"took longer than 0\.2 s"):
        replay(folder, endpoint)
    assert sent(1) == ["START"]
    Receiver.answering.set()
    monkeypatch.undo()
    replay(folder, endpoint)
    assert kinds() == ["START", "START", "COMPLETE"]
    assert replay(folder, endpoint) == Sent(before=2)


def test_a_server_too_slow_for_a_run_gets_all_events_at_once_later(
    document: dict[str, Any], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit(parse_spec(document))
    monkeypatch.setattr(Receiver, "late", 0.4)
    monkeypatch.setattr(outbox, "TIMEOUT", 0.2)
    assert replay(Path(document["lineage"]["outbox"]), endpoint) == Sent(now=2)
    assert kinds() == ["START", "COMPLETE"]


def test_an_event_that_is_being_written_is_left_for_later(
    document: dict[str, Any], endpoint: str
) -> None:
    folder = Path(document["lineage"]["outbox"])
    folder.mkdir()
    (folder / "torn.ndjson").write_text('{"eventType": "START"}\n{"eventType": "COMP')
    assert replay(folder, endpoint) == Sent(now=1)
    with (folder / "torn.ndjson").open("a") as file:
        file.write('LETE"}\n')
    assert replay(folder, endpoint) == Sent(now=1, before=1)
    assert kinds() == ["START", "COMPLETE"]


def test_an_address_is_one_with_and_without_a_slash_at_its_end(
    document: dict[str, Any], endpoint: str
) -> None:
    emit(parse_spec(document))
    folder = Path(document["lineage"]["outbox"])
    assert replay(folder, f"{endpoint}/") == Sent(now=2)
    assert replay(folder, endpoint) == Sent(before=2)


FULL = """
import resource, sys
from pathlib import Path
from spark_runtime.emit.outbox import append

file = Path(sys.argv[1])
append(file, "first")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
try:
    append(file, "too long for the room that is left")
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
append(file, "last")
"""


def test_an_event_that_finds_no_room_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "outbox.ndjson"
    command = [sys.executable, "-c", FULL, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "No space left on device\n"
    assert file.read_text() == "first\nlast\n"


def test_a_run_that_follows_on_a_failure_sends_what_was_left(
    document: dict[str, Any], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.emit.outbox.PAUSE", 0.0)
    document["lineage"]["url"] = endpoint
    Receiver.answers.extend([503] * 1000)
    emit(parse_spec(document))
    Receiver.answers.clear()
    emit(parse_spec({**document, "token": "t-2"}))
    assert sent(4) == ["START", "COMPLETE", "START", "COMPLETE"]


def test_a_run_that_is_stopped_is_aborted(document: dict[str, Any]) -> None:
    Emitter(parse_spec(document), NOW).abort([], [], str(Stopped(143)))
    (event,) = lines(document)
    assert event["eventType"] == "ABORT"
    assert event["run"]["facets"]["errorMessage"]["message"] == "stopped by signal 15"


def test_an_address_without_a_folder_has_an_outbox_all_the_same(
    document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    document["lineage"] = {"url": "http://127.0.0.1:9"}
    emit(parse_spec(document))
    (file,) = (tmp_path / "state" / "lineage-backfill" / "lineage").glob("*.ndjson")
    assert len(file.read_text().splitlines()) == 2


def test_the_command_replays_an_outbox(
    document: dict[str, Any], endpoint: str, tmp_path: Path
) -> None:
    emit(parse_spec(document))
    command = [sys.executable, "-m", "spark_runtime", "replay", "--project", str(tmp_path)]
    command += ["--outbox", document["lineage"]["outbox"]]
    environment = {name: os.environ[name] for name in os.environ if "LINEAGE" not in name}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        asked = [*command, *more]
        return subprocess.run(asked, capture_output=True, text=True, env=environment, check=False)

    done = run("--url", endpoint)
    assert (done.returncode, done.stdout) == (
        0,
        f"2 events sent to {endpoint}, 0 refused, 0 sent before\n",
    )
    assert kinds() == ["START", "COMPLETE"]
    nowhere = run()
    assert nowhere.returncode == 1
    assert nowhere.stderr.startswith("SpecError: no address for lineage")
    assert "EndpointError" in run("--url", "http://127.0.0.1:9").stderr


def test_runs_at_once_share_the_sender_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_of: object) -> object:
        time.sleep(0.1)
        return object()

    monkeypatch.setattr(lineage, "Sender", slow)
    monkeypatch.setattr(lineage, "_senders", {})
    found: list[object] = []
    file = tmp_path / "file"
    threads = [
        threading.Thread(target=lambda: found.append(lineage._sender(file, "http://127.0.0.1")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


ON_THE_CLUSTER_ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from datetime import UTC, datetime
from pathlib import Path
import spark_runtime.__main__
from spark_runtime.emit.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.emit.outbox import replay
from spark_runtime.spec import load_spec
spec = load_spec(sys.argv[2])
emitter = Emitter(spec, datetime(2024, 5, 1, tzinfo=UTC))
seen = [InputSeen(spec=one, state=None) for one in spec.inputs]
emitter.start(seen, [OutputSeen(spec=one, state=None) for one in spec.outputs])
print(replay(Path(spec.lineage.outbox), sys.argv[3]).now)
"""


def test_what_is_shipped_emits_and_sends_in_a_bare_interpreter(
    document: dict[str, Any], tmp_path: Path, endpoint: str
) -> None:
    """Neither openlineage nor any other package is installed there."""
    (tmp_path / "spec.json").write_text(json.dumps(document))
    archive = pack_runtime(tmp_path)
    bare = [sys.executable, "-I", "-S", "-W", "error", "-c", ON_THE_CLUSTER_ALONE]
    asked = [*bare, str(archive), str(tmp_path / "spec.json"), endpoint]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("1", "")
    (event,) = lines(document)
    assert event["inputs"][0]["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert [one["eventType"] for one in Receiver.received] == ["START"]


def test_events_are_what_the_client_of_openlineage_makes(document: dict[str, Any]) -> None:
    """Facets have the members and schemas that its classes have."""
    state = TableState(version=7, schema={"fields": [{"name": "x", "type": "long"}]})
    emit(parse_spec(document), state=state, fail="broken")
    event = lines(document)[1]
    (written,) = event["outputs"]
    condition = base_subset_dataset.PartitionSubsetCondition(
        [base_subset_dataset.Partition({"day": "2024-01-01"}, "2024-01-01")]
    )
    found = {
        **event["run"]["facets"],
        **event["job"]["facets"],
        **written["facets"],
        **written["outputFacets"],
    }
    expected = {
        "errorMessage": error_message_run.ErrorMessageRunFacet("broken", "python"),
        "jobType": job_type_job.JobTypeJobFacet("BATCH", "SPARK", jobType="JOB"),
        "version": dataset_version_dataset.DatasetVersionDatasetFacet("7"),
        "schema": schema_dataset.SchemaDatasetFacet(
            [schema_dataset.SchemaDatasetFacetFields(name="x", type="long")]
        ),
        "subset": base_subset_dataset.OutputSubsetOutputDatasetFacet(condition),
    }
    for name, facet in expected.items():
        theirs = {**Serde.to_dict(facet), "_producer": lineage.PRODUCER}
        assert found[name] == theirs, name
