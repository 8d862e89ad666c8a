"""What is told of plans, backfills and lineage, whatever shows it: words, drawings, documents."""
