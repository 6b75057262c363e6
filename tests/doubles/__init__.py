"""Stand-ins for what tests cannot have: an API server in memory."""
