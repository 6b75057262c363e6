"""Scaling pods: requests for whole GPUs on behalf of pods that share GPUs, so that a cluster autoscaler adds nodes.

An autoscaler understands requests for `nvidia.com/gpu`, not annotations. So while pods that share GPUs find no place,
scaling pods are created. They request as many whole GPUs as the shares add up to, over all pods that may go to the same
nodes. The cluster's default scheduler finds no place for them either, and the autoscaler acts. If they do run, their
program ends at once.

A pod with a bind request has found a place, so no GPU is requested for it any more: its reservation pod may
hold the GPU of a new node while the pod itself still waits, and the autoscaler would add another node for it.

`adjust` is one pass: it returns the pods to delete and to create, and the time of the next pass. It is a function of
the observed objects and of the state that it returned before; the shell keeps the state, reads the clock and writes.

Source: the peer's node-scale adjuster. We differ in four ways. A name that would be too long, or that two pods would
share, gets a hash instead of failing. Shares are added up by nodes; the peer has one sum, so that a pod that fits
nowhere blocks the others. No GPU is requested where none could satisfy a pod. A bind request ends the need; the peer's
binder refuses to share any further GPU while a scaling pod waits.
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
"""The constraints that decide to which nodes a pod may go."""

_CONTAINER: Final = "scaling-pod"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_HASH: Final = 10
_HUNDREDTHS: Final = 100


@attrs.frozen(kw_only=True)
class ScaleSettings:
    """An administrator's settings for scaling pods, with the defaults of the peer's flags."""

    scheduler_name: str = names.SCHEDULER_NAME
    namespace: str = names.SCALE_ADJUST_NAMESPACE
    image: str = ""
    args: tuple[str, ...] = ()
    """Arguments of the image, where it serves other purposes as well."""
    app_label: str = "scaling-pod"
    service_account: str = "scaling-pod"
    cool_down_seconds: float = 60.0
    gpu_memory_to_fraction_ratio: float = 0.1
    """The part of a GPU that a request for GPU memory counts as: without a node the size of its GPUs is not known."""


@attrs.frozen(kw_only=True)
class ScaleState:
    """The state that one pass hands to the next.

    Units: `cooling_since` in seconds of the shell's clock; None before any deletion.
    """

    cooling_since: float | None = None


@attrs.frozen(kw_only=True)
class Adjustment:
    """The result of a pass.

    `deletions` are pods to delete by UID; `creations` are manifests, each to be marked unschedulable at once with
    `unschedulable_status`, since the autoscaler reads the condition.
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
    """Return the scaling pods to delete and to create.

    `pods` has at least the waiting pods that share GPUs, and the pods that scaling pods stand for. `orders` has the
    bind requests of all namespaces, `scaling_pods` the pods of their namespace. Malformed pods request nothing.

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
        # Counted from the last deletion: a new node takes pods one after another, and each that finds its place deletes
        # a scaling pod.
        left = state.cooling_since + settings.cool_down_seconds - now
        if left > 0:
            return Adjustment(state=state, deletions=deletions, look_again_after=left)
    waiting = [by_name[key] for key in sorted(by_name) if key not in placed]
    creations = _creations(waiting, [(scaling, by_name[stands_for(scaling)]) for scaling in kept], settings)
    return Adjustment(state=state, deletions=deletions, creations=creations)


def is_relevant(pod: Pod, settings: ScaleSettings) -> bool:
    """Return whether a change of this pod requires a pass: it is a pod of our scheduler, or a scaling pod.

    Source: the peer means the same but compares the namespace with the name of an image, so that no change of a scaling
    pod starts a pass there.
    """
    return pod.metadata.namespace == settings.namespace or pod.spec.scheduler_name == settings.scheduler_name


def _placed(by_name: Mapping[Key, Pod], orders: Iterable[BindRequest]) -> frozenset[Key]:
    """Return the pods that have a bind request, unless its last attempt failed."""
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
    """Return the missing scaling pods; ``existing`` has the present ones, each with the pod that it stands for."""
    demands = [demand for pod in pods if (demand := _demand(pod, settings)) is not None]
    shares: Counter[_Place] = Counter()
    for demand in demands:
        shares[demand.place] += demand.hundredths
    # One scaling pod for each pod at most: its name is made of the name of the pod.
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
        # The sum alone would not do: four requests for one GPU bring no node for a pod that needs four GPUs of one
        # node.
        if needed <= sum(sizes) and demand.devices <= max(sizes, default=0):
            continue
        manifest = scaling_pod(demand.pod, demand.devices, settings, taken=taken)
        creations.append(manifest)
        taken.add(manifest["metadata"]["name"])
        sizes.append(demand.devices)
    return tuple(creations)


@attrs.frozen
class _Demand:
    """An unschedulable pod, with its devices and its total share in hundredths of a GPU."""

    pod: Pod
    devices: int
    hundredths: int
    place: _Place


def _demand(pod: Pod, settings: ScaleSettings) -> _Demand | None:
    """Return a pod's need; None for a pod that needs nothing from an autoscaler."""
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
    """Return the part of each device that a pod needs; None if no GPU could satisfy it, however many are added."""
    if fraction:
        return floating(fraction) if gpu_sharing.is_share(fraction) else None
    return settings.gpu_memory_to_fraction_ratio if (signed(memory) or 0) > 0 else None


def _rounded(value: float) -> int:
    """Return the nearest integer, halves away from zero."""
    return math.floor(value + 0.5)


def _place_of(pod: Pod) -> _Place:
    """Return the node constraints of a pod: its selectors, node affinity and tolerations."""
    spec = pod.spec
    nodes = spec.affinity.node_affinity if spec.affinity is not None else None
    # Only shares of pods with equal constraints are added up: a node for one pod would not serve another. Terms about
    # other pods are left out, since they differ from job to job.
    return frozenset(spec.node_selector.items()), nodes, frozenset(spec.tolerations)


def _is_needed(scaling: Pod, by_name: Mapping[Key, Pod], placed: Collection[Key]) -> bool:
    """Return whether the pod that a scaling pod stands for still finds no place."""
    key = stands_for(scaling)
    pod = by_name.get(key)
    if scaling.status.phase == "Succeeded" or pod is None or key in placed:
        return False
    # Without the condition the pod's fate is open: it is written with the first failed attempt.
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
    """Return the number of whole GPUs that a scaling pod requests."""
    requests = scaling.spec.containers[0].resources.requests if scaling.spec.containers else {}
    text = requests.get(names.NVIDIA_GPU)
    return -(-exact(text).billionths // 10**9) if text is not None else 0


def scaling_pod(pod: Pod, devices: int, settings: ScaleSettings, *, taken: Iterable[str] = ()) -> dict[str, Any]:
    """Return the manifest of the scaling pod that stands for a pod.

    It requests the devices, and the CPU and memory of the pod's containers, with the pod's node constraints.
    """
    requests = {names.NVIDIA_GPU: str(devices)}
    for resource in (names.CPU, names.MEMORY):
        parts = [c.resources.requests for c in pod.spec.containers if c.resources.requests]
        total = sum((exact(part.get(resource, "0")) for part in parts), start=Amount())
        if parts:
            requests[resource] = total.text
    # A name of a pod may have 253 characters, and the value of a label 63.
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
            # A program that ended well stays ended, and the pod Succeeded, which a pass deletes. With Always it would
            # be started again for ever.
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
    """Return ``<namespace>-<name>``, with a hash where that is too long or taken by another pod."""
    name = f"{pod.metadata.namespace}-{pod.metadata.name}"
    if len(name) <= _LONGEST_NAME and name not in taken:
        return name
    return _cut(name, _LONGEST_NAME, of=f"{pod.metadata.namespace}/{pod.metadata.name}")


def _cut(name: str, longest: int, *, of: str = "") -> str:
    digest = hashlib.sha256((of or name).encode()).hexdigest()[:_HASH]
    return f"{name[: longest - _HASH - 1].rstrip('.-')}-{digest}"
