"""The pages of `serve`, read-only."""
