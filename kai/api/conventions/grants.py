"""Grants: what a pod was given when it was bound, written once with its binding as one annotation of compact JSON.

Labels and annotations of a pod may be edited while it runs, and so may its pod group. What the pod holds, and on whose
account, is what the grant says: it travels with the binding, so it is there exactly if the pod has its node. A pod that
was bound by others, or before grants were written, has none; then its labels and annotations are all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from math import inf
from typing import Annotated, Final, TypeGuard

import msgspec

from kai.api import names
from kai.api.conventions.gpu_sharing import gpu_groups
from kai.api.kubernetes.pod import UNCOUNTED, Pod
from kai.api.scheduling.bind_request import BindRequest

_LONGEST: Final = 512
"""Texts up to this length are remembered; any user can write a longer one."""
_SHARE: Final = frozenset(
    {names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES, names.RECEIVED_RESOURCE_TYPE}
)


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod was given. What is empty was not given, or is not told."""

    queue: str = ""
    pool: str = ""
    """The node pool in which it was given."""
    group: str = ""
    """The pod group, in the namespace of the pod."""
    gpus: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    """The GPU groups that it shares, one for each device."""
    portion: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """How much it has of each of them,"""
    memory: Annotated[int, msgspec.Meta(gt=0, le=2**40)] | None = None
    """or how many MiB of each."""

    @property
    def is_whole(self) -> bool:
        """Whether the grant tells how much of each shared GPU was given; without shared GPUs nothing is missing."""
        return not self.gpus or self.portion is not None or self.memory is not None

    @property
    def text(self) -> str:
        """The grant as it is written."""
        return _ENCODER.encode(self).decode()


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Grant)


def read_grant(text: str) -> Grant | None:
    """Return the grant in a text; None for a text that holds none."""
    return _remembered(text) if len(text) <= _LONGEST else _read(text)


def ordered_grant(request: BindRequest) -> Grant | None:
    """Return what a bind request tells of what its pod is given; None for one that tells nothing readable."""
    return read_grant(request.metadata.annotations.get(names.GRANTED, ""))


def grant_of(pod: Pod) -> Grant | None:
    """Return what a pod was given; None for one that has no node, or of which that was not written, or not readably."""
    text = pod.metadata.annotations.get(names.GRANTED)
    return read_grant(text) if text is not None and pod.spec.node_name else None


def held_under(pod: Pod) -> Grant | None:
    """Return the grant under which a pod holds something; None for one that has ended, or was granted on no account."""
    grant = grant_of(pod)
    return grant if is_held(grant, pod.status.phase) else None


def is_held(grant: Grant | None, phase: str) -> TypeGuard[Grant]:
    """Return whether a pod in a phase holds something on the account that its grant names."""
    return grant is not None and bool(grant.queue) and phase not in UNCOUNTED


def account_of(pods: Iterable[Pod]) -> Grant | None:
    """Return the grant on whose account the pods of a group are held; None if they hold nothing that was granted.

    The pod that was bound first decides, of several the first by name.
    """
    first: tuple[float, str] | None = None
    found: Grant | None = None
    for pod in pods:
        grant = held_under(pod)
        if grant is not None:
            order = (bound_at(pod), pod.metadata.name)
            if first is None or order < first:
                first, found = order, grant
    return found


def bound_at(pod: Pod) -> float:
    """Return when a pod got its node; infinity if that is not known."""
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION and condition.status == "True":
            return inf if condition.last_transition_time is None else condition.last_transition_time
    return inf


def is_foreign(pod: Pod, grant: Grant | None, scheduler_name: str) -> bool:
    """Return whether a pod was bound by others than the scheduler of that name, so that it shares no GPU.

    One without a grant is told by the scheduler that it names, which cannot be edited; the API server lets none be
    without, so that only a manifest that never was there names none.
    """
    return grant is None and bool(pod.spec.node_name) and pod.spec.scheduler_name not in {"", scheduler_name}


def shared_gpus(pod: Pod, scheduler_name: str) -> tuple[str, ...]:
    """Return the GPU groups that a pod was bound to, sorted, whether or not it runs still."""
    grant = grant_of(pod)
    if grant is not None:
        return tuple(sorted(set(grant.gpus)))
    return gpu_groups(pod.metadata.labels) if pod.spec.scheduler_name == scheduler_name else ()


def group_of(pod: Pod) -> str:
    """Return the name of the group for which a pod was bound, else of the one that it names; empty for none."""
    return group_under(grant_of(pod), pod)


def group_under(grant: Grant | None, pod: Pod) -> str:
    """Return the same of a pod whose grant is known."""
    return (grant.group if grant is not None else "") or pod.metadata.annotations.get(names.POD_GROUP, "")


def told_share(pod: Pod, scheduler_name: str) -> Mapping[str, str]:
    """Return the annotations of a pod, with those about its share of GPUs as it was granted.

    For a pod that another scheduler than ``scheduler_name`` bound, return its annotations without those.
    """
    annotations, grant = pod.metadata.annotations, grant_of(pod)
    is_told = grant is not None and grant.is_whole
    if not is_told and not is_foreign(pod, grant, scheduler_name):
        return annotations
    told = {key: text for key, text in annotations.items() if key not in _SHARE}
    if grant is None or not is_told:
        return told
    if grant.gpus:
        told |= {names.RECEIVED_RESOURCE_TYPE: names.FRACTION, names.GPU_FRACTION_DEVICES: str(len(grant.gpus))}
    if grant.portion is not None:
        told[names.GPU_FRACTION] = format(Decimal(repr(grant.portion)), "f")
    if grant.memory is not None:
        told[names.GPU_MEMORY] = str(grant.memory)
    return told


def _read(text: str) -> Grant | None:
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_remembered: Final = lru_cache(maxsize=1 << 10)(_read)
