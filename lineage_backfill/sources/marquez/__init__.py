"""Lineage from Marquez: its event history by our own rule, and its catalogue for the rest."""

from lineage_backfill.sources.marquez.source import MarquezSource, View

__all__ = ["MarquezSource", "View"]
