"""Division of an amount among siblings by quota, priority, weight and past usage: the arithmetic of fair shares.

It serves the built-in fair shares, and fair-share cases, which divide without a cluster and without a plugin.
"""

from kai.facts.kernels.fairshare import divide, divide_models, give_surplus

__all__ = ["divide", "divide_models", "give_surplus"]
