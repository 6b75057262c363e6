"""ClusterObjects: everything that a snapshot is made of, as one frozen value.

The store of the service, a scenario, a directory of manifests and the peer's snapshot all produce it, so that tests
enter the engine by the same interface as production.

`Listing` is the objects of one kind as a value, with the objects removed and added since an earlier value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar, overload

import attrs

from kai.api.kinds import BY_CLASS, ApiObject, title
from kai.api.kubernetes.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kai.api.kubernetes.meta import ConfigMap, Foreign, Namespace, PodDisruptionBudget, PriorityClass
from kai.api.kubernetes.node import Node, NodeResourceTopology
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, Topology
from kai.basics.errors import InputError

T = TypeVar("T")

_FEW: Final = 64


class Listing(Sequence[T]):
    """The objects of one kind, and the difference to an earlier listing; immutable.

    A reader that knows the earlier listing need not compare all objects, nor touch them: copying pointers to a
    hundred thousand objects takes milliseconds, because each object's reference count changes. So a listing that
    follows another shares its objects, and builds its own tuple when it is read.
    """

    __slots__ = ("_added", "_base", "_removed", "_whole", "before", "come", "gone", "mark")

    def __init__(self, objects: Iterable[T] = (), before: object = None) -> None:
        """Take all objects; ``before`` is the mark of the earlier listing, if there is one."""
        self._base: tuple[T, ...] = tuple(objects)
        self._removed: dict[int, T] = {}
        """Objects of the base that were removed since, by identity; the base keeps them alive."""
        self._added: dict[int, T] = {}
        self._whole: tuple[T, ...] | None = self._base
        self.before = before
        """The mark of the earlier listing; None if there is none."""
        self.gone: Sequence[T] = ()
        """Objects of the earlier listing that are not in this one."""
        self.come: Sequence[T] = ()
        """Objects of this listing that were not in the earlier one."""
        self.mark = object()

    @classmethod
    def after(cls, before: object, objects: Iterable[T], gone: Iterable[T], come: Iterable[T]) -> Listing[T]:
        """Return the listing of ``objects``, which follows the one with the mark ``before``."""
        made = cls(objects, before)
        made.gone, made.come = tuple(gone), tuple(come)
        return made

    def next(self, gone: Sequence[T], come: Sequence[T]) -> Listing[T] | None:
        """Return the listing without ``gone`` and with ``come``; None if it would share too little with this one.

        Cost: of the changes since the objects were last copied into one tuple.
        """
        if len(self._removed) + len(self._added) + len(gone) + len(come) > _FEW + len(self._base) // 16:
            return None
        made: Listing[T] = Listing((), self.mark)
        made._base, made._removed, made._added = self._base, self._removed.copy(), self._added.copy()
        for each in gone:
            if made._added.pop(id(each), None) is None:
                made._removed[id(each)] = each
        made._added.update(zip(map(id, come), come, strict=True))
        made._whole = None
        made.gone, made.come = gone, come
        return made

    def whole(self) -> tuple[T, ...]:
        """Return all objects as a tuple, the same one at each call."""
        if self._whole is None:
            removed = self._removed
            kept = [each for each in self._base if id(each) not in removed] if removed else self._base
            self._whole = (*kept, *self._added.values())
        return self._whole

    def __len__(self) -> int:
        return len(self._base) - len(self._removed) + len(self._added)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...

    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        """Return one object, or some."""
        return self.whole()[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self.whole())

    def __eq__(self, other: object) -> bool:
        """Return whether ``other``, a listing or a tuple, has equal objects in the same order."""
        if isinstance(other, Listing):
            return self.whole() == other.whole()
        return isinstance(other, tuple) and self.whole() == other

    def __hash__(self) -> int:
        """Return the hash of the tuple of the objects."""
        return hash(self.whole())


@attrs.frozen(kw_only=True)
class ClusterObjects:
    """The objects of a cluster at one moment, in no meaningful order; no two of a kind have the same name."""

    nodes: tuple[Node, ...] = ()
    pods: Sequence[Pod] = ()
    pod_groups: Sequence[PodGroup] = ()
    queues: tuple[Queue, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    bind_requests: tuple[BindRequest, ...] = ()
    topologies: tuple[Topology, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_drivers: tuple[CsiDriver, ...] = ()
    csi_nodes: tuple[CsiNode, ...] = ()
    csi_storage_capacities: tuple[CsiStorageCapacity, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    device_taint_rules: tuple[DeviceTaintRule, ...] = ()
    node_resource_topologies: tuple[NodeResourceTopology, ...] = ()
    foreign: Sequence[Foreign] = ()
    """Objects of all kinds that only plugins read."""


FIELD_OF: Final[dict[type[ApiObject], str]] = {
    Node: "nodes",
    Pod: "pods",
    PodGroup: "pod_groups",
    Queue: "queues",
    PriorityClass: "priority_classes",
    BindRequest: "bind_requests",
    Topology: "topologies",
    ConfigMap: "config_maps",
    Namespace: "namespaces",
    PodDisruptionBudget: "pod_disruption_budgets",
    PersistentVolumeClaim: "persistent_volume_claims",
    PersistentVolume: "persistent_volumes",
    StorageClass: "storage_classes",
    CsiDriver: "csi_drivers",
    CsiNode: "csi_nodes",
    CsiStorageCapacity: "csi_storage_capacities",
    ResourceClaim: "resource_claims",
    ResourceClaimTemplate: "resource_claim_templates",
    ResourceSlice: "resource_slices",
    DeviceClass: "device_classes",
    DeviceTaintRule: "device_taint_rules",
    NodeResourceTopology: "node_resource_topologies",
}
"""The field of ClusterObjects that holds objects of a class; configuration (shards) is not part of a cluster."""


def collect(objects: Iterable[ApiObject]) -> ClusterObjects:
    """Sort objects into ClusterObjects, in their order; drop objects of kinds that no snapshot needs.

    Raises: InputError for an object without a name, and for a second one of the same kind, namespace and name.
    """
    fields: dict[str, list[ApiObject]] = {}
    seen: set[tuple[type[ApiObject], str, str]] = set()
    errors: list[InputError] = []
    for obj in objects:
        cls = type(obj)
        metadata = obj.metadata
        if not metadata.name:
            errors.append(InputError.about(title(obj), "metadata.name", found=None, wanted="a name"))
            continue
        key = (cls, metadata.namespace if BY_CLASS[cls].namespaced else "", metadata.name)
        if key in seen:
            wanted = "one object of this kind and name"
            errors.append(InputError.about(title(obj), "metadata.name", found="a second one", wanted=wanted))
            continue
        seen.add(key)
        field = "foreign" if issubclass(cls, Foreign) else FIELD_OF.get(cls)
        if field is not None:
            fields.setdefault(field, []).append(obj)
    if errors:
        raise InputError.joined(errors)
    # The table above decides which class goes into which field; mypy cannot check that.
    chosen: dict[str, Any] = {field: tuple(members) for field, members in fields.items()}
    return ClusterObjects(**chosen)
