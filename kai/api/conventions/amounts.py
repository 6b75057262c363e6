"""Resource amounts of containers and pods: exact sums, in-place resizes, and effective requests.

`kai.api.values` reads one amount into 64 bits of a declared unit, which is what columns need. The memory of a
whole cluster in bytes beside a thousandth of a GPU fits no single unit. Services that add up the amounts of many
objects therefore use Python integers here, unbounded and in billionths, the finest fraction in the Kubernetes API.

CPU and memory of a container can be resized while it runs. Until the kubelet has applied a resize, the node holds the
amount that it allocated before, so the larger of the allocated and the requested amount counts. A resize that the
kubelet reports as infeasible counts for nothing: otherwise an owner could request more than any node has, and no other
pod would fit on that node.

Before Kubernetes 1.37 the larger amount counts for each container. Since then it counts for the sums of the pod: an
amount that moves from one container to another counts once.

Source: PodRequests of Kubernetes' scheduler (KEP-1287, in-place update of pod resources; KEP-2837, pod-level
resources). KAI-Scheduler counts the requests of containers, whatever their node allocated, and ignores pod-level
resources.
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
"""Resizable resources, and into how many parts of its unit each is counted; bytes are counted whole."""
_STYLE: Final[Mapping[str, Literal["decimal", "binary"]]] = {names.CPU: "decimal", names.MEMORY: "binary"}
_HUGE: Final = "hugepages-"
_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


Amounts: TypeAlias = dict[str, int]


def is_sidecar(container: Container) -> bool:
    """Return whether an init container is a sidecar, which runs beside the containers."""
    return container.restart_policy == "Always"


def at_once(containers: Iterable[Mapping[str, int]], initial: Iterable[tuple[bool, Mapping[str, int]]]) -> Amounts:
    """Return the peak need of a pod for each resource.

    ``initial`` lists the init containers in order, each with whether it is a sidecar. The others run one after the
    other before the containers, each beside the sidecars that precede it.
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
    """Return the counted requests of each container of a pod, and those of each init container.

    Limits do not stand in for missing requests here. Among init containers only sidecars count what their node
    allocated.
    """
    known = _container_statuses(pod)

    def counted(container: Container) -> Mapping[str, str]:
        asked, reported = container.resources.requests, known.get(container.name)
        if reported is None or reported.resources is None:
            return asked
        return _largest_of_each(pod, asked, reported.allocated_resources, reported.resources.requests)

    initial = pod.spec.init_containers
    first = [counted(each) if is_sidecar(each) else each.resources.requests for each in initial]
    return [counted(each) for each in pod.spec.containers], first


def _container_statuses(pod: Pod) -> Mapping[str, ContainerStatus]:
    status = pod.status
    return {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)}


def sums_of(pod: Pod) -> Mapping[str, str]:
    """Return the CPU and memory that all containers count for together, by the rule of Kubernetes 1.37.

    Empty unless a kubelet reports other amounts than the pod requests.
    """
    if not _is_resized(pod):
        return EMPTY
    known, is_infeasible = _container_statuses(pod), has_infeasible_resize(pod)

    def given(container: Container) -> Mapping[str, str]:
        status = known.get(container.name)
        if status is not None and status.allocated_resources:
            return status.allocated_resources
        # A refused resize was never allocated, so the request does not stand for what the node gave.
        return EMPTY if is_infeasible else _asked(container)

    def used(container: Container) -> Mapping[str, str]:
        status = known.get(container.name)
        if status is not None and status.resources is not None and status.resources.requests:
            return status.resources.requests
        return given(container)

    status = pod.status
    reported: list[Amounts]
    # Amounts of the pod as a whole, where a kubelet reports them, take the place of sums over containers.
    if status.allocated_resources and _used(status.resources):
        reported = [_numbers(_less(each, pod.spec.overhead)) for each in _of_whole(pod)]
    else:
        reported = [_sum(pod, given), _sum(pod, used)]
    asked = _sum(pod, _asked)
    lists = reported if is_infeasible else [asked, *reported]
    return {
        name: canonical(max(each.get(name, 0) for each in lists), parts, style=_STYLE[name])
        for name, parts in _RESIZABLE.items()
        if any(name in each for each in (asked, *reported))
    }


def _is_resized(pod: Pod) -> bool:
    """Return whether a kubelet reports other amounts than the pod requests; cheap, since it is called for each pod."""
    status = pod.status
    if status.resources is not None and status.allocated_resources:
        return True
    if status.conditions and has_infeasible_resize(pod):
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False
    asked = {each.name: each.resources.requests for each in (*pod.spec.init_containers, *pod.spec.containers)}
    for reported in (*status.container_statuses, *status.init_container_statuses):
        for amounts in (reported.allocated_resources, _used(reported.resources)):
            # Compared as texts, which is cheap: the same amount in another notation only costs the exact look.
            if amounts and amounts != asked.get(reported.name):
                return True
    return False


def _asked(container: Container) -> Mapping[str, str]:
    """Return the requests of a container; like the API server, take the limit where a request is missing."""
    return {**container.resources.limits, **container.resources.requests}


def _numbers(texts: Mapping[str, str]) -> Amounts:
    return {name: amount(texts[name], parts) for name, parts in _RESIZABLE.items() if name in texts}


def _sum(pod: Pod, of: Callable[[Container], Mapping[str, str]]) -> Amounts:
    initial = ((is_sidecar(each), _numbers(of(each))) for each in pod.spec.init_containers)
    return at_once((_numbers(of(each)) for each in pod.spec.containers), initial)


def requests_of_whole(pod: Pod, kubernetes: KubernetesVersion = NEWEST) -> Mapping[str, str]:
    """Return the pod-level requests; they replace the sum over the containers.

    Like the API server, take the pod-level limit for a resource that no container requests. The overhead of the runtime
    class is not included. A kubelet includes it in the amounts that it reports for a whole pod, so it is subtracted.

    Source: Kubernetes' issue 139627: its scheduler adds the overhead twice where it uses the kubelet's amounts.
    """
    own, status = pod.spec.resources, pod.status
    if own is None:
        return EMPTY
    named = {name for each in (*pod.spec.containers, *pod.spec.init_containers) for name in _asked(each)}
    # Huge pages are never overcommitted, so their limit counts even beside containers that name them.
    asked = {name: text for name, text in own.limits.items() if name.startswith(_HUGE) or name not in named}
    asked = {name: text for name, text in {**asked, **own.requests}.items() if _is_of_whole(name)}
    if not asked or status.resources is None:
        return asked
    reported = [_less(each, pod.spec.overhead) for each in _of_whole(pod)]
    counted = _largest_of_each(pod, asked, *reported)
    # Before 1.37 a kubelet's report adds no resource that the pod did not ask for.
    if kubernetes < V1_37:
        return {name: text for name, text in counted.items() if name in asked}
    return counted


def _is_of_whole(name: str) -> bool:
    return name in _RESIZABLE or name.startswith(_HUGE)


def _of_whole(pod: Pod) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the amounts that the kubelet has allocated to a pod as a whole, and the amounts that it has applied."""
    return pod.status.allocated_resources, _used(pod.status.resources)


def _used(resources: ResourceRequirements | None) -> Mapping[str, str]:
    return EMPTY if resources is None else resources.requests


def _less(reported: Mapping[str, str], overhead: Mapping[str, str]) -> Mapping[str, str]:
    """Return the resizable part of the reported amounts, less ``overhead``, at least 0."""
    if not overhead:
        return reported
    return {
        name: canonical(max(0, amount(reported[name], parts) - amount(overhead.get(name, "0"), parts)), parts)
        for name, parts in _RESIZABLE.items()
        if name in reported
    }


def _largest_of_each(
    pod: Pod, asked: Mapping[str, str], given: Mapping[str, str], used: Mapping[str, str]
) -> Mapping[str, str]:
    """Return, for each resource, the largest of the requested, the allocated and the applied amount."""
    reported = (given, used)
    is_infeasible = bool(pod.status.conditions) and has_infeasible_resize(pod)
    if not is_infeasible and all(not amounts or amounts == asked for amounts in reported):
        return asked
    most = dict(asked)
    for name, parts in _RESIZABLE.items():
        if is_infeasible and name in most:
            # The refused request counts for nothing; what the node reports replaces it below.
            most[name] = "0"
        for text in (amounts[name] for amounts in reported if name in amounts):
            if name not in most or amount(most[name], parts) < amount(text, parts):
                most[name] = text
    return most


def has_infeasible_resize(pod: Pod) -> bool:
    """Return whether the kubelet reports the resize as infeasible; like Kubernetes, read the first such condition."""
    found = condition_of(pod, _PENDING)
    return found is not None and found.reason == _INFEASIBLE


BILLION: Final = 10**9


@attrs.frozen
class Amount:
    """An amount of a resource.

    Units: `billionths` of the resource's own unit. With `binary` the text uses Ki, Mi, Gi.
    """

    billionths: int = 0
    binary: bool = False

    def __add__(self, other: Amount) -> Amount:
        """Return the sum, in the notation of the first operand that is not zero."""
        binary = self.binary if self.billionths else other.binary
        return Amount(self.billionths + other.billionths, binary)

    def times(self, count: int) -> Amount:
        """Return the amount, ``count`` times."""
        return Amount(self.billionths * count, self.binary)

    @property
    def text(self) -> str:
        """Return the canonical quantity text."""
        return canonical(self.billionths, BILLION, style="binary" if self.binary else "decimal")


@functools.lru_cache(maxsize=1 << 14)
def exact(text: str) -> Amount:
    """Return the amount of a quantity; exact as long as it fits into 64 bits at that precision.

    Raises: BadValue if the text is not a quantity or its whole units do not fit into 64 bits.
    """
    parts = BILLION
    while True:
        try:
            return Amount(amount(text, parts) * (BILLION // parts), text.endswith("i"))
        except BadValue:
            if parts == 1:
                raise
            # What is too large for billionths in 64 bits may fit in a coarser part.
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
    """Return whether two lists hold equal amounts, however they are written.

    Raises: BadValue if an amount is not a quantity.
    """
    # As amounts: 1Gi and 1073741824 are one.
    return left.keys() == right.keys() and all(
        exact(text).billionths == exact(right[name]).billionths for name, text in left.items()
    )


def effective_requests(pod: Pod, kubernetes: KubernetesVersion = NEWEST) -> dict[str, Amount]:
    """Return the requests that a node must satisfy for a pod: its peak need plus its overhead.

    Init containers run one after the other before the containers. An init container with restart policy ``Always`` is a
    sidecar and runs beside all that follow it. Pod-level requests replace the sum over the containers.

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
