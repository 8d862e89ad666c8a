"""The scripts: install once, take the right Java, and say what is wrong before they start."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(p for p in (ROOT / "scripts").iterdir() if p.is_file() and not p.suffix)


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    """Make a folder that looks like a Java of this version, and return it."""
    settings = rf"    java.home = {home}\n    java.specification.version = {version}\n"
    write_program(home / "bin/java", f"printf '{settings}' >&2")
    return home


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in {"JAVA_HOME", "LINEAGE_BACKFILL_JARS"}}
    return subprocess.run(
        [str(each) for each in command],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def java_home(**environment: str) -> str:
    return run("bash", "-c", f"source '{ROOT}/scripts/lib.sh'; java_home", **environment).stdout


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / ".ci/run"], ids=lambda path: path.name)
def test_a_script_can_be_run_is_bash_and_names_no_address(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert script.stat().st_mode & stat.S_IXUSR
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert "/lib.sh" in text or "set -euo pipefail" in text
    assert not re.search(r"https?:", text)
    assert run("bash", "-n", script).returncode == 0


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_wins_where_spark_runs_on_it(tmp_path: Path, version: str) -> None:
    wanted, other = fake_java(tmp_path / "wanted", version), fake_java(tmp_path / "other", "17")
    path = f"{other}/bin:{os.environ['PATH']}"
    assert java_home(JAVA_HOME=str(wanted), PATH=path) == f"{wanted}\n"


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(tmp_path: Path, version: str) -> None:
    unfit, fit = fake_java(tmp_path / "unfit", version), fake_java(tmp_path / "fit", "17")
    path = f"{fit}/bin:{os.environ['PATH']}"
    assert java_home(JAVA_HOME=str(unfit), PATH=path) == f"{fit}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose Python only writes down how it is called."""
    root = tmp_path / "a checkout"
    (root / "scripts").mkdir(parents=True)
    for name in ("scripts/lib.sh", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    write_program(root / ".venv/bin/python", f"echo \"$*\" >>'{root}/calls'")
    return root


def installs(root: Path, lock: str) -> list[str]:
    """Install from the lock, and return the arguments of every `pip install` that it took."""
    (root / "calls").write_text("")
    done = run("bash", "-c", 'source "$1/scripts/lib.sh"; install_from "$2"', "-", root, lock)
    assert done.returncode == 0, done.stderr
    calls = (root / "calls").read_text().splitlines()
    assert calls or not done.stderr, "quiet where there is nothing to do"
    return [call for call in calls if call.startswith("-m pip install")]


def test_a_second_installation_does_nothing(checkout: Path) -> None:
    packages, project = installs(checkout, "requirements.lock")
    assert packages.endswith(f"--require-hashes -r {checkout}/requirements.lock")
    assert project.endswith(f"--no-deps -e {checkout}")
    assert installs(checkout, "requirements.lock") == []


def test_after_the_lock_for_development_the_other_one_needs_nothing(checkout: Path) -> None:
    assert len(installs(checkout, "requirements-dev.lock")) == 2
    assert installs(checkout, "requirements.lock") == []


def test_a_lock_that_changed_is_installed_again(checkout: Path) -> None:
    installs(checkout, "requirements.lock")
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("one-more==1\n")
    assert len(installs(checkout, "requirements.lock")) == 2


def test_a_failed_installation_is_no_installation(checkout: Path) -> None:
    write_program(checkout / ".venv/bin/python", '[ "$2 $3" != "pip install" ]')
    command = f"source '{checkout}/scripts/lib.sh'; install_from requirements.lock"
    failed = run("bash", "-c", command)
    assert failed.returncode == 1
    assert "error: The packages could not be installed." in failed.stderr
    assert not (checkout / ".venv/.installed").exists()


def test_jars_of_ones_own_are_taken_as_they_are(tmp_path: Path) -> None:
    jars = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for jar in jars:
        jar.touch()
    own = ":".join(map(str, jars))
    assert run(ROOT / "scripts/fetch-jars", LINEAGE_BACKFILL_JARS=own).returncode == 0
    jars[1].unlink()
    missing = run(ROOT / "scripts/fetch-jars", LINEAGE_BACKFILL_JARS=own)
    assert missing.returncode == 1
    assert f"names {jars[1]}, which is not there" in missing.stderr


@pytest.mark.parametrize(
    ("suite", "services", "arguments", "code", "said"),
    [
        (0, 0, [], 0, ["5 passed", "services", "5 passed"]),
        (1, 0, [], 1, ["5 passed", "services", "5 passed"]),
        (0, 3, [], 3, ["5 passed", "services", "5 passed"]),
        (1, 3, [], 1, ["5 passed", "services", "5 passed"]),
        (0, 3, ["-k", "x"], 0, ["5 passed", "5 passed"]),
    ],
)
def test_the_suite_has_the_last_word_and_either_may_fail(
    tmp_path: Path, suite: int, services: int, arguments: list[str], code: int, said: list[str]
) -> None:
    for folder in (".ci", "scripts"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name, text, ends in (("test", "5 passed", suite), ("test-services", "services", services)):
        script = tmp_path / "scripts" / name
        script.write_text(f"#!/usr/bin/env bash\necho {text}\nexit {ends}\n")
        script.chmod(0o755)
    done = subprocess.run(
        [tmp_path / ".ci" / "run", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (code, said)
