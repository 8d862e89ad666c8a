"""The job and dataset graph as immutable values."""
