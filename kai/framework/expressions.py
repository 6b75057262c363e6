"""Expressions that select devices: apart from ``claims``, as the library that reads them takes long to import."""

from kai.model.device_selectors import Fault, Selectors

__all__ = ["Fault", "Selectors"]
