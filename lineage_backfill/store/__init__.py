"""Adapters that keep backfills, their runs and attempts."""
