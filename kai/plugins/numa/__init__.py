"""NUMA alignment: nodes whose topology manager would refuse a pod are left out, aligned places are preferred.

Read ``plugin`` first; ``requests`` says what of a pod is aligned, ``zones`` holds the zones of all nodes.
"""

from kai.plugins.numa.plugin import Numa

__all__ = ["Numa"]
