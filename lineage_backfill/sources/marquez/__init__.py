"""Lineage from Marquez: its event history by our own rule, and its lists for the rest."""

from lineage_backfill.sources.marquez.source import MarquezSource

__all__ = ["MarquezSource"]
