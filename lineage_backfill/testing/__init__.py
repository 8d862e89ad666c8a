"""The contract suite of engines: a package proves its engine with one test file."""

from lineage_backfill.testing.engines import PROGRAM, Bench, EngineSuite

__all__ = ["PROGRAM", "Bench", "EngineSuite"]
