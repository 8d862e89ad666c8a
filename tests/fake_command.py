"""A program without Spark that does one run spec: for the command engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

# Run as a file: the folder above holds the package `tests`.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import fake_worker

spec = json.loads(Path(sys.argv[1]).read_text())
sys.exit(fake_worker.run(spec, Path.cwd() / "journal") != "succeeded")
