"""Keys, calendars and mappings against plain definitions over single keys and instants."""
