"""The two doors of admission: one request in, one response out.

Read this first, then one module for each kind: `pods`, `queues`, `podgroups`, `topologies`. Everything here is a pure
function of its arguments; what it needs from outside, a draw of characters and a look at another queue, is passed in.
An object that cannot be read is refused with the path of the bad value, never with a traceback.
"""

from __future__ import annotations

from kai.admission.gpusharing import Draw
from kai.admission.podgroups import validate_pod_group
from kai.admission.pods import mutate_pod, validate_pod
from kai.admission.queues import FindQueue, validate_queue
from kai.admission.review import ALLOWED, AdmissionRequest, AdmissionResponse, unreadable
from kai.admission.settings import AdmissionSettings
from kai.admission.topologies import validate_topology
from kai.api.values.bad_value import BadValue


def mutate(request: AdmissionRequest, settings: AdmissionSettings, draw: Draw) -> AdmissionResponse:
    """Return what the mutating webhook makes of an object; kinds other than Pod pass unchanged."""
    if request.kind != "Pod":
        return ALLOWED
    try:
        return mutate_pod(request, settings, draw)
    except BadValue as error:
        return unreadable(error)


def validate(request: AdmissionRequest, settings: AdmissionSettings, find_queue: FindQueue) -> AdmissionResponse:
    """Return whether the validating webhook lets a change of an object through; kinds without rules always pass."""
    try:
        match request.kind:
            case "Pod":
                return validate_pod(request, settings)
            case "Queue":
                return validate_queue(request, settings, find_queue)
            case "PodGroup":
                return validate_pod_group(request)
            case "Topology":
                return validate_topology(request)
            case _:
                return ALLOWED
    except BadValue as error:
        return unreadable(error)
