"""Traces: recorded jobs and nodes in files of several formats, by column maps. Start reading at ``trace_reading``."""
