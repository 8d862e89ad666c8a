"""Lineage from Marquez: its event history by our own rule, its catalogue for what that lacks."""

from lineage_backfill.sources.marquez.source import MarquezSource, View

__all__ = ["MarquezSource", "View"]
