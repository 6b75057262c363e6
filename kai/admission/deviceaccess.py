"""Keeping pods from helping themselves to GPUs through ``NVIDIA_VISIBLE_DEVICES``.

A container runtime for GPUs opens every device that the variable names, whether or not Kubernetes granted it. Where the
switch is on, a pod may set the variable only to a word that means none, and containers that were granted no GPU get it
set so.
"""

from __future__ import annotations

from typing import Final

from kai.admission.podshape import ContainerShape, PodDraft, PodShape
from kai.api.conventions import gpu_sharing
from kai.api.conventions.gpu_sharing import ContainerPlace

_HARMLESS: Final = ("void", "none")


def void_visible_devices(shape: PodShape, draft: PodDraft) -> None:
    """Hide all GPUs from every container that asks for none; the one that shares GPUs is told its own later.

    Source: the peer sets the literal value of the first such variable and leaves a reference beside it in place, which
    the API server then refuses; so do we, since a silently dropped reference would surprise more.
    """
    for place, container in _others(shape):
        if container.requests_device:
            continue
        variables = list(draft.container(place).get("env") or ())
        for index, variable in enumerate(container.variables):
            if variable.name == gpu_sharing.VISIBLE_DEVICES:
                variables[index] = {**variables[index], "value": "void"}
                break
        else:
            variables.append({"name": gpu_sharing.VISIBLE_DEVICES, "value": "void"})
        draft.change_container(place, env=variables)


def refuse_visible_devices(shape: PodShape) -> str:
    """Return why the pod's own setting of the variable is refused; empty if it is not."""
    for _, container in _others(shape):
        for variable in container.variables:
            if variable.name != gpu_sharing.VISIBLE_DEVICES or variable.value in _HARMLESS:
                continue
            if variable.value:
                return (
                    f"container {container.name} has an environment variable NVIDIA_VISIBLE_DEVICES"
                    f" defined with a value of {variable.value}. This is forbidden due to conflicts with Nvidia's"
                    " device plugin. The only values that are allowed are 'void' or 'none'"
                )
            if variable.is_reference:
                return (
                    f"container {container.name} has an environment variable NVIDIA_VISIBLE_DEVICES defined with a"
                    " valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
                )
    return ""


def _others(shape: PodShape) -> list[tuple[ContainerPlace, ContainerShape]]:
    """Return all containers, init containers first, without the one that shares GPUs."""
    sharer = shape.sharing_place()
    containers = [(ContainerPlace(i, initial=True), c) for i, c in enumerate(shape.init_containers)]
    containers += [(ContainerPlace(i), c) for i, c in enumerate(shape.containers)]
    return [(place, container) for place, container in containers if place != sharer]
