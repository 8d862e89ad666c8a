"""Drives a plan: what may start, what is tried again, what came of it."""
