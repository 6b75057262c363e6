"""Pods that share GPUs: references to the config maps in which the binder will say which devices they got.

Nothing is known about devices when a pod is admitted. So its container gets variables that read keys of a config map
that the binder makes before the pod is bound; the name is drawn here and kept in an annotation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kai.admission.podshape import PodDraft, PodShape
from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.gpu_sharing import ContainerPlace, SharedMaps

Draw: TypeAlias = Callable[[int], str]
"""Draws that many lower-case letters and digits; the only chance in admission, so it comes from outside."""

_VOLUME_NAME_LIMIT: Final = 63
_UNNAMED: Final = "pod"
_NOT_IN_A_DNS_LABEL: Final = re.compile(r"[^a-z0-9-]+")


def inject_references(shape: PodShape, draft: PodDraft, draw: Draw) -> None:
    """Let the container that shares GPUs read its devices and its portion from config maps to come.

    Holds: applied to its own result it changes nothing, since the names are kept, even if others have put containers
        before the one that has the references.
    """
    place = shape.sharing_place()
    if place is None:
        return
    if names.SHARED_GPU_CONFIG_MAP not in draft.annotations:
        draft.annotations[names.SHARED_GPU_CONFIG_MAP] = _draw_prefix(shape, place, draw)
    maps = _maps(shape, draft, place)
    if maps is None:
        return
    for key in (gpu_sharing.VISIBLE_DEVICES, gpu_sharing.NUM_OF_GPUS, gpu_sharing.GPU_PORTION):
        set_reference(draft, place, key, maps.capabilities)
    _set_volume(draft, maps.capabilities)
    _add_environment(draft, place, maps.environment)


def inject_memory_limit(shape: PodShape, draft: PodDraft) -> None:
    """Let the container that shares GPUs read its memory limit, once the binder has worked it out.

    Needs what `inject_references` chose. The key may stay absent: the binder writes none where the node does not tell
    the size of its GPUs.
    """
    place = shape.sharing_place()
    maps = None if place is None else _maps(shape, draft, place)
    if place is not None and maps is not None:
        set_reference(draft, place, gpu_sharing.CUDA_MEMORY_LIMIT, maps.capabilities, optional=True)


def _maps(shape: PodShape, draft: PodDraft, place: ContainerPlace) -> SharedMaps | None:
    return gpu_sharing.shared_maps(draft.annotations, place, shape.container(place).config_maps)


def set_reference(draft: PodDraft, place: ContainerPlace, key: str, config_map: str, **more: bool) -> None:
    """Make a variable of a container read the key of its own name in a config map, whatever it was before."""
    reference = {"key": key, "name": config_map, **more}
    kept = [variable for variable in draft.container(place).get("env") or () if variable.get("name") != key]
    variable: dict[str, Any] = {"name": key, "valueFrom": {"configMapKeyRef": reference}}
    draft.change_container(place, env=[*kept, variable])


def _add_environment(draft: PodDraft, place: ContainerPlace, config_map: str) -> None:
    sources = list(draft.container(place).get("envFrom") or ())
    if any((source.get("configMapRef") or {}).get("name") == config_map for source in sources):
        return
    sources.append({"configMapRef": {"name": config_map, "optional": False}})
    draft.change_container(place, envFrom=sources)


def _set_volume(draft: PodDraft, config_map: str) -> None:
    name = _volume_name(config_map)
    kept = [volume for volume in draft.volumes if volume.get("name") != name]
    draft.volumes = [*kept, {"name": name, "configMap": {"name": config_map}}]


def _volume_name(config_map: str) -> str:
    """Return the name of the volume that shows a config map: that of the map, as a DNS label."""
    return _NOT_IN_A_DNS_LABEL.sub("-", f"{config_map}-vol".lower()).strip("-")


def _draw_prefix(shape: PodShape, place: ContainerPlace, draw: Draw) -> str:
    """Return the common start of the names of a pod's config maps.

    The name of the first owner, or of the pod, which may have none yet, is cut so that the longest name made of the
    prefix fits: 13 characters go to the drawn part, its hyphens and ``-vol``, then ``shared-gpu``, the container's
    place and ``-evar``.
    """
    room = (
        _VOLUME_NAME_LIMIT
        - (gpu_sharing.MAP_DRAWN + 6)
        - len(gpu_sharing.MAP_SUFFIX)
        - (len(str(place.index)) + 1)
        - len("-evar")
    )
    base = (shape.name or shape.name_start) if shape.first_owner is None else shape.first_owner
    return f"{base[:room].rstrip('.-') or _UNNAMED}-{draw(gpu_sharing.MAP_DRAWN)}-{gpu_sharing.MAP_SUFFIX}"
