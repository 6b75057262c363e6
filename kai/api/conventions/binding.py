"""Conventions of binding: what must precede a bind, what it grants to a pod, and how a refused bind is recorded.

Preparation. Some pods need more than the one write that binds them to a node. Two parties must agree on which: the
scheduler hands a bind over without a bind request only where a crash leaves nothing half done, and the pod grouper then
lets the link of a pod to its group travel with that write.

Grants. The resources that a pod got when it was bound are written once, with the binding, as one annotation of compact
JSON. Labels and annotations of a pod may be edited while it runs, and so may its pod group; the grant is the record of
what the pod holds and on which account. It travels with the binding, so it exists exactly if the pod has its node. A
pod that another scheduler bound, or that was bound before grants were written, has none; then its labels and
annotations are the only record.

Lack of room. A bind request records a failure in one line of text and has no other field for it. The texts that the
binder writes and the pattern that the scheduler matches stand here side by side.

Back-off. The scheduler that backs off from a refused bind writes a condition. Commands and pages that simulate a cycle
read it, so that they do not report such a pod as about to start. Both show the pod to a cycle with a scheduling gate
that exists in memory only, like pods that exceed a cap (`kai.api.conventions.caps`): the pod waits, and its gate says
why.
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
    """Return whether binding a pod first needs a GPU reservation, a resource claim or a volume."""
    return bool(
        requests_fraction(pod.metadata.annotations)
        or pod.spec.resource_claims
        or any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes)
    )


_LONGEST: Final = 512
"""Texts up to this length are memoized; any user can write a longer one."""
_SHARE: Final = frozenset(
    {names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES, names.RECEIVED_RESOURCE_TYPE}
)


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resources that a pod was bound with. An empty field was not granted, or not recorded."""

    queue: str = ""
    pool: str = ""
    """The node pool of the account."""
    group: str = ""
    """The pod group, in the namespace of the pod."""
    gpus: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    """The GPU groups that the pod shares, one for each device."""
    portion: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """The portion of each of these GPUs that the pod holds; None if `memory` gives the amount."""
    memory: Annotated[int, msgspec.Meta(gt=0, le=2**40)] | None = None
    """The MiB of each of these GPUs that the pod holds; None if `portion` gives the amount."""

    @property
    def is_whole(self) -> bool:
        """Whether the grant records the amount on each shared GPU; a grant without shared GPUs is complete."""
        return not self.gpus or self.portion is not None or self.memory is not None

    @property
    def text(self) -> str:
        """The grant as annotation text."""
        return _ENCODER.encode(self).decode()


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Grant)


def read_grant(text: str) -> Grant | None:
    """Return the grant that a text encodes; None if it encodes none."""
    return _remembered(text) if len(text) <= _LONGEST else _read(text)


def ordered_grant(request: BindRequest) -> Grant | None:
    """Return the grant that a bind request orders for its pod; None if it orders none, or none that can be read."""
    return read_grant(request.metadata.annotations.get(names.GRANTED, ""))


def grant_of(pod: Pod) -> Grant | None:
    """Return the grant of a bound pod; None for a pod without a node, without a grant or with an unreadable one."""
    text = pod.metadata.annotations.get(names.GRANTED)
    # A grant comes with the binding: on a pod without a node, the annotation is its owner's own.
    return read_grant(text) if text is not None and pod.spec.node_name else None


def held_under(pod: Pod) -> Grant | None:
    """Return the grant whose account a pod is charged to; None if the pod has ended or its grant names no account."""
    grant = grant_of(pod)
    return grant if is_held(grant, pod.status.phase) else None


def is_held(grant: Grant | None, phase: str) -> TypeGuard[Grant]:
    """Return whether a pod in ``phase`` is charged to the account that its grant names."""
    return grant is not None and bool(grant.queue) and phase not in UNCOUNTED


def account_of(pods: Iterable[Pod]) -> Grant | None:
    """Return the grant whose account the pods of a group are charged to; None if none of them holds a grant.

    The pod that was bound first decides; among several, the first by name.
    """
    first: tuple[float, str] | None = None
    found: Grant | None = None
    for pod in pods:
        grant = held_under(pod)
        if grant is not None:
            # The name breaks ties, so that all processes charge the same account.
            order = (bound_at(pod), pod.metadata.name)
            if first is None or order < first:
                first, found = order, grant
    return found


def bound_at(pod: Pod) -> float:
    """Return the instant at which a pod was bound; infinity if it is not known."""
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION and condition.status == "True":
            return inf if condition.last_transition_time is None else condition.last_transition_time
    return inf


def is_foreign(pod: Pod, grant: Grant | None, scheduler_name: str) -> bool:
    """Return whether a pod was bound by another scheduler than ``scheduler_name``, so that it shares no GPU.

    For a pod without a grant its scheduler name decides: it is immutable, and the API server fills it in. Only a
    manifest that never reached an API server has none.
    """
    return grant is None and bool(pod.spec.node_name) and pod.spec.scheduler_name not in {"", scheduler_name}


def shared_gpus(pod: Pod, scheduler_name: str) -> tuple[str, ...]:
    """Return the GPU groups that a pod was bound to, sorted, whether or not it still runs."""
    grant = grant_of(pod)
    if grant is not None:
        return tuple(sorted(set(grant.gpus)))
    # Labels say nothing on a pod that another scheduler bound: any user can write them.
    return gpu_groups(pod.metadata.labels) if pod.spec.scheduler_name == scheduler_name else ()


def group_of(pod: Pod) -> str:
    """Return the name of the group for which a pod was bound, else of the group that it names; empty for none."""
    return group_under(grant_of(pod), pod)


def group_under(grant: Grant | None, pod: Pod) -> str:
    """Like `group_of`, for a pod whose grant is known."""
    return (grant.group if grant is not None else "") or pod.metadata.annotations.get(names.POD_GROUP, "")


def share_annotations(pod: Pod, scheduler_name: str) -> Mapping[str, str]:
    """Return the annotations of a pod, with its GPU share as it was granted.

    Return them without a GPU share for a pod that another scheduler than ``scheduler_name`` bound.
    """
    annotations, grant = pod.metadata.annotations, grant_of(pod)
    is_granted = grant is not None and grant.is_whole
    if not is_granted and not is_foreign(pod, grant, scheduler_name):
        return annotations
    # The grant replaces the whole share, since annotations may be edited while the pod runs.
    granted = {key: text for key, text in annotations.items() if key not in _SHARE}
    if grant is None or not is_granted:
        return granted
    if grant.gpus:
        granted |= {names.RECEIVED_RESOURCE_TYPE: names.FRACTION, names.GPU_FRACTION_DEVICES: str(len(grant.gpus))}
    if grant.portion is not None:
        granted[names.GPU_FRACTION] = format(Decimal(repr(grant.portion)), "f")
    if grant.memory is not None:
        granted[names.GPU_MEMORY] = str(grant.memory)
    return granted


def _read(text: str) -> Grant | None:
    try:
        return _DECODER.decode(text)
    # Users can write anything here, also brackets nested deeper than a decoder follows.
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_remembered: Final = lru_cache(maxsize=1 << 10)(_read)


_NO_ROOM: Final = re.compile(
    r"has \S+ of \S+ left, the pod needs|has no GPU left to be shared|GPU group \S+ on .+ would hold \S+ of a GPU"
)


def short_of(place: str, resource: str, *, free: str, wanted: str) -> str:
    """Return the message that ``place`` has less of a resource than a pod asks for."""
    return f"{place} has {free} of {resource} left, the pod needs {wanted}"


def no_gpu_to_share(place: str) -> str:
    """Return the message that ``place`` has no GPU that could be reserved for sharing."""
    return f"{place} has no GPU left to be shared"


def device_overfull(group: str, place: str, total: float) -> str:
    """Return the message that the GPU of a group has no room for another portion."""
    return f"GPU group {group} on {place} would hold {total:.2f} of a GPU"


def is_lack_of_room(reason: str) -> bool:
    """Return whether a bind failed for lack of room on its node or GPU, rather than for a fault of the pod."""
    return _NO_ROOM.search(reason) is not None


REASON: Final = "BindRefused"
GATE: Final = "kai.scheduler/bind-refused "
"""Prefix of the gate; who refused, how often and the next try follow. Gates of users never contain a space."""


def refusal_text(why: str, times: int, again: str) -> str:
    """Return the reason why a pod waits whose bind was refused; ``again`` is the time of the next try."""
    # On one line: the reason is a server's own text, and ends up in the name of a gate.
    often = "once" if times == 1 else f"{times} times"
    return f"the bind was refused {often}: {' '.join(why.split()).rstrip('.')}; the next try is at {again}"


def at_rest(pod: Pod, text: str) -> Pod:
    """Return a resting pod as cycles see it: with a gate that holds ``text``."""
    gates = (*pod.spec.scheduling_gates, PodSchedulingGate(name=f"{GATE}{text}"))
    return attrs.evolve(pod, spec=attrs.evolve(pod.spec, scheduling_gates=gates))


def bind_refusal(pod: Pod) -> str:
    """Return the condition text about a refused bind for which a pod rests; "" if there is none, or none any more.

    The scheduler's own condition wins. Before the scheduler has written one, the binder's counts, unless the scheduler
    wrote something else since.
    """
    scheduled, bound = (condition_of(pod, kind) for kind in (names.POD_SCHEDULED_CONDITION, names.POD_BOUND_CONDITION))
    if pod.spec.node_name:
        return ""
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == REASON:
        # The condition is a sentence; where it is shown as a reason it is a part of one.
        return f"{scheduled.message[:1].lower()}{scheduled.message[1:]}".rstrip(".")
    if bound is None or bound.status != "False" or bound.reason != names.BINDING_ERROR_REASON:
        return ""
    if scheduled is not None and _time_of(scheduled) > _time_of(bound):
        return ""
    return f"the bind was refused: {bound.message.rstrip('.')}"


def _time_of(condition: Condition) -> float:
    return max(condition.last_probe_time or 0.0, condition.last_transition_time or 0.0)
