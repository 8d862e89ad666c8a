"""The command line as on another machine: python -m tests.services.machine NAME SECONDS ARGUMENTS.

The machine has this NAME, and its clock is that many SECONDS ahead.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from importlib import import_module
from pathlib import Path

from lineage_backfill.cli.main import main
from lineage_backfill.engines.attempt import kill_group

ROOT = Path(__file__).parents[2]
#: The modules that read the clock for what is written into a run store.
_CLOCKS = ("runs.drive.clock", "cli.commands.backfill")


class Machine:
    """A checkout of a project on a machine; `ahead` is by how many seconds its clock is wrong."""

    def __init__(self, name: str, folder: Path, store: str, *, ahead: int = 0) -> None:
        self.name = name
        self.folder = folder
        self.store = store
        self.ahead = ahead
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; what it says goes to a file of its own."""
        ours = {k: v for k, v in os.environ.items() if not k.startswith("LINEAGE_BACKFILL")}
        ours |= {"PYTHONPATH": str(ROOT), "LINEAGE_BACKFILL_STORE_URL": self.store}
        ours |= {"HOME": str(self.folder)}
        program = [sys.executable, "-m", "tests.services.machine", self.name, str(self.ahead)]
        with self.log(len(self.started)).open("w") as log:
            process = subprocess.Popen(
                [*program, *arguments],
                cwd=self.folder,
                env=ours,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.started.append(process)
        return process

    def log(self, number: int) -> Path:
        """Return the file of what the command with this number has said."""
        return self.folder / f"said-{number}.txt"

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a command to its end; returns its stdout and stderr."""
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=180)
        said = self.log(self.started.index(process)).read_text()
        assert process.returncode == code, (arguments, out, said)
        return out, said

    def end(self) -> None:
        """Kill what still runs of what was started here, the jobs of killed drivers as well."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=60)
        for claim in self.folder.rglob("*.claim.json"):
            pid = json.loads(claim.read_text())["pid"]
            with suppress(OSError):  # it has ended
                if Path(f"/proc/{pid}/cwd").readlink() == self.folder.resolve():
                    kill_group(pid)


def become(name: str, ahead: timedelta) -> None:
    """Take the name and the clock of another machine."""
    socket.gethostname = lambda: name

    class Shifted(datetime):
        """The time of that machine."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + ahead

    for module in _CLOCKS:
        import_module(f"lineage_backfill.{module}").__dict__["datetime"] = Shifted


def _main(given: Sequence[str], environ: Mapping[str, str]) -> int:
    become(given[0], timedelta(seconds=int(given[1])))
    return main(given[2:])


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:], os.environ))
