"""The plugin for resource claims: whether a pod may be placed, on which nodes, with which devices, and the effects.

It also encodes the devices of claims for bind requests.

Only pods with claims, or with extended resources that a device class backs, pay for it.

Source: the peer's plugins/dynamicresources, and resource.k8s.io/v1 for the part of Kubernetes' allocator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Extension,
    NodeFilter,
    NodeRow,
    NodeWait,
    Placement,
    Pod,
    PodFilter,
    PodRow,
    SessionView,
    Shape,
    Victims,
)
from kai.framework.claims import (
    AllocatedConfig,
    AllocatedDevice,
    Claim,
    ClaimCatalog,
    ClaimPlacement,
    ContainerMappings,
    DeviceAllocation,
    DeviceClass,
    DeviceRequest,
    backing_classes,
)
from kai.plugins.dra.extended import needed

if TYPE_CHECKING:
    from kai.framework.expressions import Selectors
    from kai.plugins.dra.claim_answers import Answers, Kept
    from kai.plugins.dra.inventory import Inventory


def encode(
    pods: Sequence[Pod], catalog: ClaimCatalog, pod: PodRow, node: NodeRow, detail: object
) -> Mapping[str, object]:
    """Return the devices of claims that the pod refers to, and of the claim to be made for extended resources."""
    del node
    if not isinstance(detail, ClaimPlacement):
        return {}
    claims = [
        {
            "name": each.reference,
            "allocation": DeviceAllocation(
                claim="/".join(each.claim),
                devices=each.devices,
                nodes=each.nodes,
                config=_config(catalog, catalog.claims.get(each.claim), each.devices),
            ),
        }
        for each in detail.claims
        if each.reference
    ]
    fields: dict[str, object] = {"resourceClaimAllocations": claims} if claims else {}
    extended = detail.extended
    if extended is not None:
        implied = Claim(namespace="", name="", uid="", requests=extended.requests)
        fields["extendedResourceClaimAllocation"] = {
            "allocation": DeviceAllocation(
                claim=pods[pod].key,
                devices=extended.devices,
                nodes=extended.nodes,
                config=_config(catalog, implied, extended.devices),
            ),
            "deviceRequests": extended.requests,
            "containerMappings": ContainerMappings(extended.containers),
        }
    return fields


def _config(
    catalog: ClaimCatalog, claim: Claim | None, devices: Iterable[AllocatedDevice]
) -> tuple[AllocatedConfig, ...]:
    return () if claim is None else configuration(claim, catalog.classes, devices)


def configuration(
    claim: Claim, classes: Mapping[str, DeviceClass], devices: Iterable[AllocatedDevice]
) -> tuple[AllocatedConfig, ...]:
    """Return the driver configuration for the ``devices`` of ``claim``: first that of classes, then that of the claim.

    Class configuration applies to all requests served from the class. Configuration for other requests or alternatives
    is left out.
    """
    names: dict[str, list[str]] = {}
    served: set[str] = set()
    for name, way in _ways(claim, {device.request for device in devices}):
        names.setdefault(way.device_class, []).append(name)
        served |= {name, name.partition("/")[0]}
    found = [
        AllocatedConfig(config=attrs.evolve(each, requests=tuple(requests)), of_class=True)
        for device_class, requests in names.items()
        if device_class in classes
        for each in classes[device_class].config
    ]
    own = (each for each in claim.config if not each.requests or not served.isdisjoint(each.requests))
    return (*found, *(AllocatedConfig(config=each, of_class=False) for each in own))


def _ways(claim: Claim, served: set[str]) -> Iterator[tuple[str, DeviceRequest]]:
    """Yield the name under which devices serve each request, and the request or its alternative that they serve."""
    for request in claim.requests:
        for way in request.alternatives or (request,):
            name = f"{request.name}/{way.name}" if request.alternatives else request.name
            if name in served:
                yield name, way


# What allocates, and the language of its expressions, is imported where a pod claims something.


@attrs.define
class Memory:
    """What one cycle leaves to the next: answers that stay true while the objects they are about stay the same."""

    selectors: "Selectors | None" = None
    inventory: "Inventory | None" = None
    nodes: tuple[object, ...] = ()
    classes: Mapping[str, DeviceClass] = attrs.field(factory=dict)
    kept: "Kept | None" = None

    def answers(self, view: SessionView, concerns: Bools) -> "Answers":
        """Return the answers about claims; devices are the same as long as slices and nodes are the same objects."""
        from kai.framework.expressions import Selectors  # noqa: PLC0415 - only clusters with claims pay for it
        from kai.plugins.dra import claim_answers, demand, inventory  # noqa: PLC0415 - as above

        catalog, nodes = view.snapshot.catalog, view.snapshot.nodes
        slices = catalog.claims.slices
        version = catalog.claims.kubernetes
        known = self.inventory
        # By identity: intake hands on the same object for as long as nothing changes in it, and a comparison by value
        # would look at every attribute of every device in each cycle.
        is_same = known is not None and known.kubernetes == version and _same(known.slices, slices)
        if known is None or not is_same or not _same(self.nodes, nodes):
            gpus = catalog.gpus if catalog.gpus.devices else None
            known = self.inventory = inventory.take_inventory(slices, nodes, view.selected_nodes, version, gpus)
            self.nodes, self.kept = nodes, None
        self.selectors = self.selectors or Selectors()
        if self.kept is None or self.classes != catalog.claims.classes:
            self.classes = catalog.claims.classes
            self.kept = claim_answers.Kept(known, len(nodes), demand.Demands(known, self.classes, self.selectors))
        return claim_answers.Answers(view, known, self.selectors, concerns, self.kept)


def _same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


@attrs.frozen(kw_only=True)
class Dra:
    """Allocate devices to claims."""

    _memory: Memory = attrs.field(factory=Memory, init=False, eq=False, repr=False)

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Begin the accounting of all claims; without pods with claims, return nothing."""
        concerns = concerned(session)
        if not concerns.any():
            return ()
        answers = self._memory.answers(session, concerns)
        waits = (NodeWait(answers.must_wait, concerns=concerns),) if answers.any_waits else ()
        return (
            *waits,
            PodFilter(answers.admit, concerns=concerns),
            NodeFilter(answers.filter_nodes, concerns=concerns, explain=answers.explain),
            Placement(
                kind="claims",
                choose=answers.choose,
                recorded=answers.recorded,
                effects=answers.effects,
                lasting_effects=answers.lasting_effects,
                encode=partial(encode, session.snapshot.pods, session.snapshot.catalog.claims),
                corrections=answers.opening_effects(),
                credit=answers.credit,
                batch=answers.batch(),
                concerns=concerns,
            ),
            Victims(in_vain=answers.is_in_vain),
        )


def concerned(session: SessionView) -> Bools:
    """Return bool[K]: shapes with claims, or with extended resources that a device class backs."""
    known = session.snapshot.catalog.claims.classes
    classes = backing_classes(known)

    def claims(shape: Shape) -> bool:
        return bool(shape.constraints.claims or needed(shape, classes))

    return np.array(session.snapshot.by_shape("shapes that claim", claims, known), np.bool_)
