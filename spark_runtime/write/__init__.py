"""Writes exactly the partitions of a run."""
