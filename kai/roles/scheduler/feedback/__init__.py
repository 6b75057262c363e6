"""Feeds the outcome of decisions back to the next cycles. Read `memories` first."""

from kai.roles.scheduler.feedback.memories import Feedback

__all__ = ["Feedback"]
