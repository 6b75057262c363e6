"""The table of all checks, in display order, and three checks of its own.

`queue_access`: whether permissions that queues declare are enforced, and jobs keep to them.

`user_notes`: whether users are noted where queues limit them.

`leftovers`: whether KAI-Scheduler's operator left anything under the names of kai's Deployments. The names are equal on
purpose. Applying a manifest to an existing Deployment merges containers by name and keeps owners. So KAI-Scheduler's
program may run beside kai in one pod, and deleting KAI-Scheduler's Config may delete kai.

Checks of admission: webhooks, their certificates, and admission policies.
"""

from __future__ import annotations

import base64
import binascii
import math
import ssl
from typing import TYPE_CHECKING, Any, Final

from kai.api import names
from kai.api.conventions.queue_rules import Admits, limits_users
from kai.api.kubernetes.pod import ENDED
from kai.basics.parsing import list_of, part_of, text_of
from kai.basics.wording import counted, first_of
from kai.doctor import installation, surroundings, workloads
from kai.doctor.seen import (
    PART_OF,
    Check,
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
        # Absent means Fail in admissionregistration.k8s.io/v1.
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
    # A cluster that shares no GPU may do without admission altogether.
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
        # A binding may also only warn or audit.
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
        # Absent is to be read as ready: so says the API of EndpointSlices.
        part_of(endpoint, "conditions", "ready") is not False
        for each in seen.all("endpointslices")
        if labels_of(each).get(_SERVICE) == service and text_of(each, "metadata", "namespace") == namespace
        for endpoint in list_of(each, "endpoints")
    )


def _end_of(bundle: str) -> float | None:
    """Return when the last certificate of a CA bundle expires, infinity if none says so; None for an invalid bundle."""
    try:
        # A context is what the standard library reads certificates with; it also refuses what is none.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=base64.b64decode(bundle, validate=True).decode("ascii"))
    except (ssl.SSLError, binascii.Error, ValueError):
        return None
    ends = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs() if "notAfter" in each]
    # A bundle may hold an old and a new authority while certificates are renewed: it does until the last has ended.
    return max(ends, default=math.inf)


_FLAG: Final = "queue-access"
_KEYS: Final = (names.ALLOWED_NAMESPACES, names.ALLOWED_NAMESPACE_LABELS)


def queue_access(seen: Seen) -> Looked:
    """Check that jobs are in queues that allow their namespaces, where a scheduler enforces that."""
    said = {
        name_of(each): {key: str(value) for key, value in annotations_of(each).items()} for each in seen.all("queues")
    }
    required = [each for each in seen.programs() if each.flags.get(_FLAG) == "required"]
    if not required:
        return Looked(well="each namespace may use each queue", findings=_not_asked_for(said))
    admitting = {name: Admits.of(annotations) for name, annotations in said.items()}
    labels = {name_of(each): labels_of(each) for each in seen.all("namespaces")}
    refused: dict[str, list[str]] = {}
    for each in seen.all("podgroups"):
        queue, namespace = text_of(each, "spec", "queue"), text_of(each, "metadata", "namespace")
        # A queue that does not exist is what D034 reports.
        if queue in admitting and not admitting[queue].admits(namespace, labels.get(namespace, {})):
            refused.setdefault(queue, []).append(key_of(each))
    problems = [
        failure(
            f"queue {queue} does not allow the namespaces of {counted(len(groups), 'job')}: {first_of(groups)}",
            f"kubectl annotate queue {queue} {names.ALLOWED_NAMESPACES}=NAMESPACE    or use another queue",
            about=f"queue/{queue}",
            found=first_of(groups),
        )
        for queue, groups in sorted(refused.items())
    ]
    well = f"{counted(len(said), 'queue')}: each allows the namespaces of its jobs"
    return Looked(well=well, findings=problems)


def _not_asked_for(said: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Return a finding if queues declare who may use them, and no scheduler enforces it."""
    saying = sorted(name for name, annotations in said.items() if any(key in annotations for key in _KEYS))
    if not saying:
        return []
    message = f"{counted(len(saying), 'queue')} ({first_of(saying)}) allow namespaces, and no scheduler requires it"
    help_text = f"kai run --{_FLAG}=required    deploy/components/queue-access; see docs/tenancy.md"
    return [warning(message, help_text, found=first_of(saying))]


_USER_NOTES: Final = "kai-user-notes"
"""The names of the webhook configuration, the policy and its binding in ``deploy/components/user-notes``."""


def user_notes(seen: Seen) -> Looked:
    """Check that users are noted, and notes cannot be forged, where queues limit what a user holds."""
    limiting = sorted(name_of(each) for each in seen.all("queues") if limits_users(each))
    if not limiting:
        return Looked(well="no queue limits users")
    lacking = {
        "webhook": ("mutating", "all jobs of a namespace count for one user"),
        "policy": ("policies", "a user may write the note of another"),
        "binding of the policy": ("policybindings", "a user may write the note of another"),
    }
    problems = [
        warning(
            f"{counted(len(limiting), 'queue')} ({first_of(limiting)}) limit users, and there is no {what}"
            f" {_USER_NOTES}: {effect}",
            "kubectl apply -k deploy/components/user-notes    or userNotes.enabled of the chart",
            found=first_of(limiting),
        )
        for what, (kind, effect) in lacking.items()
        if all(name_of(each) != _USER_NOTES for each in seen.all(kind))
    ]
    return Looked(well=f"{counted(len(limiting), 'queue')} limit users, who are noted", findings=problems)


_GROUP: Final = "kai.scheduler/"
_OURS: Final = "kai"
"""The name of the container in each Deployment of kai."""


def leftovers(seen: Seen) -> Looked:
    """Check that each Deployment of kai has no container and no owner of KAI-Scheduler."""
    operators = [text_of(each, "metadata", "namespace") for each in seen.all("deployments") if _is_operator(each)]
    stop = f"kubectl -n {operators[0]} scale deploy kai-operator --replicas=0; " if operators else ""
    problems: list[Finding] = []
    for each in seen.all("deployments"):
        # The owner decides, not the containers: a sidecar that a mesh injects is no leftover.
        owner = _owner(each)
        if labels_of(each).get(PART_OF) != "kai" or not owner:
            continue
        namespace, name = text_of(each, "metadata", "namespace"), name_of(each)
        others = [
            text_of(container, "name")
            for container in list_of(each, "spec", "template", "spec", "containers")
            if text_of(container, "name") != _OURS
        ]
        beside = f", and runs {first_of(others)} of KAI-Scheduler beside kai" if others else ""
        problems.append(
            failure(
                f"deployment {key_of(each)} still belongs to {owner} of KAI-Scheduler, is deleted with it{beside}",
                f"{stop}kubectl -n {namespace} delete deploy {name}    then apply kai (docs/migrating-from-kai-go.md)",
                about=f"deployment/{key_of(each)}",
                found=f"owner {owner}" + (f", containers {', '.join(sorted((*others, _OURS)))}" if others else ""),
                expected=f"no owner, container {_OURS}",
            )
        )
    return Looked(well="no Deployment of kai is left over from KAI-Scheduler", findings=problems)


def _owner(deployment: Manifest) -> str:
    """Return the object of KAI-Scheduler that owns a Deployment, as ``Kind name``; "" for none."""
    for owner in list_of(deployment, "metadata", "ownerReferences"):
        if text_of(owner, "apiVersion").startswith(_GROUP):
            return f"{text_of(owner, 'kind')} {text_of(owner, 'name')}"
    return ""


def _is_operator(deployment: Manifest) -> bool:
    # Absent means one replica.
    return name_of(deployment) == "kai-operator" and part_of(deployment, "spec", "replicas") != 0


CHECKS: Final = (
    Check(code="D001", title="API server", look=installation.api_server),
    Check(code="D002", title="own rights", look=installation.own_rights),
    Check(code="D003", title="kinds", look=installation.definitions, needs=("crds",)),
    Check(code="D004", title="programs", look=installation.programs, needs=("pods",)),
    Check(code="D005", title="rights of roles", look=installation.role_rights, needs=("pods", "reviews")),
    Check(code="D006", title="one scheduler a node pool", look=installation.one_scheduler, needs=("pods",)),
    Check(
        code="D007", title="KAI-Scheduler beside kai", look=installation.other_scheduler, needs=("pods", "deployments")
    ),
    Check(code="D008", title="leases", look=installation.leases, needs=("pods", "leases")),
    Check(code="D009", title="clocks", look=installation.clocks, needs=("leases",)),
    Check(code="D010", title="Python module", look=installation.module),
    Check(code="D011", title="left by KAI-Scheduler", look=leftovers, needs=("deployments",)),
    Check(
        code="D021",
        title="endpoints of webhooks",
        look=endpoints,
        needs=("validating", "mutating", "endpointslices"),
    ),
    Check(code="D022", title="certificates of webhooks", look=certificates, needs=("validating", "mutating")),
    Check(code="D023", title="admission policies", look=policies, needs=("policies", "policybindings")),
    Check(
        code="D024",
        title="webhooks",
        look=configurations,
        needs=("pods", "validating", "mutating"),
    ),
    Check(code="D031", title="tree of queues", look=workloads.queue_tree, needs=("queues",)),
    Check(code="D032", title="quotas", look=workloads.quotas, needs=("queues",)),
    Check(code="D033", title="jobs in parent queues", look=workloads.jobs_in_parents, needs=("queues", "podgroups")),
    Check(code="D034", title="jobs without a queue", look=workloads.jobs_without_queue, needs=("queues", "podgroups")),
    Check(code="D035", title="pods without a group", look=workloads.pods_without_group, needs=("pods",)),
    Check(code="D036", title="bind requests", look=workloads.bind_requests, needs=("bindrequests",)),
    Check(code="D037", title="GPU memory of nodes", look=workloads.gpu_memory, needs=("nodes", "pods")),
    Check(code="D038", title="namespace of reservations", look=workloads.reservations, needs=("pods", "namespaces")),
    Check(code="D039", title="node pools", look=workloads.pools, needs=("pods", "queues", "podgroups")),
    Check(
        code="D040",
        title="priority classes",
        look=workloads.priority_classes,
        needs=("priorityclasses", "podgroups"),
    ),
    Check(
        code="D041",
        title="who may use queues",
        look=queue_access,
        needs=("pods", "queues", "podgroups", "namespaces"),
    ),
    Check(code="D042", title="queues that go", look=workloads.leaving_queues, needs=("queues", "podgroups")),
    Check(code="D043", title="binds", look=workloads.refused_binds, needs=("pods",)),
    Check(
        code="D044",
        title="quotas of the namespace of reservations",
        look=surroundings.reservation_quotas,
        needs=("pods", "resourcequotas"),
    ),
    Check(code="D045", title="runtime classes", look=surroundings.runtime_classes, needs=("pods", "runtimeclasses")),
    Check(code="D046", title="GPUs that nodes offer", look=surroundings.offered_gpus, needs=("nodes",)),
    Check(code="D047", title="GPUs that pods hold", look=surroundings.held_gpus, needs=("nodes", "pods")),
    Check(code="D048", title="budgets", look=workloads.budgets, needs=("queues",)),
    Check(
        code="D049",
        title="notes of users",
        look=user_notes,
        needs=("queues", "mutating", "policies", "policybindings"),
    ),
)
