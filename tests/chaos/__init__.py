"""Processes are killed wherever it could hurt; `resume` ends as if nothing had been."""
