"""Traces: files in which others recorded jobs and nodes, read by column maps that are data. Start at ``reading``."""
