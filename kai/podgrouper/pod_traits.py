"""What matters of a pod for its group: a change of anything else needs no second look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kai.api import names
from kai.api.kubernetes.pod import Pod
from kai.lenient import mapping_of

_FOREIGN: Final = frozenset(
    {
        names.RECEIVED_RESOURCE_TYPE,
        names.GRANTED,
        names.EPOCH,
        names.LEASE,
        names.NUMA_PREDICTED,
        names.NUMA_OBSERVED,
    }
)
"""What a binding writes, or a node: it says nothing about the workload."""


def traits_of(pod: Pod, patch: Mapping[str, Any] | None = None) -> int:
    """Return a number that stands for all of a pod that a grouper may read, with a patch of its metadata applied.

    Whether it is bound matters to owned pods only. Two pods that differ have one number with a chance of 1 to 2^64,
    which their owner cannot raise: Python hashes text with a secret of the process. What it stands for would take 700
    bytes for each pod.
    """
    metadata = pod.metadata
    written = mapping_of(patch or {}, "metadata")
    labels = {**metadata.labels, **mapping_of(written, "labels")}
    annotations = {**metadata.annotations, **mapping_of(written, "annotations")}
    return hash(
        (
            metadata.uid,
            frozenset(labels.items()),
            frozenset(item for item in annotations.items() if item[0] not in _FOREIGN),
            metadata.owner_references,
            metadata.deletion_timestamp is not None,
            bool(metadata.owner_references and pod.spec.node_name),
        )
    )
