"""Commands that decide and show the decisions: simulate, would-run, replay, diff and snapshot."""
