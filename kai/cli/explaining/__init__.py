"""``kai why``: the answers about jobs, queues, nodes and evictions."""
