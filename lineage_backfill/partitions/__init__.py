"""Partition keys, the calendars that say which exist, and the mappings between them."""
