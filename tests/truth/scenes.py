"""For each reason code a small cluster in which the job ``g`` waits for it, and what each voice has to say there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.binding import at_rest, refusal_text
from kai.api.conventions.caps import REFUSED as REFUSED_BY_CAP
from kai.api.scheduling.pod_group import PodGroupCondition
from kai.api.scheduling.queue import DEEPEST_QUEUE
from kai.facts.model.placement import Past
from kai.framework.hooks import Dependence, NodeScore, PluginUse
from kai.intake import QueueAccess
from kai.lab.scenarios.scenario import read_short
from kai.lab.scenarios.shorthand import NOW
from tests.truth.voices import GROUP

if TYPE_CHECKING:
    from kai.answers.cases.case import Case

COARSE: Final = "PodSchedulingErrors"
QUEUES: Final[Mapping[str, Any]] = {"root": {"quota": 16}, "a": {"parent": "root", "quota": 16}}
_SHARES: Final = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 2}, "b": {"parent": "root", "quota": 2}}
_RACKS: Final[Mapping[str, Any]] = {
    "topologies": {"default": ["rack"]},
    "nodes": {"n1": {"gpu": 4, "labels": {"rack": "r1"}}, "n2": {"gpu": 4, "labels": {"rack": "r2"}}},
}
_ONE: Final[Mapping[str, Any]] = {"queue": "a", "each": {"gpu": 1}}
_FULL: Final[Mapping[str, Any]] = {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1"}
_THEIRS: Final = {"queue": "b", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"}
_TWO_RACKS: Final = {"queue": "a", "members": 2, "each": {"gpu": 2}, "topology": {"required": "rack"}}
WHY: Final = 'pods "gpu-reservation-x" is forbidden: exceeded quota: none'
REFUSED: Final = refusal_text(WHY, 3, "2026-01-01T12:00:08Z")


@attrs.frozen(kw_only=True)
class Scene:
    """A cluster in which the job waits for one reason.

    What is left out is the rule: the pod's condition is ``Unschedulable``, an event says so on pod and group, and the
    group's condition and the metric have the code itself, or `COARSE` where kai asks more to know the finer one.
    """

    groups: Mapping[str, Any]
    names: str
    """What each text has to name."""
    nodes: Mapping[str, Any] = attrs.field(factory=lambda: {"n1": {"gpu": 4}})
    queues: Mapping[str, Any] = attrs.field(factory=lambda: QUEUES)
    run: tuple[str, ...] = ("allocate", "reclaim")
    besides: Mapping[str, Any] = attrs.field(factory=dict)
    wire: str = ""
    """The reason of the group's condition, if it is not the code."""
    metric: str = ""
    """The reason of the metric, if it is not that of the condition."""
    pod: str = "Unschedulable"
    """The reason of the pod's condition; "" where it has none of kai's."""
    events: frozenset[tuple[str, str]] = frozenset({("Pod", "Unschedulable"), ("PodGroup", "Unschedulable")})
    own: str = ""
    """The code of conditions for a user without rights for the cluster, if it is not that of the group's condition."""
    doctor: str = ""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    more: tuple[PluginUse, ...] = ()
    past: Past = attrs.field(factory=Past)
    changed: Callable[[ClusterObjects], ClusterObjects] = lambda objects: objects
    """What is changed of the objects that the short form makes."""
    shown: Callable[[ClusterObjects], ClusterObjects] | None = None
    """What the scheduler is shown beside what is written."""

    def case(self) -> Case:
        """Return the cluster."""
        document: dict[str, Any] = {"about": "x", "cluster": {"nodes": self.nodes}, "queues": self.queues}
        document |= {"groups": {**self.groups}, "run": list(self.run), **self.besides}
        case = read_short(document, "voices")
        settings = attrs.evolve(case.settings, **self.settings)
        return attrs.evolve(case, objects=self.changed(case.objects), settings=settings, past=self.past)


@attrs.frozen
class Shy:
    """A plugin that takes out every node."""

    def open(self, session: object) -> list[NodeScore]:
        """Score each node with NaN."""
        del session
        return [NodeScore(lambda _, nodes: np.full(len(nodes), np.nan), depends=Dependence.SHAPE)]


def _with_group(**spec: Any) -> Callable[[ClusterObjects], ClusterObjects]:
    def change(objects: ClusterObjects) -> ClusterObjects:
        groups = [
            attrs.evolve(each, spec=attrs.evolve(each.spec, **spec)) if each.metadata.name == GROUP else each
            for each in objects.pod_groups
        ]
        return attrs.evolve(objects, pod_groups=tuple(groups))

    return change


def _elsewhere(objects: ClusterObjects) -> ClusterObjects:
    """Give queue ``a`` to another node pool."""
    queues = [
        attrs.evolve(each, metadata=attrs.evolve(each.metadata, labels={"pool": "x"}))
        if each.metadata.name == "a"
        else each
        for each in objects.queues
    ]
    return attrs.evolve(objects, queues=tuple(queues))


def _resting(objects: ClusterObjects) -> ClusterObjects:
    """Show the pods of the job at rest, as a scheduler does whose binds of them were refused."""
    pods = [at_rest(pod, REFUSED) if pod.metadata.name.startswith(f"{GROUP}-") else pod for pod in objects.pods]
    return attrs.evolve(objects, pods=tuple(pods))


def _leaving(objects: ClusterObjects) -> ClusterObjects:
    """Let the pods that run be deleted, and be there still."""
    pods = [
        attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, deletion_timestamp=NOW - 5.0))
        if pod.spec.node_name
        else pod
        for pod in objects.pods
    ]
    return attrs.evolve(objects, pods=tuple(pods))


def _annotated(key: str, value: str) -> Callable[[ClusterObjects], ClusterObjects]:
    def change(objects: ClusterObjects) -> ClusterObjects:
        groups = [
            attrs.evolve(
                each, metadata=attrs.evolve(each.metadata, annotations={**each.metadata.annotations, key: value})
            )
            for each in objects.pod_groups
        ]
        return attrs.evolve(objects, pod_groups=tuple(groups))

    return change


def _fixed(objects: ClusterObjects) -> ClusterObjects:
    """Make the job one that cannot be taken back, where its namespace may have no such job."""
    return _with_group(preemptibility="non-preemptible")(objects)


def _strange(objects: ClusterObjects) -> ClusterObjects:
    """Let the pods of the job name a sub-group that it does not have."""
    pods = [
        attrs.evolve(
            pod, metadata=attrs.evolve(pod.metadata, labels={**pod.metadata.labels, names.SUBGROUP: "stranger"})
        )
        for pod in objects.pods
    ]
    return attrs.evolve(objects, pods=tuple(pods))


def _over_its_limit(objects: ClusterObjects) -> ClusterObjects:
    """Let the job have ended at the limit of its run time."""
    condition = PodGroupCondition(
        type=names.TIME_LIMIT, status="True", reason=names.TIME_LIMIT, message="ran for 1h0m0s"
    )
    groups = [
        attrs.evolve(group, status=attrs.evolve(group.status, conditions=(condition,))) for group in objects.pod_groups
    ]
    return attrs.evolve(objects, pod_groups=tuple(groups))


_NONE: Final[frozenset[tuple[str, str]]] = frozenset()
_NOT_READY: Final = frozenset({("PodGroup", "NotReady")})
_CONTAINER: Final = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
_MAP: Final = {"containers": [_CONTAINER], "volumes": [{"name": "v", "configMap": {"name": "missing"}}]}
_OTHER_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}}
_GATE: Final = {"schedulingGates": [{"name": "example.com/hold"}]}
_BOUNDED: Final = {
    "nodes": {"n1": {"gpu": 4}},
    "objects": [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "default", "annotations": {names.ALLOWED_PREEMPTIBILITY: "preemptible"}},
        }
    ],
}
_DEEP: Final = {
    **{f"q{at}": {"parent": f"q{at - 1}"} if at else {} for at in range(DEEPEST_QUEUE + 1)},
    "a": {"parent": f"q{DEEPEST_QUEUE}"},
}
_CIRCLE: Final = {"a": {"parent": "b", "quota": 4}, "b": {"parent": "a", "quota": 4}}
_CAP: Final = {"parameters": {"evicted_gpus_per_cycle": 1}}
_LENT: Final = {"root": {}, "a": {"parent": "root", "quota": 8}, "b": {"parent": "root"}}
_MOVING: Final = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}

SCENES: Final[Mapping[str, Scene]] = {
    "PodGroupRefused": Scene(
        groups={"g": _ONE}, names="beyond a cap", changed=_annotated(REFUSED_BY_CAP, "its annotations are beyond a cap")
    ),
    "QueueNotAllowed": Scene(groups={"g": _ONE}, names="default", settings={"queue_access": QueueAccess.REQUIRED}),
    "PriorityNotAllowed": Scene(groups={"g": _ONE}, names="preemptible", changed=_fixed, besides={"cluster": _BOUNDED}),
    "TimeLimit": Scene(groups={"g": _ONE}, names="ran for 1h0m0s", changed=_over_its_limit),
    "QueueDoesNotExist": Scene(groups={"g": {**_ONE, "queue": "ghost"}}, names="ghost", doctor="D034"),
    "QueueOrphaned": Scene(
        groups={"g": _ONE}, names="ghost", queues={"a": {"parent": "ghost", "quota": 4}}, doctor="D031"
    ),
    "QueueCycle": Scene(groups={"g": _ONE}, names="a -> b -> a", queues=_CIRCLE, doctor="D031"),
    "QueueOfAnotherPool": Scene(
        groups={"g": _ONE}, names="another node pool", settings={"node_pool_label": "pool"}, changed=_elsewhere
    ),
    "QueueNotLeaf": Scene(groups={"g": {**_ONE, "queue": "root"}}, names="root", doctor="D033"),
    "QueueTooDeep": Scene(groups={"g": _ONE}, names="nested", queues=_DEEP),
    "SubGroupsInvalid": Scene(
        groups={
            "g": {
                "queue": "a",
                "subgroups": {
                    "x": {"members": 2, "parent": "y", "each": {"gpu": 1}},
                    "y": {"members": 1, "parent": "x"},
                },
            }
        },
        names="x",
    ),
    "UnknownSubGroup": Scene(
        groups={"g": _ONE}, names="stranger", changed=_strange, wire=COARSE, metric="UnknownSubGroup"
    ),
    "Gated": Scene(
        groups={"g": {**_ONE, "spec": _GATE}},
        names="gate",
        wire=" ",
        own="Gated",
        metric="Gated",
        pod="",
        events=_NOT_READY,
    ),
    "NotReady": Scene(
        groups={"g": {**_ONE, "members": 1}},
        names="3",
        changed=_with_group(min_member=3),
        wire=" ",
        own="NotReady",
        metric="NotReady",
        pod="",
        events=_NOT_READY,
    ),
    "BindRefused": Scene(
        groups={"g": _ONE},
        names="exceeded quota: none; the next try is at 2026-01-01T12:00:08Z",
        shown=_resting,
        pod="BindRefused",
        events=_NONE,
        doctor="D043",
    ),
    "NoNodes": Scene(groups={"g": _ONE}, names="node", nodes={}, wire=COARSE),
    "NoNodeLargeEnough": Scene(groups={"g": {"queue": "a", "each": {"gpu": 8}}}, names="GPU", wire=COARSE),
    "GpuMemoryUnknown": Scene(
        groups={"g": {"queue": "a", "each": {"gpu_memory": 30000}}}, names="node", wire=COARSE, doctor="D037"
    ),
    "ClusterTooSmall": Scene(groups={"g": {**_ONE, "members": 5}}, names="5", wire=COARSE, own="GangDoesNotFit"),
    "TopologyMissing": Scene(
        groups={"g": {**_ONE, "members": 2, "topology": {"name": "none", "required": "rack"}}},
        names="none",
        wire=COARSE,
        metric="TopologyMissing",
    ),
    "TopologyLevelMissing": Scene(
        groups={"g": {**_ONE, "members": 2, "topology": {"required": "row"}}},
        names="row",
        besides={"cluster": _RACKS},
        wire=COARSE,
        metric="TopologyLevelMissing",
    ),
    "DomainTooSmall": Scene(
        groups={"g": {"queue": "a", "members": 2, "each": {"gpu": 4}, "topology": {"required": "rack"}}},
        names="r",
        besides={"cluster": _RACKS},
        wire=COARSE,
        metric="TopologyHasNoRoom",
    ),
    "OverLimit": Scene(
        groups={"g": {"queue": "a", "each": {"gpu": 3}}},
        names="2",
        queues={"root": {"quota": 4}, "a": {"parent": "root", "quota": 1, "limit": 2}},
    ),
    "OverUserLimit": Scene(
        groups={"g": {"queue": "a", "user": "maria", "each": {"gpu": 3}}},
        names="maria",
        queues={"root": {"quota": 4}, "a": {"parent": "root", "quota": 4, "per_user": 2}},
    ),
    "OverModelLimit": Scene(
        groups={"g": {"queue": "a", "each": {"gpu": 3}}},
        names="h100",
        nodes={"n1": {"gpu": 4, "model": "h100"}},
        queues={"root": {"quota": 4}, "a": {"parent": "root", "quota": 4, "models": {"h100": 2}}},
    ),
    "NonPreemptibleOverQuota": Scene(
        groups={"g": {"queue": "a", "preemptible": False, "each": {"gpu": 3}}},
        names="1 GPU",
        queues={"root": {"quota": 4}, "a": {"parent": "root", "quota": 1}},
    ),
    "PodRefused": Scene(
        groups={"g": {**_ONE, "spec": _MAP}},
        names="missing",
        besides={"cluster": {"nodes": {"n1": {"gpu": 4}}, "objects": [_OTHER_MAP]}},
        wire=COARSE,
    ),
    "NoNodeMatches": Scene(groups={"g": _ONE}, names="1", nodes={"n1": {"gpu": 4, "cordoned": True}}, wire=COARSE),
    "EvictionsCapped": Scene(
        groups={"theirs": {**_THEIRS, "members": 1, "each": {"gpu": 4}}, "g": {"queue": "a", "each": {"gpu": 4}}},
        names="evicted_gpus_per_cycle",
        queues=_LENT,
        besides=_CAP,
    ),
    "VictimsProtected": Scene(
        groups={"low": {**_FULL, "priority": 40}, "g": {"queue": "a", "priority": 60, "each": {"gpu": 4}}},
        names="1 job",
        run=("allocate", "preempt"),
        past=Past(protected=("low-0",)),
    ),
    "TopologyHasNoRoom": Scene(
        groups={
            "held": {"queue": "a", "members": 2, "minimum": 1, "each": {"gpu": 3}, "runs_on": ["n1", "n2"]},
            "g": _TWO_RACKS,
        },
        names="rack",
        besides={"cluster": _RACKS},
        wire=COARSE,
        metric="TopologyHasNoRoom",
    ),
    "GangDoesNotFit": Scene(
        groups={"full": {**_FULL, "each": {"gpu": 2}}, "g": {**_ONE, "members": 3}},
        names="2",
        wire=COARSE,
        own="GangDoesNotFit",
    ),
    "AtFairShare": Scene(
        groups={"theirs": _THEIRS, "g": {"queue": "a", "each": {"gpu": 3}}}, names="GPU", queues=_SHARES, wire=COARSE
    ),
    "ModelOwedToOthers": Scene(
        groups={"theirs": {**_THEIRS, "members": 4}, "g": _ONE},
        names="GPU",
        nodes={"n1": {"gpu": 4, "model": "h100"}},
        queues={
            "root": {"quota": 8},
            "a": {"parent": "root", "quota": 4},
            "b": {"parent": "root", "quota": 4, "models": {"h100": {"quota": 4}}},
        },
        wire=COARSE,
    ),
    "PreemptionDelayNotElapsed": Scene(
        groups={"theirs": _THEIRS, "g": {**_ONE, "preemption_delay": "2h"}}, names="2h", queues=_SHARES
    ),
    "NoScore": Scene(groups={"g": _ONE}, names="", more=(PluginUse(name="shy", plugin=Shy()),), wire=COARSE),
    "NoRoom": Scene(groups={"full": _FULL, "g": _ONE}, names="node", run=("allocate",), wire=COARSE),
    "NotTried": Scene(
        groups={"g": _ONE}, names="", run=("stalegangeviction",), wire=" ", own=COARSE, metric="NotTried"
    ),
    "HeldForLeaving": Scene(
        groups={"full": _FULL, "g": _ONE}, names="n1", changed=_leaving, pod="HeldForLeaving", events=_NONE
    ),
}
ELSEWHERE: Final[Mapping[str, str]] = {
    "PodSchedulingErrors": "what conditions say of finer reasons, which the scenes have",
    "Plugin": "a scheduler makes it of failures of many cycles",
    "WaitsForTurn": "what is decided anew for a reader considers all groups at once",
    "BudgetUsed": "what budgets have spent comes from a history, which these clusters do not have",
    "TriesSpent": "takes hundreds of sets of nodes to make",
    "Moves": "pods of it have nodes, so that no condition says why they wait",
}
"""Codes that no scene has, and why."""


__all__ = ["COARSE", "ELSEWHERE", "SCENES", "Scene"]
