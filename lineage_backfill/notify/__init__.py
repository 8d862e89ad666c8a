"""Delivers notices to hooks: commands and webhooks."""
