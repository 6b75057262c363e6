"""Whether binding a pod takes more than the one write that puts it on its node.

Two parties must agree on this: the scheduler, which may hand a bind over without writing it down only where a crash
leaves nothing half done, and the pod grouper, which lets the link of a pod to its group travel with that write.
"""

from __future__ import annotations

from kai.api.conventions.gpu_sharing import requests_fraction
from kai.api.kubernetes.pod import Pod


def needs_preparation(pod: Pod) -> bool:
    """Return whether something has to be reserved, claimed or made before the pod can be bound."""
    return bool(
        requests_fraction(pod.metadata.annotations)
        or pod.spec.resource_claims
        or any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes)
    )
