"""Answers from table logs: histories, changes, rows."""
