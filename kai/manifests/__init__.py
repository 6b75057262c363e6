"""Manifests as people have them: workloads to pods and groups, mistakes to findings with their places.

``kai.manifests.expansion`` adds what controllers and the pod grouper would add.
"""

from kai.manifests.expansion import Expansion, Problem, expand
from kai.manifests.unused import Unused

__all__ = ["Expansion", "Problem", "Unused", "expand"]
