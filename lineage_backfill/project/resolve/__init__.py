"""Resolves declarations: calendars, mappings, write policies."""
