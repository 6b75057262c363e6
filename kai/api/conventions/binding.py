"""Pods whose bind was refused and that rest until the next try: how conditions say so, and how cycles are shown them.

The scheduler that backs off writes the condition; commands and pages that decide anew read it, so that they do not say
of such a pod that it starts now. Both show it to a cycle with a gate that exists in memory only, as those are shown
that ask for too much (`kai.api.conventions.caps`): the pod waits, and its gate says why.

Whether binding a pod takes more than the one write that puts it on its node.

Two parties must agree on this: the scheduler, which may hand a bind over without writing it down only where a crash
leaves nothing half done, and the pod grouper, which lets the link of a pod to its group travel with that write.

Grants: what a pod was given when it was bound, written once with its binding as one annotation of compact JSON.

Labels and annotations of a pod may be edited while it runs, and so may its pod group. What the pod holds, and on whose
account, is what the grant says: it travels with the binding, so it is there exactly if the pod has its node. A pod that
was bound by others, or before grants were written, has none; then its labels and annotations are all there is.

Why a bind found no room, in words that a scheduler recognises when it reads them in a bind request.

A bind request says why it failed in one line of text and has no other field for it. What is written and what is looked
for stand here side by side.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Annotated, Final, TypeGuard

import attrs
import msgspec

from kai.api import names
from kai.api.conventions.gpu_sharing import gpu_groups, requests_fraction
from kai.api.kubernetes.pod import UNCOUNTED, Pod, PodSchedulingGate, condition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kai.api.kubernetes.meta import Condition
    from kai.api.scheduling.bind_request import BindRequest


def needs_preparation(pod: Pod) -> bool:
    """Return whether something has to be reserved, claimed or made before the pod can be bound."""
    return bool(
        requests_fraction(pod.metadata.annotations)
        or pod.spec.resource_claims
        or any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes)
    )


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


_NO_ROOM: Final = re.compile(
    r"has \S+ of \S+ left, the pod needs|has no GPU left to be shared|GPU group \S+ on .+ would hold \S+ of a GPU"
)


def short_of(place: str, resource: str, *, free: str, wanted: str) -> str:
    """Return that ``place`` has less of a resource than a pod asks for."""
    return f"{place} has {free} of {resource} left, the pod needs {wanted}"


def no_gpu_to_share(place: str) -> str:
    """Return that ``place`` has no GPU that could be reserved for sharing."""
    return f"{place} has no GPU left to be shared"


def device_overfull(group: str, place: str, total: float) -> str:
    """Return that the GPU of a group has no room for another portion."""
    return f"GPU group {group} on {place} would hold {total:.2f} of a GPU"


def is_lack_of_room(reason: str) -> bool:
    """Return whether a bind failed because its node, or a GPU there, is too full, rather than for the pod itself."""
    return _NO_ROOM.search(reason) is not None


REASON: Final = "BindRefused"
GATE: Final = "kai.scheduler/bind-refused "
"""How the gate begins; the rest says by what, how often, and when it is tried again. No gate of a user has a space."""


def refusal_text(why: str, times: int, again: str) -> str:
    """Return what a pod waits for whose bind was refused; ``again`` is when it is tried again."""
    often = "once" if times == 1 else f"{times} times"
    return f"the bind was refused {often}: {' '.join(why.split()).rstrip('.')}; the next try is at {again}"


def at_rest(pod: Pod, text: str) -> Pod:
    """Return a pod as cycles are shown it while it rests."""
    gates = (*pod.spec.scheduling_gates, PodSchedulingGate(name=f"{GATE}{text}"))
    return attrs.evolve(pod, spec=attrs.evolve(pod.spec, scheduling_gates=gates))


def refusal_told(pod: Pod) -> str:
    """Return what conditions say about a refused bind for which a pod rests; "" if they say nothing, or nothing now.

    The scheduler's own word is the last one. Until it has spoken the binder's counts, unless the scheduler said
    something else since.
    """
    scheduled, bound = (condition_of(pod, kind) for kind in (names.POD_SCHEDULED_CONDITION, names.POD_BOUND_CONDITION))
    if pod.spec.node_name:
        return ""
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == REASON:
        return f"{scheduled.message[:1].lower()}{scheduled.message[1:]}".rstrip(".")
    if bound is None or bound.status != "False" or bound.reason != names.BINDING_ERROR_REASON:
        return ""
    if scheduled is not None and _told(scheduled) > _told(bound):
        return ""
    return f"the bind was refused: {bound.message.rstrip('.')}"


def _told(condition: Condition) -> float:
    return max(condition.last_probe_time or 0.0, condition.last_transition_time or 0.0)
