"""Clusters that are small and full of rules: each draw has bounds, gangs, parts of GPUs, taints, labels and racks."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from kai.lab.scenarios.shorthand import expand
from tests.truth.trial import Trial

Draw = st.DrawFn
Values = Mapping[str, Any]

_EACH = (
    {"gpu": 1},
    {"gpu": 1},
    {"gpu": 1},
    {"gpu": 2},
    {"gpu": 2},
    {"gpu": 4},
    {"fraction": 0.5},
    {"gpu_memory": 30000},
    {"fraction": 0.25, "devices": 2},
    {"cpu": 6},
    {"gpu": 1, "cpu": 12},
    {"nvidia.com/mig-1g.10gb": 1},
)
_NEAR = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
_SPECS: tuple[Values, ...] = (
    *({},) * 9,
    {"schedulingGates": [{"name": "x/y"}]},
    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NEAR]}}},
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NEAR]}}},
)
_MIG = {"resources": {"nvidia.com/mig-1g.10gb": 4}, "labels": {"nvidia.com/mig.strategy": "mixed"}}


@st.composite
def _node(draw: Draw, number: int) -> Values:
    if draw(st.integers(0, 9)) == 0:
        return {**_MIG, "cpu": 16}
    labels = {"rack": f"r{number // 2}", "kubernetes.io/hostname": f"node-{number}"}
    labels["kind"] = draw(st.sampled_from(("a", "b")))
    if draw(st.integers(0, 4)) == 0:
        del labels["rack"]
    return {
        "gpu": draw(st.sampled_from((2, 4, 4))),
        "cpu": draw(st.sampled_from((8, 16))),
        "gpu_memory": 40000,
        "labels": labels,
        "taints": draw(st.sampled_from(((), (), (), ("team=x",)))),
        "cordoned": draw(st.integers(0, 7)) == 0,
    }


@st.composite
def _queue(draw: Draw) -> Values:
    bounds: dict[str, Any] = {"parent": "root", "quota": draw(st.sampled_from((0, 2, 4, 8)))}
    if draw(st.booleans()):
        bounds["limit"] = draw(st.sampled_from((2, 4, 8)))
    if draw(st.integers(0, 3)) == 0:
        bounds["quota"] = {"gpu": bounds["quota"], "cpu": draw(st.sampled_from((4, 8)))}
    if draw(st.integers(0, 3)) == 0:
        bounds["reclaim_min_runtime"] = bounds["preempt_min_runtime"] = "2h"
    return bounds


@st.composite
def _group(draw: Draw, nodes: Mapping[str, Values]) -> Values:
    members = draw(st.integers(1, 4))
    group: dict[str, Any] = {
        "queue": draw(st.sampled_from(("a", "b", "c"))),
        "members": members,
        "minimum": draw(st.sampled_from((members, members, 1, 0))),
        "priority": draw(st.sampled_from((40, 50, 60))),
        "each": draw(st.sampled_from(_EACH)),
    }
    if draw(st.integers(0, 4)) == 0:
        group["preemptible"] = False
    if draw(st.integers(0, 3)) == 0:
        group["tolerates"] = ["team=x"]
    if draw(st.booleans()) and set(group["each"]) == {"gpu"}:
        large = [name for name, node in nodes.items() if node.get("gpu", 0) >= group["each"]["gpu"] * members]
        if large:
            return {**group, "runs_on": {draw(st.sampled_from(large)): members}}
    if draw(st.integers(0, 5)) == 0:
        group["selector"] = {"kind": draw(st.sampled_from(("a", "a", "b", "z")))}
    if draw(st.integers(0, 5)) == 0:
        group["topology"] = {draw(st.sampled_from(("required", "preferred"))): "rack"}
    if draw(st.integers(0, 7)) == 0:
        group["preemption_delay"] = "10m"
    return {**group, "spec": draw(st.sampled_from(_SPECS))}


@st.composite
def rich(draw: Draw) -> Trial:
    """Return a trial of two to five nodes, three queues and four to nine jobs."""
    nodes = {f"node-{number}": draw(_node(number)) for number in range(draw(st.integers(2, 5)))}
    queues: dict[str, Values] = {"root": {"quota": 24, "limit": draw(st.sampled_from((-1, -1, 12)))}}
    queues |= {name: draw(_queue()) for name in ("a", "b", "c")}
    groups = {f"job-{number}": draw(_group(nodes)) for number in range(draw(st.integers(4, 9)))}
    free = {name: node.get("gpu", 0) for name, node in nodes.items()}
    for group in groups.values():  # what runs fits
        for name, count in dict(group.get("runs_on", {})).items():
            free[name] -= count * group["each"]["gpu"]
            if free[name] < 0:
                free[name] += count * group["each"]["gpu"]
                del group["runs_on"]
    cluster = {"nodes": nodes, "topologies": {"default": ["rack"]}}
    short: dict[str, Any] = {"run": ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]}
    if draw(st.integers(0, 3)) == 0:
        short["parameters"] = {"evicted_gpus_per_cycle": draw(st.sampled_from((1, 4)))}
    objects = expand({"cluster": cluster, "queues": queues, "groups": groups}, "rich")
    return Trial({"name": "rich", "objects": objects, "short": short})
