"""What pods count for, as Kubernetes' scheduler and kai have it.

A pod is drawn from a number: containers, init containers and sidecars, resources of the whole pod, overhead, and what a
kubelet tells while it resizes some of it, or finds that infeasible.
"""

import random
from collections.abc import Mapping
from typing import Any

from kai.api.codec.structuring import structure_as
from kai.api.conventions.amounts import effective_requests, exact
from kai.api.kubernetes.pod import Pod
from kai.basics.kubernetes_version import KubernetesVersion
from kai.intake.requests import asked_by, demand, resource_key

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
_AMOUNTS = {
    "cpu": ("250m", "500m", "1", "1500m", "2", "4"),
    "memory": ("128Mi", "256Mi", "1Gi", "1500M", "3Gi"),
    GPU: ("1", "2"),
    "hugepages-2Mi": ("4Mi", "8Mi"),
}
_PARTS = {"cpu": 10**6, "memory": 10**9, GPU: 10**6}
"""Billionths in what the intake counts a resource in: thousandths of a core and of a GPU, bytes."""


def drawn(seed: int) -> Document:
    """Return the pod of a number; every Python draws the same one."""
    return _Drawing(random.Random(seed)).pod()


class _Drawing:
    """One pod being drawn."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.is_told = self.chance(0.6)
        """Whether a kubelet tells of its containers."""

    def chance(self, share: float) -> bool:
        return self.source.random() < share

    def choice(self, *among: Any) -> Any:
        return among[int(self.source.random() * len(among))]

    def amount(self, name: str) -> str:
        return str(self.choice(*_AMOUNTS[name]))

    def pod(self) -> Document:
        containers = [self.container(f"c{at}") for at in range(self.choice(1, 1, 2, 3))]
        initial = [self.container(f"i{at}") for at in range(self.choice(0, 0, 1, 2, 3))]
        for each in initial:
            if self.chance(0.5):
                each["restartPolicy"] = "Always"
        spec: Document = {"containers": containers, "initContainers": initial}
        status: Document = {
            "containerStatuses": self.statuses(containers),
            "initContainerStatuses": self.statuses(initial),
        }
        if self.chance(0.3):
            names = ["cpu", "memory", "hugepages-2Mi"]
            spec["resources"] = {"requests": {name: self.amount(name) for name in names if self.chance(0.6)}}
        if self.is_told and self.chance(0.3):
            of_whole = ("cpu", "memory")
            status["allocatedResources"] = {name: self.amount(name) for name in of_whole}
            used = {name: self.amount(name) for name in of_whole if self.chance(0.9)}
            status["resources"] = {"requests": used or {"cpu": "1"}}
        if self.chance(0.15):
            spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
        if self.is_told and self.chance(0.3):
            reason = self.choice("Infeasible", "Deferred")
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return {"metadata": {"name": "p", "namespace": "default"}, "spec": spec, "status": status}

    def container(self, name: str) -> Document:
        names = [each for each in ("cpu", "memory") if self.chance(0.8)]
        requests = {each: self.amount(each) for each in names}
        if self.chance(0.15):
            requests[GPU] = self.amount(GPU)
        return {"name": name, "resources": {"requests": requests} if requests else {}}

    def statuses(self, containers: list[Document]) -> list[Document]:
        """Return what a kubelet tells: of devices what is asked for, of CPU and memory that or something else."""
        found = []
        for each in containers:
            if not self.is_told or self.chance(0.2):
                continue
            told: Document = {"name": each["name"]}
            if given := self.changed(each):
                told["allocatedResources"] = given
            if self.chance(0.85):
                used = self.changed(each)
                told["resources"] = {"requests": used} if used and self.chance(0.9) else {}
            found.append(told)
        return found

    def changed(self, container: Document) -> Document:
        asked: Mapping[str, str] = container["resources"].get("requests", {})
        return {
            name: self.amount(name) if name in {"cpu", "memory"} and self.chance(0.4) else text
            for name, text in asked.items()
            if name == GPU or self.chance(0.95)
        }


# ---------------------------------------------------------------------- what kai makes of it


def difference(document: Document, theirs: Mapping[str, str], version: KubernetesVersion) -> str:
    """Return where kai counts a pod otherwise than Kubernetes does, on its node or for its queue; "" if nowhere."""
    pod = structure_as(Pod, document)
    counted = {name: each.billionths for name, each in effective_requests(pod, version).items()}
    booked = dict(demand(resource_key(pod, asked=asked_by(pod, version))).request)
    for name in sorted(counted.keys() | theirs.keys()):
        expected = exact(theirs.get(name, "0")).billionths
        if counted.get(name, 0) != expected:
            return f"{name}: kai {counted.get(name, 0)}, Kubernetes {expected} billionths"
        parts = _PARTS.get(name)
        of_queue = booked.get("gpu" if name == GPU else name, 0)
        if parts is not None and of_queue != expected // parts:
            return f"{name}: the intake {of_queue}, Kubernetes {expected // parts}"
    return ""


def explained(document: Document, found: str) -> str:
    """Return under which row of docs/differences.md a difference falls, "" if under none."""
    spec, status = document["spec"], document["status"]
    if "overhead" in spec and "resources" in status:
        return "the overhead of a pod whose resources the kubelet reports for the whole pod"
    is_infeasible = any(each["reason"] == "Infeasible" for each in status.get("conditions", ()))
    if is_infeasible and found.partition(":")[0] not in {"cpu", "memory"}:
        return "resources that kubelets never resize"
    return ""
