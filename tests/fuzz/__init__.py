"""Lineage that is not what it should be: events, files of them and answers of servers, damaged."""
