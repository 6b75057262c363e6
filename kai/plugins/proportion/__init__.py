"""Proportion: fair shares of queues, and who may take what from whom."""

from kai.plugins.proportion.plugin import Proportion

__all__ = ["Proportion"]
