"""Divide an amount among siblings by quota, priority, weight and past usage: arithmetic for shares of queues.

Built-in fair shares use it, and so do fair-share cases, which divide without a cluster and without a plugin.
"""

from kai.kernels.fairshare import divide, give_surplus

__all__ = ["divide", "give_surplus"]
