"""A backfill on a file system that is full but for some kilobytes, then has room, then is right.

    python -m tests.chaos.full_disk FOLDER KILOBYTES

To be run in a mount namespace of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lineage_backfill.store.sql import SqlRunStore
from tests.chaos.driver import SUCCEEDED
from tests.chaos.scenario import Scenario

SIZE = 4096  # kilobytes


def fill(path: Path, left: int) -> None:
    """Take all the room but this many kilobytes."""
    room = os.statvfs(path.parent)
    with path.open("wb") as file:
        file.write(bytes(room.f_bavail * room.f_frsize - left * 1024))


def main(folder: Path, left: int) -> None:
    options = ["-t", "tmpfs", "-o", f"size={SIZE}k", "none"]
    subprocess.run(["mount", *options, str(folder)], check=True)
    url = f"sqlite:///{folder}/runs.db"
    SqlRunStore(url).close()
    scenario = Scenario(folder, url)
    filler = folder / "filler"
    fill(filler, left)
    code = scenario.run()
    assert code != SUCCEEDED, "there was room enough"
    filler.unlink()
    assert scenario.run() == SUCCEEDED, scenario.log()
    scenario.check(rewritten=len(scenario.plan.runs or ()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
