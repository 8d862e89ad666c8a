"""Imports all of the tool, and what the tests run in processes."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import lineage_backfill
from tests import processes
from tests.chaos import driver

__all__ = ["driver", "processes"]

for _module in pkgutil.walk_packages(lineage_backfill.__path__, "lineage_backfill."):
    # What is left out is a program, or is run by another one.
    if not any(part in _module.name for part in ("__main__", ".example", ".migrations")):
        import_module(_module.name)
