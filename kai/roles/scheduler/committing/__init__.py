"""Turns decisions into writes, and follows each write to its end. Read `committer` first."""

from kai.roles.scheduler.committing.committer import Committer

__all__ = ["Committer"]
