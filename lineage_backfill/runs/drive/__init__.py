"""Drives one backfill: scheduling, retries, leases, recovery."""
