"""What a running scheduler knows of pods, and a reader of the cluster has to find out: groups, and binds that rest.

The link of a pod to its group is written by the pod's binding, or about ten seconds after the pod came
(`kai.podgrouper.links`); until then the owners of pod and group tell who belongs together. A pod whose bind was refused
is left out of cycles until the next try (`kai.scheduler.feedback.bind_backoff`); conditions of the pod say so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.refused_binds import at_rest, refusal_told
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup

_NONE: Final = ""


def as_known(objects: ClusterObjects, scheduler: str = names.SCHEDULER_NAME) -> ClusterObjects:
    """Return a cluster as its scheduler sees it: pods in their groups, and those at rest whose binds were refused.

    Holds: the same value where objects say all; only pods without a node are changed.
    Cost: a look at each pod, and at each group where a pod names none.
    """
    waiting = [(row, pod) for row, pod in enumerate(objects.pods) if _waits(pod, scheduler)]
    bare = [(row, pod) for row, pod in waiting if names.POD_GROUP not in pod.metadata.annotations]
    groups = _Owned(objects.pod_groups) if bare else None
    changed: dict[int, Pod] = {}
    for row, pod in bare:
        if groups is not None and (group := groups.of(pod)):
            changed[row] = _linked(pod, group)
    for row, pod in waiting:
        if text := refusal_told(pod):
            changed[row] = at_rest(changed.get(row, pod), text)
    if not changed:
        return objects
    return attrs.evolve(objects, pods=tuple(changed.get(row, pod) for row, pod in enumerate(objects.pods)))


def _waits(pod: Pod, scheduler: str) -> bool:
    return (
        not pod.spec.node_name
        and pod.spec.scheduler_name == scheduler
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ENDED
    )


def _linked(pod: Pod, group: str) -> Pod:
    annotations = {**pod.metadata.annotations, names.POD_GROUP: group}
    return attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, annotations=annotations))


class _Owned:
    """Groups by what owns them."""

    def __init__(self, groups: Sequence[PodGroup]) -> None:
        self._names: dict[tuple[str, str], str] = {}
        for key, name in _owners(groups):
            # An owner with several groups, such as one for each of its pods, does not tell which of them a pod is in.
            self._names[key] = _NONE if key in self._names else name

    def of(self, pod: Pod) -> str:
        """Return the name of the group that the pod, or its owner, owns; "" where that is none, or not one abare."""
        metadata = pod.metadata
        own: Mapping[tuple[str, str], str] = self._names
        uids = (metadata.uid, *(each.uid for each in metadata.owner_references))
        return next((own[key] for uid in uids if own.get(key := (metadata.namespace, uid))), "")


def _owners(groups: Sequence[PodGroup]) -> Iterator[tuple[tuple[str, str], str]]:
    for group in groups:
        for owner in group.metadata.owner_references:
            if owner.uid:
                yield (group.metadata.namespace, owner.uid), group.metadata.name


__all__ = ["as_known"]
