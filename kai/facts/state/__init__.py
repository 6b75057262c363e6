"""Numbers: which pod is where and how much is left, with exact undo."""
