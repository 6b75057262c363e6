"""What is kept of an object as it comes from an API server, kind by kind.

Nodes, slices of devices and what else only administrators and drivers write is kept whole.
"""

from __future__ import annotations

from typing import Any, Final

from kai.api.conventions import caps
from kai.api.kubernetes.core import ConfigMap, PodDisruptionBudget
from kai.api.kubernetes.dra import ResourceClaim, ResourceClaimTemplate
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import PersistentVolumeClaim
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.api.scheduling.topology import Topology
from kai.errors import InputError

_BOUNDED: Final[frozenset[type[Any]]] = frozenset(
    (
        *(PodGroup, BindRequest, Queue, Topology),
        *(ConfigMap, PersistentVolumeClaim, PodDisruptionBudget, ResourceClaim, ResourceClaimTemplate),
    )
)


_SELECTING: Final[frozenset[type[Any]]] = frozenset((PersistentVolumeClaim, PodDisruptionBudget))


def keep(cls: type[Any], manifest: Any) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return what is kept of the manifest of an object of a class: the same one if no cap is exceeded.

    Raises: InputError for a claim or a budget whose selector cannot be one; it is kept out.
    """
    if cls is Pod:
        return caps.kept(manifest)
    if cls in _SELECTING and isinstance(manifest, dict):
        found = caps.excess_of_selector(manifest.get("spec"))
        if found:
            metadata = manifest.get("metadata")
            name = (
                "/".join(str(metadata.get(key)) for key in ("namespace", "name")) if isinstance(metadata, dict) else ""
            )
            raise InputError(f"{cls.__name__.lower()} {name}: {found}")
    return caps.bounded(manifest) if cls in _BOUNDED else manifest
