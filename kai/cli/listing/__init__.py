"""``kai jobs``, ``kai queues`` and ``kai nodes``: what there is, in tables and lists."""
