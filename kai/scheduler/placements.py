"""What shows of another scheduler in the cluster: where its pods are at one moment, and what conditions say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.api.kubernetes.pod import ENDED, Pod

_NOT_OF_SCHEDULERS: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"})
"""Reasons of the condition DisruptionTarget with which other parts of Kubernetes make pods go."""
_BY_API: Final = "EvictionByEvictionAPI"
_CLOSED: Final = "Failed"

JobKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


@attrs.frozen(kw_only=True)
class Placements:
    """What counts of the cluster at one moment."""

    pods: Mapping[str, Pod]
    """By UID."""
    placed: Mapping[str, str]
    """The nodes of pods that have one or are being bound, by UID."""
    leaving: frozenset[str]
    holding: frozenset[str]
    """UIDs of pods that hold what they asked for."""
    room: tuple[object, ...]
    """What the cluster offers, and what queues may have of it."""

    @classmethod
    def of(cls, objects: ClusterObjects) -> Placements:
        """Return what counts. Cost: O(pods)."""
        ordered = {
            (each.metadata.namespace, each.spec.pod_name): each.spec.selected_node
            for each in objects.bind_requests
            if each.status.phase != _CLOSED
        }
        pods = {pod.metadata.uid: pod for pod in objects.pods}
        placed: dict[str, str] = {}
        for uid, pod in pods.items():
            if node := pod.spec.node_name or ordered.get(key_of(pod), ""):
                placed[uid] = node
        leaving = frozenset(uid for uid in placed if pods[uid].metadata.deletion_timestamp is not None)
        ended = {uid for uid in placed if pods[uid].status.phase in ENDED}
        nodes = tuple((each.metadata.name, each.spec, each.status.allocatable) for each in objects.nodes)
        room = (nodes, tuple((each.metadata.name, each.spec) for each in objects.queues))
        return cls(pods=pods, placed=placed, leaving=leaving, holding=frozenset(placed) - leaving - ended, room=room)


def word_of_evictor(pod: Pod, *, is_cordoned: bool) -> str:
    """Return with which words a scheduler made a pod go; "" where its owner, a drain or a kubelet may have."""
    for each in pod.status.conditions:
        if each.type != names.DISRUPTION_TARGET_CONDITION or each.status != "True" or each.reason in _NOT_OF_SCHEDULERS:
            continue
        if each.reason == _BY_API and is_cordoned:
            continue
        return each.message or each.reason or each.type
    return ""


def words_of_groups(objects: ClusterObjects, wanted: set[JobKey]) -> dict[JobKey, str]:
    """Return what the newest conditions of some groups say."""
    if not wanted:
        return {}
    return {
        key_of(each): each.status.scheduling_conditions[-1].message
        for each in objects.pod_groups
        if each.status.scheduling_conditions and key_of(each) in wanted
    }


def word_of_pod(pod: Pod | None) -> str:
    """Return with which words a scheduler said that a pod has no node; "" if none did."""
    conditions = () if pod is None else pod.status.conditions
    return next((each.message for each in conditions if each.type == "PodScheduled" and each.status == "False"), "")
