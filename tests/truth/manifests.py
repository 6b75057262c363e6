"""Objects as people write them, with the mistakes that people make; some of them are right."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from kai.api import names

Draw = st.DrawFn
Manifest = Mapping[str, Any]

_AMOUNTS = ("1", 1, "0", 0, "0.5", 0.5, "1e3", "-1", "x", 1.5, True, None, "1Gi", "", "1000m", "+1")
_ANNOTATIONS: Mapping[str, tuple[object, ...]] = {
    names.GPU_FRACTION: (
        *("0.5", "0.5", "0.25", "1", "1.0", "0", "-0.1", "1.5", "nan", "inf", "0x1p-2", " 0.5", "5e-1", "0.001", ".5"),
        *("+0.5", "0.5_0", "", "0.5m", "500m", "0.999", "0.01", "-0", 0.5, True, None),
    ),
    names.GPU_MEMORY: ("1000", "1000", "0", "-1", "+5", "1e3", "1Gi", "9223372036854775808", " 1", "", 500, None),
    names.GPU_FRACTION_DEVICES: ("1", "2", "2", "0", "-1", "x", "", "1.0", "+2", "02", "9223372036854775808", 2),
    names.GPU_FRACTION_CONTAINER: ("main", "main", "init", "side", "", None),
    names.MPS: ("true", "false", "", True),
    names.MIN_MEMBER: ("1", "2", "0", "-1", "x"),
    names.TOPOLOGY: ("t", "", "T!"),
    names.TOPOLOGY_REQUIRED: ("rack", "", "a b"),
}
_LABELS: Mapping[str, tuple[object, ...]] = {
    names.QUEUE: ("q", "q", "other", "", "Q!", 1, None),
    names.PRIORITY_CLASS: ("train", "inference", "trian", "", "P!"),
    names.PREEMPTIBILITY: ("preemptible", "non-preemptible", "Preemptible", ""),
    names.SUBGROUP: ("a", "b", ""),
}
_MINIMUMS = (1, 1, 1, 2, 3, 0, -1, "1", 1.5, 2**31, None)
_SHARES = (0, 4, 4, -1, 1.5, -2, "4", "x", None, True, 10**400)


@st.composite
def _some_of(draw: Draw, choices: Mapping[str, tuple[object, ...]], most: int) -> dict[str, object]:
    keys = draw(st.lists(st.sampled_from(sorted(choices)), max_size=most, unique=True))
    return {key: draw(st.sampled_from(choices[key])) for key in keys}


@st.composite
def _container(draw: Draw, name: str) -> Manifest:
    kinds = dict.fromkeys((names.NVIDIA_GPU, "nvidia.com/mig-1g.5gb", "amd.com/gpu", "cpu"), _AMOUNTS)
    parts = {key: draw(_some_of(kinds, 2)) for key in draw(st.sampled_from(((), ("limits",), ("limits", "requests"))))}
    resources: object = parts
    if draw(st.integers(0, 15)) == 0:
        resources = draw(st.sampled_from((None, [], "x", {"limits": None})))
    return {"name": name, "image": "i", "resources": resources}


@st.composite
def _template(draw: Draw) -> Manifest:
    containers: object = [draw(_container(name)) for name in draw(st.sampled_from((("main",), ("main", "side"))))]
    spec: dict[str, object] = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never"}
    if draw(st.integers(0, 3)) == 0:
        spec["initContainers"] = [draw(_container("init"))]
    if draw(st.integers(0, 15)) == 0:
        containers = draw(st.sampled_from((None, [], {}, "x", [None])))
    if draw(st.integers(0, 15)) == 0:
        spec["volumes"] = draw(st.sampled_from((None, [], [None], ["x"], {})))
    if draw(st.integers(0, 15)) == 0:
        spec["tolerations"] = [{"key": "k", "operator": "Exists"}] * 1025
    annotations: object = draw(_some_of(_ANNOTATIONS, 3))
    if draw(st.integers(0, 15)) == 0:
        annotations = draw(st.sampled_from((None, [], "x", {"long": "x" * 65_537})))
    return {
        "metadata": {"annotations": annotations, "labels": draw(_some_of(_LABELS, 2))},
        "spec": {**spec, "containers": containers},
    }


@st.composite
def pods(draw: Draw) -> Manifest:
    """Return a pod, or a workload that makes pods."""
    template = draw(_template())
    kind = draw(st.sampled_from(("Pod", "Job", "Deployment", "PyTorchJob")))
    if kind == "Pod":
        pod = {**template, "metadata": {"name": "p", **template["metadata"]}}
        return {"apiVersion": "v1", "kind": "Pod", **pod}
    labels = draw(_some_of(_LABELS, 2))
    head = {"kind": kind, "metadata": {"name": "w", "labels": labels, "annotations": draw(_some_of(_ANNOTATIONS, 2))}}
    if kind == "Job":
        return {"apiVersion": "batch/v1", **head, "spec": {"parallelism": 2, "template": template}}
    if kind == "Deployment":
        metadata = {**template["metadata"], "labels": {**template["metadata"]["labels"], "app": "w"}}
        spec = {key: value for key, value in template["spec"].items() if key != "restartPolicy"}
        inner = {"selector": {"matchLabels": {"app": "w"}}, "template": {"metadata": metadata, "spec": spec}}
        return {"apiVersion": "apps/v1", **head, "spec": inner}
    replicas = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": 2, "template": draw(_template())},
    }
    return {"apiVersion": "kubeflow.org/v1", **head, "spec": {"pytorchReplicaSpecs": replicas}}


@st.composite
def _sub_group(draw: Draw) -> Manifest:
    choices = {
        "parent": ("a", "b", "c", "c", "", None, "A"),
        "minMember": _MINIMUMS,
        "minSubGroup": _MINIMUMS,
        "topologyConstraint": (None, {}, {"topology": "t", "requiredTopologyLevel": "rack"}, "x"),
    }
    return {"name": draw(st.sampled_from(("a", "b", "c", "d", "d", "B", ""))), **draw(_some_of(choices, 3))}


@st.composite
def pod_groups(draw: Draw) -> Manifest:
    """Return a pod group, mostly with sub-groups."""
    choices = {
        "minMember": _MINIMUMS,
        "minSubGroup": _MINIMUMS,
        "priorityClassName": ("train", "", "X!", None, 1),
        "preemptibility": ("preemptible", "", "Preemptible", None),
        "topologyConstraint": (None, {"topology": "t", "requiredTopologyLevel": "rack"}, "x"),
        "queue": ("q", "", "Q!", None, 1),
    }
    spec = {"queue": "q", **draw(_some_of(choices, 3))}
    if draw(st.integers(0, 3)):
        spec["subGroups"] = draw(st.lists(_sub_group(), max_size=4))
    if draw(st.integers(0, 31)) == 0:
        spec["subGroups"] = draw(st.sampled_from((None, {}, "x", [None], [1])))
    return {"apiVersion": names.POD_GROUP_VERSION, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


@st.composite
def queues(draw: Draw) -> Manifest:
    """Return a queue."""
    amounts = {"quota": _SHARES, "limit": _SHARES, "overQuotaWeight": _SHARES}
    resources: object = {
        key: draw(_some_of(amounts, 3)) for key in draw(st.sampled_from(((), ("gpu",), ("gpu", "cpu"))))
    }
    if draw(st.integers(0, 3)) == 0:
        resources = draw(st.sampled_from((None, {}, [], "x", {"gpu": None}, {"gpu": 3})))
    choices = {"parentQueue": ("root", "q", "", None, 1), "priority": (1, None, "1", 2**40)}
    spec: object = {**draw(_some_of(choices, 2)), **({} if resources is None else {"resources": resources})}
    if draw(st.integers(0, 15)) == 0:
        spec = draw(st.sampled_from((None, [], "x")))
    return {"apiVersion": names.QUEUE_VERSION, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}


@st.composite
def topologies(draw: Draw) -> Manifest:
    """Return a topology."""
    choices = {
        "nodeLabel": ("zone", "rack", "x.io/zone", "", None, 1, "a b"),
        "alias": ("zone", "rack", "z", "z", "", None, 1),
    }
    spec: object = {"levels": draw(st.lists(_some_of(choices, 2), max_size=3))}
    if draw(st.integers(0, 15)) == 0:
        spec = draw(st.sampled_from((None, {}, {"levels": None}, {"levels": [None]}, {"levels": "x"})))
    return {"apiVersion": names.TOPOLOGY_VERSION, "kind": "Topology", "metadata": {"name": "t"}, "spec": spec}


def any_objects() -> st.SearchStrategy[list[Manifest]]:
    """Return a strategy of one to three objects of different kinds."""
    kinds = (pods(), pod_groups(), queues(), topologies())
    return st.lists(st.one_of(*kinds), min_size=1, max_size=3, unique_by=lambda each: str(each["kind"]))


__all__ = ["any_objects", "pod_groups", "pods", "queues", "topologies"]
