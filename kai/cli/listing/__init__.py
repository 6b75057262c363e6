"""``kai jobs``, ``kai queues`` and ``kai nodes``: tables and lists of what a cluster has."""
