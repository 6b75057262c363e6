"""One attempt at a bind request: read it, bind the pod, and report the result.

An attempt has three possible ends. If the pod is bound, that is reported. If the bind failed, then in this order: the
pod gets a failure condition (which also fences a binding that may still be in flight), the preparations are undone, the
request is marked as failed, and the GPU groups that it claimed are swept. If the API server did not answer, nothing is
reported or undone, and the attempt is repeated later.

The status of the request is written last, so an attempt that was cut off earlier is found unfinished and repeated.

The reports are the status of the request, the condition of the pod, and an event. Nothing is reported before it is
true: success after the API server confirmed the binding, and a failed attempt as failed even if a retry follows.

Source: texts, reasons and the condition type are those of KAI-Scheduler. It writes the status only when the phase
changes, so it never counts more than one attempt; and while it retries, it reports success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.conventions.binding import ordered_grant
from kai.api.kinds import title
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import Emit, Now, Plan, Reason, Ref, RefusedError, delete, find, find_for_sure, patch
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.api.scheduling.queue import Queue
from kai.api.values import instant_text
from kai.basics.deadlines import doubling_pause
from kai.basics.errors import InputError
from kai.cluster.requests import NamespaceEnding
from kai.roles.binder.bind import Binder, bind, undo
from kai.roles.binder.outcome import BindFailureError, BindOutcome, BindVerdict, WithdrawnError, is_gone, order_for_sure
from kai.roles.binder.sharers import refuse_pod
from kai.roles.binder.sweep import sweep_group

if TYPE_CHECKING:
    from collections.abc import Collection

    from kai.roles.binder.sharers import BinderSettings

_NOTHING: Final = BindOutcome(verdict=BindVerdict.NOTHING_TO_DO)
BOUND: Final = "Bound"
_ATTEMPTS: Final = 5
_LONGEST_REASON: Final = 1024


def attempt(binder: Binder, ref: Ref[BindRequest], *, patient: bool = True) -> Plan[BindOutcome]:
    """Try to carry out a bind request, and return the outcome.

    If the API server does not answer, the attempt is interrupted while the caller is ``patient``, and fails otherwise.
    A lost answer always interrupts it, since the state of the cluster is then unknown.
    """
    try:
        request = yield from find(ref)
        if request is None or is_finished(request):
            return _NOTHING
        return (yield from _carry_out(binder, request, patient=patient))
    except RefusedError as error:
        return BindOutcome(verdict=BindVerdict.INTERRUPTED, message=str(error), delay=error.refusal.retry_after)


def attempt_unwritten(binder: Binder, request: BindRequest, *, patient: bool = True) -> Plan[BindOutcome]:
    """Try to carry out a bind of this process without a written bind request, and return the outcome.

    Use it only for binds without preparation: after a crash no other process could find and finish it. A failure is
    reported on the pod; the scheduler that ordered the bind reports a success.
    """
    try:
        return (yield from _carry_out(binder, request, patient=patient))
    except RefusedError as error:
        return BindOutcome(verdict=BindVerdict.INTERRUPTED, message=str(error), delay=error.refusal.retry_after)


def give_back(binder: Binder, ref: Ref[BindRequest], message: str, *, plainly: bool = False) -> Plan[BindOutcome]:
    """Fail a bind request for good because of a bug in kai, and return the outcome.

    The scheduler removes such a request, lets its pod back off, and decides anew. ``plainly``: skip the undo, which may
    be what fails; sweeps find the preparations that remain.
    """
    try:
        request = yield from find(ref)
        if request is None or is_finished(request):
            return _NOTHING
        pod = yield from find(Ref(Pod, request.spec.pod_name, request.metadata.namespace), fresh=True)
        # No report on the pod: a pod of the same name that came later has nothing to do with this request.
        if pod is None or not is_for(request, pod.metadata.uid):
            return (yield from _give_up(request, message))
        if plainly:
            return (yield from _mark_failed(request, pod, message))
        node = yield from find(Ref(Node, request.spec.selected_node))
        return (yield from _fail(binder, request, pod, node, message, retryable=False))
    except RefusedError as error:
        return BindOutcome(verdict=BindVerdict.INTERRUPTED, message=str(error), delay=error.refusal.retry_after)


def _mark_failed(request: BindRequest, pod: Pod, message: str) -> Plan[BindOutcome]:
    """Report the failure on the pod and mark the request, unless the pod is bound after all."""
    current = yield from report_failure(pod, request.spec.selected_node, message)
    if current is not None and current.spec.node_name == request.spec.selected_node:
        yield from write_status(request, succeeded())
        return BindOutcome(verdict=BindVerdict.BOUND)
    outcome = yield from _give_up(request, message)
    return attrs.evolve(outcome, leftovers=("what was prepared for the bind",))


def is_finished(request: BindRequest) -> bool:
    """Return whether a request is finished: it was carried out, is being deleted, or failed too often."""
    if request.metadata.deletion_timestamp is not None or request.status.phase == "Succeeded":
        return True
    # Without a limit the first failure is the last.
    limit = request.spec.backoff_limit
    return request.status.phase == "Failed" and (limit is None or request.status.failed_attempts >= limit)


def _carry_out(binder: Binder, request: BindRequest, *, patient: bool) -> Plan[BindOutcome]:
    if request.spec.received_resource_type == names.FRACTION and not request.spec.selected_gpu_groups:
        # No GPU can be reserved for it. Deleted, because the scheduler would count it as a bind in flight for ever.
        yield from delete(Ref.to(request), uid=request.metadata.uid)
        return BindOutcome(verdict=BindVerdict.NOTHING_TO_DO, message=f"{title(request)}: names no GPU groups, deleted")
    ref = Ref(Pod, request.spec.pod_name, request.metadata.namespace)
    pod = yield from find_for_sure(ref)
    if pod is not None and pod.spec.node_name:
        # Read from the API server: an etcd restored from a backup has lost bindings that the store still shows, and the
        # scheduler would wait for ever for a pod whose request is marked as bound.
        pod = yield from find(ref, fresh=True)
    if pod is None:
        return (yield from _give_up(request, f"pod {request.spec.pod_name} does not exist", BindVerdict.GONE))
    if not is_for(request, pod.metadata.uid):
        message = f"{title(pod)} is another pod than the one of that name for which this was decided"
        return (yield from _give_up(request, message, BindVerdict.GONE))
    # The binding of an attempt that was cut off: only its reports are missing.
    if pod.spec.node_name == request.spec.selected_node:
        return (yield from _finish(request, pod))
    if pod.spec.node_name:
        return (yield from _give_up(request, f"{title(pod)} is bound to node {pod.spec.node_name} already"))
    node = yield from find_for_sure(Ref(Node, request.spec.selected_node))
    try:
        reason = refuse_pod(pod) or binder.refuse_order(request) or (yield from _lost_queue(request))
        if reason:
            raise BindFailureError(reason, retryable=False)
        if node is None:
            raise BindFailureError(f"node {request.spec.selected_node} does not exist", retryable=False)
        pod = yield from bind(binder, request, pod, node)
    except (BindFailureError, InputError) as error:
        retryable = isinstance(error, BindFailureError) and error.retryable
        gone = isinstance(error, WithdrawnError)
        return (yield from _fail(binder, request, pod, node, str(error), retryable=retryable, gone=gone))
    except RefusedError as error:
        # A lost answer never counts as a failure: the undo would take volumes and devices from a pod that may be bound.
        if error.interrupts and (patient or error.is_unknown):
            raise
        # A rejected write will be rejected again; other obstacles may go away.
        retryable = error.reason is not Reason.REJECTED
        message = _refusal_text(error, {"", pod.metadata.namespace, binder.settings.reservation.namespace})
        gone = isinstance(error.refusal, NamespaceEnding) and error.namespace == pod.metadata.namespace
        return (yield from _fail(binder, request, pod, node, message, retryable=retryable, gone=gone))
    return (yield from _finish(request, pod))


def _refusal_text(error: RefusedError, named: Collection[str]) -> str:
    """Return a refusal for the users of a pod, who must not learn names from other namespaces."""
    if error.namespace in named:
        return str(error)
    return f"the state of other pods on the node could not be read or repaired: {error.reason.value}"


def _lost_queue(request: BindRequest) -> Plan[str]:
    """Return an error if the queue of an unwritten bind is gone; "" if it exists, or the bind names none.

    For a written bind request the scheduler deletes the request if its queue is deleted before the bind.
    """
    grant = None if request.metadata.uid else ordered_grant(request)
    if grant is None or not grant.queue:
        return ""
    found = yield from find_for_sure(Ref(Queue, grant.queue))
    return "" if found is not None else f"queue {grant.queue} does not exist any more"


def _finish(request: BindRequest, pod: Pod) -> Plan[BindOutcome]:
    """Report that a pod is bound. If the write to the pod fails, the request is marked all the same."""
    if not request.metadata.uid:
        return BindOutcome(verdict=BindVerdict.BOUND)  # the scheduler, which ordered it, reports an unwritten bind
    node, leftovers = request.spec.selected_node, []
    try:
        yield from report_bound(pod, node)
    except RefusedError as error:
        if error.interrupts:
            raise
        leftovers.append(str(error))
    yield from write_status(request, succeeded())
    return BindOutcome(verdict=BindVerdict.BOUND, leftovers=tuple(leftovers), event=bound_event(pod, node))


def _give_up(request: BindRequest, message: str, verdict: BindVerdict = BindVerdict.FAILED) -> Plan[BindOutcome]:
    """Fail a request for good because its pod is gone, replaced or bound elsewhere; undo and report nothing."""
    yield from write_status(request, failed(message, _counted(request, retryable=False)))
    return BindOutcome(verdict=verdict, message=message)


def _fail(
    binder: Binder,
    request: BindRequest,
    pod: Pod,
    node: Node | None,
    message: str,
    *,
    retryable: bool,
    gone: bool = False,
) -> Plan[BindOutcome]:
    """Undo a failed bind, and report the failure.

    ``gone``: there is nothing to bind any more. The same applies if the pod turns out to be terminating, whatever
    failed first, because its preparations end with it.
    """
    leftovers: tuple[str, ...] = ()
    # Before the undo: this write raises the version of the pod, so a binding that is still in flight is refused.
    current = yield from report_failure(pod, request.spec.selected_node, message)
    if current is not None and current.spec.node_name == request.spec.selected_node:
        return (yield from _finish(request, current))
    if current is not None and current.spec.node_name:
        return (yield from _give_up(request, f"{title(pod)} is bound to node {current.spec.node_name} already"))
    if current is not None:
        leftovers = yield from undo(binder, request, current, node)
    gone = gone or _has_left(current)
    attempts = _counted(request, retryable=retryable and not gone)
    yield from write_status(request, failed(message, attempts))
    leftovers += yield from _sweep(binder, request)
    if gone:
        return BindOutcome(verdict=BindVerdict.GONE, message=message, leftovers=leftovers)
    limit = request.spec.backoff_limit
    if not retryable or limit is None or attempts >= limit:
        return BindOutcome(verdict=BindVerdict.FAILED, message=message, leftovers=leftovers)
    delay = bind_delay(attempts, binder.settings)
    return BindOutcome(verdict=BindVerdict.RETRY, message=message, delay=delay, leftovers=leftovers)


def _has_left(pod: Pod | None) -> bool:
    return pod is None or pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDED


def bind_delay(attempts: int, settings: BinderSettings) -> float:
    """Return the back-off of a bind after ``attempts`` failures."""
    return doubling_pause(attempts, settings.first_delay_seconds, settings.longest_delay_seconds)


def _counted(request: BindRequest, *, retryable: bool) -> int:
    """Return the count of failed attempts to write."""
    attempts = request.status.failed_attempts + 1
    # Schedulers, KAI-Scheduler included, remove a request whose count reaches its limit. So a failure that a retry
    # cannot mend counts as the last one.
    return attempts if retryable else max(attempts, request.spec.backoff_limit or 0)


def _sweep(binder: Binder, request: BindRequest) -> Plan[tuple[str, ...]]:
    """Release GPUs without other users, now that the request no longer claims them."""
    leftovers = []
    for group in request.spec.selected_gpu_groups:
        try:
            yield from sweep_group(group, binder.settings)
        except RefusedError as error:
            # The bind has ended as it was reported; the next sweep of everything finds what stays.
            leftovers.append(str(error))
    return tuple(leftovers)


def write_status(request: BindRequest, status: dict[str, Any]) -> Plan[BindRequest | None]:
    """Write the status of a bind request and return the request; None if it is gone, or was never written.

    Raises: RefusedError, also while the kind is not served.
    """
    ref = Ref.to(request)
    current: BindRequest | None = request if request.metadata.uid else None
    for attempt in range(_ATTEMPTS):
        # Another request may have the name by now. Its status must not say what became of this one.
        if current is None or current.metadata.uid != request.metadata.uid:
            return None
        try:
            return (
                yield from patch(
                    ref,
                    {"status": status},
                    uid=current.metadata.uid,
                    resource_version=current.metadata.resource_version,
                    subresource="status",
                )
            )
        except RefusedError as error:
            if is_gone(error):
                return None
            if error.reason is not Reason.CONFLICT or attempt == _ATTEMPTS - 1:
                raise
        current = yield from order_for_sure(ref, fresh=True)
    return None


def succeeded() -> dict[str, Any]:
    """Return the status of a request that was carried out; it removes the reason of an earlier failure."""
    return {"phase": "Succeeded", "reason": None}


def failed(message: str, attempts: int) -> dict[str, Any]:
    """Return the status of a request after ``attempts`` failures."""
    return {"phase": "Failed", "reason": message[:_LONGEST_REASON], "failedAttempts": attempts}


def bound_event(pod: Pod, node: str) -> Emit:
    """Return the event for a bound pod."""
    return Emit(ref=Ref.to(pod), type="Normal", reason=BOUND, message=_bound_to(node), uid=pod.metadata.uid)


def _bound_to(node: str) -> str:
    return f"Pod bound successfully to node {node}"


def report_bound(pod: Pod, node: str) -> Plan[None]:
    """Write the condition that a pod is bound, unless it is there.

    Raises: RefusedError.
    """
    message = _bound_to(node)
    if _current(pod, "True", BOUND, message) is not None:
        return
    now: float = yield Now()
    body = _condition("True", BOUND, message, since=now, now=now)
    try:
        yield from patch(Ref.to(pod), body, uid=pod.metadata.uid, form="strategic", subresource="status")
    except RefusedError as error:
        # The pod is gone or replaced, and its successor was not bound by this request.
        if error.reason not in {Reason.NOT_FOUND, Reason.CONFLICT}:
            raise


def report_failure(pod: Pod, node: str, error: str) -> Plan[Pod | None]:
    """Write a condition that a pod could not be bound, and why; return the present pod, or None if it is gone.

    This is also a fence. A binding whose answer was lost may still be in flight. It carries the version of the pod, and
    this write always changes the pod, so from then on the binding cannot succeed, and the undo is safe. If it has
    succeeded already, the pod is returned with its node and nothing is written. Nothing is written to a terminating pod
    either: the API server does not bind it any more.

    Raises: RefusedError.
    """
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    message = f"Failed to bind pod {where} to node {node}: {error}"[:_LONGEST_REASON]
    for attempt in range(_ATTEMPTS):
        current = yield from find(Ref.to(pod), fresh=True)
        if current is None or current.metadata.uid != pod.metadata.uid:
            return None
        if current.spec.node_name or current.metadata.deletion_timestamp is not None:
            return current
        now: float = yield Now()
        # As for all conditions of Kubernetes, the time of the transition stays while the status does.
        since = _current(current, "False", names.BINDING_ERROR_REASON)
        body = _condition(
            "False",
            names.BINDING_ERROR_REASON,
            message,
            since=now if since is None else since,
            now=now,
        )
        try:
            written = yield from patch(
                Ref.to(pod),
                body,
                uid=current.metadata.uid,
                resource_version=current.metadata.resource_version,
                form="strategic",
                subresource="status",
            )
        except RefusedError as refused:
            if refused.reason is Reason.NOT_FOUND:
                return None
            if refused.reason is not Reason.CONFLICT or attempt == _ATTEMPTS - 1:
                raise
            continue
        yield Emit(
            ref=Ref.to(pod),
            type="Warning",
            reason=names.BINDING_ERROR_REASON,
            message=message,
            uid=pod.metadata.uid,
            is_counted=True,
        )
        return written
    return None


def _current(pod: Pod, status: str, reason: str, message: str | None = None) -> float | None:
    """Return the lastTransitionTime of this condition of a pod; None if the pod does not have it."""
    for condition in pod.status.conditions:
        if condition.type == names.POD_BOUND_CONDITION:
            says = (condition.status, condition.reason) == (status, reason)
            return condition.last_transition_time if says and message in {None, condition.message} else None
    return None


def _condition(status: str, reason: str, message: str, *, since: float, now: float) -> dict[str, Any]:
    """Return the strategic patch that sets the condition; lastProbeTime makes it differ every time."""
    condition = {
        "type": names.POD_BOUND_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": instant_text(since),
        "lastProbeTime": instant_text(now),
    }
    return {"status": {"conditions": [condition]}}
