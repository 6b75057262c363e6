"""What users read, written only where it changed: read `publisher` first, then `outgoing` for what is remembered."""

from kai.scheduler.publishing.publisher import Publisher

__all__ = ["Publisher"]
