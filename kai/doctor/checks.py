"""The table of all checks, in the order in which they are shown."""

from __future__ import annotations

from typing import Final

from kai.doctor import access, doors, installation, leftovers, surroundings, workloads
from kai.doctor.findings import Check

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
    Check(code="D011", title="left by KAI-Scheduler", look=leftovers.leftovers, needs=("deployments",)),
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
        look=access.queue_access,
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
