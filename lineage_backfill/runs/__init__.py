"""Runs plans: scheduling, retries, recovery, and reports."""
