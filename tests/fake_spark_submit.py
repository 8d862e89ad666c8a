"""A spark-submit without Spark: takes its options, refuses others, and does run specs itself."""

from __future__ import annotations

import argparse
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Run as a file: the folder above holds the package `tests`.
sys.path.insert(0, str(Path(__file__).parents[1]))

from spark_runtime.application import Channel, Host
from spark_runtime.output import by_thread
from tests import fake_worker

OPTIONS = (
    "--master --deploy-mode --name --packages --repositories --jars --py-files --files --archives"
)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in OPTIONS.split():
        parser.add_argument(option, default="")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("main", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    assert all("=" in setting for setting in options.conf)
    assert "spark_runtime" in options.main.read_text()
    names = [
        name for file in options.py_files.split(",") for name in zipfile.ZipFile(file).namelist()
    ]
    assert "spark_runtime/__main__.py" in names
    assert all(Path(jar).exists() for jar in options.jars.split(",") if jar)
    command, flag, path = options.arguments
    if command == "application":
        assert flag == "--folder"
        serve(Path(path))
        return 0
    assert (command, flag) == ("run", "--spec")
    spec = json.loads(Path(path).read_text())
    return int(fake_worker.run(spec, Path.cwd() / "journal") != "succeeded")


def serve(folder: Path) -> None:
    """Answer requests as a warm application does, by its own channel."""
    if message := os.environ.get("FAKE_WORKER_MISSING"):
        sys.exit(message)
    channel = Channel(folder)
    with channel.take_output(), by_thread():
        Fake(channel).serve()


class Fake(Host):
    """Does run specs without Spark."""

    def answer(self, request: Mapping[str, Any], seat: int) -> Mapping[str, Any]:
        """Do the run spec of a request."""
        spec = json.loads(Path(request["spec"]).read_text())
        state = fake_worker.run(spec, Path.cwd() / "journal")
        return {"op": "finished", "id": request["id"], "state": state}


sys.exit(main())
