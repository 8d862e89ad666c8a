"""The demo's folder: emptied at each start, and never one that the demo did not make."""

from __future__ import annotations

import shutil
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from lineage_backfill.demo.period import Period, set_period
from lineage_backfill.errors import UsageError
from lineage_backfill.project.settings import FILE_NAME

MARKER = ".lineage-backfill-demo"


def prepare(folder: Path, period: Period) -> Path:
    """Create the folder with only the example in it, and return its absolute path.

    Raises UsageError for a folder that is not empty and was not made by the demo.
    """
    folder = folder.expanduser().resolve()
    if folder.exists():
        _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Made by `lineage-backfill demo`, which may empty this folder.\n")
    example = resources.files("lineage_backfill") / "example" / "nyc"
    _copy(example, folder)
    file = folder / FILE_NAME
    file.write_text(set_period(file.read_text(encoding="utf-8"), period), encoding="utf-8")
    return folder


def _clear(folder: Path) -> None:
    # The folder itself stays: it may be the working directory of a terminal.
    found = list(folder.iterdir()) if folder.is_dir() else [folder]
    if found and folder / MARKER not in found:
        raise UsageError(
            f"{folder} was not made by the demo, so it is not emptied",
            hint="Name another folder: lineage-backfill demo FOLDER",
        )
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARKER:
            path.unlink()


def _copy(source: Traversable, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.name == "__pycache__":
            continue
        if entry.is_dir():
            _copy(entry, target / entry.name)
        else:
            (target / entry.name).write_bytes(entry.read_bytes())
