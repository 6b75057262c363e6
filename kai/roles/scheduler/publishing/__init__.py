"""Writes events, conditions and timestamps that changed. Read `publisher` first, then `outgoing` for its state."""

from kai.roles.scheduler.publishing.publisher import Publisher

__all__ = ["Publisher"]
