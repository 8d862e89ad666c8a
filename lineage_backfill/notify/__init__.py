"""Brings notices to their hooks: commands and webhooks."""
