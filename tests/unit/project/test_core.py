"""The core is light enough to be shipped: importing all of it brings in next to nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lineage_backfill.engines.spark.shipping import CORE

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, pkgutil, sys
from importlib import import_module
there = set(sys.modules)
for room in ("errors", "model", "partitions", "project", "runspec"):
    module = import_module(f"lineage_backfill.{room}")
    for one in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        import_module(one.name)
print(json.dumps(sorted(set(sys.modules) - there)))
"""


def test_all_of_the_core_imports_the_standard_library_and_cronsim_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = json.loads(done.stdout)
    assert "lineage_backfill.partitions.closure" in imported
    assert "lineage_backfill.project.reader" in imported
    assert "lineage_backfill.runspec.parse" in imported
    above = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    assert {name for name in above if not name.startswith("_sysconfigdata")} == {
        "cronsim",
        "lineage_backfill",
    }
    rooms = {name.split(".")[1] for name in imported if name.startswith("lineage_backfill.")}
    assert rooms == {*CORE} - {"__init__"}
    # What asks the system or the network is imported by whoever does, if at all.
    assert {"logging", "socket", "ssl", "http", "asyncio"}.isdisjoint(imported)
