"""Wires the adapters to the core, from configuration; nothing else names an adapter."""
