"""A mirror: what happens in an embedded cluster happens on a real API server as well, all but what schedulers decide.

Owners, users and nodes live in ``kai.lab.virtual``; their objects are created, ended and taken away here. So a
simulation and a scheduler on a real API server see the same, and what each of them decides can be compared.
"""

import time
from typing import Any

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.kinds import key_of
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.lab.virtual.running.embedded_cluster import EmbeddedCluster
from kai.lab.virtual.running.live_jobs import State
from kai.lab.virtual.running.workloads import Workloads
from kai.lab.virtual.scenes.job_plans import identity_of
from tests.integration.client import Api, Manifest, until

GROUPS = "scheduling.run.ai/v2alpha2"
Key = tuple[str, str]


@attrs.frozen
class Place:
    """Where a pod is: its node, whether it was told to go, and with which pods it shares devices."""

    node: str = ""
    leaves: bool = False
    beside: frozenset[str] = frozenset()


@attrs.define
class Mirror:
    """Keeps a real cluster as the embedded one is."""

    api: Api
    cluster: EmbeddedCluster
    workloads: Workloads
    _pods: dict[Key, Pod] = attrs.field(factory=dict)
    """As they were created."""
    _groups: dict[Key, PodGroup] = attrs.field(factory=dict)
    _nodes: dict[str, Node] = attrs.field(factory=dict)
    _second: int = 0

    def begin(self, objects: ClusterObjects) -> None:
        """Create what is there from the start, in the order in which simulations have it."""
        for each in sorted(objects.queues, key=lambda queue: queue.metadata.name):
            self._wait_for_another_second()
            self.api.ensure(manifest_of(each))
        for each in (*objects.priority_classes, *objects.topologies):
            self.api.ensure(manifest_of(each))
        self.show()

    # --- What happens --------------------------------------------------------------------------------------------

    def show(self) -> bool:
        """Do what happened in the embedded cluster since the last time; return whether anything did."""
        pods = {life.key: life.pod for life in self.workloads.lives.values()}
        groups = {key_of(each): each for each in self.cluster.groups}
        gone = [key for key, pod in self._pods.items() if key not in pods or identity_of(pods[key]) != identity_of(pod)]
        for key in gone:
            self._take(key)
        told = self._tell_to_go()
        nodes = self._show_nodes()
        dropped = [key for key in self._groups if key not in groups]
        for key in dropped:
            self.api.delete(manifest_of(self._groups.pop(key)))
        fresh = sorted((key for key in groups if key not in self._groups), key=lambda key: _age(groups[key]))
        for key in fresh:
            self._create(groups[key])
            self._groups[key] = groups[key]
        come = sorted((key for key in pods if key not in self._pods), key=lambda key: _age(pods[key]))
        for key in come:
            self._create(recreated(pods[key]))
            self._pods[key] = pods[key]
        return bool(gone or told or nodes or dropped or fresh or come)

    def _tell_to_go(self) -> bool:
        """Delete pods that their owner or a drain tells to go; the scheduler has deleted those that it evicted."""
        found = [life.key for life in self.workloads.lives.values() if life.state is State.LEAVING]
        pods = [self.api.find(manifest_of(self._pods[key])) for key in found if key in self._pods]
        told = [pod for pod in pods if pod is not None and "deletionTimestamp" not in pod["metadata"]]
        for pod in told:
            self.api.delete(pod)
        return bool(told)

    def _take(self, key: Key) -> None:
        """Take away a pod that is over: one that runs ends by itself first."""
        manifest = manifest_of(self._pods.pop(key))
        found = self.api.find(manifest)
        if found is None:
            return
        if found["status"].get("phase") == "Running" and "deletionTimestamp" not in found["metadata"]:
            self.api.patch(found, {"status": {"phase": "Succeeded"}}, subresource="status")
        self.api.delete(found, gracePeriodSeconds=0)
        until(lambda: self.api.find(manifest) is None, f"{key} to be gone")

    def _show_nodes(self) -> bool:
        there = {name: self.cluster.node(name) for name in self.cluster.nodes}
        gone = [name for name in self._nodes if name not in there]
        for name in gone:
            self.api.delete(manifest_of(self._nodes.pop(name)))
        changed = [node for name, node in there.items() if node is not None and self._nodes.get(name) is not node]
        for node in changed:
            manifest = manifest_of(node)
            made = self.api.ensure(manifest)
            spec = {"taints": None, "unschedulable": None, **manifest.get("spec", {})}
            made = self.api.patch(made, {"spec": spec})
            self.api.patch(made, {"status": manifest["status"]}, subresource="status")
            self._nodes[node.metadata.name] = node
        return bool(gone or changed)

    def _create(self, obj: Pod | PodGroup) -> None:
        """Create an object a second after the last one of its kind: age decides what comes first, told in seconds."""
        self._wait_for_another_second()
        self.api.create(manifest_of(obj))

    def _wait_for_another_second(self) -> None:
        until(lambda: int(time.time()) > self._second, "another second", every=0.02)
        self._second = int(time.time())

    # --- Where pods are ------------------------------------------------------------------------------------------

    def wanted(self) -> dict[str, Place]:
        """Return where the pods are in the embedded cluster; those that owners make of a decision are shown next."""
        lives = [life for life in self.workloads.lives.values() if life.key in self._pods]
        labels = {"/".join(life.key): dict(life.pod.metadata.labels) for life in lives}
        found = {"/".join(life.key): (life.node, life.state is State.LEAVING) for life in lives}
        return _places(found, labels)

    def seen(self) -> dict[str, Place]:
        """Return where they are on the API server; one that is bound counts once it runs."""
        found: dict[str, tuple[str, bool]] = {}
        labels: dict[str, dict[str, str]] = {}
        for pod in self.api.list("v1", "Pod"):
            metadata = pod["metadata"]
            if (metadata["namespace"], metadata["name"]) in self._pods:
                key = f"{metadata['namespace']}/{metadata['name']}"
                runs = pod["status"].get("phase") == "Running"
                found[key] = (pod["spec"].get("nodeName", "") if runs else "", "deletionTimestamp" in metadata)
                labels[key] = metadata.get("labels", {})
        return _places(found, labels)


def manifest_of(obj: Any) -> Manifest:
    """Return what is created for an object: owners are no objects here, and the server gives identity and age."""
    manifest: Manifest = unstructure(obj)
    left_out = {"uid", "creationTimestamp", "ownerReferences", "deletionTimestamp", "resourceVersion"}
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in left_out}
    if manifest["kind"] in {"Pod", "PodGroup"}:
        manifest.pop("status", None)
    if manifest["kind"] == "Pod":
        spec = manifest["spec"]
        containers = [{"image": "none", **each} for each in spec["containers"]]
        if names.GPU_FRACTION in metadata.get("annotations", {}):  # as admission writes it
            config = {names.SHARED_GPU_CONFIG_MAP: f"{metadata['name']}-shared-gpu"}
            metadata["annotations"] = {**metadata["annotations"], **config}
        manifest["spec"] = {**spec, "containers": containers, "terminationGracePeriodSeconds": 600}
    return {**manifest, "metadata": metadata}


def recreated(pod: Pod) -> Pod:
    """Return a pod as its owner writes it."""
    return attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_name=""))


def _age(obj: Pod | PodGroup) -> tuple[float, str]:
    """Return what decides which of two comes first, oldest first."""
    return obj.metadata.creation_timestamp or 0.0, identity_of(obj)


def _places(found: dict[str, tuple[str, bool]], labels: dict[str, dict[str, str]]) -> dict[str, Place]:
    """Return places, with the pods that share a device: its name is another one in each cluster."""
    users: dict[str, set[str]] = {}
    for key, mine in labels.items():
        for label, value in mine.items():
            if label == names.GPU_GROUP or label.startswith(names.GPU_GROUP_PREFIX):
                users.setdefault(value, set()).add(key)
    beside = {key: frozenset[str]().union(*(each for each in users.values() if key in each)) for key in found}
    return {key: Place(node, leaves, beside[key]) for key, (node, leaves) in found.items()}
