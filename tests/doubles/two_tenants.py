"""A cluster of two tenants, whose names are found wherever they are told, and what a cycle decides on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kai.answers.cases.case import Case
from kai.answers.cases.origin import Origin
from kai.answers.offline.run import simulate
from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_as
from kai.api.kinds import KINDS
from kai.dashboard.feed import EndedCycle
from kai.deciding.configuration.profile_reading import default_configuration
from kai.intake import IntakeSettings

NOW = 1_700_000_000.0
OURS, THEIRS = "amber", "cobalt"
SECRETS = ("cobalt", "zebra", "quokka", "walrus")
"""Parts of every name of the other tenant: namespace, jobs, queue, pods."""
NODES = ("basalt-1", "basalt-2")
Manifest = Mapping[str, Any]
_CLASSES = {kind.kind: kind.cls for kind in KINDS}


def _node(name: str, gpus: int, rack: str = "", slices: Mapping[str, str] = MappingProxyType({})) -> Manifest:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus), **slices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/rack": rack or f"rack-{name[-1]}"}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _queue(name: str, parent: str = "", quota: float = -1, limit: float = -1) -> Manifest:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    spec = {"resources": {"cpu": free, "memory": free, "gpu": gpu}, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _job(
    namespace: str, name: str, queue: str, gpus: int, node: str = "", pods: int = 1, resource: str = "nvidia.com/gpu"
) -> list[Manifest]:
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"queue": queue, "minMember": pods, "priorityClassName": "train"},
    }
    amounts = {"cpu": "1", "memory": "1Gi", resource: str(gpus)}
    made = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": namespace,
                "uid": f"uid-{name}-{number}",
                "annotations": {"pod-group-name": name},
            },
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
                **({"nodeName": node} if node else {}),
            },
            "status": {"phase": "Running" if node else "Pending"},
        }
        for number in range(pods)
    ]
    return [group, *made]


def manifests(limit: float = -1) -> list[Manifest]:
    """Return the cluster: each tenant has a queue of its own, and waits for what the other one has.

    ``limit``: GPUs that the queue of the other tenant may use.
    """
    return [
        *(_node(name, 4) for name in NODES),
        _queue("company", quota=8),
        _queue("team-amber", "company", quota=4),
        _queue("team-zebra", "company", quota=4, limit=limit),
        *_job(OURS, "ours-runs", "team-amber", 2, "basalt-1"),
        *_job(OURS, "ours-waits", "team-amber", 4, pods=2),
        *_job(THEIRS, "quokka", "team-zebra", 2, "basalt-1"),
        *_job(THEIRS, "walrus", "team-zebra", 4, "basalt-2"),
        *_job(THEIRS, "walrus-waits", "team-zebra", 2),
    ]


_PROFILE = "nvidia.com/mig-1g.10gb"


def sliced() -> list[Manifest]:
    """Return a node that is cut into slices, of which each tenant has some."""
    return [
        _node("basalt-3", 0, slices={_PROFILE: "7"}),
        *_job(OURS, "ours-sliced", "team-amber", 1, "basalt-3", pods=2, resource=_PROFILE),
        *_job(THEIRS, "quokka-sliced", "team-zebra", 3, "basalt-3", resource=_PROFILE),
    ]


def decided(made: Iterable[Manifest], *, took: float, phases: Mapping[str, float]) -> EndedCycle:
    """Return what a cycle decides on these objects; it took so many seconds, its phases as given."""
    case = Case(
        name="test",
        title="test",
        objects=collect([structure_as(_CLASSES[each["kind"]], each) for each in made]),
        now=NOW,
        configuration=default_configuration(),
        settings=IntakeSettings(),
        origin=Origin(type="service"),
    )
    return EndedCycle(outcome=simulate(case), took=took, phases=phases)


def ended_cycle(
    racks: int = 0,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    limit: float = -1,
    besides: Sequence[Manifest] = (),
) -> EndedCycle:
    """Return what a cycle decides on that cluster, with so many racks of 40 empty nodes besides, and labels by name.

    ``besides``: what else there is.
    """
    more = [_node(f"spare-{at}", 8, rack=f"rack-{at // 40 + 3}") for at in range(racks * 40)]
    made = [*manifests(limit), *more, *besides]
    for each in made:
        metadata = each["metadata"]
        metadata["labels"] = {**metadata.get("labels", {}), **(labels or {}).get(metadata["name"], {})}
    return decided(made, took=0.01, phases={"snapshot": 0.004, "allocate": 0.006})
