"""Wires the adapters to the core from the configuration; nothing else names an adapter."""
