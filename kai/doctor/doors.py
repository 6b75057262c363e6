"""Checks of admission: webhooks, their certificates, and admission policies."""

from __future__ import annotations

import base64
import binascii
import math
import ssl
from typing import TYPE_CHECKING, Any, Final

from kai.api import names
from kai.api.kubernetes.pod import ENDED
from kai.basics.parsing import list_of, part_of, text_of
from kai.basics.wording import counted, first_of
from kai.doctor.seen import (
    PART_OF,
    Finding,
    Looked,
    Manifest,
    Seen,
    annotations_of,
    failure,
    key_of,
    labels_of,
    name_of,
    warning,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POLICIES: Final = (
    *("kai-bindrequests", "kai-gpu-requests", "kai-grants", "kai-grants-of-bindings", "kai-bound-pods"),
    *("kai-podgroup-status", "kai-podgroup-trees", "kai-running-podgroups", "kai-terms"),
    *("kai-priority-classes-of-namespaces", "kai-priority-classes-of-quotas", "kai-preemptibility-of-namespaces"),
)
"""The admission policies of ``deploy/policies``."""
_SOON: Final = 7 * 86_400.0
_SERVICE: Final = "kubernetes.io/service-name"
_RENEW: Final = "kubectl apply -k deploy/components/certificates    or let kai make them; see docs/install.md#webhooks"
_INSTALL: Final = "kubectl apply -k deploy/    (its component webhooks), or helm upgrade; see docs/install.md#webhooks"
_SHARES: Final = frozenset({names.GPU_FRACTION, names.GPU_MEMORY})
_LACKING: Final = {
    "mutating": "pods that share a GPU are not prepared and cannot start",
    "validating": "what it would refuse early is let through, and fails later",
}
_KINDS: Final = {"validating": "validatingwebhookconfiguration", "mutating": "mutatingwebhookconfiguration"}


def endpoints(seen: Seen) -> Looked:
    """Check that a pod serves each webhook."""
    problems: list[Finding] = []
    count = 0
    for kind, config, hook in _hooks(seen):
        count += 1
        namespace, service = (text_of(hook, "clientConfig", "service", key) for key in ("namespace", "name"))
        if not service or _is_answered(seen, namespace, service):
            continue
        closed = text_of(hook, "failurePolicy") != "Ignore"
        message = f"webhook {text_of(hook, 'name')} of {name_of(config)} has no endpoint: service {namespace}/{service}"
        what = "the API server refuses what it is about" if closed else "what it would refuse is let through"
        severity = failure if closed else warning
        problems.append(
            severity(
                f"{message}; {what}",
                f"kubectl -n {namespace} get endpointslices -l {_SERVICE}={service}    or kubectl delete "
                f"{_KINDS[kind]} {name_of(config)}",
                about=f"{_KINDS[kind]}/{name_of(config)}",
            )
        )
    return Looked(well=f"{counted(count, 'webhook')}, all with an endpoint", findings=problems)


def configurations(seen: Seen) -> Looked:
    """Check that pods pass kai's webhooks: without the mutating one no pod can share a GPU."""
    kinds = [kind for kind, _, _ in _hooks(seen)]
    serves = any("admission" in each.roles for each in seen.programs())
    sharing = [key_of(each) for each in seen.all("pods") if _SHARES & annotations_of(each).keys() and _waits(each)]
    problems: list[Finding] = []
    if not kinds and not serves and not sharing:
        return Looked(well="no webhook of kai is installed, and no pod that waits shares a GPU")
    waits = f", as {counted(len(sharing), 'pod')} that wait{'s' if len(sharing) == 1 else ''} asked" if sharing else ""
    for kind, lacking in _LACKING.items():
        if kind not in kinds:
            message = f"kai has no {_KINDS[kind]}: {lacking}{waits if kind == 'mutating' else ''}"
            severity = failure if kind == "mutating" else warning
            problems.append(severity(message, _INSTALL, about=_KINDS[kind]))
    return Looked(well=f"{counted(len(kinds), 'webhook')} of kai, pods pass them", findings=problems)


def _waits(pod: Manifest) -> bool:
    return text_of(pod, "status", "phase") not in ENDED and not text_of(pod, "spec", "nodeName")


def certificates(seen: Seen) -> Looked:
    """Check that each webhook has a CA bundle that is valid and not about to expire."""
    problems: list[Finding] = []
    ends: list[float] = []
    count = 0
    for kind, config, hook in _hooks(seen):
        count += 1
        bundle, webhook = text_of(hook, "clientConfig", "caBundle"), f"webhook {text_of(hook, 'name')}"
        end = _end_of(bundle)
        said = ""
        if not bundle:
            said = f"{webhook} has no caBundle"
        elif end is None:
            said = f"the caBundle of {webhook} is no certificate"
        elif end < seen.now + _SOON:
            days = (end - seen.now) / 86_400
            when = f"ends in {days:.1f} days" if days >= 0 else f"ended {-days:.1f} days ago"
            said = f"the caBundle of {webhook} {when}"
        if said:
            severity = failure if end is None or end < seen.now else warning
            problems.append(severity(said, _RENEW, about=f"{_KINDS[kind]}/{name_of(config)}"))
        if end is not None and math.isfinite(end):
            ends.append(end)
    first = f", the first ends in {(min(ends) - seen.now) / 86_400:.0f} days" if ends else ""
    return Looked(well=f"{counted(count, 'webhook')} with a certificate that holds{first}", findings=problems)


def policies(seen: Seen) -> Looked:
    """Check that the admission policies exist that keep tenants from writing what only kai may write."""
    known = {name_of(each) for each in seen.all("policies")}
    bound = {
        text_of(each, "spec", "policyName")
        for each in seen.all("policybindings")
        if "Deny" in list_of(each, "spec", "validationActions")
    }
    absent = [name for name in POLICIES if name not in known]
    idle = [name for name in POLICIES if name in known and name not in bound]
    problems: list[Finding] = []
    if absent:
        problems.append(
            warning(
                f"admission policies are not installed: {first_of(absent)}",
                "kubectl apply -k deploy/policies    (what they keep tenants from is in docs/tenancy.md)",
                found=", ".join(absent),
            )
        )
    if idle:
        problems.append(
            warning(
                f"admission policies without a binding that denies refuse nothing: {first_of(idle)}",
                "kubectl apply -k deploy/policies",
            )
        )
    return Looked(well=f"{len(POLICIES)} admission policies installed and bound", findings=problems)


def _hooks(seen: Seen) -> Iterator[tuple[str, Manifest, Mapping[str, Any]]]:
    """Yield the webhooks of kai and of KAI-Scheduler, with the kind and the object that they are in."""
    for kind in _KINDS:
        for config in seen.all(kind):
            if labels_of(config).get(PART_OF) == "kai" or "kai-" in name_of(config):
                yield from ((kind, config, hook) for hook in list_of(config, "webhooks"))


def _is_answered(seen: Seen, namespace: str, service: str) -> bool:
    return any(
        part_of(endpoint, "conditions", "ready") is not False
        for each in seen.all("endpointslices")
        if labels_of(each).get(_SERVICE) == service and text_of(each, "metadata", "namespace") == namespace
        for endpoint in list_of(each, "endpoints")
    )


def _end_of(bundle: str) -> float | None:
    """Return when the last certificate of a CA bundle expires, infinity if none says so; None for an invalid bundle."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=base64.b64decode(bundle, validate=True).decode("ascii"))
    except (ssl.SSLError, binascii.Error, ValueError):
        return None
    ends = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs() if "notAfter" in each]
    return max(ends, default=math.inf)
