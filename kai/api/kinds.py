"""The table of kinds, and kinds that plugins read.

The table says which class decodes which apiVersion and kind, where the API server serves it, and which field of a
snapshot holds it.

Plugins may read kinds of their own. They are declared before manifests are read, and before a service begins to watch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import attrs

from kai.api.kubernetes.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kai.api.kubernetes.meta import ConfigMap, Foreign, Job, Namespace, PodDisruptionBudget, PriorityClass
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
from kai.api.scheduling.shard import Config, SchedulingShard
from kai.basics.errors import ConfigError
from kai.basics.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    | Job
    | Foreign
)
"""An object of a kind that kai knows, or that a plugin reads."""


@attrs.frozen
class Kind:
    """A kind of object.

    `api_versions` begins with the version that kai writes; the others are read where served.
    """

    cls: type[ApiObject]
    kind: str
    plural: str
    api_versions: tuple[str, ...]
    namespaced: bool = False
    is_dispensable: bool = False
    """Whether a service without permission to read it runs as if it were not served: its role may be older than kai."""

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
WRITTEN: Final = (Kind(Job, "Job", "jobs", ("batch/v1",), namespaced=True),)
"""Kinds that kai reads and writes one by one; they are neither watched nor part of a snapshot."""
BY_CLASS: Final[dict[type[ApiObject], Kind]] = {kind.cls: kind for kind in (*KINDS, *WRITTEN)}


Key: TypeAlias = tuple[str, str]
"""Namespace and name of an object; the namespace is "" for a cluster-scoped object."""


def key_of(obj: ApiObject) -> Key:
    """Return namespace and name of an object."""
    return obj.metadata.namespace, obj.metadata.name


def title(obj: ApiObject) -> str:
    """Return an object's title in messages: ``pod default/train-0``, ``queue team-a``."""
    kind = BY_CLASS[type(obj)]
    return title_of(kind.kind, obj.metadata.namespace, obj.metadata.name)


def title_of(kind: str, namespace: str, name: str) -> str:
    """Return the title in messages of an object with this kind, namespace and name."""
    place = f"{namespace}/{name}" if namespace else name
    if not place.isprintable():  # a message is one line, whatever the name contains
        place = ascii(place)[1:-1]
    return f"{kind.lower()} {place}" if place else f"a {kind.lower()} without a name"


HANDED_ON: Final = (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    NodeResourceTopology,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Topology,
)
"""Kinds of kai that plugins may read, as raw manifests."""
DECLARED: Final[dict[tuple[str, str], Kind]] = {}


def declare(api_version: str, kind: str, plural: str, *, namespaced: bool, plugin: str = "") -> type[ApiObject]:
    """Declare a kind to all readers of objects, and return its class; idempotent.

    ``plugin`` names the plugin that reads it, for messages.

    Raises: ConfigError for a kind that kai reads itself, and for two different declarations of one.
    """
    known = BY_NAME.get((api_version, kind))
    place = f"{f'plugin {shown(plugin)}: ' if plugin else ''}{api_version} {kind}"
    if known is None:
        cls: type[Foreign] = attrs.frozen(kw_only=True)(type(kind, (Foreign,), {"__module__": __name__}))
        declared = Kind(cls, kind, plural, (api_version,), namespaced)
        BY_NAME[api_version, kind] = BY_CLASS[cls] = DECLARED[api_version, kind] = declared
        return cls
    if DECLARED.get((api_version, kind)) is None and known.cls not in HANDED_ON:
        raise ConfigError(f"{place}: found a kind that kai reads itself, expected one of the plugin's own")
    if (known.plural, known.namespaced) != (plural, namespaced):
        found = f"{plural}, namespaced: {namespaced}"
        raise ConfigError(f"{place}: found {found}, expected {known.plural}, namespaced: {known.namespaced}")
    return known.cls


class KindRead(Protocol):
    """A kind as a plugin declares it; `kai.api` cannot import the plugin's package."""

    @property
    def api_version(self) -> str:
        """Return API group and version."""
        ...

    @property
    def kind(self) -> str:
        """Return the kind."""
        ...

    @property
    def plural(self) -> str:
        """Return the plural, its name in URL paths."""
        ...

    @property
    def namespaced(self) -> bool:
        """Return whether objects of the kind are namespaced."""
        ...


def declare_all(kinds: Iterable[tuple[KindRead, str]]) -> tuple[type[ApiObject], ...]:
    """Declare kinds, each with the name of a plugin that reads it, and return their classes.

    Raises: ConfigError for a kind that kai reads itself.
    """
    return tuple(
        declare(each.api_version, each.kind, each.plural, namespaced=each.namespaced, plugin=plugin)
        for each, plugin in kinds
    )
