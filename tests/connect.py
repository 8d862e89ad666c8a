"""A real Spark Connect server for tests, stopped by its process group."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lineage_backfill.engines.attempt import kill_group
from spark_runtime.session import DRIVER_CONF, find_jars

_STARTS = 90  # seconds


@dataclass
class Server:
    """A server and its address."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End it at once."""
        kill_group(self.process.pid)
        self.process.wait()


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def server(
    folder: Path, conf: Mapping[str, str] | None = None, *, port: int | None = None
) -> Iterator[Server]:
    """Start a server with Delta on this machine, as its documentation says."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = Path(found.origin).parent
    port = port or free_port()
    settings = {
        **DRIVER_CONF,
        "spark.jars": ",".join(map(str, find_jars())),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **(conf or {}),
    }
    command = [
        str(home / "bin" / "spark-submit"),
        *("--master", settings.pop("spark.master", "local[2]")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(f"--conf={name}={text}" for name, text in settings.items()),
        "spark-internal",
    ]
    log = folder / f"connect-{port}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("SPARK_CONNECT_MODE_ENABLED", None)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(process, port, log)
        yield Server(f"sc://127.0.0.1:{port}", process, log)
    finally:
        kill_group(process.pid)
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _STARTS
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the Spark Connect server did not start:\n{log.read_text()[-2000:]}")
