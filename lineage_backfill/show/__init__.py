"""Plans, backfills and lineage as words, drawings and documents, for every output."""
