"""Decisions as writes: bind requests, evictions, labels, conditions and events. Values in, values out.

Source: fields, metadata and texts are those of KAI-Scheduler's cache.Bind, cache.Evict and its status updater.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names, plans
from kai.api.codec.structuring import structure_as, unstructure
from kai.api.conventions.binding import Grant, is_lack_of_room, needs_preparation
from kai.api.kubernetes.meta import ObjectMeta, OwnerReference
from kai.api.plans import Emit, Patch, Ref
from kai.api.scheduling.bind_request import (
    BindRequest,
    BindRequestSpec,
    ReceivedGpu,
)
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values import instant_text
from kai.basics.wording import counted, first_of
from kai.cluster.requests import Evict as EvictRequest
from kai.cluster.requests import Request
from kai.deciding.explain.messages import eviction_message, pipelined_message
from kai.facts.model.placement import NoRoom
from kai.facts.model.pod import GpuKind
from kai.intake.bind_requests import fields
from kai.roles.scheduler.settings import EvictBy, SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.api.kubernetes.pod import Pod
    from kai.facts.state.snapshot import Snapshot
    from kai.framework.decisions import Bind, Evict
    from kai.roles.scheduler.committing.operations import Gang

SCHEDULED: Final = "Scheduled"
FAILED_BINDING: Final = "FailedBinding"
PIPELINED: Final = "Pipelined"
EVICTED: Final = "Evict"
_MOST_NODES: Final = 10
_PREEMPTED: Final = "kai-scheduler: preempting to accommodate a higher priority workload"


@attrs.frozen(kw_only=True)
class Stamp:
    """Annotations of bind requests and evictions that do not come from the decision."""

    epoch: int = 0
    """Epoch of the leader election; 0 without it."""
    lease: str = ""
    trace: str = ""
    granted: str = ""
    """For a bind: the grant that the binder writes on the pod."""

    def granting(self, granted: str) -> Stamp:
        """Return the stamp of a bind with this grant."""
        return Stamp(epoch=self.epoch, lease=self.lease, trace=self.trace, granted=granted)

    def annotations(self) -> dict[str, str]:
        """Return the annotations."""
        found = {names.TRACE_PARENT: self.trace, names.GRANTED: self.granted}
        if self.epoch:
            found |= {names.EPOCH: str(self.epoch), names.LEASE: self.lease}
        return {key: value for key, value in found.items() if value}


BLANK: Final = Stamp()
"""No annotations."""


# --- Binds ---------------------------------------------------------------------------------------------------------


def bind_request(
    decision: Bind,
    pod: Pod,
    node: str,
    devices: tuple[str, ...],
    settings: SchedulerSettings,
    stamp: Stamp = BLANK,
) -> BindRequest:
    """Return the request to bind ``pod`` to ``node``; ``devices`` are the final names of its shared devices."""
    details = structure_as(BindRequestSpec, fields(decision.request, pod)) if decision.request else BindRequestSpec()
    return BindRequest(
        metadata=ObjectMeta(
            # Named after the pod, so that the API server refuses a second request for it.
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            labels={names.SELECTED_NODE: node, **pool_label(settings)},
            annotations=stamp.annotations(),
            # Garbage collection deletes the request with its pod.
            owner_references=(
                OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid),
            ),
        ),
        spec=attrs.evolve(
            details,
            pod_name=pod.metadata.name,
            selected_node=node,
            received_resource_type=decision.received,
            received_gpu=received_gpu(decision.gpu_count, decision.gpu_portion),
            selected_gpu_groups=devices,
        ),
    )


def grant(decision: Bind, snapshot: Snapshot) -> str:
    """Return the grant of a bind as text: queue, node pool and group, and how much of each shared device.

    It describes the decision, even if the pod or its group has changed since. The binder adds the devices.
    """
    group = int(snapshot.pod_group[decision.pod])
    if group < 0:
        return ""
    facts = snapshot.groups[group]
    if decision.received != names.FRACTION:
        return Grant(queue=facts.queue, pool=facts.node_pool, group=facts.name).text
    share = snapshot.shapes[snapshot.pod_shape[decision.pod]].gpu
    return Grant(
        queue=facts.queue,
        pool=facts.node_pool,
        group=facts.name,
        portion=share.portion if share.kind is GpuKind.FRACTION else None,
        memory=share.memory if share.kind is GpuKind.MEMORY else None,
    ).text


@lru_cache
def received_gpu(count: int, portion: float) -> ReceivedGpu:
    """Return the count of devices and the portion of each, in the form of the API."""
    # Two decimal places, as KAI-Scheduler writes them. The binder allows for the rounding when it adds up the portions
    # of a GPU.
    return ReceivedGpu(count=count, portion=f"{portion if count else 0.0:.2f}")


def pool_label(settings: SchedulerSettings) -> dict[str, str]:
    """Return the label of the node pool; {} without node pools."""
    if not settings.intake.node_pool_label or not settings.intake.node_pool:
        return {}
    return {settings.intake.node_pool_label: settings.intake.node_pool}


def is_same_order(found: BindRequest, ours: BindRequest) -> bool:
    """Return whether an existing bind request equals ours, so that no write is needed."""
    # By UID: a request that an earlier pod of the same name left may even have the same spec.
    owners = {owner.uid for owner in found.metadata.owner_references}
    wanted = {owner.uid for owner in ours.metadata.owner_references}
    return found.spec == ours.spec and bool(owners & wanted)


def create_bind_request(request: BindRequest) -> plans.Create:
    """Return the write of a bind request."""
    ref = Ref.to(request)
    return plans.Create(ref=ref, manifest=unstructure(request))


def takes_one_write(request: BindRequest, pod: Pod) -> bool:
    """Return whether the bind needs a single write, so that a crash cannot leave it half done."""
    spec = request.spec
    prepared = (spec.selected_gpu_groups, spec.resource_claim_allocations, spec.extended_resource_claim_allocation)
    return spec.received_resource_type != names.FRACTION and not any(prepared) and not needs_preparation(pod)


def pool_patch(pod: Pod, settings: SchedulerSettings) -> Patch | None:
    """Return the write of the pod's node-pool label; None if the pod has it, or there are no pools."""
    wanted = pool_label(settings)
    if all(pod.metadata.labels.get(key) == value for key, value in wanted.items()):
        return None
    return Patch(ref=Ref.to(pod), patch={"metadata": {"uid": pod.metadata.uid, "labels": wanted}})


def scheduled_event(pod: Pod, node: str, settings: SchedulerSettings) -> Emit:
    """Return the event for a bound pod."""
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    message = f"Successfully assigned pod {where} to node {node} at node-pool {settings.pool}"
    return emit(Ref.to(pod), SCHEDULED, message, uid=pod.metadata.uid)


def gang_event(gang: Gang, nodes: Mapping[str, int], pool: str) -> Emit:
    """Return the event for bound pods of a gang, with the count of pods on each of ``nodes``.

    Holds: the text names at most ten nodes, because Kubernetes refuses an event with a message over 1 KiB.
    """
    named = first_of([f"{node} ({here})" for node, here in sorted(nodes.items())], _MOST_NODES)
    pods, where = counted(sum(nodes.values()), "pod"), f"{gang.ref.namespace}/{gang.ref.name}"
    message = f"Successfully assigned {pods} of pod group {where} at node-pool {pool} to nodes {named}"
    return emit(gang.ref, SCHEDULED, message, uid=gang.uid)


def failed_binding(pod: Pod, node: str, error: str) -> tuple[Request, ...]:
    """Return the event for a bind that the API server refused; the publisher writes the condition."""
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    message = f"Failed to bind pod {where} to node {node}. {error}"
    ref, uid = Ref.to(pod), pod.metadata.uid
    return (Emit(ref=ref, type="Warning", reason=FAILED_BINDING, message=message, uid=uid, is_counted=True),)


def pipelined_event(pod: Pod, node: str) -> Emit:
    """Return the event for a pod that was nominated for a node."""
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return emit(Ref.to(pod), PIPELINED, pipelined_message(where, node), uid=pod.metadata.uid)


# --- Evictions -----------------------------------------------------------------------------------------------------


def eviction(pod: Pod, settings: SchedulerSettings, stamp: Stamp, *, budgeted: bool) -> Request:
    """Return the write that removes ``pod``; ``budgeted``: a disruption budget covers it."""
    # The eviction API answers 429 while a disruption budget forbids the eviction; a deletion asks no budget.
    by = settings.evict_by
    if by is EvictBy.EVICTION or (by is EvictBy.BUDGET and budgeted):
        return EvictRequest(ref=Ref.to(pod), uid=pod.metadata.uid, annotations=stamp.annotations())
    return plans.Delete(ref=Ref.to(pod), uid=pod.metadata.uid)


def victim_condition(pod: Pod, now: float) -> Patch:
    """Return the write of the condition that says why the pod is evicted."""
    return pod_condition(
        pod,
        kind=names.DISRUPTION_TARGET_CONDITION,
        status="True",
        reason=names.PREEMPTION_BY_SCHEDULER_REASON,
        message=_PREEMPTED,
        now=now,
    )


def eviction_event(
    decision: Evict, snapshot: Snapshot, group: int, evicted: int, *, names_others: bool = False
) -> Emit:
    """Return the event on the victim's group.

    ``evicted`` counts the pods of the group that the same statement evicts. ``names_others``: the event may name an
    aggressor in another namespace, which the owner of the victim then reads.

    Source: KAI-Scheduler names every aggressor.
    """
    facts = snapshot.groups[group]
    annotations: dict[str, str] = {
        names.EVICTED_PODS: str(evicted),
        names.EVICTOR_ACTION: decision.cause.name,
    }
    aggressor = snapshot.groups[decision.aggressor] if decision.aggressor >= 0 else None
    is_hidden = aggressor is not None and aggressor.namespace != facts.namespace and not names_others
    # Who reads the event may have no right to see that the other namespace exists, and annotations say as much as the
    # text.
    if aggressor is not None and not is_hidden:
        annotations |= {names.EVICTOR_NAME: aggressor.name, names.EVICTOR_NAMESPACE: aggressor.namespace}
    return attrs.evolve(
        emit(
            Ref(PodGroup, facts.name, facts.namespace),
            EVICTED,
            eviction_message(decision, snapshot, is_hidden=is_hidden),
            uid=facts.uid,
        ),
        annotations=annotations,
    )


# --- Parts ---------------------------------------------------------------------------------------------------------


def emit(ref: Ref[Any], reason: str, message: str, *, uid: str) -> Emit:
    """Return an event of type Normal."""
    return Emit(ref=ref, type="Normal", reason=reason, message=message, uid=uid)


def pod_condition(pod: Pod, *, kind: str, status: str, reason: str, message: str, now: float) -> Patch:
    """Return the write of a pod condition; lastTransitionTime changes only with the status."""
    since = next((each for each in pod.status.conditions if each.type == kind and each.status == status), None)
    changed = now if since is None or since.last_transition_time is None else since.last_transition_time
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": instant_text(float(int(now))),
        "lastTransitionTime": instant_text(float(int(changed))),
    }
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    # A strategic patch merges conditions by type: those of other writers stay. The UID protects a new pod of this name.
    return Patch(ref=Ref.to(pod), patch=body, form="strategic", subresource="status")


def lack_of_room(request: BindRequest, uid: str, why: str) -> NoRoom | None:
    """Return the refusal behind a failed bind of the pod ``uid``, if its node lacked room; else None."""
    if not is_lack_of_room(why):
        return None
    return NoRoom(
        namespace=request.metadata.namespace,
        pod=request.spec.pod_name or request.metadata.name,
        uid=uid,
        node=request.spec.selected_node,
        reason=why,
    )
