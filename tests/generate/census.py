"""Tell which features a finished scenario shows, by its objects alone.

A scenario may have a feature drawn and yet show nothing of it, when chance left it out everywhere. What is counted here
is what a scheduler gets to see.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

Object = Mapping[str, Any]
Scenario = Mapping[str, Any]


def of_kind(scenario: Scenario, kind: str) -> list[Object]:
    """List the objects of a kind."""
    return [each for each in scenario["objects"] if each["kind"] == kind]


def _pods(test: Callable[[Object], object]) -> Callable[[Scenario], bool]:
    return lambda scenario: any(test(pod) for pod in of_kind(scenario, "Pod"))


def _groups(test: Callable[[Object], object]) -> Callable[[Scenario], bool]:
    return lambda scenario: any(test(group) for group in of_kind(scenario, "PodGroup"))


def _nodes(test: Callable[[Object], object]) -> Callable[[Scenario], bool]:
    return lambda scenario: any(test(node) for node in of_kind(scenario, "Node"))


def _queues(test: Callable[[Object], object]) -> Callable[[Scenario], bool]:
    return lambda scenario: any(test(queue) for queue in of_kind(scenario, "Queue"))


def _claims(test: Callable[[Object], object]) -> Callable[[Scenario], bool]:
    return lambda scenario: any(test(claim) for claim in of_kind(scenario, "ResourceClaim"))


def _annotated(key: str) -> Callable[[Scenario], bool]:
    return _pods(lambda pod: key in pod["metadata"].get("annotations", {}))


def _requests(pod: Object) -> Mapping[str, str]:
    return pod["spec"]["containers"][0]["resources"].get("requests", {})


def _is_cpu_only(pod: Object) -> bool:
    shares = any(key.startswith("gpu-") for key in pod["metadata"].get("annotations", {}))
    devices = any(key.startswith("nvidia.com/") for key in _requests(pod)) or pod["spec"].get("resourceClaims")
    return bool(_requests(pod)) and not shares and not devices


def _waits(pod: Object) -> bool:
    return pod["status"]["phase"] == "Pending" and "nodeName" not in pod["spec"]


def _request_of(claim: Object) -> Object:
    return claim["spec"]["devices"]["requests"][0]["exactly"]


def _depths(scenario: Scenario) -> set[int]:
    parents = {queue["metadata"]["name"]: queue["spec"].get("parentQueue") for queue in of_kind(scenario, "Queue")}
    depths = set()
    for direct in parents.values():
        above, depth = direct, 1
        while above:
            above, depth = parents[above], depth + 1
        depths.add(depth)
    return depths


def _members(scenario: Scenario) -> dict[str, int]:
    """Count the pods of each group."""
    counts: dict[str, int] = {}
    for pod in of_kind(scenario, "Pod"):
        if group := pod["metadata"].get("annotations", {}).get("pod-group-name"):
            counts[group] = counts.get(group, 0) + 1
    return counts


def _is_elastic(scenario: Scenario) -> bool:
    members = _members(scenario)
    minima = ((group["metadata"]["name"], group["spec"].get("minMember")) for group in of_kind(scenario, "PodGroup"))
    return any(least is not None and members.get(name, 0) > least for name, least in minima)


def _has_unknown_queue(scenario: Scenario) -> bool:
    known = {queue["metadata"]["name"] for queue in of_kind(scenario, "Queue")}
    return any(group["spec"]["queue"] not in known for group in of_kind(scenario, "PodGroup"))


def _affinity(kind: str, when: str) -> Callable[[Scenario], bool]:
    return _pods(lambda pod: any(key.startswith(when) for key in pod["spec"].get("affinity", {}).get(kind, {})))


def _mig_strategy(strategy: str) -> Callable[[Scenario], bool]:
    return _nodes(lambda node: node["metadata"]["labels"].get("nvidia.com/mig.strategy") == strategy)


def _phase_of_claims(phase: str) -> Callable[[Scenario], bool]:
    return lambda s: any(each["status"]["phase"] == phase for each in of_kind(s, "PersistentVolumeClaim"))


SIGHTS: Final[Mapping[str, Callable[[Scenario], bool]]] = MappingProxyType(
    {
        "a whole GPU": _pods(lambda pod: "nvidia.com/gpu" in _requests(pod)),
        "a pod with CPU only": _pods(_is_cpu_only),
        "a fraction of a GPU": _annotated("gpu-fraction"),
        "a share by GPU memory": _annotated("gpu-memory"),
        "a share of several devices": _annotated("gpu-fraction-num-devices"),
        "a running pod on two shared devices": _pods(
            lambda pod: sum(key.startswith("runai-gpu-group") for key in pod["metadata"].get("labels", {})) > 1
        ),
        "a node of unknown GPU memory": _nodes(
            lambda node: node["metadata"]["labels"].get("nvidia.com/gpu.memory", "100") == "100"
        ),
        "a MIG request": _pods(lambda pod: any(key.startswith("nvidia.com/mig-") for key in _requests(pod))),
        "a legacy MIG pod": _annotated("nvidia.com/mig-1g.10gb"),
        "a node with mixed MIG": _mig_strategy("mixed"),
        "a node with single MIG": _mig_strategy("single"),
        "a claim by template": _claims(lambda claim: claim["metadata"].get("ownerReferences")),
        "a claim by name": _claims(lambda claim: not claim["metadata"].get("ownerReferences")),
        "an allocated claim": _claims(lambda claim: claim["status"].get("allocation")),
        "a claim used by two pods": _claims(lambda claim: len(claim["status"].get("reservedFor", ())) > 1),
        "a claim of several devices": _claims(lambda claim: _request_of(claim).get("count", 0) > 1),
        "a claim of all devices": _claims(lambda claim: _request_of(claim)["allocationMode"] == "All"),
        "a claim with a condition": _claims(lambda claim: _request_of(claim).get("selectors")),
        "a pod with several containers": _pods(lambda pod: len(pod["spec"]["containers"]) > 1),
        "a pod with init containers": _pods(lambda pod: pod["spec"].get("initContainers")),
        "a pod with overhead": _pods(lambda pod: pod["spec"].get("overhead")),
        "a best-effort pod": _pods(lambda pod: pod["status"]["qosClass"] == "BestEffort"),
        "a guaranteed pod": _pods(lambda pod: pod["status"]["qosClass"] == "Guaranteed"),
        "a gang": _groups(lambda group: (group["spec"].get("minMember") or 0) > 1),
        "an elastic group": _is_elastic,
        "a group without a minimum": _groups(lambda group: group["spec"].get("minMember") == 0),
        "sub-groups": _groups(lambda group: group["spec"].get("subGroups")),
        "nested sub-groups": _groups(
            lambda group: any("parent" in part for part in group["spec"].get("subGroups", ()))
        ),
        "a minimum of sub-groups": _groups(
            lambda group: any("minSubGroup" in part for part in (group["spec"], *group["spec"].get("subGroups", ())))
        ),
        "a required level": _groups(
            lambda group: "requiredTopologyLevel" in group["spec"].get("topologyConstraint", {})
        ),
        "a preferred level": _groups(
            lambda group: "preferredTopologyLevel" in group["spec"].get("topologyConstraint", {})
        ),
        "a level for a sub-group": _groups(
            lambda group: any("topologyConstraint" in part for part in group["spec"].get("subGroups", ()))
        ),
        "a topology of several levels": lambda s: any(
            len(each["spec"]["levels"]) > 1 for each in of_kind(s, "Topology")
        ),
        "roles in a group": _pods(
            lambda pod: {"kai.scheduler/task-priority", "ray.io/node-type"} & pod["metadata"]["labels"].keys()
        ),
        "queues on one level": lambda s: _depths(s) == {1},
        "queues on two levels": lambda s: max(_depths(s)) == 2,
        "queues on three levels": lambda s: max(_depths(s)) == 3,
        "a limit": _queues(lambda queue: queue["spec"]["resources"]["gpu"]["limit"] != -1),
        "an unlimited quota": _queues(lambda queue: queue["spec"]["resources"]["gpu"]["quota"] == -1),
        "different weights": _queues(lambda queue: queue["spec"]["resources"]["gpu"]["overQuotaWeight"] > 1),
        "a quota of CPU": _queues(lambda queue: queue["spec"]["resources"]["cpu"]["quota"] != -1),
        "a queue with priority": _queues(lambda queue: "priority" in queue["spec"]),
        "a protected run time": _queues(lambda queue: "reclaimMinRuntime" in queue["spec"]),
        "a group in no queue": _has_unknown_queue,
        "groups of different priority": lambda s: (
            len({group["spec"]["priorityClassName"] for group in of_kind(s, "PodGroup")}) > 1
        ),
        "explicit preemptibility": _groups(lambda group: "preemptibility" in group["spec"]),
        "a preemption delay": _groups(lambda group: "preemptionDelay" in group["spec"]),
        "a running pod": _pods(lambda pod: pod["status"]["phase"] == "Running"),
        "a releasing pod": lambda s: any(
            pod["metadata"].get("deletionTimestamp") == s["now"] for pod in of_kind(s, "Pod")
        ),
        "a stuck pod": lambda s: any(
            pod["metadata"].get("deletionTimestamp", s["now"]) < s["now"] for pod in of_kind(s, "Pod")
        ),
        "a stale gang": _groups(
            lambda group: "kai.scheduler/stale-podgroup-timestamp" in group["metadata"].get("annotations", {})
        ),
        "a gated pod": _pods(lambda pod: pod["spec"].get("schedulingGates")),
        "a finished pod": _pods(lambda pod: pod["status"]["phase"] in {"Succeeded", "Failed"}),
        "a bound pod that does not run": _pods(
            lambda pod: pod["status"]["phase"] == "Pending" and "nodeName" in pod["spec"]
        ),
        "a request to bind": lambda s: bool(of_kind(s, "BindRequest")),
        "a request to bind that failed": lambda s: any(
            each["status"]["phase"] == "Failed" for each in of_kind(s, "BindRequest")
        ),
        "a foreign pod": _pods(lambda pod: pod["spec"]["schedulerName"] != "kai-scheduler"),
        "a nominated node": _pods(lambda pod: pod["status"].get("nominatedNodeName")),
        "a node selector": _pods(lambda pod: pod["spec"].get("nodeSelector")),
        "required node affinity": _affinity("nodeAffinity", "required"),
        "preferred node affinity": _affinity("nodeAffinity", "preferred"),
        "a taint": _nodes(lambda node: node["spec"].get("taints")),
        "a toleration": _pods(lambda pod: pod["spec"].get("tolerations")),
        "a cordoned node": _nodes(lambda node: node["spec"].get("unschedulable")),
        "a node that is not ready": _nodes(lambda node: node["status"]["conditions"][0]["status"] != "True"),
        "a node under pressure": _nodes(
            lambda node: any(each["status"] == "True" for each in node["status"]["conditions"][1:])
        ),
        "a node for few pods": _nodes(lambda node: int(node["status"]["allocatable"]["pods"]) < 10),
        "a host port": _pods(lambda pod: pod["spec"]["containers"][0].get("ports")),
        "pod affinity": _affinity("podAffinity", "required"),
        "preferred pod affinity": _affinity("podAffinity", "preferred"),
        "pod anti-affinity": _affinity("podAntiAffinity", "required"),
        "a bound claim of storage": _phase_of_claims("Bound"),
        "an unbound claim of storage": _phase_of_claims("Pending"),
        "a pending pod with a volume somewhere": lambda s: (
            any(_waits(pod) and pod["spec"].get("volumes") for pod in of_kind(s, "Pod"))
            and any("nodeAffinity" in each["spec"] for each in of_kind(s, "PersistentVolume"))
        ),
        "a storage capacity": lambda s: bool(of_kind(s, "CSIStorageCapacity")),
        "NUMA zones": lambda s: bool(of_kind(s, "NodeResourceTopology")),
        "a recorded NUMA placement": _annotated("kai.scheduler/numa-placement-observed"),
        "several cycles": lambda s: s["cycles"] > 1,
        "pods that keep terminating": lambda s: bool(s.get("keepTerminating")),
        "settings of their own": lambda s: s["config"]["params"]["maxConsolidationPreemptees"] != -1,
        "a spreading strategy": lambda s: "tiers" in s["config"],
    }
)
"""What there is to be seen in scenarios, each with a test for one scenario."""


def census(scenarios: Iterable[Scenario]) -> dict[str, int]:
    """Count in how many of ``scenarios`` each sight is to be seen."""
    counts = dict.fromkeys(SIGHTS, 0)
    for scenario in scenarios:
        for name, is_seen in SIGHTS.items():
            counts[name] += bool(is_seen(scenario))
    return counts
