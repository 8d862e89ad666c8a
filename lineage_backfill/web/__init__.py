"""The pages of `serve`: they read, and change nothing."""
