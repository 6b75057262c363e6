"""Sums of quantities, exact and without bound, for services that add up what many objects say.

`kai.api.values` reads one amount into 64 bits of a declared unit, which is what columns need. The memory of a
whole cluster in bytes beside a thousandth of a GPU fits no single unit, so here amounts are Python integers in
billionths, the finest that the Kubernetes API knows.

What containers, and a pod as a whole, are counted with: what they ask for, or what their node gave them before.

CPU and memory of a container can be changed while it runs. Until its kubelet has followed, the node has what it gave
set aside, beside what is asked for now; the larger of the two counts. A change that the kubelet calls infeasible for
its node counts for nothing: an owner could ask for more than any node has, and all else would keep off that node.

Before Kubernetes 1.37 the larger amount counts of each container, since then of the sums of the pod: what one container
gives up and another gets counts once.

Source: PodRequests of Kubernetes' scheduler (KEP-1287, in-place update of pod resources; KEP-2837, pod-level
resources). KAI-Scheduler counts what containers ask for, whatever their node gave, and knows no resources of a whole
pod.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias

import attrs

from kai.api import names
from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import Container, ContainerStatus, Pod, ResourceRequirements, condition_of
from kai.api.values import BadValue, amount
from kai.basics.kubernetes_version import NEWEST, V1_37, KubernetesVersion
from kai.basics.parsing import canonical

_RESIZABLE: Final = {names.CPU: 1000, names.MEMORY: 1}
"""What can be changed, and in how many parts of its unit it is counted: bytes of the largest amounts have no parts."""
_STYLE: Final[Mapping[str, Literal["decimal", "binary"]]] = {names.CPU: "decimal", names.MEMORY: "binary"}
_HUGE: Final = "hugepages-"
_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


Amounts: TypeAlias = dict[str, int]


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the others."""
    return container.restart_policy == "Always"


def at_once(containers: Iterable[Mapping[str, int]], initial: Iterable[tuple[bool, Mapping[str, int]]]) -> Amounts:
    """Return the most that a pod needs at any time, of each resource.

    ``initial`` are init containers in their order, each with whether it is a sidecar. Others run one after the other
    before the containers, beside the sidecars that precede them.
    """
    total: Amounts = {}
    for each in containers:
        _add(total, each)
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for lasts, each in initial:
        if lasts:
            _add(sidecars, each)
        else:
            peak = dict(sidecars)
            _add(peak, each)
            peaks.append(peak)
    _add(total, sidecars)
    for peak in peaks:
        for name, least in peak.items():
            total[name] = max(total.get(name, 0), least)
    return total


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, added in more.items():
        total[name] = total.get(name, 0) + added


Texts: TypeAlias = list[Mapping[str, str]]


def requests_of(pod: Pod) -> tuple[Texts, Texts]:
    """Return what each container of a pod is counted with by itself, and each init container.

    What a limit stands for is not in it. Of init containers only sidecars count with what their node gave.
    """
    known = _told(pod)

    def counted(container: Container) -> Mapping[str, str]:
        asked, told = container.resources.requests, known.get(container.name)
        if told is None or told.resources is None:
            return asked
        return _largest_of_each(pod, asked, told.allocated_resources, told.resources.requests)

    initial = pod.spec.init_containers
    first = [counted(each) if is_sidecar(each) else each.resources.requests for each in initial]
    return [counted(each) for each in pod.spec.containers], first


def _told(pod: Pod) -> Mapping[str, ContainerStatus]:
    status = pod.status
    return {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)}


def sums_of(pod: Pod) -> Mapping[str, str]:
    """Return the CPU and memory that all containers count for together, as Kubernetes has it since 1.37.

    Empty if that is what they ask for.
    """
    if not _is_resized(pod):
        return EMPTY
    known, is_infeasible = _told(pod), _is_infeasible(pod)

    def given(container: Container) -> Mapping[str, str]:
        told = known.get(container.name)
        if told is not None and told.allocated_resources:
            return told.allocated_resources
        return EMPTY if is_infeasible else _asked(container)

    def used(container: Container) -> Mapping[str, str]:
        told = known.get(container.name)
        if told is not None and told.resources is not None and told.resources.requests:
            return told.resources.requests
        return given(container)

    status = pod.status
    told: list[Amounts]
    if status.allocated_resources and _used(status.resources):
        told = [_numbers(_less(each, pod.spec.overhead)) for each in _of_whole(pod)]
    else:
        told = [_sum(pod, given), _sum(pod, used)]
    asked = _sum(pod, _asked)
    lists = told if is_infeasible else [asked, *told]
    return {
        name: canonical(max(each.get(name, 0) for each in lists), parts, style=_STYLE[name])
        for name, parts in _RESIZABLE.items()
        if any(name in each for each in (asked, *told))
    }


def _is_resized(pod: Pod) -> bool:
    """Return whether a kubelet tells of other amounts than the pod asks for; cheap, as it is asked of each pod."""
    status = pod.status
    if status.resources is not None and status.allocated_resources:
        return True
    if status.conditions and _is_infeasible(pod):
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False
    asked = {each.name: each.resources.requests for each in (*pod.spec.init_containers, *pod.spec.containers)}
    for told in (*status.container_statuses, *status.init_container_statuses):
        for amounts in (told.allocated_resources, _used(told.resources)):
            if amounts and amounts != asked.get(told.name):
                return True
    return False


def _asked(container: Container) -> Mapping[str, str]:
    """Return what a container asks for; a limit stands for a request that is missing, as the API server has it."""
    return {**container.resources.limits, **container.resources.requests}


def _numbers(texts: Mapping[str, str]) -> Amounts:
    return {name: amount(texts[name], parts) for name, parts in _RESIZABLE.items() if name in texts}


def _sum(pod: Pod, of: Callable[[Container], Mapping[str, str]]) -> Amounts:
    initial = ((is_sidecar(each), _numbers(of(each))) for each in pod.spec.init_containers)
    return at_once((_numbers(of(each)) for each in pod.spec.containers), initial)


def requests_of_whole(pod: Pod, kubernetes: KubernetesVersion = NEWEST) -> Mapping[str, str]:
    """Return what a pod asks for as a whole; it stands in place of what its containers ask for together.

    A limit stands for a request of which no container asks for any, as the API server has it. The overhead of its
    runtime class is no part of it. What a kubelet tells of a whole pod has it in, so it comes off.

    Source: Kubernetes' issue 139627: its scheduler adds the overhead once more where it goes by what the kubelet tells.
    """
    own, status = pod.spec.resources, pod.status
    if own is None:
        return EMPTY
    named = {name for each in (*pod.spec.containers, *pod.spec.init_containers) for name in _asked(each)}
    asked = {name: text for name, text in own.limits.items() if name.startswith(_HUGE) or name not in named}
    asked = {name: text for name, text in {**asked, **own.requests}.items() if _is_of_whole(name)}
    if not asked or status.resources is None:
        return asked
    told = [_less(each, pod.spec.overhead) for each in _of_whole(pod)]
    counted = _largest_of_each(pod, asked, *told)
    if kubernetes < V1_37:
        return {name: text for name, text in counted.items() if name in asked}
    return counted


def _is_of_whole(name: str) -> bool:
    return name in _RESIZABLE or name.startswith(_HUGE)


def _of_whole(pod: Pod) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return what the kubelet has set aside for a pod as a whole, and what is in use of it."""
    return pod.status.allocated_resources, _used(pod.status.resources)


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


def _largest_of_each(
    pod: Pod, asked: Mapping[str, str], given: Mapping[str, str], used: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the larger amounts of what is asked for, what the kubelet has set aside, and what is in use yet."""
    told = (given, used)
    is_infeasible = bool(pod.status.conditions) and _is_infeasible(pod)
    if not is_infeasible and all(not amounts or amounts == asked for amounts in told):
        return asked
    most = dict(asked)
    for name, parts in _RESIZABLE.items():
        if is_infeasible and name in most:
            most[name] = "0"
        for text in (amounts[name] for amounts in told if name in amounts):
            if name not in most or amount(most[name], parts) < amount(text, parts):
                most[name] = text
    return most


def _is_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet says so in the condition, of which Kubernetes looks at the first."""
    found = condition_of(pod, _PENDING)
    return found is not None and found.reason == _INFEASIBLE


BILLION: Final = 10**9


@attrs.frozen
class Amount:
    """An amount of a resource.

    Units: `billionths` of the resource's own unit. `binary` says that its text is written with Ki, Mi, Gi.
    """

    billionths: int = 0
    binary: bool = False

    def __add__(self, other: Amount) -> Amount:
        """Return the sum, written as the first of the two that is not zero."""
        binary = self.binary if self.billionths else other.binary
        return Amount(self.billionths + other.billionths, binary)

    def times(self, count: int) -> Amount:
        """Return the amount, so many times."""
        return Amount(self.billionths * count, self.binary)

    @property
    def text(self) -> str:
        """Return the canonical quantity text."""
        return canonical(self.billionths, BILLION, style="binary" if self.binary else "decimal")


@functools.lru_cache(maxsize=1 << 14)
def exact(text: str) -> Amount:
    """Return the amount of a quantity, exactly as long as it fits into 64 bits at that precision.

    Raises: BadValue if the text is not a quantity or its whole units do not fit into 64 bits.
    """
    parts = BILLION
    while True:
        try:
            return Amount(amount(text, parts) * (BILLION // parts), text.endswith("i"))
        except BadValue:
            if parts == 1:
                raise
            parts //= 1000


def add_up(lists: Iterable[Mapping[str, str]]) -> dict[str, Amount]:
    """Return the sum of many lists of amounts by resource.

    Raises: BadValue if an amount is not a quantity.
    """
    total: dict[str, Amount] = {}
    for amounts in lists:
        for name, text in amounts.items():
            known = total.get(name)
            total[name] = exact(text) if known is None else known + exact(text)
    return total


def plus(left: Mapping[str, Amount], right: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the sum of two lists of amounts by resource."""
    total = dict(left)
    for name, more in right.items():
        known = total.get(name)
        total[name] = more if known is None else known + more
    return total


def texts(amounts: Mapping[str, Amount]) -> dict[str, str]:
    """Return amounts as quantity texts, in the order of the resources' names."""
    return {name: amounts[name].text for name in sorted(amounts)}


def same(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Return whether two lists say the same amounts, however they are written.

    Raises: BadValue if an amount is not a quantity.
    """
    return left.keys() == right.keys() and all(
        exact(text).billionths == exact(right[name]).billionths for name, text in left.items()
    )


def effective_requests(pod: Pod, kubernetes: KubernetesVersion = NEWEST) -> dict[str, Amount]:
    """Return what a node must have for a pod: the most that it needs at any time, and its overhead.

    Init containers run one after the other before the containers; an init container that restarts always is a sidecar
    and runs beside all that follow it. What the pod asks for as a whole stands in place of that.

    Source: the effective requests of the Kubernetes scheduler.
    """
    asked, first = requests_of(pod)
    running = add_up(asked)
    sidecars: dict[str, Amount] = {}
    most: dict[str, Amount] = {}
    for container, requests in zip(pod.spec.init_containers, first, strict=True):
        own = add_up([requests])
        if is_sidecar(container):
            running = plus(running, own)
            sidecars = plus(sidecars, own)
            starting = sidecars
        else:
            starting = plus(sidecars, own)
        most = _largest(most, starting)
    whole = {**(sums_of(pod) if kubernetes >= V1_37 else EMPTY), **requests_of_whole(pod, kubernetes)}
    return plus({**_largest(running, most), **add_up([whole])}, add_up([pod.spec.overhead]))


def _largest(left: Mapping[str, Amount], right: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the larger amount of every resource."""
    largest = dict(left)
    for name, more in right.items():
        known = largest.get(name)
        if known is None or known.billionths < more.billionths:
            largest[name] = more
    return largest
