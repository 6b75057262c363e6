"""Actions: allocate, consolidation, reclaim, preempt, stale-gang eviction; reached only through entry points."""
