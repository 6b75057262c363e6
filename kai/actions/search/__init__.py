"""The search for victims: one engine for reclaim, preempt and consolidation. Begin with ``solver``."""
