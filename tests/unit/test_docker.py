"""`docker/`: what its files promise, and its parts.

No container engine is needed, nor used: what the whole does is not known from here.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from lineage_backfill.cli.main import main
from lineage_backfill.workspace.environment import open_project

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FOOD = ROOT / "tests/data/lineage/food_delivery.json.gz"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yml").read_text(encoding="utf-8"))
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


def test_all_that_is_promised_is_there() -> None:
    images = {name: service["image"] for name, service in COMPOSE["services"].items()}
    assert images["marquez"] == "marquezproject/marquez:0.51.1"
    assert images["marquez-web"] == "marquezproject/marquez-web:0.51.1"
    assert images["database"].startswith("postgres:15.")
    ours = {name for name, image in images.items() if image.startswith("lineage-backfill:")}
    cluster = {"spark-master", "spark-worker"}
    assert ours == cluster | {"serve", "drive", "seed", "lineage-backfill"}
    assert COMPOSE["services"]["spark-worker"]["deploy"]["replicas"] > 1


#: An image by its version: a tag with a number in it that has two parts at least, or a digest.
PINNED = r"[a-z0-9][a-z0-9._/-]*(:v?\d+\.\d[\w.-]*|@sha256:[0-9a-f]{64})"


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_is_pinned_private_healthy_and_without_a_password_in_the_file(name: str) -> None:
    service, services = COMPOSE["services"][name], COMPOSE["services"]
    assert re.fullmatch(PINNED, service["image"])
    assert all(one.startswith("127.0.0.1:") for one in service.get("ports", ()))
    assert "tools" in service.get("profiles", ()) or "healthcheck" in service
    for other, how in service.get("depends_on", {}).items():
        assert how["condition"] == "service_healthy"
        assert "healthcheck" in services[other]
    for variable, value in service.get("environment", {}).items():
        is_secret = re.search("password|secret|token|key", variable, re.IGNORECASE)
        assert not is_secret or re.fullmatch(r"\$\{\w+:\?.+\}", value), variable
    for source, target, *options in (one.split(":") for one in service.get("volumes", ())):
        assert target.startswith("/")
        assert source in COMPOSE["volumes"] or ((DOCKER / source).exists() and options == ["ro"])
    assert "build" not in service or service["cap_drop"] == ["ALL"]


def instructions(name: str) -> list[str]:
    """Return what stands after an instruction of the Dockerfile, each time it is used."""
    lines = re.sub(r"(?m)^#.*\n", "", DOCKERFILE).replace("\\\n", " ").splitlines()
    return [line.partition(" ")[2].strip() for line in lines if line.startswith(f"{name} ")]


def test_the_image_is_pinned_lean_and_runs_as_a_user_of_its_own() -> None:
    assert all(re.fullmatch(PINNED, one) for one in instructions("FROM"))
    assert instructions("USER")[-1] == "10001"
    assert "pipefail" in instructions("SHELL")[0]
    assert "PIP_NO_CACHE_DIR=1" in instructions("ENV")[0]
    assert not re.search(r"(?i)password|secret|token|sudo|upgrade|^ADD |pip install", DOCKERFILE)
    for run in instructions("RUN"):
        if "apt-get" in run:
            assert "apt-get update" in run
            assert "install --yes --no-install-recommends" in run
            assert run.endswith("rm -rf /var/lib/apt/lists/*")
    assert all(one.startswith("[") for one in (*instructions("CMD"), *instructions("ENTRYPOINT")))


def test_the_image_is_built_from_what_it_copies_and_nothing_else() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copies = [[w for w in one.split() if not w.startswith("--")] for one in instructions("COPY")]
    copied = {source for *sources, _ in copies for source in sources}
    assert all((ROOT / source).exists() for source in copied)
    assert kept == copied
    assert not any(fnmatch("docker/.env", pattern) for pattern in kept)
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        subprocess.run([git, "check-ignore", "-q", "docker/.env"], cwd=ROOT, check=True)


def test_versions_in_the_image_are_those_that_the_project_knows() -> None:
    version = instructions("FROM")[0].partition(":")[2].partition("-")[0]
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert Requirement(f"python{told['requires-python']}").specifier.contains(version)
    assert f"lib/python{version.rpartition('.')[0]}/site-packages/pyspark" in DOCKERFILE
    ours = {one["image"] for one in COMPOSE["services"].values() if "build" in one}
    assert ours == {f"lineage-backfill:{told['version']}"}


def test_marquez_is_told_no_password_but_the_one_that_was_made() -> None:
    told = yaml.safe_load((DOCKER / "marquez.yml").read_text(encoding="utf-8"))
    assert told["db"]["password"] == "${DATABASE_PASSWORD}"
    assert told["search"]["enabled"] is told["graphql"]["enabled"] is False
    (port,) = told["server"]["applicationConnectors"]
    assert COMPOSE["services"]["marquez"]["ports"][0].endswith(f":{port['port']}")


def test_the_project_in_the_container_plans_food_delivery(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DOCKER / "lineage-backfill.toml", tmp_path)
    config = str(tmp_path / "lineage-backfill.toml")
    project = open_project(Path(config))
    assert project.lineage.marquez == "http://marquez:5000"
    given = ["--config", config, "--events", str(FOOD), "--now", "2020-03-01T00:00:00Z"]
    main(["impact", "public.orders", "--partitions", "2020-02-10", "--json", *given])
    plan = json.loads(capsys.readouterr().out)
    assert [one["job"]["name"] for one in plan["jobs"]] == [
        *("etl_orders_7_days", "etl_delivery_7_days", "delivery_times_7_days"),
        *("email_discounts", "orders_popular_day_of_week"),
    ]
    assert all(one["partitions"] == ["2020-02-10..2020-02-16"] for one in plan["jobs"])


# --- seed.py --------------------------------------------------------------------------------------


class Server:
    """Takes events as Marquez does; of those that it took it knows the namespaces and runs."""

    def __init__(self, refuse: bool = False) -> None:
        self.events: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                states = {"START": "RUNNING", "COMPLETE": "COMPLETED"}
                known: dict[str, dict[str, str]] = {}
                for one in outer.events:
                    space, run = one["job"]["namespace"], one["run"]["runId"]
                    known[f"/api/v1/namespaces/{space}"] = {"name": space}
                    known[f"/api/v1/jobs/runs/{run}"] = {"state": states[one["eventType"]]}
                found = known.get(self.path)
                self._end(200 if found else 404, json.dumps(found).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not refuse:
                    outer.events.append(json.loads(body))
                self._end(500 if refuse or self.path != "/api/v1/lineage" else 201)

            def _end(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture(params=[False])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(refuse=request.param)
    thread = threading.Thread(target=made.http.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


@pytest.fixture
def seed() -> Callable[[str, Path], str]:
    spec = importlib.util.spec_from_file_location("seed", DOCKER / "seed.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str, Path], str] = module.seed
    return found


def test_the_events_are_sent_once_and_in_their_order(
    server: Server, seed: Callable[[str, Path], str]
) -> None:
    assert seed(server.address, FOOD) == "26 events of food_delivery were sent"
    assert server.events == json.loads(gzip.decompress(FOOD.read_bytes()))
    assert seed(server.address, FOOD) == "food_delivery is there already"
    assert len(server.events) == 26


@pytest.mark.parametrize("sent", [1, 24, 25])
def test_events_of_which_only_the_first_have_arrived_are_sent_again(
    sent: int, server: Server, seed: Callable[[str, Path], str]
) -> None:
    events = json.loads(gzip.decompress(FOOD.read_bytes()))
    server.events += events[:sent]
    assert seed(server.address, FOOD) == "26 events of food_delivery were sent"
    assert server.events[sent:] == events


@pytest.mark.parametrize("server", [True], indirect=True)
def test_a_server_that_refuses_is_an_error(
    server: Server, seed: Callable[[str, Path], str]
) -> None:
    with pytest.raises(requests.HTTPError):
        seed(server.address, FOOD)


# --- up -------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with `docker/up` alone, and a `docker` that notes what it was asked."""
    for part in ("docker/up", "scripts/lib.sh"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    fake = tmp_path / "bin" / "docker"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$*" >>"$LOG"\ncase "$*" in *"$FAIL"*) exit 1;; esac\n')
    fake.chmod(0o755)
    return tmp_path


def up(checkout: Path, fail: str = "nothing at all") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "docker/up")],
        env={
            "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
            "LOG": str(checkout / "log"),
            "FAIL": fail,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_one_command_starts_and_seeds_with_a_password_of_its_own(checkout: Path) -> None:
    first = up(checkout)
    assert first.returncode == 0, first.stderr
    asked = [line.split("compose.yml ")[-1] for line in (checkout / "log").read_text().splitlines()]
    assert asked == ["compose version", "up --build --detach --wait", "run --rm seed"]
    kept = checkout / "docker/.env"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    name, _, password = kept.read_text().strip().partition("=")
    assert name == "DATABASE_PASSWORD"
    assert len(password) == 32
    assert password not in first.stdout + first.stderr
    assert "http://127.0.0.1:3000" in first.stderr
    up(checkout)
    assert kept.read_text() == f"{name}={password}\n"


@pytest.mark.parametrize(
    ("fail", "said"),
    [("version", "no Docker with Compose 2"), (" up ", "Not all of it came up")],
)
def test_what_goes_wrong_is_said_and_nothing_is_sent(checkout: Path, fail: str, said: str) -> None:
    ended = up(checkout, fail)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "run --rm seed" not in (checkout / "log").read_text()
    assert (checkout / "docker/.env").exists() is (fail != "version")
