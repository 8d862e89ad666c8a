"""Names that mean one dataset or one job."""
