"""Scaling pods: whole GPUs asked for on behalf of pods that share GPUs, so that a cluster autoscaler adds nodes.

An autoscaler understands requests for `nvidia.com/gpu`, not annotations. So while pods that share GPUs find no place,
pods are created that ask for as many whole GPUs as the shares add up to, of all pods that may go to the same nodes.
The cluster's default scheduler finds no place for them either, and the autoscaler acts. Their program ends at once when
they do run.

A pod whose bind is ordered has found a place, so nothing is asked for on its behalf any more: its reservation pod may
hold the GPU of a new node while the pod itself still waits, and the autoscaler would add another node for it.

`adjust` is one pass: what to delete, what to create, and when to look again. It is a function of what it sees and of
the state it returned before; the shell keeps the state, reads the clock and writes.

Source: the peer's node-scale adjuster. We differ in that names which would be too long, or would be shared by two pods,
get a hash instead of failing; that shares are added up by nodes, where the peer has one sum, in which a pod that fits
nowhere keeps the others from being served; that no GPU is asked for where none could give what a pod wants; and that an
ordered bind ends the need, where the peer's binder refuses to share any further GPU while a scaling pod waits.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions import gpu_sharing
from kai.api.conventions.amounts import Amount, exact
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.node import NodeAffinity, Toleration
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.api.values import BadValue
from kai.basics.parsing import floating, signed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_Place: TypeAlias = tuple[frozenset[tuple[str, str]], NodeAffinity | None, frozenset[Toleration]]
"""To which nodes a pod may go."""

_CONTAINER: Final = "scaling-pod"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_HASH: Final = 10
_HUNDREDTHS: Final = 100


@attrs.frozen(kw_only=True)
class ScaleSettings:
    """What an administrator decides about scaling pods, with the defaults of the peer's flags."""

    scheduler_name: str = names.SCHEDULER_NAME
    namespace: str = names.SCALE_ADJUST_NAMESPACE
    image: str = ""
    args: tuple[str, ...] = ()
    """What is given to the image, where it can do other things as well."""
    app_label: str = "scaling-pod"
    service_account: str = "scaling-pod"
    cool_down_seconds: float = 60.0
    gpu_memory_to_fraction_ratio: float = 0.1
    """How much of a GPU a pod is taken to need that asks for memory: no node yet says how much it has."""


@attrs.frozen(kw_only=True)
class ScaleState:
    """What one pass tells the next.

    Units: `cooling_since` in seconds of the shell's clock; None before anything was deleted.
    """

    cooling_since: float | None = None


@attrs.frozen(kw_only=True)
class Adjustment:
    """What a pass decided.

    `deletions` are pods to delete by UID; `creations` are manifests, each to be marked unschedulable at once with
    `unschedulable_status`, since the autoscaler looks at the condition.
    """

    state: ScaleState
    deletions: tuple[Pod, ...] = ()
    creations: tuple[dict[str, Any], ...] = ()
    look_again_after: float | None = None


UNSCHEDULABLE_STATUS: Final = {
    "status": {
        "conditions": [
            {
                "type": names.POD_SCHEDULED_CONDITION,
                "status": "False",
                "reason": names.UNSCHEDULABLE_REASON,
            },
        ],
    },
}


def adjust(
    pods: Iterable[Pod],
    scaling_pods: Iterable[Pod],
    orders: Iterable[BindRequest],
    state: ScaleState,
    settings: ScaleSettings,
    *,
    now: float,
) -> Adjustment:
    """Return which scaling pods to delete and to create.

    `pods` are at least those that share GPUs and wait, and those that scaling pods stand for; `orders` are those of all
    namespaces, `scaling_pods` those of the namespace of scaling pods. Malformed pods ask for nothing.

    Holds: after a deletion nothing is created for the cool-down, so that a node that was just added can fill.
    """
    by_name = {key_of(pod): pod for pod in pods}
    placed = _placed(by_name, orders)
    in_order = sorted(scaling_pods, key=key_of)
    kept = [scaling for scaling in in_order if _is_needed(scaling, by_name, placed)]
    deletions = tuple(scaling for scaling in in_order if not _is_needed(scaling, by_name, placed))
    if deletions:
        state = attrs.evolve(state, cooling_since=now)
    if state.cooling_since is not None:
        left = state.cooling_since + settings.cool_down_seconds - now
        if left > 0:
            return Adjustment(state=state, deletions=deletions, look_again_after=left)
    waiting = [by_name[key] for key in sorted(by_name) if key not in placed]
    creations = _creations(waiting, [(scaling, by_name[stands_for(scaling)]) for scaling in kept], settings)
    return Adjustment(state=state, deletions=deletions, creations=creations)


def is_relevant(pod: Pod, settings: ScaleSettings) -> bool:
    """Return whether a change of this pod is worth a pass: a pod of our scheduler, or a scaling pod.

    Source: the peer means the same but compares the namespace with the name of an image, so that no change of a scaling
    pod starts a pass there.
    """
    return pod.metadata.namespace == settings.namespace or pod.spec.scheduler_name == settings.scheduler_name


def _placed(by_name: Mapping[Key, Pod], orders: Iterable[BindRequest]) -> frozenset[Key]:
    """Return the pods that an order gives a place, unless its last attempt failed."""
    placed = set()
    for order in orders:
        key = (order.metadata.namespace, order.spec.pod_name)
        pod = by_name.get(key)
        if pod is not None and order.status.phase != "Failed" and is_for(order, pod.metadata.uid):
            placed.add(key)
    return frozenset(placed)


def _creations(
    pods: Iterable[Pod], existing: Sequence[tuple[Pod, Pod]], settings: ScaleSettings
) -> tuple[dict[str, Any], ...]:
    """Return the scaling pods that are missing; ``existing`` are those that there are, with whom they stand for."""
    demands = [demand for pod in pods if (demand := _demand(pod, settings)) is not None]
    shares: Counter[_Place] = Counter()
    for demand in demands:
        shares[demand.place] += demand.hundredths
    served = {key_of(pod) for _, pod in existing}
    taken = {scaling.metadata.name for scaling, _ in existing}
    asked: defaultdict[_Place, list[int]] = defaultdict(list)
    for scaling, pod in existing:
        asked[_place_of(pod)].append(_devices_of(scaling))
    creations = []
    for demand in demands:
        needed, sizes = math.ceil(shares[demand.place] / _HUNDREDTHS), asked[demand.place]
        if key_of(demand.pod) in served or not needed:
            continue
        if needed <= sum(sizes) and demand.devices <= max(sizes, default=0):
            continue
        manifest = scaling_pod(demand.pod, demand.devices, settings, taken=taken)
        creations.append(manifest)
        taken.add(manifest["metadata"]["name"])
        sizes.append(demand.devices)
    return tuple(creations)


@attrs.frozen
class _Demand:
    """A pod that finds no place, with its devices and its total share in hundredths of a GPU."""

    pod: Pod
    devices: int
    hundredths: int
    place: _Place


def _demand(pod: Pod, settings: ScaleSettings) -> _Demand | None:
    """Return what a pod needs; None for one that needs nothing from an autoscaler."""
    if (
        pod.spec.node_name
        or pod.spec.scheduler_name != settings.scheduler_name
        or pod.status.phase in ENDED
        or pod.metadata.deletion_timestamp is not None
        or not _is_unschedulable(pod)
    ):
        return None
    annotations = pod.metadata.annotations
    try:
        devices = gpu_sharing.device_count(annotations)
    except BadValue:
        return None
    portion = _portion(annotations.get(names.GPU_FRACTION, ""), annotations.get(names.GPU_MEMORY, ""), settings)
    if portion is None or devices < 1:
        return None
    return _Demand(pod, devices, _rounded(portion * _HUNDREDTHS) * devices, _place_of(pod))


def _portion(fraction: str, memory: str, settings: ScaleSettings) -> float | None:
    """Return how much of each device a pod needs; None for one that wants what no GPU can give, however many come."""
    if fraction:
        return floating(fraction) if gpu_sharing.is_share(fraction) else None
    return settings.gpu_memory_to_fraction_ratio if (signed(memory) or 0) > 0 else None


def _rounded(value: float) -> int:
    """Return the nearest integer, halves away from zero."""
    return math.floor(value + 0.5)


def _place_of(pod: Pod) -> _Place:
    """Return to which nodes a pod may go: what it selects and tolerates.

    Shares of pods that may go elsewhere are no part of a sum: a node for the one would not serve the other. What is
    asked of pods beside it is left out, since that differs from job to job.
    """
    spec = pod.spec
    nodes = spec.affinity.node_affinity if spec.affinity is not None else None
    return frozenset(spec.node_selector.items()), nodes, frozenset(spec.tolerations)


def _is_needed(scaling: Pod, by_name: Mapping[Key, Pod], placed: Collection[Key]) -> bool:
    """Return whether the pod that a scaling pod stands for still finds no place."""
    key = stands_for(scaling)
    pod = by_name.get(key)
    if scaling.status.phase == "Succeeded" or pod is None or key in placed:
        return False
    # Without the condition nothing is known yet: it is written with the first failed attempt.
    return _is_unschedulable(pod) or not any(c.type == names.POD_SCHEDULED_CONDITION for c in pod.status.conditions)


def _is_unschedulable(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION:
            return condition.status == "False" and condition.reason == names.UNSCHEDULABLE_REASON
    return False


def stands_for(scaling: Pod) -> Key:
    """Return the namespace and name of the pod that a scaling pod stands for."""
    annotations, labels = scaling.metadata.annotations, scaling.metadata.labels
    name = annotations.get(names.SCALING_POD_NAME) or labels.get(names.SCALING_POD_NAME, "")
    return labels.get(names.SCALING_POD_NAMESPACE, ""), name


def _devices_of(scaling: Pod) -> int:
    """Return the whole GPUs that a scaling pod asks for."""
    requests = scaling.spec.containers[0].resources.requests if scaling.spec.containers else {}
    text = requests.get(names.NVIDIA_GPU)
    return -(-exact(text).billionths // 10**9) if text is not None else 0


def scaling_pod(pod: Pod, devices: int, settings: ScaleSettings, *, taken: Iterable[str] = ()) -> dict[str, Any]:
    """Return the manifest of the scaling pod that stands for a pod.

    It asks for the devices and for what the pod's containers request of CPU and memory, where the pod could go.
    """
    requests = {names.NVIDIA_GPU: str(devices)}
    for resource in (names.CPU, names.MEMORY):
        parts = [c.resources.requests for c in pod.spec.containers if c.resources.requests]
        total = sum((exact(part.get(resource, "0")) for part in parts), start=Amount())
        if parts:
            requests[resource] = total.text
    short = len(pod.metadata.name) <= _LONGEST_LABEL
    place = {
        "affinity": unstructure(pod.spec.affinity) if pod.spec.affinity is not None else None,
        "tolerations": [unstructure(toleration) for toleration in pod.spec.tolerations],
        "nodeSelector": dict(pod.spec.node_selector),
    }
    metadata: dict[str, Any] = {
        "name": _scaling_name(pod, frozenset(taken)),
        "namespace": settings.namespace,
        "labels": {
            names.APP: settings.app_label,
            names.SCALING_POD_NAME: pod.metadata.name if short else _cut(pod.metadata.name, _LONGEST_LABEL),
            names.SCALING_POD_NAMESPACE: pod.metadata.namespace,
        },
    }
    if not short:
        metadata["annotations"] = {names.SCALING_POD_NAME: pod.metadata.name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **{key: value for key, value in place.items() if value},
            "restartPolicy": "OnFailure",
            "serviceAccountName": settings.service_account,
            "containers": [
                {
                    "name": _CONTAINER,
                    "image": settings.image,
                    "imagePullPolicy": "IfNotPresent",
                    **({"args": list(settings.args)} if settings.args else {}),
                    "resources": {"requests": requests, "limits": {names.NVIDIA_GPU: str(devices)}},
                },
            ],
        },
    }


def _scaling_name(pod: Pod, taken: frozenset[str]) -> str:
    """Return ``<namespace>-<name>``, with a hash where that is too long or stands for another pod already."""
    name = f"{pod.metadata.namespace}-{pod.metadata.name}"
    if len(name) <= _LONGEST_NAME and name not in taken:
        return name
    return _cut(name, _LONGEST_NAME, of=f"{pod.metadata.namespace}/{pod.metadata.name}")


def _cut(name: str, longest: int, *, of: str = "") -> str:
    digest = hashlib.sha256((of or name).encode()).hexdigest()[:_HASH]
    return f"{name[: longest - _HASH - 1].rstrip('.-')}-{digest}"
