"""The New York flights pipeline: jobs, the feed that they read, and a check of what they wrote."""
