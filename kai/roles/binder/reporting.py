"""The binder's reports on a bind: status of the request, condition of the pod, and event.

Nothing is reported before it is true: success after the API server confirmed the binding, and a failed attempt as
failed even if a retry follows.

Source: texts, reasons and the condition type are those of KAI-Scheduler. It writes the status only when the phase
changes, so it never counts more than one attempt; and while it retries, it reports success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kai.api import names
from kai.api.plans import Emit, Now, Plan, Reason, Ref, RefusedError, find, patch
from kai.api.values import instant_text
from kai.roles.binder.outcome import is_gone, order_for_sure

if TYPE_CHECKING:
    from kai.api.kubernetes.pod import Pod
    from kai.api.scheduling.bind_request import BindRequest

BOUND: Final = "Bound"
_ATTEMPTS: Final = 5
_LONGEST_REASON: Final = 1024


def write_status(request: BindRequest, status: dict[str, Any]) -> Plan[BindRequest | None]:
    """Write the status of a bind request and return the request; None if it is gone, or was never written.

    Raises: RefusedError, also while the kind is not served.
    """
    ref = Ref.to(request)
    current: BindRequest | None = request if request.metadata.uid else None
    for attempt in range(_ATTEMPTS):
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
