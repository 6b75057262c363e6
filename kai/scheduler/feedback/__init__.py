"""What became of decisions, for the cycles that follow: read `memories` first."""

from kai.scheduler.feedback.memories import Feedback

__all__ = ["Feedback"]
