"""Nodes and topologies of the short form of a scenario as Kubernetes objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from kai.api import names
from kai.simulation.scenarios.validation import Values, boolean, mapping, texts

NODE_KEYS = ("gpu", "cpu", "memory", "pods", "labels", "taints", "ready", "cordoned", "gpu_memory", "resources")

Manifest = dict[str, Any]


def node(name: str, values: Values, place: str) -> Manifest:
    """Return a node: a large one, unless it says otherwise.

    Raises: InputError.
    """
    gpus = values.get("gpu", 0)
    amounts = {
        "cpu": str(values.get("cpu", 1000)),
        "memory": str(values.get("memory", "4Ti")),
        "pods": str(values.get("pods", 110)),
    }
    labels = {"kubernetes.io/hostname": name, **mapping(values.get("labels"), f"{place}.labels")}
    if gpus:
        amounts[names.NVIDIA_GPU] = str(gpus)
        labels[names.NODE_GPU_COUNT] = str(gpus)
    if "gpu_memory" in values:
        labels[names.NODE_GPU_MEMORY] = str(values["gpu_memory"])
    amounts |= {key: str(value) for key, value in mapping(values.get("resources"), f"{place}.resources").items()}
    ready = "True" if boolean(values, "ready", place, default=True) else "False"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {
            "unschedulable": boolean(values, "cordoned", place, default=False),
            "taints": [_taint(text) for text in texts(values.get("taints"), f"{place}.taints")],
        },
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": ready}]},
    }


def _taint(text: str) -> Manifest:
    """Return the taint that ``key=value:Effect`` stands for; without an effect it is NoSchedule."""
    head, _, effect = text.partition(":")
    key, _, value = head.partition("=")
    return {"key": key, "value": value, "effect": effect or "NoSchedule"}


def topology(name: str, levels: Sequence[str]) -> Manifest:
    """Return a topology of these levels, the widest first."""
    return {
        "apiVersion": names.TOPOLOGY_VERSION,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": level} for level in levels]},
    }


def node_names(objects: Sequence[Any]) -> list[str]:
    """Return the names of the nodes among objects; what is wrong with the others is said where they are read."""
    nodes = [each for each in objects if isinstance(each, Mapping) and each.get("kind") == "Node"]
    metadata = [each.get("metadata") for each in nodes]
    return [str(each["name"]) for each in metadata if isinstance(each, Mapping) and "name" in each]
