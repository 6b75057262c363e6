"""Keeping pods from helping themselves to GPUs through ``NVIDIA_VISIBLE_DEVICES``.

A container runtime for GPUs opens every device that the variable names, whether or not Kubernetes granted it. Where the
switch is on, a pod may set the variable only to a word that means none, and containers that were granted no GPU get it
set so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

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
        if not container.requests_device:
            draft.change_container(place, env=_void(draft.container(place), container))


def void_in_added(shape: PodShape, draft: PodDraft, known: Collection[str]) -> None:
    """Hide all GPUs from the ephemeral containers but those of ``known`` names, which cannot be changed any more."""
    for index, container in enumerate(shape.ephemeral_containers):
        if container.name not in known:
            fields = draft.ephemeral_containers[index]
            draft.ephemeral_containers[index] = {**fields, "env": _void(fields, container)}


def refuse_visible_devices(shape: PodShape) -> str:
    """Return why the pod's own setting of the variable is refused; empty if it is not."""
    return _refuse(container for _, container in _others(shape))


def refuse_in_added(shape: PodShape, known: Collection[str]) -> str:
    """Return why the setting of ephemeral containers of other than ``known`` names is refused; empty if it is not."""
    return _refuse(container for container in shape.ephemeral_containers if container.name not in known)


def _void(fields: Mapping[str, Any], container: ContainerShape) -> list[dict[str, Any]]:
    """Return the variables of a container with the one that hides all GPUs."""
    variables = list(fields.get("env") or ())
    for index, variable in enumerate(container.variables):
        if variable.name == gpu_sharing.VISIBLE_DEVICES:
            variables[index] = {**variables[index], "value": "void"}
            return variables
    return [*variables, {"name": gpu_sharing.VISIBLE_DEVICES, "value": "void"}]


def _refuse(containers: Iterable[ContainerShape]) -> str:
    for container in containers:
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
