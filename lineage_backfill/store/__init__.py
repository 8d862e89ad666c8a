"""Adapters that store backfills, their runs and attempts."""
