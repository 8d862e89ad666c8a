"""OpenLineage events folded into a snapshot, independent of their order."""
