"""Runs attempts as commands of the user's own."""
