"""What a reader may see, and what others are called where they have to be mentioned."""

from __future__ import annotations

from typing import Final

import attrs

FOREIGN_NAMESPACE: Final = "another namespace"
FOREIGN_JOB: Final = "another job"
FOREIGN_QUEUE: Final = "another queue"
FOREIGN_POD: Final = "another pod"
FOREIGN_NODE: Final = "a node"


@attrs.frozen(kw_only=True)
class Scope:
    """What a reader may see; None is everything."""

    namespaces: frozenset[str] | None = None
    """Whose pod groups may be listed."""
    queues: frozenset[str] | None = None
    """The queues that may be read."""
    nodes: bool = True
    """Whether nodes may be listed."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None and self.queues is None and self.nodes

    def sees(self, namespace: str) -> bool:
        """Return whether jobs of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def reads(self, queue: str) -> bool:
        """Return whether a queue may be read."""
        return self.queues is None or queue in self.queues


EVERYTHING: Final = Scope()
