"""What a run is told and what it answers, as values, as JSON, and their schemas."""
