"""Expressions that select devices. Kept apart because the evaluating library is slow to import."""

from kai.facts.model.device_selectors import Fault, Selectors

__all__ = ["Fault", "Selectors"]
