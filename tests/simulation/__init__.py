"""Whole clusters in one process, in virtual time and out of order: a seed is a history. Start reading at `schedule`."""
