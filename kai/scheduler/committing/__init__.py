"""From decisions to writes, and what becomes of the writes: read `committer` first."""

from kai.scheduler.committing.committer import Committer

__all__ = ["Committer"]
