"""Helpers for all of kai that use nothing of kai: wording of messages, parsing, trees, deadlines."""
