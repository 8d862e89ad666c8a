"""Emits the lineage of a run."""
