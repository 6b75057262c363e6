"""Traces: recorded jobs and nodes in files of several formats, read by column maps that are data; see ``reading``."""
