"""Reads inputs: only the partitions that a run needs."""
