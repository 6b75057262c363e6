"""Facts: what pods, groups, nodes and queues are. Frozen, without clock or JSON."""
