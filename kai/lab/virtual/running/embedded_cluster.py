"""The embedded cluster: objects in memory, changed as API server, binder and kubelet would change them.

A bound pod runs immediately, and holds its granted devices until it is gone. Unchanged objects keep their identity, so
that a cycle reads only what changed.

`Objects` stores one kind, with listings that record what was added and removed since the last one.

`Claims` makes resource claims from templates for new pods, allocates them on binds, and frees them as pods go.

Source: the controller of resource claims in kube-controller-manager, and the binder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from kai.answers.offline.cluster_reaction import bound_claims, device_labels, device_of, without_user
from kai.api import names, values
from kai.api.cluster_objects import ClusterObjects, Listing
from kai.api.conventions.binding import Grant
from kai.api.conventions.device_claims import ClaimKey, consumer_of, extended_claim_name, is_made_for, with_claims
from kai.api.fields import EMPTY
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod, claim_behind
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.parsing import mapping_of
from kai.facts.model.placement import DeviceAllocation
from kai.facts.model.pod import GpuKind
from kai.facts.model.units import GPU_UNIT, amounts, gpus_among
from kai.intake.bind_requests import annotations as written_annotations

if TYPE_CHECKING:
    from kai.api.kubernetes.dra import ResourceClaim, ResourceClaimTemplate
    from kai.facts.state.snapshot import Snapshot
    from kai.framework.decisions import Bind

T = TypeVar("T", bound=ApiObject)


class Objects(Generic[T]):
    """The objects of one kind by namespace and name. Cost: a listing costs what changed since the one before."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._listed: Listing[T] = Listing()
        self._before: dict[Key, T | None] = {}
        """For each key that changed since the last listing, the object in that listing."""

    def put(self, obj: T) -> None:
        """Add an object, or replace the one with its name."""
        key = key_of(obj)
        self._before.setdefault(key, self._objects.get(key))
        self._objects[key] = obj

    def remove(self, key: Key) -> None:
        """Remove an object; nothing happens if there is none."""
        if key in self._objects:
            self._before.setdefault(key, self._objects[key])
            del self._objects[key]

    def get(self, key: Key) -> T | None:
        """Return the object with a name."""
        return self._objects.get(key)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def listing(self) -> Listing[T]:
        """Return all objects; the same listing until something changes."""
        if self._before:
            news = [(before, self._objects.get(key)) for key, before in self._before.items()]
            gone = [before for before, now in news if before is not None and before is not now]
            come = [now for before, now in news if now is not None and before is not now]
            self._before = {}
            if gone or come:
                listed = self._listed
                shared = listed.next(gone, come)
                self._listed = shared or Listing.after(listed.mark, self._objects.values(), gone, come)
        return self._listed


class Claims:
    """All current claims by namespace and name."""

    def __init__(self, claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]) -> None:
        self._claims = {key_of(each): each for each in claims}
        self._templates = {key_of(each): each for each in templates}
        self._listed: tuple[ResourceClaim, ...] | None = None

    def listing(self) -> tuple[ResourceClaim, ...]:
        """Return all claims; the same tuple until one changes."""
        if self._listed is None:
            self._listed = tuple(self._claims.values())
        return self._listed

    def come(self, pod: Pod) -> Pod:
        """Make the claims of a new pod, and return the pod with their names."""
        claiming, made = with_claims(pod, self._templates.get, self._claims.get)
        self._put(made)
        return claiming

    def bind(self, pod: Pod, request: Mapping[str, object]) -> None:
        """Apply the claim allocations of a bind request for a pod."""
        self._put(bound_claims(pod, request, self._claims))

    def go(self, pod: Pod) -> None:
        """Free the claims of a pod that is gone: generated claims are deleted, others lose their user."""
        if not self._claims:
            return
        behind = [claim_behind(pod, each) for each in pod.spec.resource_claims]
        names = {name for name in (*behind, extended_claim_name(pod)) if name}
        for name in names:
            claim = self._claims.get((pod.metadata.namespace, name))
            if claim is not None and is_made_for(claim, pod):
                del self._claims[key_of(claim)]
                self._listed = None
            elif claim is not None:
                self._put([without_user(claim, consumer_of(pod).uid)])

    def _put(self, claims: Iterable[ResourceClaim]) -> None:
        for each in claims:
            key: ClaimKey = key_of(each)
            if self._claims.get(key) is not each:
                self._claims[key], self._listed = each, None


@attrs.define(eq=False)
class EmbeddedCluster:
    """The objects of a cluster at the current virtual time."""

    rest: ClusterObjects
    """The constant objects: queues, priority classes, topologies and others."""
    began: float
    """The start of virtual time, in seconds since the epoch."""
    claimable: Mapping[str, int] = EMPTY
    """Claimable GPUs by node, in addition to those in the Node object."""
    pods: Objects[Pod] = attrs.field(factory=Objects)
    groups: Objects[PodGroup] = attrs.field(factory=Objects)
    _claims: Claims = attrs.field(factory=lambda: Claims((), ()))
    _nodes: dict[str, Node] = attrs.field(factory=dict)
    _node_list: tuple[Node, ...] | None = None
    _gpus: dict[str, float] = attrs.field(factory=dict)

    @classmethod
    def of(cls, objects: ClusterObjects, began: float, claimable: Mapping[str, int] = EMPTY) -> EmbeddedCluster:
        """Return a cluster with these objects; jobs add their pods and groups when they arrive."""
        rest = attrs.evolve(objects, nodes=(), pods=(), pod_groups=(), resource_claims=())
        claims = Claims(objects.resource_claims, objects.resource_claim_templates)
        cluster = cls(rest=rest, began=began, claimable=claimable, claims=claims)
        for node in objects.nodes:
            cluster.put_node(node)
        for pod in objects.pods:
            cluster.add(pod)
        for group in objects.pod_groups:
            cluster.groups.put(group)
        return cluster

    def objects(self) -> ClusterObjects:
        """Return all objects. Cost: proportional to the changes since the last call."""
        if self._node_list is None:
            self._node_list = tuple(self._nodes.values())
        return attrs.evolve(
            self.rest,
            nodes=self._node_list,
            pods=self.pods.listing(),
            pod_groups=self.groups.listing(),
            resource_claims=self._claims.listing(),
        )

    # --- Nodes -----------------------------------------------------------------------------------------------------

    @property
    def gpus(self) -> float:
        """The GPUs of all nodes."""
        return sum(self._gpus.values())

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return tuple(self._nodes)

    def node(self, name: str) -> Node | None:
        """Return a node."""
        return self._nodes.get(name)

    def gpus_of(self, name: str) -> float | None:
        """Return the GPUs of a node; None if it does not exist."""
        return self._gpus.get(name)

    def put_node(self, node: Node) -> None:
        """Add or change a node."""
        name = node.metadata.name
        self._nodes[name], self._node_list = node, None
        self._gpus[name] = _gpus_of(node) + self.claimable.get(name, 0)

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)
        self._gpus.pop(name, None)
        self._node_list = None

    # --- Pods ------------------------------------------------------------------------------------------------------

    def instant(self, now: float) -> float:
        """Return an instant of virtual time in seconds since the epoch."""
        return self.began + now

    def add(self, pod: Pod) -> Pod:
        """Add a pod, with the claims that are made for it, and return it."""
        claiming = self._claims.come(pod) if pod.spec.resource_claims else pod
        self.pods.put(claiming)
        return claiming

    def remove(self, pod: Pod) -> None:
        """Remove a pod, and free its claims."""
        self._claims.go(pod)
        self.pods.remove(key_of(pod))

    def bind(self, pod: Pod, decision: Bind, snapshot: Snapshot, cycle: int) -> Pod:
        """Bind a pod as decided, start it, and return it."""
        devices = tuple(device_of(name, cycle) for name in decision.devices)
        metadata = pod.metadata
        annotations = {**metadata.annotations, names.GRANTED: _granted(decision, snapshot, devices)}
        if decision.received:
            annotations[names.RECEIVED_RESOURCE_TYPE] = decision.received
        annotations |= written_annotations(decision.request, pod)
        labels = {**metadata.labels, **device_labels(devices)} if devices else metadata.labels
        bound = attrs.evolve(
            pod,
            metadata=attrs.evolve(metadata, labels=labels, annotations=annotations),
            spec=attrs.evolve(pod.spec, node_name=snapshot.nodes[decision.node].name),
            status=attrs.evolve(pod.status, phase="Running"),
        )
        self.pods.put(bound)
        self._claims.bind(pod, decision.request)
        return bound

    def terminate(self, pod: Pod, now: float) -> Pod:
        """Mark a pod as terminating, and return it."""
        leaving = attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, deletion_timestamp=self.instant(now)))
        self.pods.put(leaving)
        return leaving

    def stamp(self, group: PodGroup, key: str, instant: float) -> PodGroup:
        """Write an instant on a group, or remove it if it is NaN; return the group."""
        annotations = dict(group.metadata.annotations)
        if not isnan(instant):
            annotations[key] = values.instant_text(instant)
        else:
            annotations.pop(key, None)
        stamped = attrs.evolve(group, metadata=attrs.evolve(group.metadata, annotations=annotations))
        self.groups.put(stamped)
        return stamped


def _gpus_of(node: Node) -> float:
    """Return the GPUs that a node offers."""
    return gpus_among(amounts(tuple(node.status.allocatable.items()))) / GPU_UNIT


def held_gpus(decision: Bind, snapshot: Snapshot) -> float:
    """Return the GPUs that a pod holds by a decision, to a thousandth."""
    shape = int(snapshot.pod_shape[decision.pod])
    if snapshot.shapes[shape].gpu.kind is GpuKind.MIG:
        return int(snapshot.requests[shape] @ snapshot.axis.gpu_weights()) / GPU_UNIT
    return (round(decision.gpu_count * decision.gpu_portion * GPU_UNIT) - _not_had(decision, snapshot)) / GPU_UNIT


def _not_had(decision: Bind, snapshot: Snapshot) -> int:
    """Return the thousandths of requested GPUs that a pod does not get because its claims are allocated partitions."""
    listed = decision.request.get("resourceClaimAllocations")
    allocations = listed if isinstance(listed, list) else []
    allocations = [*allocations, decision.request.get("extendedResourceClaimAllocation")]
    given = [mapping_of(each).get("allocation") for each in allocations]
    return sum(snapshot.catalog.gpus.not_had(each.devices) for each in given if isinstance(each, DeviceAllocation))


def _granted(decision: Bind, snapshot: Snapshot, devices: tuple[str, ...]) -> str:
    """Return the text of the grant of a bind. Source: the scheduler's bind request, and what the binder adds."""
    group = int(snapshot.pod_group[decision.pod])
    if group < 0:
        return Grant(gpus=devices).text
    facts = snapshot.groups[group]
    portion: float | None = None
    memory: int | None = None
    if decision.received == names.FRACTION:
        share = snapshot.shapes[int(snapshot.pod_shape[decision.pod])].gpu
        portion = share.portion if share.kind is GpuKind.FRACTION else None
        memory = share.memory if share.kind is GpuKind.MEMORY else None
    return _text_of(facts.queue, facts.node_pool, facts.name, devices, portion, memory)


@lru_cache(maxsize=1 << 12)
def _text_of(
    queue: str, pool: str, group: str, devices: tuple[str, ...], portion: float | None, memory: int | None
) -> str:
    return Grant(queue=queue, pool=pool, group=group, gpus=devices, portion=portion, memory=memory).text
