"""Restoring grants that were lost: what a pod was given is written on the pod, which its owner may edit.

Where the admission policies run, only kai may write a grant. Where they do not, the owner of a pod may delete it, or
put something else in its place. What was granted is then read from the bind request, as long as there is one, and
written again, so that all who read the pod go by it. A pod that was bound without a bind request has no second record:
it is read by its labels. That gives no GPU away, since it has whole ones or none, and those are in its specification.

Source: the peer has no grants.
"""

from __future__ import annotations

import attrs

from kai.api import names
from kai.api.conventions.grants import Grant, ordered_grant
from kai.api.kinds import title
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Plan, Ref, RefusedError, every, find, patch
from kai.api.scheduling.bind_request import BindRequest
from kai.api.values.bad_value import BadValue
from kai.binder.reading import UNGRANTED
from kai.binder.settings import BinderSettings
from kai.binder.sharers import granted, has_bound, misses_grant


@attrs.frozen(kw_only=True)
class Lost:
    """A pod whose grant was lost."""

    uid: str
    message: str
    """Which pod it is, what was found and what was expected."""
    is_restored: bool


def restore_grants(settings: BinderSettings) -> Plan[tuple[Lost, ...]]:
    """Return the running pods that have lost what was granted, after writing again what is known of it."""
    found = []
    for pod in (yield from every(Pod, among=UNGRANTED)):
        if misses_grant(pod, settings):
            lost = yield from _restored(pod)
            if lost is not None:
                found.append(lost)
    return tuple(found)


def _restored(pod: Pod) -> Plan[Lost | None]:
    metadata = pod.metadata
    text = metadata.annotations.get(names.GRANTED)
    request = yield from find(Ref(BindRequest, metadata.name, metadata.namespace))
    record = None
    if request is not None and has_bound(request, pod) and ordered_grant(request) is not None:
        record = granted(request)
    if text is None and record is None:
        return None  # it was bound by the peer, or before there were grants
    is_restored = record is not None and (yield from _is_written(pod, record))
    wanted = "what was granted when the pod was bound"
    message = str(BadValue(text, wanted, path=("metadata", "annotations", names.GRANTED)).of(title(pod)))
    return Lost(uid=metadata.uid, message=message, is_restored=is_restored)


def _is_written(pod: Pod, grant: Grant) -> Plan[bool]:
    """Write a grant and return whether that was possible: one pod that cannot be written must not hinder the others."""
    body = {"metadata": {"annotations": {names.GRANTED: grant.text}}}
    try:
        yield from patch(Ref.to(pod), body, uid=pod.metadata.uid)
    except RefusedError:
        return False
    return True
