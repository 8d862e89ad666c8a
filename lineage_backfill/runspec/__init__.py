"""Run specs and result files: as values, as JSON, and their schemas."""
