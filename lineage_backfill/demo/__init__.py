"""The demo: a real fix of real data, previewed, run and proved by one command."""

from __future__ import annotations

from lineage_backfill.demo.story import run_demo

__all__ = ["run_demo"]
