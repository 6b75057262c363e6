"""The kinds that the model serves, and where."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Served:
    """A kind, and the path of its collection.

    `drops_status` says that what a client writes to the object itself leaves its status alone.
    """

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    drops_status: bool = True
    is_custom: bool = False

    @property
    def resource(self) -> str:
        """How messages call it."""
        group, slash, _ = self.api_version.partition("/")
        return f"{self.plural}.{group}" if slash else self.plural

    @property
    def group(self) -> str:
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""


def _cluster(version: str, kind: str, plural: str, *, is_custom: bool = False, drops: bool = True) -> Served:
    return Served(version, kind, plural, namespaced=False, is_custom=is_custom, drops_status=drops)


SERVED: Final = (
    Served("v1", "Pod", "pods"),
    _cluster("v1", "Node", "nodes", drops=False),
    _cluster("v1", "Namespace", "namespaces"),
    Served("v1", "ConfigMap", "configmaps", drops_status=False),
    Served("v1", "Event", "events", drops_status=False),
    Served("v1", "ServiceAccount", "serviceaccounts", drops_status=False),
    Served("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    _cluster("v1", "PersistentVolume", "persistentvolumes"),
    Served("apps/v1", "Deployment", "deployments"),
    Served("apps/v1", "ReplicaSet", "replicasets"),
    Served("batch/v1", "Job", "jobs"),
    Served("coordination.k8s.io/v1", "Lease", "leases", drops_status=False),
    Served("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    _cluster("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", drops=False),
    _cluster("storage.k8s.io/v1", "StorageClass", "storageclasses", drops=False),
    _cluster("storage.k8s.io/v1", "CSIDriver", "csidrivers", drops=False),
    _cluster("storage.k8s.io/v1", "CSINode", "csinodes", drops=False),
    Served("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", drops_status=False),
    Served("resource.k8s.io/v1", "ResourceClaim", "resourceclaims"),
    Served("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", drops_status=False),
    _cluster("resource.k8s.io/v1", "ResourceSlice", "resourceslices", drops=False),
    _cluster("resource.k8s.io/v1", "DeviceClass", "deviceclasses", drops=False),
    _cluster("resource.k8s.io/v1", "DeviceTaintRule", "devicetaintrules"),
    _cluster("scheduling.run.ai/v2", "Queue", "queues", is_custom=True),
    Served("scheduling.run.ai/v2alpha2", "PodGroup", "podgroups", is_custom=True),
    Served("scheduling.run.ai/v1alpha2", "BindRequest", "bindrequests", is_custom=True),
    _cluster("kai.scheduler/v1alpha1", "Topology", "topologies", is_custom=True),
    _cluster("kai.scheduler/v1", "SchedulingShard", "schedulingshards", is_custom=True),
    _cluster("kai.scheduler/v1", "Config", "configs", is_custom=True),
)
BY_PATH: Final = {(each.api_version, each.plural): each for each in SERVED}
BY_KIND: Final = {(each.api_version, each.kind): each for each in SERVED}
