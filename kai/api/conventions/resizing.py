"""What containers, and a pod as a whole, are counted with: what they ask for, or what their node gave them before.

CPU and memory of a container can be changed while it runs. Until its kubelet has followed, the node has what it gave
set aside, beside what is asked for now; the larger of the two counts. A change that the kubelet calls infeasible for
its node counts for nothing: an owner could ask for more than any node has, and all else would keep off that node.

Source: Kubernetes' scheduler (KEP-1287, in-place update of pod resources; KEP-2837, pod-level resources). KAI-Scheduler
counts what containers ask for, whatever their node gave, and knows no resources of a whole pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kai.api import names
from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import Container, Pod, ResourceRequirements
from kai.api.values.quantity import amount
from kai.quantity import canonical

_RESIZABLE: Final = {names.CPU: 1000, names.MEMORY: 1}
"""What can be changed, and in how many parts of its unit it is counted: bytes of the largest amounts have no parts."""
_HUGE: Final = "hugepages-"
_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


def requests_of(pod: Pod, containers: Iterable[Container]) -> list[Mapping[str, str]]:
    """Return what containers of a pod are counted with, in their order; what a limit stands for is not in it."""
    status = pod.status
    known = {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}
    counted = []
    for each in containers:
        asked, told = each.resources.requests, known.get(each.name)
        if told is not None:
            asked = _counted(pod, asked, told.allocated_resources, _used(told.resources))
        counted.append(asked)
    return counted


def requests_of_whole(pod: Pod) -> Mapping[str, str]:
    """Return what a pod asks for as a whole; it stands in place of what its containers ask for together.

    The overhead of its runtime class is no part of it. What a kubelet tells of a whole pod has it in, so it comes off.

    Source: Kubernetes' issue 139627: its scheduler adds the overhead once more where it goes by what the kubelet tells.
    """
    own, status = pod.spec.resources, pod.status
    if own is None:
        return EMPTY
    asked = {**own.limits, **own.requests}
    asked = {name: text for name, text in asked.items() if name in _RESIZABLE or name.startswith(_HUGE)}
    given, used = (_less(each, pod.spec.overhead) for each in (status.allocated_resources, _used(status.resources)))
    return _counted(pod, asked, given, used)


def _used(told: ResourceRequirements | None) -> Mapping[str, str]:
    return EMPTY if told is None else told.requests


def _less(told: Mapping[str, str], overhead: Mapping[str, str]) -> Mapping[str, str]:
    """Return what of the amounts that were ``told`` can be changed, without the ``overhead``; none below zero."""
    if not overhead:
        return told
    return {
        name: canonical(max(0, amount(told[name], parts) - amount(overhead.get(name, "0"), parts)), parts)
        for name, parts in _RESIZABLE.items()
        if name in told
    }


def _counted(
    pod: Pod, asked: Mapping[str, str], given: Mapping[str, str], used: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the larger amounts of what is asked for, what the kubelet has set aside, and what is in use yet."""
    told = (given, used)
    if all(not amounts or amounts == asked for amounts in told):
        return asked
    is_infeasible, most = _is_infeasible(pod), dict(asked)
    for name, parts in _RESIZABLE.items():
        if is_infeasible and given and name in most:
            most[name] = given.get(name, "0")
        for text in (amounts[name] for amounts in told if name in amounts):
            if name not in most or amount(most[name], parts) < amount(text, parts):
                most[name] = text
    return most


def _is_infeasible(pod: Pod) -> bool:
    return any(
        each.type == _PENDING and each.reason == _INFEASIBLE and each.status == "True" for each in pod.status.conditions
    )
