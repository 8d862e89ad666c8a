"""The demo: a real fix of real data, previewed, run and proved by one command."""
