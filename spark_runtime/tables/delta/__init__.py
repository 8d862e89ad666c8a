"""Delta tables and their log."""
