"""The resource requests of a pod, computed from its containers, its GPU share and its grant."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Final, NamedTuple

import attrs

from kai.api import names
from kai.api.codec.pod_templates import Recent
from kai.api.conventions import gpu_sharing
from kai.api.conventions.amounts import (
    at_once,
    has_infeasible_resize,
    is_sidecar,
    requests_of,
    requests_of_whole,
    sums_of,
)
from kai.api.conventions.binding import Grant, is_foreign
from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import Container, Pod
from kai.basics import parsing
from kai.basics.kubernetes_version import NEWEST, V1_37, KubernetesVersion
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.pod import ContainerRequest, GpuKind, GpuRequest
from kai.facts.model.units import Amounts, QuantityTexts, amounts, backed_amounts, packed

MOST_DEVICES = 1024
MOST_MEMORY = 2**40
"""More devices, and more MiB of one device, than any node has. Any user can write an annotation, and tables are as wide
as its number."""

_GPU = "gpu"
_FIXED = (names.CPU, names.MEMORY)
_LONGEST = 64
"""The most characters of an annotation that a message repeats."""
_is_profile = methodcaller("startswith", names.MIG_PREFIX)


class ResourceKey(NamedTuple):
    """The inputs of a pod's amounts; pods with equal keys have equal amounts."""

    containers: tuple[QuantityTexts, ...]
    initial: tuple[tuple[bool, QuantityTexts], ...] = ()
    overhead: QuantityTexts = ()
    whole: QuantityTexts = ()
    """Pod-level amounts, which replace those of the containers."""
    fraction: str | None = None
    memory: str | None = None
    devices: str | None = None
    legacy_mig: bool = False
    slices: tuple[str, int] | None = None
    """The MIG profile in the annotations of a legacy pod, and the number of its slices."""
    guaranteed: bool = False


@attrs.frozen
class Demand:
    """The amounts that a pod requests, without its resource claims."""

    request: Amounts
    gpu: GpuRequest
    containers: tuple[ContainerRequest, ...] = ()
    """Init containers first, in their order."""
    guaranteed: bool = False
    """Whether the limits of all containers for CPU and memory equal their requests."""


@attrs.frozen(eq=False, weakref_slot=False)
class Asked:
    """The part of a `ResourceKey` that does not depend on annotations and grants."""

    amounts: tuple[tuple[QuantityTexts, ...], tuple[tuple[bool, QuantityTexts], ...], QuantityTexts, QuantityTexts]
    """The first fields of the key: containers, init containers, overhead and pod-level amounts."""
    has_whole: bool
    """Whether containers request whole GPUs."""
    guaranteed: bool
    parts: tuple[object, ...] = ()
    """The parts of the pod that this follows from."""


def asked_by(pod: Pod, kubernetes: KubernetesVersion = NEWEST) -> Asked:
    """Return what the containers of ``pod`` ask for, by its spec and by what its kubelet reports."""
    spec, initial = pod.spec, pod.spec.init_containers
    asked, first = _requests(pod)
    amounts = (
        asked,
        tuple(zip(map(is_sidecar, initial), first, strict=True)),
        tuple(spec.overhead.items()) if spec.overhead else (),
        _whole(pod, kubernetes),
    )
    return Asked(amounts, _has_whole(*asked, *first), is_guaranteed(pod), _parts_of(pod))


_parts_of: Final = attrgetter(
    *(f"spec.{name}" for name in ("containers", "init_containers", "overhead", "resources")),
    *(f"status.{name}" for name in ("container_statuses", "init_container_statuses")),
    *(f"status.{name}" for name in ("allocated_resources", "resources", "qos_class")),
)
_MOST_KNOWN: Final = 1 << 9


class KnownRequests:
    """What containers ask for, computed once for pods of one template.

    The codec reads equal parts of pods into one object, so pods that agree in the identity of their parts are compared
    by a few numbers. A value keeps its parts alive, so no identity is reused.
    Holds: at most 1,024 values, whatever pods come.
    """

    def __init__(self, kubernetes: KubernetesVersion = NEWEST) -> None:
        """Begin without values."""
        self._kubernetes = kubernetes
        self._known = Recent(_MOST_KNOWN)

    def of(self, pod: Pod) -> Asked:
        """Return the same as ``asked_by``. Cost: 2 us for a pod of a known template, else 8."""
        # Conditions differ from pod to pod by their times, and all that counts of them is this.
        key = (*map(id, _parts_of(pod)), has_infeasible_resize(pod))
        found = self._known.get(key)
        if isinstance(found, Asked):
            return found
        asked = asked_by(pod, self._kubernetes)
        self._known.put(key, asked)
        return asked


def resource_key(
    pod: Pod,
    grant: Grant | None = None,
    scheduler_name: str = names.SCHEDULER_NAME,
    asked: Asked | None = None,
) -> ResourceKey:
    """Return the inputs of the amounts of ``pod``; the GPU share of a pod with a ``grant`` is the granted one.

    ``asked``: what its containers ask for, where that is known.

    A pod without a grant that another scheduler than ``scheduler_name`` bound has no share. Nor has a pod that sets
    its own node name and gets whole GPUs from the kubelet: its annotations would make these GPUs look idle.

    Source: the peer reads the annotations again, which the owner of the pod may have edited since the bind.
    """
    spec, annotations, asked = pod.spec, pod.metadata.annotations, asked_by(pod) if asked is None else asked
    fixed, guaranteed = asked.amounts, asked.guaranteed
    if grant is not None and grant.is_whole:
        return ResourceKey(*fixed, *_share(grant), guaranteed=guaranteed)
    if is_foreign(pod, grant, scheduler_name) or (spec.node_name and asked.has_whole):
        return ResourceKey(*fixed, legacy_mig=any(map(_is_profile, annotations)), guaranteed=guaranteed)
    slices = _legacy_slices(annotations) if any(map(_is_profile, annotations)) else None
    return ResourceKey(
        *fixed,
        annotations.get(names.GPU_FRACTION),
        annotations.get(names.GPU_MEMORY),
        annotations.get(names.GPU_FRACTION_DEVICES),
        slices is not None,
        slices,
        guaranteed,
    )


def _has_whole(*containers: QuantityTexts) -> bool:
    """Return whether containers request whole GPUs."""
    return any(amounts(each).get(_GPU, 0) > 0 for each in containers)


def _legacy_slices(annotations: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the MIG profile in annotations and the number of slices; None if no annotation has a number.

    Source: the peer takes one profile where there are several; the iteration order of its map decides which.
    """
    for profile in sorted(filter(_is_profile, annotations), reverse=True):
        count = parsing.signed(annotations[profile])
        if count is not None:
            return profile, min(max(count, 0), MOST_DEVICES)
    return None


def is_guaranteed(pod: Pod) -> bool:
    """Return whether the limits of all containers for CPU and memory equal their requests.

    Source: Kubernetes' quality-of-service classes; the class in the status wins where there is one.
    """
    if pod.status.qos_class:
        return pod.status.qos_class == "Guaranteed"
    return all(_is_fixed(container) for container in (*pod.spec.containers, *pod.spec.init_containers))


def _is_fixed(container: Container) -> bool:
    requests, limits = container.resources.requests, container.resources.limits
    return all(name in limits and requests.get(name, limits[name]) == limits[name] for name in _FIXED)


def _share(grant: Grant) -> tuple[str | None, str | None, str | None]:
    """Return fraction, memory and number of devices in the notation of annotations."""
    if not grant.gpus:
        return None, None, None
    portion = None if grant.portion is None else repr(grant.portion)
    return portion, None if grant.memory is None else str(grant.memory), str(len(grant.gpus))


def _requests(pod: Pod) -> tuple[tuple[QuantityTexts, ...], tuple[QuantityTexts, ...]]:
    """Return the requests of each container, and those of each init container."""
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:  # true of every waiting pod
        return _own(pod.spec.containers), _own(pod.spec.init_containers)
    asked, first = requests_of(pod)
    return _all_completed(asked, pod.spec.containers), _all_completed(first, pod.spec.init_containers)


def _own(containers: Sequence[Container]) -> tuple[QuantityTexts, ...]:
    return tuple([_completed(each.resources.requests, each.resources.limits) for each in containers])


def _all_completed(counted: Iterable[Mapping[str, str]], containers: Iterable[Container]) -> tuple[QuantityTexts, ...]:
    return tuple([_completed(asked, each.resources.limits) for asked, each in zip(counted, containers, strict=True)])


def _whole(pod: Pod, kubernetes: KubernetesVersion) -> QuantityTexts:
    """Return the amounts that replace the sum over the containers."""
    sums = sums_of(pod) if kubernetes >= V1_37 else EMPTY
    if pod.spec.resources is None:
        return tuple(sums.items()) if sums else ()
    return tuple({**sums, **requests_of_whole(pod, kubernetes)}.items())


def _completed(asked: Mapping[str, str], limits: Mapping[str, str]) -> QuantityTexts:
    """Return a container's requests; like the API server, take the limit where a request is missing."""
    for resource in limits:
        if resource not in asked:
            return tuple({**limits, **asked}.items())
    return tuple(asked.items())


def demand(key: ResourceKey) -> Demand:
    """Return the amounts that a pod requests.

    A pod requests the sum of its containers and sidecars, but at least the need of each init container with the
    sidecars before it, and the overhead. Pod-level requests replace all but the overhead.

    Source: the peer's pod_info, which applies the overhead to everything but GPUs.
    """
    initial = ((sidecar, amounts(texts)) for sidecar, texts in key.initial)
    total = at_once((amounts(texts) for texts in key.containers), initial)
    total.update(amounts(key.whole))
    for name, more in amounts(key.overhead).items():
        if name != _GPU:
            total[name] = total.get(name, 0) + more
    if key.slices is not None:
        # These replace whole GPUs, as in the peer: the queue is charged for them, and they are in use on the node.
        profile, count = key.slices
        total[_GPU], total[profile] = 0, count
    gpu = _gpu_request(key, total)
    if gpu.kind == GpuKind.FRACTION:
        # A pod that was bound with less than a hundredth is charged one: no share is free.
        total[_GPU] = max(1, hundredths(gpu.portion)) * gpu.devices * (GPU_UNIT // 100)
    elif gpu.kind == GpuKind.MEMORY:
        total[_GPU] = 0
    # Nodes have a limit of pods, and no pod requests that resource by itself.
    total[names.PODS] = 1
    return Demand(packed(total), gpu, tuple(_containers(key)), key.guaranteed)


def _containers(key: ResourceKey) -> Iterable[ContainerRequest]:
    for sidecar, texts in key.initial:
        yield ContainerRequest(requests=packed(backed_amounts(texts)), init=True, sidecar=sidecar)
    for texts in key.containers:
        yield ContainerRequest(requests=packed(backed_amounts(texts)))


def hundredths(portion: float) -> int:
    """Return a portion in hundredths, halves rounded up."""
    # `round` would take halves to the even number.
    return int(portion * 100 + 0.5)


def _gpu_request(key: ResourceKey, total: Mapping[str, int]) -> GpuRequest:
    """Return how a pod requests GPUs; of several ways the later one here wins.

    An invalid or out-of-range annotation counts as absent, as in the peer's scheduler. A pod that is not bound yet is
    refused for it, where admission has not refused it.
    """
    refusal = _refusal(key, total)
    kind, portion, memory, devices = GpuKind.NONE, 1.0, 0, 1
    if total.get(_GPU, 0) > 0:
        kind = GpuKind.WHOLE
    asked = parsing.signed(key.memory) if key.memory is not None else None
    if asked is not None and asked > 0:
        kind, memory = GpuKind.MEMORY, min(asked, MOST_MEMORY)
    part = parsing.floating(key.fraction) if key.fraction is not None else None
    if part is not None and 0 < part <= 1:
        kind, portion, memory = GpuKind.FRACTION, part, 0
    if kind in (GpuKind.FRACTION, GpuKind.MEMORY) and key.devices is not None:
        count = parsing.signed(key.devices)
        devices = min(count, MOST_DEVICES) if count is not None and count > 0 else 1
    if any(name.startswith(names.MIG_PREFIX) and amount > 0 for name, amount in total.items()):
        return GpuRequest(kind=GpuKind.MIG, legacy_mig=key.legacy_mig, refusal=refusal)
    return GpuRequest(
        kind=kind, devices=devices, portion=portion, memory=memory, legacy_mig=key.legacy_mig, refusal=refusal
    )


def _refusal(key: ResourceKey, total: Mapping[str, int]) -> str:
    """Return why no GPU can satisfy a pod's request; empty if there is no reason.

    Source: the rules of the peer's webhooks. Its scheduler starts such a pod as if it had no GPU request.
    """
    shares = key.fraction is not None or key.memory is not None
    whole = total.get(_GPU, 0)
    if key.fraction is not None and not gpu_sharing.is_share(key.fraction):
        return _found(names.GPU_FRACTION, key.fraction, f"a number from {gpu_sharing.LEAST_SHARE:g} to 1")
    if key.memory is not None and (parsing.signed(key.memory) or 0) <= 0:
        return _found(names.GPU_MEMORY, key.memory, "a positive number of MiB")
    if shares and key.devices is not None and (parsing.signed(key.devices) or 0) <= 0:
        return _found(names.GPU_FRACTION_DEVICES, key.devices, "a positive number of GPUs")
    if shares and whole:
        return "found a part of a GPU in annotations and whole ones in containers, expected one of the two"
    # Amounts of extended resources are whole numbers in Kubernetes.
    if whole % GPU_UNIT:
        wanted = f"whole ones, or the annotation {names.GPU_FRACTION} to share one"
        return f"spec.containers: found {whole / GPU_UNIT:g} GPUs, expected {wanted}"
    return ""


def _found(annotation: str, text: str, wanted: str) -> str:
    return f'metadata.annotations["{annotation}"]: found "{text[:_LONGEST]}", expected {wanted}'
