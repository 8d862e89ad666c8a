"""Tables and their logs, in each format."""
