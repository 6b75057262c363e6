"""Proportion: fair shares of queues, and which queue may take what from which."""

from kai.plugins.proportion.plugin import Proportion

__all__ = ["Proportion"]
