"""The table of all checks, in display order, and two checks of its own.

`queue_access`: whether permissions that queues declare are enforced, and jobs keep to them.

`leftovers`: whether KAI-Scheduler's operator left anything under the names of kai's Deployments. The names are equal on
purpose. Applying a manifest to an existing Deployment merges containers by name and keeps owners. So KAI-Scheduler's
program may run beside kai in one pod, and deleting KAI-Scheduler's Config may delete kai.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kai.api import names
from kai.api.conventions.queue_access import Admits
from kai.basics.parsing import list_of, part_of, text_of
from kai.basics.wording import counted, first_of
from kai.doctor import doors, installation, surroundings, workloads
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
    from collections.abc import Mapping

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


_GROUP: Final = "kai.scheduler/"
_OURS: Final = "kai"
"""The name of the container in each Deployment of kai."""


def leftovers(seen: Seen) -> Looked:
    """Check that each Deployment of kai has no container and no owner of KAI-Scheduler."""
    operators = [text_of(each, "metadata", "namespace") for each in seen.all("deployments") if _is_operator(each)]
    stop = f"kubectl -n {operators[0]} scale deploy kai-operator --replicas=0; " if operators else ""
    problems: list[Finding] = []
    for each in seen.all("deployments"):
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
        look=doors.endpoints,
        needs=("validating", "mutating", "endpointslices"),
    ),
    Check(code="D022", title="certificates of webhooks", look=doors.certificates, needs=("validating", "mutating")),
    Check(code="D023", title="admission policies", look=doors.policies, needs=("policies", "policybindings")),
    Check(
        code="D024",
        title="webhooks",
        look=doors.configurations,
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
)
