"""A program without Spark that does one run spec, or a list: for the command engine."""

from __future__ import annotations

import sys
from pathlib import Path

# Run as a file: the folder above holds the package `tests`.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import fake_worker

sys.exit(fake_worker.run_all(Path(sys.argv[1]), Path.cwd() / "journal"))
