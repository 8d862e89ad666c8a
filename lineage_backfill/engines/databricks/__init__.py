"""Runs attempts as jobs of a Databricks workspace."""
