"""Records what openlineage-python sends by each of its transports.

Usage: python scripts/producers/record_python.py FOLDER
"""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any
from unittest.mock import patch
from uuid import NAMESPACE_URL, uuid5

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    JobEvent,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)

#: Jobs with what they read and write; the last one is declared by a job event.
JOBS = (("load", "orders_raw", "orders"), ("sum", "orders", "totals"), ("mail", "totals", "mails"))
STORE = "s3://shop"
PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/main/client/python"
BEGIN = datetime(2024, 6, 1, tzinfo=UTC)


def emit(config: Mapping[str, Any]) -> None:
    """Send the start and the end of each run, and a job event."""
    client = OpenLineageClient(config={"transport": dict(config)})
    for number, (name, read, write) in enumerate(JOBS):
        job = Job(namespace="shop", name=name)
        sides: dict[str, Any] = {
            "inputs": [InputDataset(namespace=STORE, name=read)],
            "outputs": [OutputDataset(namespace=STORE, name=write)],
        }
        at = BEGIN + timedelta(minutes=number)
        if name == JOBS[-1][0]:
            client.emit(JobEvent(eventTime=at.isoformat(), job=job, producer=PRODUCER, **sides))
            continue
        run = Run(runId=str(uuid5(NAMESPACE_URL, name)))
        for kind, seconds in ((RunState.START, 0), (RunState.COMPLETE, 5)):
            client.emit(
                RunEvent(
                    eventType=kind,
                    eventTime=(at + timedelta(seconds=seconds)).isoformat(),
                    run=run,
                    job=job,
                    producer=PRODUCER,
                    **(sides if kind is RunState.COMPLETE else {}),
                )
            )
    client.close(timeout=10)


@contextmanager
def receiver(file: Path) -> Iterator[str]:
    """Write each body that is posted as a line."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with file.open("ab") as stream:
                stream.write(body + b"\n")
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def queue(file: Path) -> Iterator[None]:
    """Write each message that the Kafka transport hands to its producer as a line: no broker."""

    class Producer:
        def __init__(self, _: Mapping[str, str]) -> None:
            """Connect to nothing."""

        def produce(self, *, topic: str, key: str, value: bytes, **_: Any) -> None:
            assert topic
            assert key
            with file.open("ab") as stream:
                stream.write(value + b"\n")

        def flush(self, timeout: float) -> int:
            return 0

    client = ModuleType("confluent_kafka")
    vars(client)["Producer"] = Producer
    with patch.dict(sys.modules, {"confluent_kafka": client}):
        yield


def main(folder: Path) -> None:
    """Record each transport in a folder or file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("file", "single", "composite_file"):
        (folder / name).mkdir(exist_ok=True)
    emit({"type": "file", "log_file_path": str(folder / "file/events.ndjson"), "append": True})
    emit({"type": "file", "log_file_path": str(folder / "single/event")})
    with receiver(folder / "http.ndjson") as url:
        emit({"type": "http", "url": url, "compression": "gzip"})
    with receiver(folder / "async.ndjson") as url:
        emit({"type": "async_http", "url": url})
    beside = {"type": "file", "log_file_path": str(folder / "composite_file/events.ndjson")}
    with receiver(folder / "composite.ndjson") as url:
        transports = {"server": {"type": "http", "url": url}, "copy": {**beside, "append": True}}
        emit({"type": "composite", "transports": transports, "continue_on_failure": True})
    with queue(folder / "kafka.ndjson"):
        emit({"type": "kafka", "topic": "lineage", "config": {"bootstrap.servers": "none"}})
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("openlineage").addHandler(handler)
    logging.getLogger("openlineage").setLevel(logging.INFO)
    with contextlib.redirect_stdout(io.StringIO()):
        emit({"type": "console"})
    (folder / "console.log").write_text(log.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
