"""A cluster of which a user may see one namespace only: jobs that run and wait, with what a scheduler wrote of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

OVER_LIMIT: Mapping[str, Any] = {
    "reason": "OverLimit",
    "message": "team quota has reached the allowable limit of GPUs. "
    "Limit is 4 GPUs, currently 3 GPUs allocated and workload requested 4 GPUs",
    "details": {
        "queueDetails": {
            "name": "team",
            "queueAllocatedResources": {"nvidia.com/gpu": "3"},
            "queueResourceLimits": {"cpu": "-1", "memory": "-1", "nvidia.com/gpu": "4"},
            "podGroupRequestedResources": {"nvidia.com/gpu": "4"},
        }
    },
}
GANG: Mapping[str, Any] = {
    "reason": "PodSchedulingErrors",
    "message": "Resources were found for 1 pods while 2 are required for gang scheduling. "
    "Additional pods cannot be scheduled due to: no nodes with enough resources were found.",
}


@attrs.frozen(kw_only=True)
class OwnGroup:
    """A pod group of two pods that start together, two GPUs each."""

    name: str
    namespace: str = "ml"
    nodes: Sequence[str] = ("", "")
    """The node of each pod; "" for one that waits."""
    told: Sequence[Mapping[str, Any]] = ()
    status: Mapping[str, Any] = attrs.field(factory=dict)

    def manifests(self) -> list[Mapping[str, Any]]:
        """Return the group and its pods, as an API server has them."""
        place = {"namespace": self.namespace, "creationTimestamp": "2026-11-22T08:00:00Z"}
        condition = {
            "type": "UnschedulableOnNodePool",
            "nodePool": "default",
            "reason": "Unschedulable",
            "status": "True",
            "transitionID": "3",
            "lastTransitionTime": "2026-11-22T09:00:00Z",
            "reasons": list(self.told),
        }
        group = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {**place, "name": self.name, "uid": self.name},
            "spec": {"queue": "team", "minMember": 2},
            "status": {**self.status, **({"schedulingConditions": [condition]} if self.told else {})},
        }
        return [group, *(self._pod(f"{self.name}-{at}", node, place) for at, node in enumerate(self.nodes))]

    def _pod(self, name: str, node: str, place: Mapping[str, str]) -> Mapping[str, Any]:
        gpus = {"nvidia.com/gpu": "2"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**place, "name": name, "uid": name, "annotations": {"pod-group-name": self.name}},
            "spec": {
                "schedulerName": "kai-scheduler",
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"limits": gpus, "requests": gpus}}],
            },
            "status": {"phase": "Running" if node else "Pending"},
        }


OWN_CLUSTER = (
    OwnGroup(name="bound", told=[OVER_LIMIT]),
    OwnGroup(name="gang", told=[GANG]),
    OwnGroup(name="runs", nodes=("n1", "n1")),
    OwnGroup(name="few", nodes=("",)),
    OwnGroup(name="secret", namespace="other", told=[OVER_LIMIT]),
)


def own_manifests(groups: Sequence[OwnGroup] = OWN_CLUSTER) -> list[Mapping[str, Any]]:
    """Return everything of these groups."""
    return [each for group in groups for each in group.manifests()]
