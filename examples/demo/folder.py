"""The demo's folder: emptied at each start, and never one that the demo did not make."""

from __future__ import annotations

import shutil
from pathlib import Path

from examples.demo.period import Period, set_period
from lineage_backfill.errors import UsageError
from lineage_backfill.project.settings import FILE_NAME

MARKER = ".lineage-backfill-demo"
EXAMPLE = Path(__file__).parent / "nyc"


def prepare(folder: Path, period: Period) -> Path:
    """Create the folder with only the example in it, and return its absolute path.

    Raises UsageError for a folder that is not empty and was not made by the demo.
    """
    folder = folder.expanduser().resolve()
    if folder.exists():
        _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Made by scripts/demo, which may empty this folder.\n")
    shutil.copytree(
        EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    file = folder / FILE_NAME
    file.write_text(set_period(file.read_text(encoding="utf-8"), period), encoding="utf-8")
    return folder


def _clear(folder: Path) -> None:
    # The folder itself stays: it may be the working directory of a terminal.
    found = list(folder.iterdir()) if folder.is_dir() else [folder]
    if found and folder / MARKER not in found:
        raise UsageError(
            f"{folder} was not made by the demo, so it is not emptied",
            hint="Name another folder: scripts/demo FOLDER",
        )
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARKER:
            path.unlink()
