"""Calls `spark_runtime` in a separate process, as this side imports none of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.errors import EnvironmentMissingError, UnfitRunError
from lineage_backfill.ports import AttemptState, Outcome

_TIMEOUT = 60  # seconds; reading the logs of tables takes far less
_MESSAGE = re.compile(r"^\w+: (.*)(?:\n  (.+))?\Z", re.MULTILINE)


def find_jars() -> tuple[str, ...]:
    """Return the paths of Delta's jars on this machine; raises EnvironmentMissingError."""
    found = _ask("jars")
    if found.returncode == 0:
        return tuple(found.stdout.splitlines())
    message = _MESSAGE.search(found.stderr.strip())
    raise EnvironmentMissingError(
        message[1] if message else found.stderr.strip(),
        hint=(message and message[2]) or "Run `lineage-backfill doctor`.",
    )


def refuse_missing(program: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Raise UnfitRunError for a program that a process in a folder would not find."""
    path = folder / program if "/" in program else program
    if shutil.which(path, path=environment.get("PATH")) is None:
        raise UnfitRunError(
            f"{program} cannot be started: there is no such program",
            hint="Check the settings of this engine in the project file.",
        )


def find_java(environment: Mapping[str, str]) -> str:
    """Return the program java, where Spark looks for it; raises EnvironmentMissingError."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else environment.get("PATH"))
    if java is None:
        raise EnvironmentMissingError(
            f"no Java found in {f'JAVA_HOME ({home})' if home else 'PATH'}",
            hint="Install a JDK 17 or later, and set JAVA_HOME or PATH.",
        )
    return java


def reconcile(files: AttemptFiles, since: datetime | None = None) -> Outcome | None:
    """Return the success of an attempt whose process died after its commits; else None.

    The logs of its tables prove it; the missing result file is then written. A log that cannot be
    read from here proves nothing. With `since`, a scheduled run of the same partitions that began
    no earlier counts as the attempt.
    """
    outputs = files.spec().get("outputs", ())
    if not all(map(_has_log, outputs)) or not outputs:
        return None  # a call would take time and give the same answer
    asked = [] if since is None else ["--since", since.isoformat()]
    if _ask("reconcile", "--spec", str(files.spec_path), *asked).returncode:
        return None
    outcome = files.outcome()
    return outcome if outcome is not None and outcome.state is AttemptState.SUCCEEDED else None


def end_sessions(
    python: str, address: str, token: str, environment: Mapping[str, str]
) -> str | None:
    """End what an attempt does on a Spark Connect server; return why that is not known."""
    asked = ("end-sessions", "--master", address, "--token", token)
    answer = _ask(*asked, python=python, environment=environment)
    if answer.returncode == 0:
        return None
    said = answer.stderr.strip().rpartition("\nSessionError: ")[2].removeprefix("SessionError: ")
    return f"whether it goes on, and commits, is unknown: {said.partition(chr(10))[0]}"


def _has_log(output: Mapping[str, Any]) -> bool:
    """Whether the table of an output, or what may be its log, is on this machine."""
    place = output.get("location")
    log = "_delta_log" if output.get("format") == "delta" else ""
    return place is not None and Path(place, log).exists()


def _ask(
    *arguments: str, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "spark_runtime", *arguments]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {_TIMEOUT} s")
