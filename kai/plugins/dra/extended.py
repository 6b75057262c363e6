"""Extended resources that a device class backs: the implied claim of a pod if no device plugin has the resources.

Source: the extended resources of resource.k8s.io/v1 and the peer's dynamicresources plugin. Containers that run side by
side get devices of their own. An init container reuses these, and requests only what it needs beyond them.
"""

from collections.abc import Mapping, Sequence

import attrs

from kai.framework import ContainerRequest, NodeTerm, Shape
from kai.framework.claims import (
    AllocatedDevice,
    Claim,
    DeviceClass,
    DeviceRequest,
    ExtendedAllocation,
    backed_name,
    parts_of,
)

_GPU = "gpu"

Mappings = tuple[tuple[int, str, str], ...]
"""Container, resource on the axis, request that serves it."""


def alike(classes: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the resources that classes back and that containers ask for by one name, as all of them are GPUs."""
    names = {name for each in classes.values() for name in each.extended_resources if backed_name(name) == _GPU}
    return tuple(sorted(names)) if len(names) > 1 else ()


def needed(shape: Shape, classes: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the resources that containers of ``shape`` ask for and a class backs, by name."""
    named = {name for container in shape.containers for name, amount in container.requests if amount > 0}
    return tuple(sorted(named & classes.keys()))


@attrs.frozen(kw_only=True)
class Implied:
    """The claim that a pod implies, and which of its requests serve which container."""

    claim: Claim
    containers: Mappings

    def allocated(self, devices: tuple[AllocatedDevice, ...], nodes: tuple[NodeTerm, ...] | None) -> ExtendedAllocation:
        """Return the allocation for the pod when the claim gets ``devices`` that can be used from ``nodes``."""
        return ExtendedAllocation(
            requests=self.claim.requests, containers=self.containers, devices=devices, nodes=nodes
        )


def implied_claim(
    containers: Sequence[ContainerRequest], resources: Sequence[str], classes: Mapping[str, DeviceClass], namespace: str
) -> Implied:
    """Return the claim for ``resources``."""
    requests: list[DeviceRequest] = []
    mappings: list[tuple[int, str, str]] = []
    for number, resource in enumerate(resources):
        lasting = {
            at: _request(at, number, classes[resource], count)
            for at, count in _counts(containers, resource, lasting=True).items()
        }
        largest: DeviceRequest | None = None
        served: list[int] = []
        for at, count in _counts(containers, resource, lasting=False).items():
            for later, request in lasting.items():
                # A container that starts later does not use its devices yet; a sidecar that runs already does.
                if later > at and count > 0:
                    mappings.append((at, resource, request.name))
                    count -= request.count  # noqa: PLW2901 - a claim asks for the rest
            if count > 0:
                served.append(at)
                if largest is None or count > largest.count:
                    largest = _request(at, number, classes[resource], count)
        requests += lasting.values()
        mappings += [(at, resource, request.name) for at, request in lasting.items()]
        if largest is not None:
            # Init containers run one after the other, so the largest of their requests serves them all.
            requests.append(largest)
            mappings += [(at, resource, largest.name) for at in served]
    ordered = tuple(sorted(requests, key=lambda request: request.name))
    return Implied(
        claim=Claim(namespace=namespace, name="", uid="", requests=ordered), containers=tuple(sorted(mappings))
    )


def _counts(containers: Sequence[ContainerRequest], resource: str, *, lasting: bool) -> dict[int, int]:
    """Return the device count per container: the long-running ones (``lasting``), or the other init containers."""
    counts = {
        at: dict(container.requests).get(resource, 0) // parts_of(resource)
        for at, container in enumerate(containers)
        if lasting == (not container.init or container.sidecar)
    }
    return {at: count for at, count in counts.items() if count > 0}


def _request(container: int, resource: int, device_class: DeviceClass, count: int) -> DeviceRequest:
    return DeviceRequest(name=f"container-{container}-request-{resource}", device_class=device_class.name, count=count)
