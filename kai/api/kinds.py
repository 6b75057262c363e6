"""The table of kinds: which class reads which apiVersion and kind, where it is served and where a snapshot keeps it."""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from kai.api.kubernetes.core import ConfigMap, Namespace, PodDisruptionBudget, PriorityClass
from kai.api.kubernetes.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kai.api.kubernetes.foreign import Foreign
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.numa import NodeResourceTopology
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
from kai.api.scheduling.queue import Queue
from kai.api.scheduling.shard import Config, SchedulingShard
from kai.api.scheduling.topology import Topology

ApiObject: TypeAlias = (
    Pod
    | Node
    | Queue
    | PodGroup
    | BindRequest
    | Topology
    | SchedulingShard
    | Config
    | PriorityClass
    | ConfigMap
    | Namespace
    | PodDisruptionBudget
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CsiDriver
    | CsiNode
    | CsiStorageCapacity
    | ResourceClaim
    | ResourceClaimTemplate
    | ResourceSlice
    | DeviceClass
    | DeviceTaintRule
    | NodeResourceTopology
    | Foreign
)
"""An object of a kind that kai knows, or that a plugin reads."""


@attrs.frozen
class Kind:
    """A kind of object.

    `api_versions` begins with the one that is written; the others are read where served.
    """

    cls: type[ApiObject]
    kind: str
    plural: str
    api_versions: tuple[str, ...]
    namespaced: bool = False
    is_dispensable: bool = False
    """Whether a service that may not read it goes on as if it were not served: the role may be of an older version."""

    @property
    def api_version(self) -> str:
        """Return the version in which kai writes objects of this kind."""
        return self.api_versions[0]

    @property
    def group(self) -> str:
        """Return the API group, empty for the core group."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""

    @property
    def version(self) -> str:
        """Return the version without its group."""
        return self.api_version.rpartition("/")[2]


_DRA: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")
_RULES: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3")
_STORAGE: Final = ("storage.k8s.io/v1", "storage.k8s.io/v1beta1")

KINDS: Final[tuple[Kind, ...]] = (
    Kind(Pod, "Pod", "pods", ("v1",), namespaced=True),
    Kind(Node, "Node", "nodes", ("v1",)),
    Kind(Queue, "Queue", "queues", ("scheduling.run.ai/v2",)),
    Kind(PodGroup, "PodGroup", "podgroups", ("scheduling.run.ai/v2alpha2",), namespaced=True),
    Kind(BindRequest, "BindRequest", "bindrequests", ("scheduling.run.ai/v1alpha2",), namespaced=True),
    Kind(Topology, "Topology", "topologies", ("kai.scheduler/v1alpha1",)),
    Kind(SchedulingShard, "SchedulingShard", "schedulingshards", ("kai.scheduler/v1",)),
    Kind(Config, "Config", "configs", ("kai.scheduler/v1",)),
    Kind(PriorityClass, "PriorityClass", "priorityclasses", ("scheduling.k8s.io/v1",)),
    Kind(ConfigMap, "ConfigMap", "configmaps", ("v1",), namespaced=True),
    Kind(Namespace, "Namespace", "namespaces", ("v1",)),
    Kind(PodDisruptionBudget, "PodDisruptionBudget", "poddisruptionbudgets", ("policy/v1",), namespaced=True),
    Kind(PersistentVolumeClaim, "PersistentVolumeClaim", "persistentvolumeclaims", ("v1",), namespaced=True),
    Kind(PersistentVolume, "PersistentVolume", "persistentvolumes", ("v1",)),
    Kind(StorageClass, "StorageClass", "storageclasses", _STORAGE),
    Kind(CsiDriver, "CSIDriver", "csidrivers", _STORAGE),
    Kind(CsiNode, "CSINode", "csinodes", _STORAGE, is_dispensable=True),
    Kind(CsiStorageCapacity, "CSIStorageCapacity", "csistoragecapacities", _STORAGE, namespaced=True),
    Kind(ResourceClaim, "ResourceClaim", "resourceclaims", _DRA, namespaced=True),
    Kind(ResourceClaimTemplate, "ResourceClaimTemplate", "resourceclaimtemplates", _DRA, namespaced=True),
    Kind(ResourceSlice, "ResourceSlice", "resourceslices", _DRA),
    Kind(DeviceClass, "DeviceClass", "deviceclasses", _DRA),
    Kind(DeviceTaintRule, "DeviceTaintRule", "devicetaintrules", _RULES, is_dispensable=True),
    Kind(
        NodeResourceTopology,
        "NodeResourceTopology",
        "noderesourcetopologies",
        ("topology.node.k8s.io/v1alpha2",),
    ),
)

BY_NAME: Final[dict[tuple[str, str], Kind]] = {
    (version, kind.kind): kind for kind in KINDS for version in kind.api_versions
}
BY_CLASS: Final[dict[type[ApiObject], Kind]] = {kind.cls: kind for kind in KINDS}


Key: TypeAlias = tuple[str, str]
"""Namespace and name of an object; the namespace is "" for an object that lies in none."""


def key_of(obj: ApiObject) -> Key:
    """Return namespace and name of an object."""
    return obj.metadata.namespace, obj.metadata.name


def title(obj: ApiObject) -> str:
    """Return how messages call an object: ``pod default/train-0``, ``queue team-a``."""
    kind = BY_CLASS[type(obj)]
    return title_of(kind.kind, obj.metadata.namespace, obj.metadata.name)


def title_of(kind: str, namespace: str, name: str) -> str:
    """Return how messages call an object with this kind, namespace and name."""
    place = f"{namespace}/{name}" if namespace else name
    if not place.isprintable():  # a message is one line, whatever stands in a file
        place = ascii(place)[1:-1]
    return f"{kind.lower()} {place}" if place else f"a {kind.lower()} without a name"
