"""A YARN on this machine's loopback, and engines whose applications run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.e2e.test_spark_cluster import JAVA, SETTINGS, Bench

SCRIPT = Path(__file__).parents[2] / "scripts" / "yarn"
SPARK = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
LOCAL = "SPARK_LOCAL_IP"
_ENDED = ("FINISHED", "FAILED", "KILLED")

JOBS = """
import os
import time
from pathlib import Path

from pyspark.sql import functions as F

from pipeline.helper import twice
from spark_runtime import RunContext, job

HERE = Path("FOLDER")


@job(output="days", batch="range")
def days(context: RunContext):
    print(f"days of {context.keys[0].key}", flush=True)
    rows = [(str(key.key), 1) for key in context.keys]
    frame = context.spark.createDataFrame(rows, "day string, n long")
    return frame.withColumn("n", F.udf(twice, "long")("n"))


@job(output="days", batch="range")
def waits(context: RunContext):
    (HERE / f"begun-{context.keys[0].key}").touch()
    while not (HERE / "go").exists():
        time.sleep(0.1)
    return days(context)


@job(output="days", batch="range")
def dies(context: RunContext):
    print(f"days of {context.keys[0].key}", flush=True)
    os.kill(os.getpid(), 9)


@job(output="days", batch="range")
def deadly(context: RunContext):
    print(f"days of {context.keys[0].key}", flush=True)
    os._exit(3)
"""


class Yarn:
    """A YARN with its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, verb: str, *what: str) -> None:
        """Call the script that starts and stops it."""
        done = subprocess.run(
            [SCRIPT, verb, *what, self.folder], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def applications(self, tag: str = "") -> list[dict[str, Any]]:
        """Return what the ResourceManager says of applications; raises OSError."""
        address = (self.folder / "address").read_text().strip()
        query = f"?applicationTags={tag}" if tag else ""
        with urlopen(f"http://{address}/ws/v1/cluster/apps{query}", timeout=10) as answer:
            found: list[dict[str, Any]] = (json.load(answer)["apps"] or {}).get("app", [])
        return found

    def end_applications(self) -> None:
        """Kill all that run, and wait until they have ended; raises OSError."""
        address = (self.folder / "address").read_text().strip()
        while running := [one["id"] for one in self.applications() if one["state"] not in _ENDED]:
            for one in running:
                where = f"http://{address}/ws/v1/cluster/apps/{one}/state"
                json_type = {"Content-Type": "application/json"}
                urlopen(Request(where, b'{"state": "KILLED"}', json_type, method="PUT"), timeout=10)
            time.sleep(0.5)

    def settings(self, mode: str, *, program: bool = False, **more: Any) -> dict[str, Any]:
        """Return the settings of an engine; the program `yarn` is on its PATH only if asked for."""
        local = {f"spark.{where}.{LOCAL}": "127.0.0.1" for where in _ENVIRONMENTS}
        conf = {**SETTINGS["conf"], **local, "spark.executor.instances": "1"}
        conf |= {"spark.yarn.am.extraJavaOptions": JAVA, "spark.yarn.am.memory": "512m"}
        conf |= {f"spark.{one}.memoryOverhead": "256m" for one in ("driver", "executor", "yarn.am")}
        conf["spark.yarn.jars"] = f"local:{SPARK}/jars/*"  # else all are packed and sent each time
        del conf["spark.cores.max"]
        if mode == "cluster":
            del conf["spark.driver.host"]
        programs = [str(self.folder / "bin")] if program else []
        environment = {
            "HADOOP_CONF_DIR": str(self.folder / "conf"),
            LOCAL: "127.0.0.1",
            "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        }
        python = {"python": sys.executable, "master": "yarn", "deploy_mode": mode}
        return {"conf": conf, "env": environment, **python, **more}


_ENVIRONMENTS = ("yarn.appMasterEnv", "executorEnv")


def bench(yarn: Yarn, folder: Path, mode: str, **more: Any) -> Bench:
    """Return a project whose jobs run on a YARN."""
    settings = yarn.settings(mode, **more)
    del settings["master"]
    return Bench(folder, "yarn", JOBS.replace("FOLDER", str(folder)), **settings)


def wait_for(condition: Callable[[], object], seconds: float = 400) -> None:
    """Wait until something holds; an OSError counts as no."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)
