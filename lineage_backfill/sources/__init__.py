"""Adapters that read lineage; each is loaded when a project names it."""
