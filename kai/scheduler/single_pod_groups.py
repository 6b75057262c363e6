"""Groups of a single pod: when they started is known without being written down.

The API server notes on a pod when it was bound. A group that will never have another pod started then, so the timestamp
that the engine goes by is only shown in the store of this process, and made anew from the pods after a start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kai.api import names
from kai.api.kinds import Key
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, name_after
from kai.api.values.times import instant_text
from kai.scheduler.effects import Overlay
from kai.scheduler.reader import Reader


def is_of_one_pod(group: PodGroup) -> bool:
    """Return whether a group was made for one pod that has no other owner: it is called after that pod."""
    owners = group.metadata.owner_references
    if len(owners) != 1 or owners[0].kind != "Pod":
        return False
    return group.metadata.name == name_after(owners[0].name, owners[0].uid)


def recalled_starts(reader: Reader, groups: Iterable[PodGroup]) -> Iterator[Overlay]:
    """Yield the start times of those of some groups that have one pod and carry no annotation of it."""
    for group in groups:
        metadata = group.metadata
        if names.LAST_START in metadata.annotations or not is_of_one_pod(group):
            continue
        pod = reader.get(Pod, metadata.owner_references[0].name, metadata.namespace)
        bound = None if pod is None else _bound_at(pod)
        if bound is not None:
            key: Key = (metadata.namespace, metadata.name)
            yield Overlay(PodGroup, key, {names.LAST_START: instant_text(float(int(bound)))})


def _bound_at(pod: Pod) -> float | None:
    """Return when a pod got its node; None if it has none."""
    if not pod.spec.node_name:
        return None
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION and condition.status == "True":
            return condition.last_transition_time
    return pod.metadata.creation_timestamp
