"""Dynamic resource allocation: which devices satisfy the claims of a pod on a node.

Read ``plugin`` first: what the engine asks. Behind it: ``inventory`` (devices as rows), ``demand`` (what
the claims of a pod still want), ``allocator`` (the search), ``accounting`` (which claim holds what), and ``seats``
(what nodes and queues count for it).
"""

from kai.plugins.dra.plugin import Dra

__all__ = ["Dra"]
