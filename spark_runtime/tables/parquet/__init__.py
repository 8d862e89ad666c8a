"""Parquet tables."""
