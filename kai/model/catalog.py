"""Objects around pods and nodes that filters look up: config maps, namespaces, resource claims.

Frozen facts, keyed by (namespace, name) where the object is namespaced.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from kai.model.claim import ClaimCatalog
from kai.model.partitions import Gpus


def _empty() -> Mapping[Any, Any]:
    return {}


@attrs.frozen(kw_only=True)
class Catalog:
    """What a snapshot knows besides pods, nodes, groups and queues."""

    namespaces: Mapping[str, Mapping[str, str]] = attrs.field(factory=_empty)
    """Labels of each namespace."""
    config_maps: frozenset[tuple[str, str]] = frozenset()
    config_maps_known: bool = False
    """Whether config maps were listed at all; if not, no pod is refused for a missing one."""
    claims: ClaimCatalog = ClaimCatalog()
    gpus: Gpus = Gpus()
    """The GPUs among the devices of drivers."""
