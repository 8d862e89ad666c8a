"""Runs attempts in Spark, on this machine or a cluster."""
